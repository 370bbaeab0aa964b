// One member of a cluster: the log, the state machine behind it and the store, with the threads
// that run them.
//
//   Start() ──▶ WaitReady ──▶ Propose / Read ... ──▶ Stop()
//
// All public methods are thread-safe unless said; answers arrive on the member's threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "cluster/membership.h"
#include "lease/lessor.h"
#include "member/alarms.h"
#include "member/applier.h"
#include "member/apply_loop.h"
#include "member/auto_compact.h"
#include "member/bootstrap.h"
#include "member/consensus.h"
#include "member/options.h"
#include "member/proposal.h"
#include "member/request.h"
#include "mvcc/store.h"
#include "mvcc/watch_hub.h"
#include "peer/transport.h"

namespace member {

// What the owner is told. Called on the member's threads; quick. Defaults do nothing.
class MemberObserver : public ApplyObserver, public mvcc::BackendObserver {
 public:
  void OnApplied(std::string_view, base::Duration, bool) override {}
  void OnAlarm(const Alarm&, bool) override {}
  void OnClusterVersion(const std::string&) override {}
  void OnMembership(const std::string&, const cluster::Member&) override {}
  void OnCompactionFinished(int64_t, base::Duration) override {}
  // A batch of entries was applied and all its Done() calls were made: answers may leave now.
  virtual void OnBatchEnd() {}
  virtual void OnSoftState(uint64_t /*leader*/, raft::Role, uint64_t /*term*/) {}
  virtual void OnFsync(base::Duration) {}
  virtual void OnSnapshotSaved(uint64_t /*index*/) {}
  // This member is no longer one of its cluster and should end.
  virtual void OnRemoved() {}
  // The process must end at once: nothing may be acknowledged any more.
  virtual void OnFatal(const absl::Status& status) = 0;
};

class Member final : private peer::Host {
 public:
  // Opens or creates the data directory and starts the loops. `observer` and `transport` outlive
  // the member.
  static absl::StatusOr<std::unique_ptr<Member>> Start(MemberOptions options,
                                                       peer::Transport& transport,
                                                       MemberObserver& observer);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // Commits everything acknowledged and ends the threads. Idempotent.
  absl::Status Stop();
  // A step of every loop; only with options.threads == false.
  void RunOnce();

  // Calls `done` once the member has published itself through the log, i.e. an entry of this term
  // is applied.
  void WhenReady(absl::AnyInvocable<void()> done);
  bool ready() const { return ready_.load(std::memory_order_acquire); }

  uint64_t id() const { return id_; }
  uint64_t cluster_id() const { return cluster_id_; }
  const MemberOptions& options() const { return options_; }
  mvcc::Store& store() { return *store_; }
  mvcc::Backend& backend() { return *backend_; }
  mvcc::WatchHub& watch_hub() { return *hub_; }
  lease::Lessor& lessor() { return *lessor_; }
  const Alarms& alarms() const { return *alarms_; }
  cluster::Membership::ViewPtr membership() const { return membership_.view(); }
  uint64_t leader() const { return consensus_->leader(); }
  uint64_t term() const { return consensus_->term(); }
  bool is_leader() const { return consensus_->is_leader(); }
  bool is_learner() const { return learner_.load(std::memory_order_relaxed); }
  uint64_t committed_index() const { return consensus_->committed_index(); }
  uint64_t applied_index() const { return apply_->applied_index(); }
  // Written to the log since the start.
  uint64_t wal_bytes() const { return consensus_->wal_bytes(); }
  size_t pending_proposals() const { return pending_.size(); }
  uint64_t NextRequestId() { return ids_->Next(); }
  // Empty while unknown.
  std::string storage_version() const;
  base::Duration request_timeout() const;

  // Wraps and proposes. RequestTooLarge is returned here; everything else arrives at
  // proposal->Done().
  void Propose(RequestKind kind, std::string_view message, ProposalPtr proposal);
  // Membership changes, checked as etcd checks them; `proposal` gets the outcome (OK or why not)
  // once applied. `learner` adds a member without a vote. The new member's id is returned at once
  // for Add.
  uint64_t AddMember(std::vector<std::string> peer_urls, bool learner, ProposalPtr proposal);
  void RemoveMember(uint64_t id, ProposalPtr proposal);
  void UpdateMember(uint64_t id, std::vector<std::string> peer_urls, ProposalPtr proposal);
  // A learner becomes a voter, if it has caught up. NotLeader unless this member leads.
  void PromoteMember(uint64_t id, ProposalPtr proposal);

  // Asks for the leadership to be handed to `id`, a voter; NotLeader unless this member leads.
  // `done` is called once it has happened, or has not within an election timeout.
  void MoveLeader(uint64_t id, absl::AnyInvocable<void(const absl::Status&)> done);
  // Of the other members; for metrics.
  std::vector<peer::PeerFacts> peers() const { return transport_.Peers(); }
  // A question to the leader's peer port; NoLeader when there is none. Blocks: helper threads.
  absl::StatusOr<peer::Answer> AskLeader(const peer::Question& question, base::Duration timeout);
  // Before an orderly end: hands leadership, if this member has it, to the voter that has been
  // reachable longest. Blocks, at most for the request timeout.
  void HandOverLeadership();

  // Whether applied state may be read at once as a linearizable read.
  bool ReadNow() const { return consensus_->ReadNow(); }
  void Read(absl::AnyInvocable<void(const absl::Status&)> done) {
    consensus_->Read(std::move(done));
  }

  // Effective quota in bytes, negative when there is none.
  int64_t quota_bytes() const { return quota_bytes_; }
  // Whether a request of this cost has room. One without cost always has.
  bool HasRoom(uint64_t cost) const;
  // Raises this member's NOSPACE alarm through the log, unless it is up; `done` when it is applied.
  void RaiseNoSpace(absl::AnyInvocable<void(const absl::Status&)> done);

 private:
  class BackendFacts;

  class ImageSource;
  struct LeaderMove {
    uint64_t to = 0;
    base::Duration deadline{};
    absl::AnyInvocable<void(const absl::Status&)> done;
  };

  Member(MemberOptions options, peer::Transport& transport, MemberObserver& observer);
  absl::Status Init();

  // peer::Host
  void OnMessage(raft::Message message) override;
  bool IsRemoved(raft::NodeId id) const override;
  void OnUnreachable(raft::NodeId id) override;
  void OnSnapshotSent(raft::NodeId id, bool ok) override;
  void OnSelfRemoved() override;
  absl::StatusOr<peer::OutgoingSnapshot> OpenSnapshot() override;
  absl::StatusOr<std::unique_ptr<peer::SnapshotSink>> ReceiveSnapshot(raft::Index index) override;

  absl::Status SaveReceivedSnapshot(const raft::Snapshot& snapshot);
  absl::Status InstallReceivedSnapshot(const raft::Snapshot& snapshot);
  void OnConfChange(const raft::ConfChange& change);
  bool IsConnected(uint64_t id, base::Duration at_least) const;
  // Whether enough voters are connected for a change that leads to `voters_after` of them.
  bool EnoughConnected(size_t voters_after) const;
  bool IsCaughtUp(uint64_t id);
  void PromoteReadyLearners();
  void ProposePromotion(uint64_t id, ProposalPtr proposal);
  void CheckLeaderMove();
  bool AwaitsPromotion() const;
  void NoteOwnRole();
  // Sets the flag and lets the helper see it.
  void WakeHelper(std::atomic<bool>* due);
  void NegotiateClusterVersion();
  void ProposeClusterVersion(const std::string& version);
  void Tick();
  void Publish();
  void SetClusterVersionIfDue();
  void ExpireLeases();
  void AutoCompact();
  void LiftNoSpaceIfDue();
  void OnBatchEnd(uint64_t applied_index);
  void RequestSnapshot(uint64_t index);
  void SaveSnapshot(uint64_t index, uint64_t term, cluster::Membership::ViewPtr view);
  void HelperMain();
  void Housekeeping();
  void Fatal(const absl::Status& status);
  void MarkReady();
  void ProposeChange(raft::ConfChangeType type, const cluster::ChangeContext& context,
                     ProposalPtr proposal);

  MemberOptions options_;
  peer::Transport& transport_;
  MemberObserver& observer_;
  int64_t quota_bytes_ = 0;
  uint64_t id_ = 0;
  uint64_t cluster_id_ = 0;
  DataPaths paths_;
  std::unique_ptr<base::IdGenerator> ids_;
  std::unique_ptr<mvcc::Backend> backend_;
  std::unique_ptr<wal::Log> log_;
  std::unique_ptr<lease::LeaseStorage> lease_storage_;
  std::unique_ptr<lease::Lessor> lessor_;
  std::unique_ptr<mvcc::Store> store_;
  std::unique_ptr<mvcc::WatchHub> hub_;
  cluster::Membership membership_;
  std::unique_ptr<Alarms> alarms_;
  std::unique_ptr<Applier> applier_;
  PendingProposals pending_;
  std::unique_ptr<ApplyLoop> apply_;
  std::unique_ptr<MemberLogStorage> storage_;
  std::unique_ptr<Consensus> consensus_;

  // Consensus thread.
  base::Duration last_expiry_{};
  base::Duration last_version_check_{};
  base::Duration publish_asked_{};
  bool publishing_ = false;
  std::atomic<bool> published_{false};
  std::unique_ptr<AutoCompactor> auto_compactor_;
  base::Duration promotion_asked_{};
  std::vector<LeaderMove> leader_moves_;

  std::atomic<uint64_t> snapshot_index_{0};  // of the last raft snapshot recorded
  std::atomic<bool> snapshot_running_{false};
  // The log is kept for followers that are being sent a snapshot, and a while after.
  std::atomic<int> snapshots_being_sent_{0};
  std::atomic<int64_t> keep_log_until_ns_{0};
  std::atomic<bool> version_check_due_{false};
  std::atomic<bool> removed_{false};
  std::atomic<bool> learner_{false};
  std::atomic<bool> housekeeping_due_{true};  // without threads RunOnce() does the helper's work
  std::atomic<bool> raising_no_space_{false};
  std::atomic<bool> ready_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> fatal_{false};
  std::mutex ready_mutex_;
  std::vector<absl::AnyInvocable<void()>> ready_waiters_;  // guarded by ready_mutex_

  std::mutex helper_mutex_;
  std::condition_variable helper_wake_;
  bool helper_stop_ = false;  // guarded by helper_mutex_
  std::thread helper_;
};

}  // namespace member
