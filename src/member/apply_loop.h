// The queue of committed entries in front of the Applier. Entries are pushed by the consensus
// thread; whoever holds the loop's run lock applies them: the apply thread, or, when nothing waits,
// the consensus thread itself, so that a lone client pays for no wake-up. Push, TryRun, Drain,
// Install: consensus thread. Run: apply thread. The rest is thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "member/applier.h"

namespace member {

// Writes of this process that wait for their entry to be applied, by request id. Thread-safe.
class PendingProposals {
 public:
  void Add(ProposalPtr proposal);
  // Null when nobody here waits for it (any more).
  ProposalPtr Take(uint64_t request_id);
  // Those started before `started_before`, or all.
  std::vector<ProposalPtr> TakeOlder(base::Duration started_before);
  std::vector<ProposalPtr> TakeAll();
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  absl::flat_hash_map<uint64_t, ProposalPtr> map_;  // guarded by mutex_
};

class ApplyLoop {
 public:
  struct Callbacks {
    // After each batch, on the thread that applied it, before waiting reads are released.
    std::function<void(uint64_t applied_index)> batch_end;
    // The process must end: the file failed, or an entry cannot be applied.
    std::function<void(const absl::Status&)> fatal;
  };

  ApplyLoop(Applier& applier, PendingProposals& pending, uint64_t applied_index,
            Callbacks callbacks);
  ~ApplyLoop();

  // Whether the calling thread is applying a batch right now, so that batch_end will follow.
  static bool InBatch();

  // Runs an apply thread until Stop(). Without it only TryRun and Drain apply (simulation).
  void Start();
  // Applies what is queued, then joins the thread.
  void Stop();

  void Push(std::vector<raft::Entry> entries);
  // Applies what is queued unless another thread is at it, or there is so much that the apply
  // thread should take it.
  void TryRun(size_t entries_max);
  // Applies everything queued before it returns.
  void Drain();
  // The state was replaced by one that covers the log up to `index`: applies what is queued, calls
  // `install`, which puts it in place, and goes on from there. Its error is returned.
  absl::Status Install(uint64_t index, uint64_t term, absl::FunctionRef<absl::Status()> install);

  struct ConfChange {
    uint64_t index = 0;
    Applier::ConfChangeVerdict verdict;
  };
  // Verdicts on the configuration changes applied since the last call; the consensus thread passes
  // them on to raft.
  std::vector<ConfChange> TakeConfChanges();

  uint64_t applied_index() const { return applied_index_.load(std::memory_order_acquire); }
  uint64_t applied_term() const { return applied_term_.load(std::memory_order_acquire); }
  // Calls `done` once applied_index() >= index; at once if it is.
  void WhenApplied(uint64_t index, absl::AnyInvocable<void(const absl::Status&)> done);
  // Ends all waits with `status`.
  void FailWaiters(const absl::Status& status);

  // Runs `task` on the thread that applies, between two entries, as an entry-less step of its own.
  void PostTask(absl::AnyInvocable<void()> task);

 private:
  void ThreadMain();
  // Applies all that is queued; run_mutex_ is held.
  void RunLocked();
  bool ApplyBatch(std::vector<raft::Entry>& batch);
  void ReleaseWaiters();

  Applier& applier_;
  PendingProposals& pending_;
  const Callbacks callbacks_;

  std::mutex run_mutex_;  // held by whoever applies; taken before queue_mutex_
  mutable std::mutex queue_mutex_;
  std::condition_variable wake_;
  std::deque<std::vector<raft::Entry>> queue_;     // guarded by queue_mutex_
  std::vector<absl::AnyInvocable<void()>> tasks_;  // guarded by queue_mutex_
  std::vector<ConfChange> conf_changes_;           // guarded by queue_mutex_
  size_t queued_entries_ = 0;                      // guarded by queue_mutex_
  bool stopping_ = false;                          // guarded by queue_mutex_
  bool failed_ = false;                            // under run_mutex_
  std::atomic<uint64_t> applied_index_;
  std::atomic<uint64_t> applied_term_{0};

  std::mutex waiters_mutex_;
  std::vector<std::pair<uint64_t, absl::AnyInvocable<void(const absl::Status&)>>>
      waiters_;  // guarded by it
  std::atomic<bool> has_waiters_{false};
  std::thread thread_;
};

}  // namespace member
