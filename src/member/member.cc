#include "member/member.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "member/errors.h"
#include "proto/internal.pb.h"
#include "wal/snap_file.h"
#include "wal/v2_store.h"

namespace member {
namespace {

namespace pb = etcdserverpb;

constexpr base::Duration kExpiryInterval = std::chrono::milliseconds(500);
constexpr size_t kExpiredPerRound = 500;
constexpr size_t kCheckpointsPerRound = 1000;
constexpr base::Duration kVersionCheckInterval = std::chrono::seconds(5);
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
  ASSIGN_OR_RETURN(Bootstrapped b, Bootstrap(options_, std::move(backend_options)));
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
                       .request_timeout = request_timeout()},
      ConsensusCallbacks{.soft_state =
                             [this](uint64_t leader, raft::Role role, uint64_t term) {
                               if (role == raft::Role::kLeader) {
                                 lessor_->Promote(options_.tick * options_.election_ticks);
                               } else {
                                 lessor_->Demote();
                               }
                               observer_.OnSoftState(leader, role, term);
                             },
                         .conf_state = [](const raft::ConfState&) {},
                         .fsync = [this](base::Duration took) { observer_.OnFsync(took); },
                         .fatal = [this](const absl::Status& status) { Fatal(status); },
                         .tick = [this] { Tick(); }});
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
  if (consensus_ != nullptr) consensus_->Stop();
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
  if (!fatal_.load() && std::exchange(housekeeping_due_, false)) Housekeeping();
}

bool Member::is_learner() const {
  const auto view = membership_.view();
  const cluster::Member* self = view->Find(id_);
  return self != nullptr && self->is_learner;
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
  if (const auto view = membership(); !learner && options_.strict_reconfig_check) {
    if (view->Voters().size() == 1) {
      // As a voter that has not started it would make a quorum of two, and stop every write.
      LOG_WARN("the second member of a cluster of one is added as a learner, so that writes go on",
               {"member-id", base::IdToHex(id)}, {"peer-urls", peer_urls});
      learner = true;
    } else if (view->StartedVoters() < (view->Voters().size() + 1) / 2 + 1) {
      proposal->Done({.status = NotEnoughStartedError()});
      return id;
    }
  }
  ProposeChange(learner ? raft::ConfChangeType::kAddLearnerNode : raft::ConfChangeType::kAddNode,
                {.member = {.id = id, .peer_urls = std::move(peer_urls), .is_learner = learner}},
                std::move(proposal));
  return id;
}

void Member::RemoveMember(uint64_t id, ProposalPtr proposal) {
  const auto view = membership();
  if (const cluster::Member* member = view->Find(id);
      options_.strict_reconfig_check && member != nullptr && !member->is_learner) {
    // What is left must be a quorum of started members.
    const size_t left = view->Voters().size() - 1;
    if (left == 0 || view->StartedVoters(/*except=*/id) < left / 2 + 1)
      return proposal->Done({.status = NotEnoughStartedError()});
  }
  ProposeChange(raft::ConfChangeType::kRemoveNode, {.member = {.id = id}}, std::move(proposal));
}

void Member::UpdateMember(uint64_t id, std::vector<std::string> peer_urls, ProposalPtr proposal) {
  ProposeChange(raft::ConfChangeType::kUpdateNode,
                {.member = {.id = id, .peer_urls = std::move(peer_urls)}}, std::move(proposal));
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
  if (!is_leader()) return;
  if (now - last_version_check_ >= kVersionCheckInterval) {
    last_version_check_ = now;
    SetClusterVersionIfDue();
    LiftNoSpaceIfDue();
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
            MarkReady();
            consensus_->Post([this] { SetClusterVersionIfDue(); });
          }));
}

void Member::SetClusterVersionIfDue() {
  if (!is_leader() || !published_.load()) return;
  const auto view = membership_.view();
  // With other members the lowest version of all counts; that needs their /version and thus a
  // transport.
  if (view->members.size() != 1) return;
  const std::string wanted = ClusterVersionOf(options_.version);
  if (view->cluster_version == wanted) return;
  if (view->cluster_version.empty()) {
    LOG_INFO("setting up initial cluster version using v3 API", {"cluster-version", wanted});
  }
  pb::ClusterVersionSetRequest request;
  request.set_ver(wanted);
  Propose(RequestKind::kClusterVersionSet, request.SerializeAsString(),
          std::make_unique<OwnProposal>(nullptr));
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
    if (index > keep && index - keep >= memory.FirstIndex()) {
      const absl::Status compacted = memory.Compact(index - keep);
      CHECK(compacted.ok());
    }
  }
  snapshot_index_.store(index);
  snapshot_running_.store(false);
  LOG_INFO("saved snapshot to disk", {"snapshot-index", index});
  observer_.OnSnapshotSaved(index);
  if (!options_.threads) housekeeping_due_ = true;
  helper_wake_.notify_all();
}

void Member::HelperMain() {
  while (true) {
    Housekeeping();
    std::unique_lock lock(helper_mutex_);
    helper_wake_.wait_for(lock, kHousekeepingInterval, [this] { return helper_stop_; });
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
  for (const auto* names : {&purged, &snaps}) {
    if (!names->ok()) continue;
    for (const std::string& name : **names) LOG_INFO("purged", {"path", name});
  }
}

void Member::Fatal(const absl::Status& status) {
  if (fatal_.exchange(true)) return;
  observer_.OnFatal(status);
}

}  // namespace member
