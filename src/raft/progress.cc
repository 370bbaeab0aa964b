#include "raft/progress.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace raft {

void Inflights::Add(Index last, uint64_t bytes) {
  CHECK(!full());
  if (count_ == ring_.size()) {
    std::vector<Append> grown(std::min(count_max_, std::max<size_t>(8, ring_.size() * 2)));
    for (size_t i = 0; i < count_; ++i) grown[i] = ring_[(start_ + i) % ring_.size()];
    ring_ = std::move(grown);
    start_ = 0;
  }
  ring_[(start_ + count_) % ring_.size()] = {.last = last, .bytes = bytes};
  ++count_;
  bytes_ += bytes;
}

void Inflights::FreeUpTo(Index index) {
  while (count_ > 0 && ring_[start_].last <= index) {
    bytes_ -= ring_[start_].bytes;
    start_ = (start_ + 1) % ring_.size();
    --count_;
  }
}

void Inflights::Clear() {
  start_ = 0;
  count_ = 0;
  bytes_ = 0;
}

void Progress::Enter(ProgressState state) {
  state_ = state;
  append_paused_ = false;
  pending_snapshot_ = 0;
  inflights_.Clear();
}

void Progress::LowerNext(Index next) {
  next_ = next;
  // What was sent beyond is taken for lost, and with it the commit index it would have carried.
  sent_commit_ = std::min(sent_commit_, next_ - 1);
}

void Progress::BecomeProbe() {
  // After a snapshot that arrived, probing begins behind it.
  const Index snapshot = state_ == ProgressState::kSnapshot ? pending_snapshot_ : 0;
  Enter(ProgressState::kProbe);
  LowerNext(std::max(match_, snapshot) + 1);
}

void Progress::BecomeReplicate() {
  Enter(ProgressState::kReplicate);
  next_ = match_ + 1;
}

void Progress::BecomeSnapshot(Index snapshot_index) {
  Enter(ProgressState::kSnapshot);
  pending_snapshot_ = snapshot_index;
  next_ = snapshot_index + 1;
  sent_commit_ = snapshot_index;
}

void Progress::AbortSnapshot() {
  pending_snapshot_ = 0;
  BecomeProbe();
}

void Progress::Sent(size_t count, uint64_t bytes, Index commit) {
  if (state_ == ProgressState::kReplicate) {
    if (count > 0) {
      next_ += count;
      inflights_.Add(next_ - 1, bytes);
    }
    append_paused_ = inflights_.full();
  } else if (count > 0) {
    append_paused_ = true;
  }
  sent_commit_ = commit;
}

bool Progress::Acknowledge(Index index) {
  if (index <= match_) return false;
  match_ = index;
  next_ = std::max(next_, index + 1);
  append_paused_ = false;
  return true;
}

bool Progress::Reject(Index rejected, Index hint) {
  if (state_ == ProgressState::kReplicate) {
    if (rejected <= match_) return false;
    LowerNext(match_ + 1);
    return true;
  }
  if (next_ - 1 != rejected) return false;
  LowerNext(std::max(std::min(rejected, hint + 1), match_ + 1));
  append_paused_ = false;
  return true;
}

}  // namespace raft
