#include "mvcc/key_leaf.h"

#include <new>

#include "base/check.h"

namespace mvcc::internal {

size_t Leaf::PrefixBytes(std::string_view first_key, std::string_view last_key) {
  return std::min(CommonPrefix(first_key, last_key), kPrefixBytesMax);
}

size_t Leaf::EntryBytes(const Entry& entry, size_t prefix_bytes) {
  const size_t suffix = entry.key.size() - prefix_bytes;
  const size_t tail = suffix > kHeadBytes ? suffix - kHeadBytes : 0;
  return kSlotBytes + VarintBytes(suffix) + (tail > kTailBytesMax ? sizeof(uint64_t) : tail) +
         entry.state.size();
}

bool Leaf::Fits(std::span<const Entry> entries) {
  const size_t prefix_bytes = PrefixBytes(entries.front().key, entries.back().key);
  size_t bytes = prefix_bytes + 3;
  for (const Entry& entry : entries) bytes += EntryBytes(entry, prefix_bytes);
  return bytes <= kDataBytes;
}

Leaf* Leaf::Build(std::span<const Entry> entries) {
  Leaf* leaf = new Leaf;
  const size_t prefix_bytes = PrefixBytes(entries.front().key, entries.back().key);
  entries.front().key.copy(leaf->data_, prefix_bytes);
  leaf->prefix_bytes_ = static_cast<uint16_t>(prefix_bytes);
  leaf->count_ = static_cast<uint16_t>(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string_view suffix = entries[i].key.substr(prefix_bytes);
    const size_t bytes = EntryBytes(entries[i], prefix_bytes) - kSlotBytes;
    CHECK_OP(leaf->offsets_at() + 2 * entries.size() + bytes, <=, leaf->entries_at_);
    leaf->entries_at_ = static_cast<uint16_t>(leaf->entries_at_ - bytes);
    leaf->PutEntry(leaf->data_ + leaf->entries_at_, suffix, entries[i].state);
    leaf->heads()[i] = HeadOf(suffix);
    leaf->offsets()[i] = leaf->entries_at_;
    if (StateIsLive(entries[i].state.data())) ++leaf->live_;
  }
  return leaf;
}

void Leaf::Destroy(Leaf* leaf) {
  for (size_t i = 0; i < leaf->count_; ++i) {
    const Parts parts = leaf->PartsOf(i);
    if (parts.long_tail) delete[] parts.tail;
  }
  delete leaf;
}

size_t Leaf::LongKeyBytes(size_t index) const {
  constexpr size_t kHeapBlockOverhead = 16;
  const Parts parts = PartsOf(index);
  return parts.long_tail ? parts.suffix_bytes - kHeadBytes + kHeapBlockOverhead : 0;
}

size_t Leaf::long_key_bytes() const {
  size_t bytes = 0;
  for (size_t i = 0; i < count_; ++i) bytes += LongKeyBytes(i);
  return bytes;
}

char* Leaf::PutEntry(char* p, std::string_view suffix, std::string_view entry_state) {
  p = PutVarint(p, suffix.size());
  if (suffix.size() > kHeadBytes) {
    const std::string_view tail = suffix.substr(kHeadBytes);
    if (tail.size() > kTailBytesMax) {
      char* block = new char[tail.size()];
      std::memcpy(block, tail.data(), tail.size());
      base::StoreLe(p, reinterpret_cast<uintptr_t>(block));
      p += sizeof(uintptr_t);
    } else {
      std::memcpy(p, tail.data(), tail.size());
      p += tail.size();
    }
  }
  std::memcpy(p, entry_state.data(), entry_state.size());
  return p + entry_state.size();
}

Leaf::Parts Leaf::PartsOf(size_t index) const {
  const char* p = data_ + offsets()[index];
  Parts parts;
  parts.suffix_bytes = TakeVarint(p);
  const size_t tail_bytes = parts.suffix_bytes > kHeadBytes ? parts.suffix_bytes - kHeadBytes : 0;
  if (tail_bytes > kTailBytesMax) {
    parts.long_tail = true;
    parts.tail = reinterpret_cast<const char*>(base::LoadLe<uintptr_t>(p));
    parts.state = p + sizeof(uintptr_t);
  } else {
    parts.tail = p;
    parts.state = p + tail_bytes;
  }
  return parts;
}

const char* Leaf::state(size_t index) const { return PartsOf(index).state; }

int Leaf::CompareEqualHead(std::string_view suffix, size_t index) const {
  const Parts parts = PartsOf(index);
  // Where one of them ends within the head, zeros of the other or its padding took part, and the
  // shorter is the lower.
  if (suffix.size() > kHeadBytes && parts.suffix_bytes > kHeadBytes) {
    const int order = std::memcmp(suffix.data() + kHeadBytes, parts.tail,
                                  std::min(suffix.size(), parts.suffix_bytes) - kHeadBytes);
    if (order != 0) return order;
  }
  return suffix.size() < parts.suffix_bytes ? -1 : suffix.size() > parts.suffix_bytes ? 1 : 0;
}

Leaf::Position Leaf::Find(std::string_view key) const {
  const size_t common = std::min<size_t>(key.size(), prefix_bytes_);
  const int order = common == 0 ? 0 : std::memcmp(key.data(), data_, common);
  if (order < 0 || (order == 0 && key.size() < prefix_bytes_)) return {0, false};
  if (order > 0) return {count_, false};
  const std::string_view suffix = key.substr(prefix_bytes_);
  const uint32_t head = HeadOf(suffix);
  const uint32_t* all = heads();
  size_t low = LowerBoundHead(all, count_, head);
  if (low == count_ || all[low] != head) return {low, false};
  size_t high = low + 1;
  if (high < count_ && all[high] == head) {
    high = head == UINT32_MAX ? count_ : low + LowerBoundHead(all + low, count_ - low, head + 1);
  }
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const int against = CompareEqualHead(suffix, middle);
    if (against == 0) return {middle, true};
    if (against < 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return {low, false};
}

void Leaf::GetKey(size_t index, std::string* key) const {
  const Parts parts = PartsOf(index);
  char head[kHeadBytes];
  base::StoreBe32(head, heads()[index]);
  key->resize(prefix_bytes_ + parts.suffix_bytes);
  char* p = key->data();
  std::memcpy(p, data_, prefix_bytes_);
  p += prefix_bytes_;
  if (parts.suffix_bytes > kHeadBytes) {
    std::memcpy(p, head, kHeadBytes);
    std::memcpy(p + kHeadBytes, parts.tail, parts.suffix_bytes - kHeadBytes);
  } else {
    std::memcpy(p, head, parts.suffix_bytes);
  }
}

std::string Leaf::Key(size_t index) const {
  std::string key;
  GetKey(index, &key);
  return key;
}

size_t Leaf::LiveBefore(size_t index) const {
  if (live_ == count_) return index;
  size_t live = 0;
  for (size_t i = 0; i < index; ++i) live += StateIsLive(state(i)) ? 1 : 0;
  return live;
}

bool Leaf::Insert(size_t index, std::string_view key, std::string_view entry_state) {
  if (!key.starts_with(prefix())) return false;
  const size_t bytes = EntryBytes({key, entry_state}, prefix_bytes_);
  if (bytes > free_bytes()) return false;
  const std::string_view suffix = key.substr(prefix_bytes_);
  entries_at_ = static_cast<uint16_t>(entries_at_ - (bytes - kSlotBytes));
  PutEntry(data_ + entries_at_, suffix, entry_state);

  // The offsets move up by one head, those behind the new one by an offset more.
  char* const old_offsets = data_ + offsets_at();
  std::memmove(old_offsets + kHeadBytes + 2 * (index + 1), old_offsets + 2 * index,
               2 * (count_ - index));
  std::memmove(old_offsets + kHeadBytes, old_offsets, 2 * index);
  uint32_t* const all = heads();
  std::memmove(all + index + 1, all + index, kHeadBytes * (count_ - index));
  ++count_;
  all[index] = HeadOf(suffix);
  offsets()[index] = entries_at_;
  if (StateIsLive(entry_state.data())) ++live_;

  ascending_inserts_ = static_cast<uint16_t>(IsNextAscending(index) ? ascending_inserts_ + 1 : 0);
  last_insert_ = static_cast<uint16_t>(index);
  return true;
}

bool Leaf::SetState(size_t index, std::string_view new_state) {
  const size_t at = offsets()[index];
  const char* old_state = state(index);
  const size_t old_bytes = StateBytes(old_state);
  const size_t state_at = static_cast<size_t>(old_state - data_);
  if (new_state.size() > old_bytes + free_bytes()) return false;
  const bool was_live = StateIsLive(old_state);
  const bool is_live = StateIsLive(new_state.data());
  if (new_state.size() != old_bytes) {
    // What lies below the end of this entry moves down by the difference (or up, if it is
    // negative).
    const ptrdiff_t longer =
        static_cast<ptrdiff_t>(new_state.size()) - static_cast<ptrdiff_t>(old_bytes);
    std::memmove(data_ + entries_at_ - longer, data_ + entries_at_, state_at - entries_at_);
    uint16_t* const all = offsets();
    for (size_t i = 0; i < count_; ++i)
      all[i] = static_cast<uint16_t>(all[i] - (all[i] <= at ? longer : 0));
    entries_at_ = static_cast<uint16_t>(entries_at_ - longer);
    std::memcpy(data_ + (static_cast<ptrdiff_t>(state_at) - longer), new_state.data(),
                new_state.size());
  } else {
    std::memcpy(data_ + state_at, new_state.data(), new_state.size());
  }
  if (was_live && !is_live) --live_;
  if (!was_live && is_live) ++live_;
  return true;
}

}  // namespace mvcc::internal
