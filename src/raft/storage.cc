#include "raft/storage.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace raft {
namespace {
constexpr size_t kSlotsMin = 64;
}

MemoryStorage::MemoryStorage() : snapshot_(std::make_shared<const Snapshot>()), slots_(kSlotsMin) {}

absl::StatusOr<LogStorage::InitialState> MemoryStorage::Load() {
  return InitialState{.hard_state = hard_state_, .conf_state = snapshot_->metadata.conf_state};
}

std::optional<Term> MemoryStorage::TermAt(Index index) const {
  if (index == base_index_) return base_term_;
  if (index < base_index_ || index > LastIndex()) return std::nullopt;
  return Slot(index - FirstIndex()).term;
}

absl::Status MemoryStorage::Entries(Index low, Index high, uint64_t bytes_max,
                                    std::vector<Entry>* out) const {
  if (low < FirstIndex()) {
    return base::MakeStatus(absl::StatusCode::kOutOfRange, "entry {} is compacted, the first is {}",
                            low, FirstIndex());
  }
  CHECK_OP(low, <, high);
  CHECK_OP(high, <=, LastIndex() + 1);
  uint64_t bytes = 0;
  for (Index i = low; i < high; ++i) {
    const Entry& entry = Slot(i - FirstIndex());
    bytes += entry.EncodedBytes();
    if (i > low && bytes > bytes_max) break;
    out->push_back(entry);
  }
  return absl::OkStatus();
}

absl::StatusOr<SnapshotPtr> MemoryStorage::GetSnapshot() { return snapshot_; }

void MemoryStorage::Reserve(size_t count) {
  if (count <= slots_.size()) return;
  std::vector<Entry> grown(std::bit_ceil(count));
  for (size_t i = 0; i < size_; ++i) grown[i] = std::move(Slot(i));
  slots_ = std::move(grown);
  head_ = 0;
}

void MemoryStorage::TruncateBack(size_t new_size) {
  while (size_ > new_size) {
    Entry& last = Slot(--size_);
    payload_bytes_ -= last.PayloadBytes();
    last = Entry();
  }
}

size_t MemoryStorage::PrepareAppend(Index first, size_t count) {
  CHECK_OP(first, <=, LastIndex() + 1);
  const size_t skip = first < FirstIndex() ? std::min<size_t>(count, FirstIndex() - first) : 0;
  if (skip == count) return count;
  TruncateBack(first + skip - FirstIndex());
  Reserve(size_ + count - skip);
  return skip;
}

void MemoryStorage::PushBack(Entry entry) {
  DCHECK(entry.index == LastIndex() + 1);
  payload_bytes_ += entry.PayloadBytes();
  ++size_;
  Slot(size_ - 1) = std::move(entry);
}

void MemoryStorage::Append(std::span<const Entry> entries) {
  if (entries.empty()) return;
  for (size_t i = PrepareAppend(entries[0].index, entries.size()); i < entries.size(); ++i) {
    PushBack(entries[i]);
  }
}

void MemoryStorage::Append(std::vector<Entry>&& entries) {
  if (entries.empty()) return;
  for (size_t i = PrepareAppend(entries[0].index, entries.size()); i < entries.size(); ++i) {
    PushBack(std::move(entries[i]));
  }
}

absl::Status MemoryStorage::ApplySnapshot(SnapshotPtr snapshot) {
  if (snapshot_->metadata.index >= snapshot->metadata.index) {
    return base::MakeStatus(absl::StatusCode::kOutOfRange, "snapshot {} is not newer than {}",
                            snapshot->metadata.index, snapshot_->metadata.index);
  }
  TruncateBack(0);
  head_ = 0;
  base_index_ = snapshot->metadata.index;
  base_term_ = snapshot->metadata.term;
  snapshot_ = std::move(snapshot);
  return absl::OkStatus();
}

absl::StatusOr<SnapshotPtr> MemoryStorage::CreateSnapshot(Index index, const ConfState& conf_state,
                                                          Buffer data) {
  if (index <= snapshot_->metadata.index) {
    return base::MakeStatus(absl::StatusCode::kOutOfRange, "snapshot {} is not newer than {}",
                            index, snapshot_->metadata.index);
  }
  const std::optional<Term> term = TermAt(index);
  if (!term) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "snapshot {} is outside the log, which ends at {}", index, LastIndex());
  }
  snapshot_ = std::make_shared<const Snapshot>(
      Snapshot{.data = std::move(data),
               .metadata = {.conf_state = conf_state, .index = index, .term = *term}});
  return snapshot_;
}

absl::Status MemoryStorage::Compact(Index index) {
  if (index <= base_index_) {
    return base::MakeStatus(absl::StatusCode::kOutOfRange, "entry {} is compacted already", index);
  }
  if (index > LastIndex()) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "cannot compact up to {}, the log ends at {}", index, LastIndex());
  }
  base_term_ = Slot(index - FirstIndex()).term;
  for (; base_index_ < index; ++base_index_) {
    Entry& first = Slot(0);
    payload_bytes_ -= first.PayloadBytes();
    first = Entry();
    head_ = (head_ + 1) & (slots_.size() - 1);
    --size_;
  }
  // Give back the memory of a burst.
  if (slots_.size() > kSlotsMin && size_ < slots_.size() / 8) {
    std::vector<Entry> shrunk(std::max(kSlotsMin, std::bit_ceil(size_ * 2 + 1)));
    for (size_t i = 0; i < size_; ++i) shrunk[i] = std::move(Slot(i));
    slots_ = std::move(shrunk);
    head_ = 0;
  }
  return absl::OkStatus();
}

}  // namespace raft
