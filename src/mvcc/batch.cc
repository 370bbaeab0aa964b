#include "mvcc/batch.h"

#include <cstring>

#include "base/check.h"

namespace mvcc {

char* Batch::Allocate(size_t n) {
  if (n > free_bytes_) {
    // Blocks grow, so that a quiet server holds little and a busy one allocates seldom.
    if (block_bytes_ < (512u << 10)) block_bytes_ *= 2;
    const size_t size = n > block_bytes_ / 4 ? n : block_bytes_;
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(size));
    if (size == n) return blocks_.back().get();
    free_ = blocks_.back().get();
    free_bytes_ = size;
  }
  char* p = free_;
  free_ += n;
  free_bytes_ -= n;
  return p;
}

char* Batch::AppendRecord(Revision revision, bool tombstone, size_t value_bytes) {
  const size_t i = count_.load(std::memory_order_relaxed);
  DCHECK(i == 0 || record(i - 1).revision < revision);
  const auto [chunk, place] = Place(i);
  if (place == 0) chunks_[chunk] = std::make_unique<Entry[]>(kFirstChunk << chunk);
  const RevisionKeyBytes key(revision, tombstone);
  char* p = Allocate(key.view().size() + value_bytes);
  std::memcpy(p, key.view().data(), key.view().size());
  CHECK_OP(value_bytes, <, size_t{1} << 31);
  chunks_[chunk][place] = {revision, p, static_cast<uint32_t>(key.view().size()),
                           static_cast<uint32_t>(value_bytes)};
  count_.store(i + 1, std::memory_order_release);
  bytes_.fetch_add(value_bytes + sizeof(Entry) + kTombstoneKeyBytes, std::memory_order_relaxed);
  operation_count_.fetch_add(1, std::memory_order_relaxed);
  return p + key.view().size();
}

void Batch::Put(Bucket bucket, std::string_view key, std::optional<std::string_view> value) {
  {
    std::lock_guard lock(mutex_);
    Operations& operations = operations_[static_cast<size_t>(bucket)];
    auto it = operations.find(key);
    if (it == operations.end()) it = operations.emplace(std::string(key), std::nullopt).first;
    if (value.has_value()) {
      it->second = std::string(*value);
    } else {
      it->second.reset();
    }
  }
  if (!value.has_value()) deletes_.store(true, std::memory_order_relaxed);
  bytes_.fetch_add(key.size() + (value.has_value() ? value->size() : 0) + 128,
                   std::memory_order_relaxed);
  operation_count_.fetch_add(1, std::memory_order_relaxed);
}

size_t Batch::LowerBound(Revision revision, size_t count) const {
  if (count == 0) return 0;
  const Entry& first = record(0);
  if (revision <= first.revision) return 0;
  size_t low = 0;
  size_t high = count;
  // Most transactions change one key, so the distance in revisions is the distance in records.
  const auto guess = static_cast<uint64_t>(revision.main - first.revision.main);
  if (guess < count) {
    const Revision& there = record(guess).revision;
    if (there == revision) return guess;
    (there < revision ? low : high) = guess;
  }
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (record(middle).revision < revision) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

std::optional<std::string_view> Batch::Find(Revision revision) const {
  const size_t count = record_count();
  const size_t i = LowerBound(revision, count);
  if (i == count || record(i).revision != revision || record(i).tombstone()) return std::nullopt;
  return record(i).value();
}

std::optional<std::optional<std::string>> Batch::Get(Bucket bucket, std::string_view key) const {
  std::lock_guard lock(mutex_);
  const Operations& operations = operations_[static_cast<size_t>(bucket)];
  const auto it = operations.find(key);
  if (it == operations.end()) return std::nullopt;
  return it->second;
}

void Batch::CopyOperations(Bucket bucket, Operations* into) const {
  std::lock_guard lock(mutex_);
  for (const auto& [key, value] : operations_[static_cast<size_t>(bucket)]) {
    into->insert_or_assign(key, value);
  }
}

}  // namespace mvcc
