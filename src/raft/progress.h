// What a leader knows of one follower, and how fast it may send to it. Owned by the machine; not
// thread-safe. Reference: docs/internals/raft.md, "Flow control".
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "raft/raw_node.h"
#include "raft/types.h"

namespace raft {

// The unacknowledged appends to one follower, oldest first: a ring of (last index, payload bytes),
// bounded by number and, softly (the one that crosses the limit is still allowed), by bytes.
class Inflights {
 public:
  // `bytes_max` 0: no limit of bytes.
  Inflights(size_t count_max, uint64_t bytes_max) : count_max_(count_max), bytes_max_(bytes_max) {}

  // Requires !full(). `last` grows from call to call.
  void Add(Index last, uint64_t bytes);
  // Forgets all appends that end at or below `index`.
  void FreeUpTo(Index index);
  void Clear();
  bool full() const { return count_ == count_max_ || (bytes_max_ != 0 && bytes_ >= bytes_max_); }
  size_t count() const { return count_; }

 private:
  struct Append {
    Index last;
    uint64_t bytes;
  };

  size_t count_max_;
  uint64_t bytes_max_;
  std::vector<Append> ring_;  // grows to what is used, at most count_max_
  size_t start_ = 0;
  size_t count_ = 0;
  uint64_t bytes_ = 0;
};

class Progress {
 public:
  Progress(Index match, Index next, bool learner, const Inflights& inflights)
      : is_learner(learner), match_(match), next_(next), inflights_(inflights) {}

  Index match() const { return match_; }
  Index next() const { return next_; }
  ProgressState state() const { return state_; }
  Index pending_snapshot() const { return pending_snapshot_; }
  const Inflights& inflights() const { return inflights_; }
  Inflights& inflights() { return inflights_; }

  void BecomeProbe();
  void BecomeReplicate();
  // Until the follower answers or the owner reports, nothing is sent.
  void BecomeSnapshot(Index snapshot_index);
  // The snapshot did not arrive: probes where it had stopped.
  void AbortSnapshot();

  // An append of `count` entries with `bytes` of payload, beginning at next(), was sent, with
  // `commit` as the commit index.
  void Sent(size_t count, uint64_t bytes, Index commit);
  // Whether telling the follower of commit index `commit` is news that it can use.
  bool WantsCommit(Index commit) const { return commit > sent_commit_ && sent_commit_ < next_ - 1; }
  // The follower has the log up to `index`. False when that is no news.
  bool Acknowledge(Index index);
  // The follower refused the append after `rejected`, and cannot match above `hint`. False when the
  // refusal is stale.
  bool Reject(Index rejected, Index hint);
  // Whether nothing but an empty append may be sent.
  bool paused() const { return state_ == ProgressState::kSnapshot || append_paused_; }
  void Pause() { append_paused_ = true; }
  void Unpause() { append_paused_ = false; }

  bool recent_active = false;  // heard of since the last quorum check
  bool is_learner;

 private:
  void Enter(ProgressState state);
  void LowerNext(Index next);

  Index match_;  // known to be on the follower; match_ < next_
  Index next_;   // the first index to send next
  // The commit index the follower will know of if all that was sent arrives. Learning it through a
  // heartbeat does not count.
  Index sent_commit_ = 0;
  ProgressState state_ = ProgressState::kProbe;
  Index pending_snapshot_ = 0;  // only in kSnapshot
  bool append_paused_ = false;
  Inflights inflights_;  // only in kReplicate
};

}  // namespace raft
