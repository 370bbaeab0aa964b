#include "raft/unstable.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace raft {
namespace {
// A vector that grew beyond this is not kept for the next batch.
constexpr size_t kKeptCapacityMax = 8192;
}  // namespace

std::optional<Term> Unstable::TermAt(Index index) const {
  if (index < first_) {
    if (snapshot_ && snapshot_->metadata.index == index) return snapshot_->metadata.term;
    return std::nullopt;
  }
  if (index >= next()) return std::nullopt;
  return entries_[index - first_].term;
}

std::span<const Entry> Unstable::Slice(Index low, Index high) const {
  CHECK_OP(first_, <=, low);
  CHECK_OP(low, <=, high);
  CHECK_OP(high, <=, next());
  return std::span(entries_).subspan(low - first_, high - low);
}

void Unstable::MarkInProgress() {
  in_progress_ = next();
  if (snapshot_) snapshot_in_progress_ = true;
}

void Unstable::Append(std::vector<Entry>&& entries) {
  const Index from = entries.front().index;
  CHECK_OP(from, <=, next());
  if (from <= first_) {
    // Nothing of the old tail survives, and storage will be told to overwrite from here.
    entries_ = std::move(entries);
    first_ = from;
    in_progress_ = from;
    return;
  }
  if (from == next() && entries_.empty()) {
    entries_ = std::move(entries);
    return;
  }
  entries_.resize(from - first_);
  in_progress_ = std::min(in_progress_, from);
  std::move(entries.begin(), entries.end(), std::back_inserter(entries_));
}

void Unstable::Restore(SnapshotPtr snapshot) {
  first_ = snapshot->metadata.index + 1;
  in_progress_ = first_;
  entries_.clear();
  snapshot_ = std::move(snapshot);
  snapshot_in_progress_ = false;
}

void Unstable::StableUpTo(EntryId id) {
  if (id.index < first_ || id.index >= next() || entries_[id.index - first_].term != id.term)
    return;
  const size_t count = id.index + 1 - first_;
  if (count == entries_.size()) {
    entries_.clear();
    if (entries_.capacity() > kKeptCapacityMax) entries_.shrink_to_fit();
  } else {
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(count));
  }
  first_ = id.index + 1;
  in_progress_ = std::max(in_progress_, first_);
}

void Unstable::SnapshotStable(Index index) {
  if (!snapshot_ || snapshot_->metadata.index != index) return;
  snapshot_ = nullptr;
  snapshot_in_progress_ = false;
}

}  // namespace raft
