// The consensus loop: owns the raft state machine and the WAL's tail. Everything queued becomes one
// batch: one write, one fdatasync, one hand-over to the apply loop. RunOnce() is the loop's body;
// Start() gives it a thread. Owner thread: the consensus thread. Methods marked [any thread] only
// put something into the inbox.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/random.h"
#include "member/apply_loop.h"
#include "peer/transport.h"
#include "raft/raw_node.h"
#include "wal/log.h"

namespace member {

// The part of the log that raft reads, with the configuration a restart begins from (which does not
// come from a snapshot file, but from the db).
class MemberLogStorage final : public raft::LogStorage {
 public:
  MemberLogStorage(raft::HardState hard_state, raft::ConfState conf_state, uint64_t start_index,
                   uint64_t start_term);
  absl::StatusOr<InitialState> Load() override { return initial_; }
  raft::Index FirstIndex() const override { return memory_.FirstIndex(); }
  raft::Index LastIndex() const override { return memory_.LastIndex(); }
  std::optional<raft::Term> TermAt(raft::Index index) const override {
    return memory_.TermAt(index);
  }
  absl::Status Entries(raft::Index low, raft::Index high, uint64_t bytes_max,
                       std::vector<raft::Entry>* out) const override {
    return memory_.Entries(low, high, bytes_max, out);
  }
  absl::StatusOr<raft::SnapshotPtr> GetSnapshot() override { return memory_.GetSnapshot(); }
  raft::MemoryStorage& memory() { return memory_; }

 private:
  const InitialState initial_;
  raft::MemoryStorage memory_;
};

struct ConsensusOptions {
  base::Duration tick = std::chrono::milliseconds(100);
  int election_ticks = 10;
  bool pre_vote = true;
  base::Duration request_timeout = std::chrono::seconds(7);
  uint64_t inbox_bytes_max = 64 << 20;  // proposals beyond get TooManyRequests
  // Received messages that wait; beyond, they are dropped.
  size_t inbox_messages_max = 4096;
  uint64_t inbox_message_bytes_max = 256 << 20;
  uint64_t apply_lag_max = 5000;  // committed but not applied entries; beyond, TooManyRequests
  // Entries that the consensus thread applies itself when the apply thread is idle.
  size_t inline_apply_max = 4;
  // Where the contexts of ReadIndex begin: no other member's, and no earlier life's, may be equal.
  uint64_t first_read_context = 1;
};

struct ConsensusCallbacks {
  // Leader or role changed. Consensus thread.
  std::function<void(uint64_t leader, raft::Role role, uint64_t term)> soft_state;
  // A membership change was applied and raft knows it. Consensus thread.
  std::function<void(const raft::ConfChange&)> conf_change;
  // A leader's snapshot came, whose database is received already. save: what must be durable before
  // the log may record it. install: the database takes the place of the store's; between two
  // entries. Consensus thread.
  std::function<absl::Status(const raft::Snapshot&)> save_snapshot;
  std::function<absl::Status(const raft::Snapshot&)> install_snapshot;
  std::function<void(base::Duration)> fsync;  // how long a WAL save took, the sync included
  std::function<void(const absl::Status&)> fatal;
  // Once a tick, after raft's. Consensus thread.
  std::function<void()> tick;
};

class Consensus {
 public:
  Consensus(std::unique_ptr<raft::RawNode> node, MemberLogStorage& storage, wal::Log& log,
            ApplyLoop& apply, PendingProposals& pending, peer::Transport& transport,
            const base::Clock& clock, ConsensusOptions options, ConsensusCallbacks callbacks);
  ~Consensus();

  void Start();
  void Stop();
  // Handles what is in the inbox and what is due; returns how long to wait for the next tick.
  // Threadless use.
  base::Duration RunOnce();
  raft::RawNode& node() { return *node_; }
  // Ends all work with `status`: nothing is written or acknowledged any more. Consensus thread.
  void Fail(const absl::Status& status);

  // --- any thread ---
  // Done() gets TooManyRequests, a timeout or the result.
  void Propose(ProposalPtr proposal);
  // A membership change; its id must be the proposal's request id, and its result arrives once it
  // is applied (body empty).
  void ProposeConfChange(raft::ConfChange change, ProposalPtr proposal);
  // `done` is called once a read of applied state is linearizable, or with why not.
  void Read(absl::AnyInvocable<void(const absl::Status&)> done);
  // Whether a read of applied state is linearizable right now without a round: the only voter leads
  // and has applied an entry of its term.
  bool ReadNow() const { return read_now_.load(std::memory_order_acquire); }
  // A received message. False, with the message dropped, when too many wait.
  bool Step(raft::Message message);
  // Runs `task` on the consensus thread.
  void Post(absl::AnyInvocable<void()> task);

  uint64_t leader() const { return leader_.load(std::memory_order_acquire); }
  uint64_t term() const { return term_.load(std::memory_order_acquire); }
  uint64_t committed_index() const { return committed_.load(std::memory_order_acquire); }
  uint64_t wal_bytes() const { return wal_bytes_.load(std::memory_order_relaxed); }
  bool is_leader() const { return is_leader_.load(std::memory_order_acquire); }

 private:
  struct Inbox {
    std::vector<ProposalPtr> proposals;
    std::vector<absl::AnyInvocable<void(const absl::Status&)>> reads;
    std::vector<raft::Message> messages;
    std::vector<absl::AnyInvocable<void()>> tasks;
    bool empty() const {
      return proposals.empty() && reads.empty() && messages.empty() && tasks.empty();
    }
  };
  // A ReadIndex round: all reads that wait for the same confirmation.
  struct ReadRound {
    uint64_t context = 0;
    base::Duration asked{};
    std::vector<std::pair<base::Duration, absl::AnyInvocable<void(const absl::Status&)>>>
        reads;  // (since, done)
  };

  void ThreadMain();
  void Handle(Inbox inbox);
  void ProposeAll(std::vector<ProposalPtr> proposals);
  void ProcessReady();
  absl::Status Persist(const raft::Ready& ready);
  absl::Status PersistSnapshot(const raft::Snapshot& snapshot, const raft::HardState& state);
  absl::Status InstallSnapshot(const raft::Snapshot& snapshot);
  void ApplyCommitted(std::vector<raft::Entry> entries);
  void PassConfChanges();
  // What waited for a leader goes on its way.
  void OnLeaderFound();
  void StartReadRound();
  // The answer to the running round may be lost.
  void AskAgain();
  void FinishReads(const std::vector<raft::ReadState>& states);
  void FailReads(const absl::Status& status, base::Duration asked_before);
  void TickOnce(base::Duration now);
  void PublishState();

  const std::unique_ptr<raft::RawNode> node_;
  MemberLogStorage& storage_;
  wal::Log& log_;
  ApplyLoop& apply_;
  PendingProposals& pending_;
  peer::Transport& transport_;
  const base::Clock& clock_;
  const ConsensusOptions options_;
  const ConsensusCallbacks callbacks_;

  // Consensus thread.
  base::Duration next_tick_{};
  ReadRound round_;       // asked of raft; empty reads = none
  ReadRound next_round_;  // collected meanwhile
  uint64_t read_context_ = 0;
  uint64_t last_leader_ = 0;
  std::vector<ProposalPtr> leaderless_;  // wait until there is a leader
  std::vector<wal::EntryView> views_;    // scratch
  bool failed_ = false;

  std::mutex mutex_;
  std::condition_variable wake_;
  Inbox inbox_;                       // guarded by mutex_
  uint64_t inbox_bytes_ = 0;          // guarded by mutex_
  uint64_t inbox_message_bytes_ = 0;  // guarded by mutex_
  bool stopping_ = false;             // guarded by mutex_
  bool waiting_ = false;  // guarded by mutex_: the thread sleeps, so a wake-up is needed
  std::atomic<bool> read_now_{false};
  std::atomic<bool> is_leader_{false};
  std::atomic<uint64_t> leader_{0};
  std::atomic<uint64_t> term_{0};
  std::atomic<uint64_t> committed_{0};
  std::atomic<uint64_t> wal_bytes_{0};
  std::thread thread_;
};

}  // namespace member
