#include "member/consensus.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/status.h"
#include "member/errors.h"

namespace member {
namespace {

// An unanswered ReadIndex is asked again after this long; messages may have been lost.
constexpr base::Duration kReadRetry = std::chrono::milliseconds(500);

raft::Buffer ContextBuffer(uint64_t context) {
  std::string bytes(8, '\0');
  base::StoreBe64(bytes.data(), context);
  return raft::Buffer::Own(std::move(bytes));
}

}  // namespace

MemberLogStorage::MemberLogStorage(raft::HardState hard_state, raft::ConfState conf_state,
                                   uint64_t start_index, uint64_t start_term)
    : initial_{.hard_state = hard_state, .conf_state = conf_state} {
  memory_.SetHardState(hard_state);
  if (start_index > 0) {
    auto snapshot = std::make_shared<raft::Snapshot>();
    snapshot->metadata = {
        .conf_state = std::move(conf_state), .index = start_index, .term = start_term};
    const absl::Status applied = memory_.ApplySnapshot(std::move(snapshot));
    CHECK(applied.ok());
  }
}

Consensus::Consensus(std::unique_ptr<raft::RawNode> node, MemberLogStorage& storage, wal::Log& log,
                     ApplyLoop& apply, PendingProposals& pending, peer::Transport& transport,
                     const base::Clock& clock, ConsensusOptions options,
                     ConsensusCallbacks callbacks)
    : node_(std::move(node)),
      storage_(storage),
      log_(log),
      apply_(apply),
      pending_(pending),
      transport_(transport),
      clock_(clock),
      options_(options),
      callbacks_(std::move(callbacks)),
      next_tick_(clock.Monotonic() + options.tick),
      read_context_(options.first_read_context) {
  PublishState();
}

Consensus::~Consensus() { Stop(); }

void Consensus::Start() {
  thread_ = std::thread([this] { ThreadMain(); });
}

void Consensus::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  read_now_.store(false);
  Inbox left;
  {
    const std::lock_guard lock(mutex_);
    left = std::exchange(inbox_, {});
  }
  for (ProposalPtr& proposal : left.proposals) proposal->Done({.status = StoppedError()});
  for (auto& done : left.reads) done(StoppedError());
  for (ProposalPtr& proposal : std::exchange(leaderless_, {}))
    proposal->Done({.status = StoppedError()});
  for (ProposalPtr& proposal : pending_.TakeAll()) proposal->Done({.status = StoppedError()});
  FailReads(StoppedError(), base::Duration::max());
}

void Consensus::Propose(ProposalPtr proposal) {
  const size_t bytes = proposal->data.size();
  absl::Status refused;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      refused = StoppedError();
    } else if (inbox_bytes_ > options_.inbox_bytes_max ||
               committed_index() > apply_.applied_index() + options_.apply_lag_max) {
      refused = TooManyRequestsError();
    } else {
      inbox_bytes_ += bytes;
      inbox_.proposals.push_back(std::move(proposal));
      if (!waiting_) return;
      waiting_ = false;
    }
  }
  if (!refused.ok()) {
    proposal->Done({.status = std::move(refused)});
    return;
  }
  wake_.notify_one();
}

void Consensus::ProposeConfChange(raft::ConfChange change, ProposalPtr proposal) {
  Post([this, change = std::move(change), proposal = std::move(proposal)]() mutable {
    proposal->started = clock_.Monotonic();
    const uint64_t id = proposal->request_id;
    pending_.Add(std::move(proposal));
    const absl::Status proposed = node_->ProposeConfChange(change);
    if (proposed.ok()) return;
    if (ProposalPtr refused = pending_.Take(id)) refused->Done({.status = proposed});
  });
}

void Consensus::Read(absl::AnyInvocable<void(const absl::Status&)> done) {
  if (ReadNow()) {
    done(absl::OkStatus());
    return;
  }
  bool stopped = false;
  {
    const std::lock_guard lock(mutex_);
    stopped = stopping_;
    if (!stopped) inbox_.reads.push_back(std::move(done));
    waiting_ = false;
  }
  if (stopped) {
    done(StoppedError());
  } else {
    wake_.notify_one();
  }
}

bool Consensus::Step(raft::Message message) {
  uint64_t bytes = sizeof message;
  for (const raft::Entry& entry : message.entries) bytes += sizeof entry + entry.data.size();
  const std::lock_guard lock(mutex_);
  if (stopping_ || inbox_.messages.size() >= options_.inbox_messages_max ||
      inbox_message_bytes_ > options_.inbox_message_bytes_max) {
    return false;
  }
  inbox_message_bytes_ += bytes;
  inbox_.messages.push_back(std::move(message));
  if (std::exchange(waiting_, false)) wake_.notify_one();
  return true;
}

void Consensus::Post(absl::AnyInvocable<void()> task) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  inbox_.tasks.push_back(std::move(task));
  waiting_ = false;
  wake_.notify_one();
}

void Consensus::ThreadMain() {
  while (true) {
    RunOnce();
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    if (!inbox_.empty()) continue;
    const base::Duration now = clock_.Monotonic();
    if (next_tick_ <= now) continue;
    waiting_ = true;
    wake_.wait_for(lock, next_tick_ - now, [this] { return stopping_ || !inbox_.empty(); });
    waiting_ = false;
  }
}

base::Duration Consensus::RunOnce() {
  Inbox inbox;
  {
    const std::lock_guard lock(mutex_);
    inbox = std::exchange(inbox_, {});
    inbox_bytes_ = 0;
    inbox_message_bytes_ = 0;
  }
  if (!failed_) Handle(std::move(inbox));
  base::Duration now = clock_.Monotonic();
  while (!failed_ && next_tick_ <= now) {
    TickOnce(now);
    // After a long stall (a suspended process) missed ticks are not made up for, or every peer
    // would be given up at once.
    next_tick_ =
        std::max(next_tick_ + options_.tick, now - options_.tick * options_.election_ticks);
    now = clock_.Monotonic();
  }
  if (!failed_) ProcessReady();
  if (!failed_) PublishState();
  return next_tick_ - now;
}

void Consensus::Handle(Inbox inbox) {
  for (auto& task : inbox.tasks) task();
  if (failed_) return;  // a task found the disk broken
  for (raft::Message& message : inbox.messages) {
    const absl::Status status = node_->Step(std::move(message));
    if (absl::IsDataLoss(status)) return Fail(status);
  }
  if (!inbox.proposals.empty()) ProposeAll(std::move(inbox.proposals));
  if (!inbox.reads.empty()) {
    const base::Duration now = clock_.Monotonic();
    for (auto& done : inbox.reads) next_round_.reads.emplace_back(now, std::move(done));
    if (round_.reads.empty()) StartReadRound();
  }
}

void Consensus::ProposeAll(std::vector<ProposalPtr> proposals) {
  if (node_->lead() == raft::kNoNode) {
    // There will be one soon; until then the clients wait, up to their deadline.
    for (ProposalPtr& proposal : proposals) {
      if (proposal->started == base::Duration{}) proposal->started = clock_.Monotonic();
      leaderless_.push_back(std::move(proposal));
    }
    return;
  }
  std::vector<raft::Entry> entries(proposals.size());
  const base::Duration now = clock_.Monotonic();
  for (size_t i = 0; i < proposals.size(); ++i) {
    entries[i].data = std::move(proposals[i]->data);
    if (proposals[i]->started == base::Duration{}) proposals[i]->started = now;
  }
  // Registered first: an entry may be applied before ProposeBatch's caller sees it return.
  std::vector<uint64_t> ids;
  ids.reserve(proposals.size());
  for (ProposalPtr& proposal : proposals) {
    ids.push_back(proposal->request_id);
    pending_.Add(std::move(proposal));
  }
  const absl::Status proposed = node_->ProposeBatch(std::move(entries));
  if (proposed.ok()) return;
  // Leadership is being handed over, say.
  for (const uint64_t id : ids) {
    if (ProposalPtr refused = pending_.Take(id)) refused->Done({.status = proposed});
  }
}

void Consensus::ProcessReady() {
  while (!failed_ && node_->HasReady()) {
    raft::Ready ready = node_->TakeReady();
    if (ready.soft_state) {
      PublishState();
      callbacks_.soft_state(ready.soft_state->lead, ready.soft_state->role, node_->term());
      if (last_leader_ != ready.soft_state->lead && last_leader_ != raft::kNoNode) {
        FailReads(LeaderChangedError(), base::Duration::max());
      }
      last_leader_ = ready.soft_state->lead;
      // Not from within a batch of raft's.
      if (last_leader_ != raft::kNoNode) Post([this] { OnLeaderFound(); });
    }
    if (!ready.messages.empty()) transport_.Send(std::move(ready.messages));
    if (ready.snapshot != nullptr) {
      if (const absl::Status saved = PersistSnapshot(*ready.snapshot, ready.hard_state);
          !saved.ok())
        return Fail(saved);
    }
    if (const absl::Status saved = Persist(ready); !saved.ok()) return Fail(saved);
    storage_.memory().Append(std::move(ready.entries));
    if (ready.snapshot != nullptr) {
      if (const absl::Status installed = InstallSnapshot(*ready.snapshot); !installed.ok())
        return Fail(installed);
    }
    // What a changed configuration allows or forbids must be known before this member votes or
    // answers, unless it leads: then the answers are its own.
    const bool leads = node_->role() == raft::Role::kLeader;
    if (leads && !ready.messages_after_write.empty())
      transport_.Send(std::move(ready.messages_after_write));
    if (!ready.committed_entries.empty()) ApplyCommitted(std::move(ready.committed_entries));
    if (failed_) return;
    if (!leads && !ready.messages_after_write.empty())
      transport_.Send(std::move(ready.messages_after_write));
    if (!ready.read_states.empty()) FinishReads(ready.read_states);
    node_->Advance();
    PublishState();
  }
}

void Consensus::ApplyCommitted(std::vector<raft::Entry> entries) {
  const bool conf_change = std::any_of(entries.begin(), entries.end(), [](const auto& e) {
    return e.type != raft::EntryType::kNormal;
  });
  committed_.store(entries.back().index, std::memory_order_release);
  apply_.Push(std::move(entries));
  if (conf_change) {
    apply_.Drain();
    PassConfChanges();
  } else {
    apply_.TryRun(options_.inline_apply_max);
  }
}

// The database lies beside the member's own, durably. After a crash here the log does not begin
// with the snapshot yet, or it does and the start puts the database in place.
absl::Status Consensus::PersistSnapshot(const raft::Snapshot& snapshot,
                                        const raft::HardState& state) {
  RETURN_IF_ERROR(callbacks_.save_snapshot(snapshot));
  const raft::SnapshotMetadata& metadata = snapshot.metadata;
  RETURN_IF_ERROR(log_.SaveSnapshotRecord({.index = metadata.index,
                                           .term = metadata.term,
                                           .conf_state = {.voters = metadata.conf_state.voters,
                                                          .learners = metadata.conf_state.learners,
                                                          .auto_leave = false}}));
  // The log may begin at a snapshot only once its index is known to be committed.
  std::optional<wal::HardState> commit;
  if (!state.empty())
    commit = wal::HardState{.term = state.term, .vote = state.vote, .commit = state.commit};
  RETURN_IF_ERROR(log_.Save({}, commit, /*sync=*/true));
  return storage_.memory().ApplySnapshot(std::make_shared<raft::Snapshot>(snapshot));
}

absl::Status Consensus::InstallSnapshot(const raft::Snapshot& snapshot) {
  const raft::SnapshotMetadata& metadata = snapshot.metadata;
  RETURN_IF_ERROR(apply_.Install(metadata.index, metadata.term,
                                 [&] { return callbacks_.install_snapshot(snapshot); }));
  log_.ReleaseTo(metadata.index);
  committed_.store(metadata.index, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status Consensus::Persist(const raft::Ready& ready) {
  if (ready.entries.empty() && ready.hard_state.empty()) return absl::OkStatus();
  views_.clear();
  for (const raft::Entry& entry : ready.entries) {
    views_.push_back({.term = entry.term,
                      .index = entry.index,
                      .type = static_cast<uint32_t>(entry.type),
                      .data = entry.data.view()});
  }
  std::optional<wal::HardState> state;
  if (!ready.hard_state.empty()) {
    state = wal::HardState{.term = ready.hard_state.term,
                           .vote = ready.hard_state.vote,
                           .commit = ready.hard_state.commit};
  }
  const base::Duration begun = clock_.Monotonic();
  RETURN_IF_ERROR(log_.Save(views_, state, ready.must_sync));
  wal_bytes_.store(log_.written_bytes(), std::memory_order_relaxed);
  if (ready.must_sync) callbacks_.fsync(clock_.Monotonic() - begun);
  return absl::OkStatus();
}

void Consensus::PassConfChanges() {
  for (ApplyLoop::ConfChange& change : apply_.TakeConfChanges()) {
    if (change.verdict.skipped) continue;
    const auto conf_state = node_->ApplyConfChange(change.verdict.change);
    if (!conf_state.ok()) return Fail(conf_state.status());
    if (change.verdict.change.node_id != raft::kNoNode)
      callbacks_.conf_change(change.verdict.change);
  }
}

void Consensus::OnLeaderFound() {
  if (!leaderless_.empty()) ProposeAll(std::exchange(leaderless_, {}));
  if (!round_.reads.empty()) AskAgain();
}

void Consensus::AskAgain() {
  for (auto& read : round_.reads) next_round_.reads.push_back(std::move(read));
  StartReadRound();
}

void Consensus::StartReadRound() {
  round_ = std::exchange(next_round_, {});
  if (round_.reads.empty()) return;
  round_.context = ++read_context_;
  round_.asked = clock_.Monotonic();
  node_->ReadIndex(ContextBuffer(round_.context));
}

void Consensus::FinishReads(const std::vector<raft::ReadState>& states) {
  for (const raft::ReadState& state : states) {
    if (state.context.size() != 8 || base::LoadBe64(state.context.view().data()) != round_.context)
      continue;
    for (auto& [since, done] : std::exchange(round_.reads, {}))
      apply_.WhenApplied(state.index, std::move(done));
  }
  if (round_.reads.empty()) StartReadRound();
}

void Consensus::FailReads(const absl::Status& status, base::Duration asked_before) {
  for (ReadRound* round : {&round_, &next_round_}) {
    decltype(round->reads) kept;
    for (auto& [since, done] : round->reads) {
      if (since < asked_before) {
        done(status);
      } else {
        kept.emplace_back(since, std::move(done));
      }
    }
    round->reads = std::move(kept);
  }
}

void Consensus::TickOnce(base::Duration now) {
  node_->Tick();
  for (ProposalPtr& proposal : pending_.TakeOlder(now - options_.request_timeout)) {
    proposal->Done({.status = TimeoutError()});
  }
  std::erase_if(leaderless_, [&](ProposalPtr& proposal) {
    const bool late = proposal->started < now - options_.request_timeout;
    if (late) proposal->Done({.status = TimeoutError()});
    return late;
  });
  FailReads(TimeoutError(), now - options_.request_timeout);
  if (round_.reads.empty()) {
    StartReadRound();
  } else if (now - round_.asked > kReadRetry) {
    AskAgain();
  }
  callbacks_.tick();
}

void Consensus::PublishState() {
  const bool leads = node_->role() == raft::Role::kLeader;
  is_leader_.store(leads, std::memory_order_release);
  leader_.store(node_->lead(), std::memory_order_release);
  term_.store(node_->term(), std::memory_order_release);
  committed_.store(node_->commit_index(), std::memory_order_release);
  // A restarted member's commit index may lie below what it acknowledged; an applied entry of this
  // term covers that.
  read_now_.store(leads && node_->IsOnlyVoter() && node_->HasCommittedInTerm() &&
                      apply_.applied_term() == node_->term(),
                  std::memory_order_release);
}

void Consensus::Fail(const absl::Status& status) {
  failed_ = true;
  read_now_.store(false);
  callbacks_.fatal(status);
}

}  // namespace member
