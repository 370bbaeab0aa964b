#include "member/member.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "member/errors.h"
#include "member/join.h"
#include "proto/internal.pb.h"
#include "wal/snap_file.h"
#include "wal/v2_store.h"

namespace member {
namespace {

namespace pb = etcdserverpb;

constexpr base::Duration kExpiryInterval = std::chrono::milliseconds(500);
constexpr size_t kExpiredPerRound = 500;
constexpr size_t kCheckpointsPerRound = 1000;
constexpr base::Duration kVersionCheckInterval = std::chrono::seconds(4);
constexpr base::Duration kVersionTimeout = std::chrono::seconds(1);
// A peer counts as connected for changes of the membership once it has been so for this long.
constexpr base::Duration kSteady = std::chrono::seconds(5);
// After a snapshot was sent: the follower asks for what came since.
constexpr base::Duration kKeepLogAfterSnapshot = std::chrono::seconds(30);
constexpr base::Duration kHousekeepingInterval = std::chrono::seconds(30);

// A proposal of the member's own.
class OwnProposal final : public Proposal {
 public:
  using Fn = absl::AnyInvocable<void(const ApplyResult&)>;
  explicit OwnProposal(Fn fn) : fn_(std::move(fn)) {}
  void Done(ApplyResult result) override {
    if (fn_) fn_(result);
  }

 private:
  Fn fn_;
};

wal::V2Membership ToV2(const cluster::Membership::View& view) {
  wal::V2Membership v2{.removed_members = {view.removed.begin(), view.removed.end()},
                       .cluster_version = view.cluster_version};
  for (const auto& [id, member] : view.members) {
    v2.members.push_back({.id = id,
                          .peer_urls = member.peer_urls,
                          .is_learner = member.is_learner,
                          .name = member.name,
                          .client_urls = member.client_urls});
  }
  return v2;
}

std::string ClusterVersionOf(const std::string& version) {
  return version.substr(0, version.rfind('.')) + ".0";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Member>> Member::Start(MemberOptions options,
                                                      peer::Transport& transport,
                                                      MemberObserver& observer) {
  std::unique_ptr<Member> member(new Member(std::move(options), transport, observer));
  RETURN_IF_ERROR(member->Init());
  return member;
}

Member::Member(MemberOptions options, peer::Transport& transport, MemberObserver& observer)
    : options_(std::move(options)), transport_(transport), observer_(observer) {
  quota_bytes_ = options_.quota_bytes == 0 ? kDefaultQuotaBytes : options_.quota_bytes;
}

Member::~Member() {
  const absl::Status stopped = Stop();
  if (!stopped.ok()) LOG_WARN("failed to stop cleanly", {"error", stopped});
}

base::Duration Member::request_timeout() const {
  return std::chrono::seconds(5) + 2 * options_.election_ticks * options_.tick;
}

absl::Status Member::Init() {
  const base::Clock& clock = *options_.clock;
  mvcc::BackendOptions backend_options;
  if (options_.backend_batch_interval > base::Duration{}) {
    backend_options.batch_interval = options_.backend_batch_interval;
  }
  if (options_.backend_batch_limit > 0)
    backend_options.batch_operations_max = options_.backend_batch_limit;
  backend_options.no_sync = options_.no_fsync;
  if (options_.quota_bytes > 0) {
    backend_options.map_reserve_bytes = std::max<uint64_t>(
        backend_options.map_reserve_bytes, static_cast<uint64_t>(options_.quota_bytes) / 10 * 11);
  }
  backend_options.on_lock_wait = [path = PathsOf(options_).db] {
    LOG_INFO("db file is flocked by another process, or taking too long", {"path", path});
  };
  backend_options.on_fatal = [this](const absl::Status& status) { Fatal(status); };
  backend_options.observer = &observer_;
  const base::Duration begun = clock.Monotonic();
  ASSIGN_OR_RETURN(Bootstrapped b, Bootstrap(options_, std::move(backend_options), transport_));
  paths_ = b.paths;
  id_ = b.member_id;
  cluster_id_ = b.cluster_id;
  backend_ = std::move(b.backend);
  log_ = std::move(b.log);
  for (const std::string& note : b.notes) LOG_WARN(note);
  LOG_INFO("opened backend db", {"path", paths_.db},
           {"took", base::DurationText(clock.Monotonic() - begun)});
  ids_ = std::make_unique<base::IdGenerator>(id_, clock.Wall());
  membership_.Reset(std::move(b.membership));
  membership_.set_max_learners(options_.max_learners);

  lease_storage_ = lease::NewBackendLeaseStorage(*backend_);
  const base::Duration election = options_.tick * options_.election_ticks;
  const int64_t min_ttl = (3 * election.count() + 2 * 1000000000LL - 1) / (2 * 1000000000LL);
  lessor_ = std::make_unique<lease::Lessor>(
      lease_storage_.get(), clock,
      lease::LessorOptions{.min_ttl_seconds = min_ttl,
                           .checkpoints = options_.lease_checkpoints,
                           .persist_checkpoints = options_.lease_checkpoints_persist,
                           .expired_retry = request_timeout()});
  RETURN_IF_ERROR(lessor_->Load(*backend_->View()));
  mvcc::StoreOptions store_options{.leases = lessor_.get(), .clock = options_.clock};
  if (options_.compaction_batch_limit > 0)
    store_options.compaction_batch_records = options_.compaction_batch_limit;
  if (options_.compaction_sleep > base::Duration{})
    store_options.compaction_pause = options_.compaction_sleep;
  if (!options_.threads) store_options.load_threads = 1;
  ASSIGN_OR_RETURN(store_, mvcc::Store::Open(*backend_, std::move(store_options)));
  lessor_->LoadAttachments(store_->TakeAttachments());
  hub_ = std::make_unique<mvcc::WatchHub>(*store_, mvcc::WatchHubOptions{});
  alarms_ = std::make_unique<Alarms>(*backend_);
  RETURN_IF_ERROR(alarms_->Load());
  LOG_INFO("kvstore restored", {"current-rev", store_->current_revision()});

  applier_ = std::make_unique<Applier>(ApplierState{.backend = *backend_,
                                                    .store = *store_,
                                                    .lessor = *lessor_,
                                                    .membership = membership_,
                                                    .alarms = *alarms_},
                                       clock, &observer_);
  const uint64_t last = b.entries.empty() ? b.start_index : b.entries.back().index;
  const uint64_t applied =
      std::min(std::max(b.start_index, backend_->consistent_index()), b.hard_state.commit);
  snapshot_index_ = b.start_index;
  apply_ = std::make_unique<ApplyLoop>(
      *applier_, pending_, applied,
      ApplyLoop::Callbacks{.batch_end = [this](uint64_t index) { OnBatchEnd(index); },
                           .fatal = [this](const absl::Status& status) { Fatal(status); }});

  storage_ =
      std::make_unique<MemberLogStorage>(b.hard_state, b.conf_state, b.start_index, b.start_term);
  storage_->memory().Append(std::move(b.entries));
  raft::Config config;
  config.id = id_;
  config.election_ticks = options_.election_ticks;
  config.applied = applied;
  config.check_quorum = true;
  config.pre_vote = options_.pre_vote;
  ASSIGN_OR_RETURN(auto node, raft::RawNode::Create(config, storage_.get(), options_.random));
  if (b.is_new) {
    std::vector<raft::BootstrapPeer> peers;
    for (const cluster::Member& member : b.bootstrap_members) {
      peers.push_back({.id = member.id, .context = cluster::EncodeMember(member)});
    }
    RETURN_IF_ERROR(node->Bootstrap(peers));
  }
  LOG_INFO(b.is_new ? "starting local member" : "restarting local member",
           {"local-member-id", base::IdToHex(id_)}, {"cluster-id", base::IdToHex(cluster_id_)},
           {"commit-index", b.hard_state.commit}, {"last-index", last});

  auto_compactor_ = std::make_unique<AutoCompactor>(
      options_.auto_compaction_mode, options_.auto_compaction_period,
      options_.auto_compaction_revisions, clock.Monotonic());
  consensus_ = std::make_unique<Consensus>(
      std::move(node), *storage_, *log_, *apply_, pending_, transport_, clock,
      ConsensusOptions{.tick = options_.tick,
                       .election_ticks = options_.election_ticks,
                       .pre_vote = options_.pre_vote,
                       .request_timeout = request_timeout(),
                       .first_read_context = ids_->Next()},
      ConsensusCallbacks{
          .soft_state =
              [this](uint64_t leader, raft::Role role, uint64_t term) {
                if (role == raft::Role::kLeader) {
                  lessor_->Promote(options_.tick * options_.election_ticks);
                  WakeHelper(&version_check_due_);
                } else {
                  lessor_->Demote();
                }
                observer_.OnSoftState(leader, role, term);
              },
          .conf_change = [this](const raft::ConfChange& change) { OnConfChange(change); },
          .save_snapshot =
              [this](const raft::Snapshot& snapshot) { return SaveReceivedSnapshot(snapshot); },
          .install_snapshot =
              [this](const raft::Snapshot& snapshot) { return InstallReceivedSnapshot(snapshot); },
          .fsync = [this](base::Duration took) { observer_.OnFsync(took); },
          .fatal = [this](const absl::Status& status) { Fatal(status); },
          .tick = [this] { Tick(); }});
  NoteOwnRole();
  transport_.Open({.member_id = id_, .cluster_id = cluster_id_}, *this);
  for (const cluster::Member& remote : b.remote_members)
    transport_.AddPeer(remote.id, remote.peer_urls);
  for (const auto& [id, remote] : membership_.view()->members) {
    if (id != id_) transport_.AddPeer(id, remote.peer_urls);
  }
  if (options_.threads) {
    backend_->Start();
    apply_->Start();
    helper_ = std::thread([this] { HelperMain(); });
  }
  // A lone voter need not wait for an election timeout: nobody else can have won meanwhile.
  consensus_->Post([this] {
    raft::RawNode& raft = consensus_->node();
    if (raft.IsOnlyVoter() && raft.role() == raft::Role::kFollower) raft.Campaign();
  });
  if (options_.threads) consensus_->Start();
  return absl::OkStatus();
}

absl::Status Member::Stop() {
  if (stopped_.exchange(true)) return absl::OkStatus();
  transport_.Close();
  if (consensus_ != nullptr) consensus_->Stop();
  for (LeaderMove& move : std::exchange(leader_moves_, {})) move.done(StoppedError());
  {
    const std::lock_guard lock(helper_mutex_);
    helper_stop_ = true;
  }
  helper_wake_.notify_all();
  if (helper_.joinable()) helper_.join();
  if (apply_ != nullptr) apply_->Stop();
  absl::Status status;
  if (backend_ != nullptr) status = backend_->Stop();
  if (log_ != nullptr) status.Update(log_->Close());
  return status;
}

void Member::RunOnce() {
  if (!fatal_.load()) consensus_->RunOnce();
  if (!fatal_.load()) apply_->Drain();
  if (!fatal_.load()) backend_->RunOnce();
  if (!fatal_.load() && housekeeping_due_.exchange(false)) Housekeeping();
}

void Member::NoteOwnRole() {
  const auto view = membership_.view();
  const cluster::Member* self = view->Find(id_);
  learner_.store(self != nullptr && self->is_learner, std::memory_order_relaxed);
}

std::string Member::storage_version() const {
  const auto stored = backend_->View()->Get(mvcc::Bucket::kMeta, "storageVersion");
  return stored.ok() ? stored->value_or("") : "";
}

void Member::Propose(RequestKind kind, std::string_view message, ProposalPtr proposal) {
  proposal->request_id = NextRequestId();
  std::string entry = EncodeRequest(kind, message, proposal->request_id);
  if (entry.size() > options_.max_request_bytes) {
    proposal->Done({.status = RequestTooLargeError()});
    return;
  }
  proposal->data = raft::Buffer::Own(std::move(entry));
  proposal->started = options_.clock->Monotonic();
  consensus_->Propose(std::move(proposal));
}

void Member::ProposeChange(raft::ConfChangeType type, const cluster::ChangeContext& context,
                           ProposalPtr proposal) {
  proposal->request_id = NextRequestId();
  raft::ConfChange change{.id = proposal->request_id, .type = type, .node_id = context.member.id};
  if (type != raft::ConfChangeType::kRemoveNode)
    change.context = cluster::EncodeChangeContext(context);
  // Refused here what every member would refuse anyway, so that nothing useless enters the log.
  const absl::Status valid =
      membership_.Validate(static_cast<int>(type), context, context.member.id);
  if (!valid.ok()) return proposal->Done({.status = valid});
  consensus_->ProposeConfChange(std::move(change), std::move(proposal));
}

uint64_t Member::AddMember(std::vector<std::string> peer_urls, bool learner, ProposalPtr proposal) {
  std::sort(peer_urls.begin(), peer_urls.end());
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(options_.clock->Wall()).count();
  const uint64_t id = base::MemberId(peer_urls, std::to_string(seconds));
  bool promote = false;
  if (const auto view = membership(); options_.strict_reconfig_check) {
    const size_t voters = view->Voters().size();
    const bool replaced = std::any_of(view->members.begin(), view->members.end(),
                                      [](const auto& m) { return m.second.promote_when_ready; });
    if (!learner && (replaced || (voters > 1 && view->StartedVoters() < (voters + 1) / 2 + 1))) {
      proposal->Done({.status = NotEnoughStartedError()});
      return id;
    }
    if (voters > 1 && !EnoughConnected(voters + 1)) {
      proposal->Done({.status = UnhealthyError()});
      return id;
    }
    if (!learner && voters == 1) {
      // As a voter that has not started it would make a quorum of two, and stop every write.
      LOG_WARN(
          "the second member of a cluster of one is added as a learner, so that writes go on; it "
          "is "
          "promoted once it has caught up",
          {"member-id", base::IdToHex(id)}, {"peer-urls", peer_urls});
      learner = promote = true;
    }
  }
  ProposeChange(learner ? raft::ConfChangeType::kAddLearnerNode : raft::ConfChangeType::kAddNode,
                {.member = {.id = id,
                            .peer_urls = std::move(peer_urls),
                            .is_learner = learner,
                            .promote_when_ready = promote}},
                std::move(proposal));
  return id;
}

bool Member::IsConnected(uint64_t id, base::Duration at_least) const {
  if (id == id_) return true;
  const auto since = transport_.ActiveSince(id);
  return since && options_.clock->Monotonic() - *since >= at_least;
}

bool Member::EnoughConnected(size_t voters_after) const {
  size_t connected = 0;
  for (const uint64_t id : membership()->Voters()) connected += IsConnected(id, kSteady) ? 1 : 0;
  return connected >= voters_after / 2 + 1;
}

void Member::RemoveMember(uint64_t id, ProposalPtr proposal) {
  const auto view = membership();
  if (const cluster::Member* member = view->Find(id);
      options_.strict_reconfig_check && member != nullptr && !member->is_learner) {
    // What is left must be a quorum of started members.
    const size_t voters = view->Voters().size();
    const size_t left = voters - 1;
    if (left == 0 || view->StartedVoters(/*except=*/id) < left / 2 + 1)
      return proposal->Done({.status = NotEnoughStartedError()});
    // One that cannot be reached may go; else the quorum must hold without it.
    if (IsConnected(id, {})) {
      size_t connected = 0;
      for (const uint64_t voter : view->Voters()) connected += IsConnected(voter, kSteady) ? 1 : 0;
      if (connected - 1 < 1 + (voters - 1) / 2) return proposal->Done({.status = UnhealthyError()});
    }
  }
  ProposeChange(raft::ConfChangeType::kRemoveNode, {.member = {.id = id}}, std::move(proposal));
}

void Member::UpdateMember(uint64_t id, std::vector<std::string> peer_urls, ProposalPtr proposal) {
  ProposeChange(raft::ConfChangeType::kUpdateNode,
                {.member = {.id = id, .peer_urls = std::move(peer_urls)}}, std::move(proposal));
}

void Member::ProposePromotion(uint64_t id, ProposalPtr proposal) {
  ProposeChange(raft::ConfChangeType::kAddNode, {.member = {.id = id}, .is_promote = true},
                std::move(proposal));
}

void Member::PromoteMember(uint64_t id, ProposalPtr proposal) {
  const auto view = membership();
  const cluster::Member* member = view->Find(id);
  if (!is_leader()) return proposal->Done({.status = NotLeaderError()});
  if (member == nullptr) return proposal->Done({.status = MemberNotFoundError()});
  if (!member->is_learner) return proposal->Done({.status = MemberNotLearnerError()});
  consensus_->Post([this, id, proposal = std::move(proposal)]() mutable {
    if (!IsCaughtUp(id)) return proposal->Done({.status = LearnerNotReadyError()});
    const auto now = membership();
    if (options_.strict_reconfig_check &&
        now->StartedVoters() + 1 < (now->Voters().size() + 1) / 2 + 1) {
      return proposal->Done({.status = NotEnoughStartedError()});
    }
    ProposePromotion(id, std::move(proposal));
  });
}

// Consensus thread. As etcd: at least nine tenths of the leader's log.
bool Member::IsCaughtUp(uint64_t id) {
  const raft::NodeStatus status = consensus_->node().GetStatus();
  uint64_t own = 0;
  uint64_t match = 0;
  for (const raft::MemberProgress& progress : status.progress) {
    if (progress.id == id_) own = progress.match;
    if (progress.id == id) match = progress.match;
  }
  constexpr double kReadyPart = 0.9;
  return match > 0 && static_cast<double>(match) >= static_cast<double>(own) * kReadyPart;
}

// Consensus thread. Learners that stand in for voters become what was asked for.
void Member::PromoteReadyLearners() {
  const auto view = membership();
  if (view->members.size() == 1) return;
  const base::Duration now = options_.clock->Monotonic();
  for (const auto& [id, member] : view->members) {
    // One that runs has said so by its name; a voter that does not would stop every write.
    if (!member.promote_when_ready || member.name.empty() || !IsConnected(id, {})) continue;
    if (now - promotion_asked_ < kSteady || !IsCaughtUp(id)) continue;
    promotion_asked_ = now;
    LOG_INFO("promoting the learner that was added in place of a voter; it has caught up",
             {"member-id", base::IdToHex(id)});
    ProposePromotion(id, std::make_unique<OwnProposal>([id = id](const ApplyResult& result) {
                       if (result.status.ok()) return;
                       LOG_WARN("failed to promote the learner", {"member-id", base::IdToHex(id)},
                                {"error", result.status});
                     }));
  }
}

bool Member::AwaitsPromotion() const {
  const auto view = membership_.view();
  const cluster::Member* self = view->Find(id_);
  return self != nullptr && self->promote_when_ready;
}

void Member::MoveLeader(uint64_t id, absl::AnyInvocable<void(const absl::Status&)> done) {
  consensus_->Post([this, id, done = std::move(done)]() mutable {
    const auto view = membership();
    const cluster::Member* member = view->Find(id);
    if (!is_leader()) return done(NotLeaderError());
    if (member == nullptr || member->is_learner) return done(BadLeaderTransfereeError());
    LOG_INFO("leadership transfer starting", {"local-member-id", base::IdToHex(id_)},
             {"current-leader-member-id", base::IdToHex(leader())},
             {"transferee-member-id", base::IdToHex(id)});
    consensus_->node().TransferLeader(id);
    leader_moves_.push_back({.to = id,
                             .deadline = options_.clock->Monotonic() + request_timeout(),
                             .done = std::move(done)});
  });
}

void Member::CheckLeaderMove() {
  if (leader_moves_.empty()) return;
  const base::Duration now = options_.clock->Monotonic();
  // Raft's own word: what is published may be a step behind.
  const raft::NodeStatus status = consensus_->node().GetStatus();
  const bool leads = status.soft_state.role == raft::Role::kLeader;
  for (LeaderMove& move : std::exchange(leader_moves_, {})) {
    if (status.soft_state.lead == move.to) {
      LOG_INFO("leadership transfer finished", {"local-member-id", base::IdToHex(id_)},
               {"transferee-member-id", base::IdToHex(move.to)});
      move.done(absl::OkStatus());
    } else if (now >= move.deadline || (leads && status.lead_transferee != move.to)) {
      // Raft gives a transfer up after an election timeout.
      move.done(TimeoutLeaderTransferError());
    } else {
      leader_moves_.push_back(std::move(move));
    }
  }
}

absl::StatusOr<peer::Answer> Member::AskLeader(const peer::Question& question,
                                               base::Duration timeout) {
  const auto view = membership();
  const cluster::Member* to = view->Find(leader());
  if (to == nullptr) return NoLeaderError();
  absl::Status failure = NoLeaderError();
  for (const std::string& url : to->peer_urls) {
    auto answer = transport_.Ask(url, question, timeout);
    if (answer.ok()) return answer;
    failure = answer.status();
  }
  return failure;
}

void Member::HandOverLeadership() {
  if (!is_leader()) {
    LOG_INFO("skipped leadership transfer; local server is not leader",
             {"local-member-id", base::IdToHex(id_)},
             {"current-leader-member-id", base::IdToHex(leader())});
    return;
  }
  const std::vector<uint64_t> voters = membership()->Voters();
  if (voters.size() <= 1) {
    LOG_INFO("skipped leadership transfer for single voting member cluster",
             {"local-member-id", base::IdToHex(id_)},
             {"current-leader-member-id", base::IdToHex(leader())});
    return;
  }
  uint64_t to = 0;
  base::Duration longest{};
  for (const uint64_t id : voters) {
    const auto since = id == id_ ? std::nullopt : transport_.ActiveSince(id);
    if (since && (to == 0 || *since < longest)) {
      to = id;
      longest = *since;
    }
  }
  if (to == 0) {
    LOG_WARN("leadership transfer failed", {"local-member-id", base::IdToHex(id_)},
             {"error", "no other voter is reachable"});
    return;
  }
  struct Wait {
    std::mutex mutex;
    std::condition_variable wake;
    bool over = false;  // guarded by mutex
    absl::Status status;
  };
  const auto wait = std::make_shared<Wait>();
  MoveLeader(to, [wait](const absl::Status& status) {
    const std::lock_guard lock(wait->mutex);
    wait->over = true;
    wait->status = status;
    wait->wake.notify_all();
  });
  std::unique_lock lock(wait->mutex);
  wait->wake.wait_for(lock, request_timeout() + kVersionTimeout, [&] { return wait->over; });
  if (!wait->over || !wait->status.ok()) {
    LOG_WARN("leadership transfer failed", {"local-member-id", base::IdToHex(id_)},
             {"error", wait->over ? wait->status : TimeoutLeaderTransferError()});
  }
}

bool Member::HasRoom(uint64_t cost) const {
  if (cost == 0 || quota_bytes_ < 0) return true;
  const mvcc::BackendSizes sizes = backend_->sizes();
  const uint64_t used = options_.quota_counts_live_pages ? sizes.live_bytes : sizes.file_bytes;
  return used + cost < static_cast<uint64_t>(quota_bytes_);
}

void Member::RaiseNoSpace(absl::AnyInvocable<void(const absl::Status&)> done) {
  if (alarms_->HasNoSpace()) return done(absl::OkStatus());
  const mvcc::BackendSizes sizes = backend_->sizes();
  LOG_WARN("message exceeded backend quota; raising alarm", {"quota-size-bytes", quota_bytes_},
           {"db-size-bytes", sizes.file_bytes}, {"local-member-id", base::IdToHex(id_)});
  pb::AlarmRequest request;
  request.set_action(pb::AlarmRequest::ACTIVATE);
  request.set_memberid(id_);
  request.set_alarm(pb::NOSPACE);
  Propose(
      RequestKind::kAlarm, request.SerializeAsString(),
      std::make_unique<OwnProposal>(
          [done = std::move(done)](const ApplyResult& result) mutable { done(result.status); }));
}

void Member::WhenReady(absl::AnyInvocable<void()> done) {
  {
    const std::lock_guard lock(ready_mutex_);
    if (!ready_.load()) {
      ready_waiters_.push_back(std::move(done));
      return;
    }
  }
  done();
}

void Member::MarkReady() {
  decltype(ready_waiters_) waiters;
  {
    const std::lock_guard lock(ready_mutex_);
    ready_.store(true);
    waiters.swap(ready_waiters_);
  }
  for (auto& done : waiters) done();
}

void Member::Tick() {
  const base::Duration now = options_.clock->Monotonic();
  Publish();
  if (published_.load() && !ready_.load() && !AwaitsPromotion()) MarkReady();
  CheckLeaderMove();
  if (!is_leader()) return;
  PromoteReadyLearners();
  if (now - last_version_check_ >= kVersionCheckInterval) {
    last_version_check_ = now;
    SetClusterVersionIfDue();
    LiftNoSpaceIfDue();
    WakeHelper(&version_check_due_);
  }
  if (now - last_expiry_ >= kExpiryInterval) {
    last_expiry_ = now;
    ExpireLeases();
  }
  AutoCompact();
  if (storage_->memory().MemoryBytes() > options_.log_bytes_max)
    RequestSnapshot(apply_->applied_index());
}

void Member::Publish() {
  const base::Duration now = options_.clock->Monotonic();
  if (published_.load() || leader() == raft::kNoNode) return;
  if (publishing_ && now - publish_asked_ < request_timeout()) return;
  publishing_ = true;
  publish_asked_ = now;
  pb::ClusterMemberAttrSetRequest request;
  request.set_member_id(id_);
  request.mutable_member_attributes()->set_name(options_.name);
  for (const std::string& url : options_.client_urls)
    request.mutable_member_attributes()->add_client_urls(url);
  Propose(RequestKind::kClusterMemberAttrSet, request.SerializeAsString(),
          std::make_unique<OwnProposal>([this](const ApplyResult& result) {
            if (!result.status.ok() || published_.exchange(true)) return;
            LOG_INFO("published local member to cluster through raft",
                     {"local-member-id", base::IdToHex(id_)},
                     {"local-member-attributes",
                      fmt::format("{{Name:{} ClientURLs:[{}]}}", options_.name,
                                  fmt::join(options_.client_urls, " "))},
                     {"cluster-id", base::IdToHex(cluster_id_)},
                     {"publish-timeout", base::DurationText(request_timeout())});
            if (!AwaitsPromotion()) MarkReady();
            consensus_->Post([this] { SetClusterVersionIfDue(); });
          }));
}

void Member::SetClusterVersionIfDue() {
  if (!is_leader() || !published_.load()) return;
  const auto view = membership_.view();
  // With other members the lowest version of all counts: NegotiateClusterVersion().
  if (view->members.size() != 1) return;
  const std::string wanted = ClusterVersionOf(options_.version);
  if (view->cluster_version == wanted) return;
  ProposeClusterVersion(wanted);
}

void Member::ProposeClusterVersion(const std::string& version) {
  const std::string now = membership_.view()->cluster_version;
  if (now.empty()) {
    LOG_INFO("setting up initial cluster version using v3 API", {"cluster-version", version});
  } else {
    LOG_INFO("updating cluster version using v3 API", {"from", now}, {"to", version});
  }
  pb::ClusterVersionSetRequest request;
  request.set_ver(version);
  Propose(RequestKind::kClusterVersionSet, request.SerializeAsString(),
          std::make_unique<OwnProposal>(nullptr));
}

void Member::WakeHelper(std::atomic<bool>* due) {
  due->store(true);
  // The helper is either asleep, or has not looked yet.
  { const std::lock_guard lock(helper_mutex_); }
  helper_wake_.notify_all();
}

// Helper thread. The leader sets the lowest minor of all members; one that cannot be asked leaves
// it unknown.
void Member::NegotiateClusterVersion() {
  const auto view = membership_.view();
  if (!is_leader() || view->members.size() < 2) return;
  const auto own = cluster::ParseVersion(options_.version);
  CHECK(own.ok());
  std::optional<cluster::Version> lowest = *own;
  for (const auto& [id, member] : view->members) {
    if (id == id_) continue;
    const auto versions = AskVersions(transport_, member.peer_urls, kVersionTimeout);
    const auto parsed = versions.ok() ? cluster::ParseVersion(versions->server) : versions.status();
    if (!parsed.ok()) {
      LOG_WARN("failed to reach the peer URL", {"remote-member-id", base::IdToHex(id)},
               {"error", parsed.status()});
      lowest.reset();
      break;
    }
    lowest = std::min(*lowest, *parsed);
  }
  const auto text = [](const cluster::Version& v) {
    return fmt::format("{}.{}.0", v.major, v.minor);
  };
  if (view->cluster_version.empty()) return ProposeClusterVersion(lowest ? text(*lowest) : "3.0.0");
  const auto present = cluster::ParseVersion(view->cluster_version);
  if (!lowest || !present.ok() || lowest->major != present->major ||
      lowest->minor <= present->minor) {
    return;
  }
  ProposeClusterVersion(text(*lowest));
}

void Member::ExpireLeases() {
  for (const int64_t id : lessor_->TakeExpired(kExpiredPerRound)) {
    pb::LeaseRevokeRequest request;
    request.set_id(id);
    Propose(RequestKind::kLeaseRevoke, request.SerializeAsString(),
            std::make_unique<OwnProposal>(nullptr));
  }
  const auto due = lessor_->TakeCheckpoints(kCheckpointsPerRound);
  if (due.empty()) return;
  pb::LeaseCheckpointRequest request;
  for (const auto& item : due) {
    pb::LeaseCheckpoint* checkpoint = request.add_checkpoints();
    checkpoint->set_id(item.id);
    checkpoint->set_remaining_ttl(item.remaining_ttl_seconds);
  }
  Propose(RequestKind::kLeaseCheckpoint, request.SerializeAsString(),
          std::make_unique<OwnProposal>(nullptr));
}

void Member::AutoCompact() {
  const auto revision =
      auto_compactor_->Due(options_.clock->Monotonic(), store_->current_revision(), is_leader());
  if (!revision) return;
  LOG_INFO("starting auto compaction", {"revision", *revision});
  pb::CompactionRequest request;
  request.set_revision(*revision);
  Propose(RequestKind::kCompaction, request.SerializeAsString(),
          std::make_unique<OwnProposal>([revision = *revision](const ApplyResult& result) {
            if (result.status.ok() || absl::IsOutOfRange(result.status)) {
              LOG_INFO("completed auto compaction", {"revision", revision});
            } else {
              LOG_WARN("failed auto compaction", {"revision", revision}, {"error", result.status});
            }
          }));
}

void Member::LiftNoSpaceIfDue() {
  if (!options_.auto_disarm_no_space || !alarms_->HasNoSpace()) return;
  // Room for the largest request, so that the alarm does not flap.
  if (!HasRoom(options_.max_request_bytes)) return;
  pb::AlarmRequest request;
  request.set_action(pb::AlarmRequest::DEACTIVATE);
  request.set_memberid(id_);
  request.set_alarm(pb::NOSPACE);
  LOG_INFO("there is room again; lifting the NOSPACE alarm",
           {"local-member-id", base::IdToHex(id_)});
  Propose(RequestKind::kAlarm, request.SerializeAsString(), std::make_unique<OwnProposal>(nullptr));
}

void Member::OnBatchEnd(uint64_t applied_index) {
  observer_.OnBatchEnd();
  if (applied_index - snapshot_index_.load() > options_.snapshot_count)
    RequestSnapshot(applied_index);
}

void Member::RequestSnapshot(uint64_t index) {
  if (index <= snapshot_index_.load() || snapshot_running_.exchange(true)) return;
  const uint64_t term = apply_->applied_term();
  auto view = membership_.view();
  // The db must hold everything up to `index` durably before the log may forget it.
  backend_->RequestCommit(
      [this, index, term, view = std::move(view)](const absl::Status& status) mutable {
        if (!status.ok()) return;
        consensus_->Post([this, index, term, view = std::move(view)]() mutable {
          SaveSnapshot(index, term, std::move(view));
        });
      });
}

void Member::SaveSnapshot(uint64_t index, uint64_t term, cluster::Membership::ViewPtr view) {
  CHECK_OP(backend_->durable_index(), >=, index);
  const wal::SnapshotRecord record{
      .index = index,
      .term = term,
      .conf_state = {.voters = view->Voters(), .learners = view->Learners(), .auto_leave = false}};
  const std::string data = wal::EncodeV2Store(ToV2(*view));
  absl::Status status =
      wal::WriteSnapFile(*options_.files, paths_.snap_dir, {.record = record, .data = data});
  if (status.ok()) status = log_->SaveSnapshotRecord(record);
  if (!status.ok()) return consensus_->Fail(status);
  log_->ReleaseTo(index);
  raft::MemoryStorage& memory = storage_->memory();
  const auto made = memory.CreateSnapshot(
      index, {.voters = view->Voters(), .learners = view->Learners()}, raft::Buffer::Copy(data));
  if (made.ok()) {
    uint64_t keep = options_.snapshot_catchup_entries;
    if (memory.MemoryBytes() > options_.log_bytes_max)
      keep = std::min<uint64_t>(keep, memory.EntryCount() / 4);
    // Who has just got a snapshot goes on with the entries after it.
    const bool awaited = (snapshots_being_sent_.load() > 0 ||
                          options_.clock->Monotonic().count() < keep_log_until_ns_.load()) &&
                         memory.MemoryBytes() <= options_.log_bytes_max;
    if (!awaited && index > keep && index - keep >= memory.FirstIndex()) {
      const absl::Status compacted = memory.Compact(index - keep);
      CHECK(compacted.ok());
    }
  }
  snapshot_index_.store(index);
  snapshot_running_.store(false);
  LOG_INFO("saved snapshot to disk", {"snapshot-index", index});
  observer_.OnSnapshotSaved(index);
  WakeHelper(&housekeeping_due_);
}

void Member::HelperMain() {
  while (true) {
    housekeeping_due_.store(false);
    Housekeeping();
    if (version_check_due_.exchange(false)) NegotiateClusterVersion();
    std::unique_lock lock(helper_mutex_);
    helper_wake_.wait_for(lock, kHousekeepingInterval, [this] {
      return helper_stop_ || version_check_due_.load() || housekeeping_due_.load();
    });
    if (helper_stop_) return;
  }
}

void Member::Housekeeping() {
  if (const absl::Status status = log_->PreallocateNext(); !status.ok()) {
    LOG_WARN("failed to preallocate the next log segment", {"error", status});
  }
  const auto purged = log_->Purge(options_.max_wals);
  if (!purged.ok()) LOG_WARN("failed to purge log segments", {"error", purged.status()});
  const auto snaps = wal::PurgeSnapFiles(*options_.files, paths_.snap_dir, options_.max_snapshots);
  if (!snaps.ok()) LOG_WARN("failed to purge snapshot files", {"error", snaps.status()});
  // Received, but overtaken by the log.
  const auto databases =
      wal::RemoveSnapDbsBelow(*options_.files, paths_.snap_dir, snapshot_index_.load());
  if (!databases.ok())
    LOG_WARN("failed to remove received databases", {"error", databases.status()});
  for (const auto* names : {&purged, &snaps, &databases}) {
    if (!names->ok()) continue;
    for (const std::string& name : **names) LOG_INFO("purged", {"path", name});
  }
}

// --- what the transport asks and tells ---

class Member::ImageSource final : public peer::SnapshotSource {
 public:
  ImageSource(Member& member, std::unique_ptr<mvcc::BackendImage> image)
      : member_(member), image_(std::move(image)) {
    member_.snapshots_being_sent_.fetch_add(1);
  }
  ~ImageSource() override {
    member_.keep_log_until_ns_.store(
        (member_.options_.clock->Monotonic() + kKeepLogAfterSnapshot).count());
    member_.snapshots_being_sent_.fetch_sub(1);
  }
  uint64_t size_bytes() const override { return image_->size_bytes(); }
  absl::Status Read(uint64_t offset, char* out, size_t n) const override {
    return image_->Read(offset, out, n);
  }

 private:
  Member& member_;
  const std::unique_ptr<mvcc::BackendImage> image_;
};

namespace {

// A database on its way in: beside its name until it is whole.
class FileSink final : public peer::SnapshotSink {
 public:
  FileSink(base::Files& files, std::unique_ptr<base::File> file, std::string path)
      : files_(files), file_(std::move(file)), path_(std::move(path)) {}
  ~FileSink() override {
    if (file_ == nullptr) return;
    const std::string path = file_->path();
    file_.reset();
    files_.Remove(path).IgnoreError();  // else the next start does it
  }
  absl::Status Write(std::string_view bytes) override {
    return bytes.empty() ? absl::OkStatus() : file_->Append(bytes);
  }
  absl::Status Commit() override {
    RETURN_IF_ERROR(file_->Sync());
    if (base::Exists(files_, path_)) return absl::OkStatus();  // sent twice; one will do
    RETURN_IF_ERROR(files_.Rename(file_->path(), path_));
    file_.reset();
    return files_.SyncDirectory(base::DirName(path_));
  }

 private:
  base::Files& files_;
  std::unique_ptr<base::File> file_;
  const std::string path_;
};

}  // namespace

void Member::OnMessage(raft::Message message) { consensus_->Step(std::move(message)); }

bool Member::IsRemoved(raft::NodeId id) const { return membership_.view()->removed.contains(id); }

void Member::OnUnreachable(raft::NodeId id) {
  consensus_->Post([this, id] { consensus_->node().ReportUnreachable(id); });
}

void Member::OnSnapshotSent(raft::NodeId id, bool ok) {
  consensus_->Post([this, id, ok] { consensus_->node().ReportSnapshot(id, ok); });
}

void Member::OnSelfRemoved() {
  if (removed_.exchange(true)) return;
  LOG_WARN("server error", {"error", "the member has been permanently removed from the cluster"});
  LOG_WARN("data-dir used by this member must be removed");
  observer_.OnRemoved();
}

absl::StatusOr<peer::OutgoingSnapshot> Member::OpenSnapshot() {
  ASSIGN_OR_RETURN(auto image, backend_->Image());
  ASSIGN_OR_RETURN(const cluster::Membership::View view, LoadMembership(*image, paths_.db));
  auto snapshot = std::make_shared<raft::Snapshot>();
  snapshot->metadata = {.conf_state = {.voters = view.Voters(), .learners = view.Learners()},
                        .index = image->consistent_index(),
                        .term = image->term()};
  snapshot->data = raft::Buffer::Own(wal::EncodeV2Store(ToV2(view)));
  return peer::OutgoingSnapshot{.snapshot = std::move(snapshot),
                                .database = std::make_unique<ImageSource>(*this, std::move(image))};
}

absl::StatusOr<std::unique_ptr<peer::SnapshotSink>> Member::ReceiveSnapshot(raft::Index index) {
  // The name is not known to anybody and begins as scratch files do.
  const std::string scratch =
      base::JoinPath(paths_.snap_dir, fmt::format("tmp{:016x}", NextRequestId()));
  ASSIGN_OR_RETURN(
      auto file, options_.files->Open(scratch, {.write = true, .create = true, .exclusive = true}));
  return std::make_unique<FileSink>(*options_.files, std::move(file),
                                    base::JoinPath(paths_.snap_dir, wal::SnapDbFileName(index)));
}

absl::Status Member::SaveReceivedSnapshot(const raft::Snapshot& snapshot) {
  const raft::SnapshotMetadata& metadata = snapshot.metadata;
  const std::string database = base::JoinPath(paths_.snap_dir, wal::SnapDbFileName(metadata.index));
  if (!base::Exists(*options_.files, database)) {
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition,
                            "a snapshot at {} came without its database {}", metadata.index,
                            database);
  }
  const wal::SnapshotRecord record{.index = metadata.index,
                                   .term = metadata.term,
                                   .conf_state = {.voters = metadata.conf_state.voters,
                                                  .learners = metadata.conf_state.learners,
                                                  .auto_leave = false}};
  std::string data(snapshot.data.view());
  if (data.empty()) data = wal::EncodeV2Store(ToV2(*membership_.view()));
  return wal::WriteSnapFile(*options_.files, paths_.snap_dir, {.record = record, .data = data});
}

absl::Status Member::InstallReceivedSnapshot(const raft::Snapshot& snapshot) {
  const uint64_t index = snapshot.metadata.index;
  LOG_INFO("applying snapshot", {"current-snapshot-index", snapshot_index_.load()},
           {"current-applied-index", apply_->applied_index()},
           {"incoming-leader-snapshot-index", index});
  RETURN_IF_ERROR(store_->Reload(base::JoinPath(paths_.snap_dir, wal::SnapDbFileName(index))));
  if (backend_->consistent_index() < index) {
    return base::MakeStatus(
        absl::StatusCode::kDataLoss,
        "the database received for a snapshot at {} holds entries up to {} only", index,
        backend_->consistent_index());
  }
  RETURN_IF_ERROR(lessor_->Load(*backend_->View()));
  lessor_->LoadAttachments(store_->TakeAttachments());
  RETURN_IF_ERROR(alarms_->Load());
  ASSIGN_OR_RETURN(auto view, LoadMembership(*backend_->View(), paths_.db));
  RETURN_IF_ERROR(CheckClusterVersion(view, options_.version));
  if (!view.cluster_version.empty()) observer_.OnClusterVersion(view.cluster_version);
  const auto before = membership_.view();
  membership_.Reset(std::move(view));
  const auto after = membership_.view();
  for (const auto& [id, member] : before->members) {
    if (after->Find(id) == nullptr) transport_.RemovePeer(id);
  }
  for (const auto& [id, member] : after->members) {
    if (id != id_) transport_.AddPeer(id, member.peer_urls);
  }
  NoteOwnRole();
  snapshot_index_.store(index);
  LOG_INFO("applied snapshot", {"current-applied-index", index},
           {"current-rev", store_->current_revision()});
  return absl::OkStatus();
}

void Member::OnConfChange(const raft::ConfChange& change) {
  const uint64_t id = change.node_id;
  const auto view = membership();
  if (id == id_) NoteOwnRole();
  if (change.type == raft::ConfChangeType::kRemoveNode) {
    if (id == id_) return OnSelfRemoved();
    transport_.RemovePeer(id);
  } else if (const cluster::Member* member = view->Find(id); member != nullptr && id != id_) {
    transport_.AddPeer(id, member->peer_urls);
  }
}

void Member::Fatal(const absl::Status& status) {
  if (fatal_.exchange(true)) return;
  observer_.OnFatal(status);
}

}  // namespace member
