#include "raft/machine.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/random.h"
#include "base/status.h"
#include "raft/codec.h"

namespace raft {
namespace {

absl::Status CheckConfig(const Config& config) {
  const auto invalid = [](std::string_view why) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "raft: {}", why);
  };
  if (config.id == kNoNode || config.id >= kApplyThread) return invalid("the id is reserved");
  if (config.heartbeat_ticks <= 0) return invalid("heartbeat_ticks must be positive");
  if (config.election_ticks <= config.heartbeat_ticks) {
    return invalid("election_ticks must exceed heartbeat_ticks");
  }
  if (config.max_inflight_msgs == 0) return invalid("max_inflight_msgs must be positive");
  if (config.max_inflight_bytes != 0 && config.max_inflight_bytes < config.max_size_per_msg) {
    return invalid("max_inflight_bytes must be at least max_size_per_msg");
  }
  if (config.read_only_option == ReadOnlyOption::kLeaseBased && !config.check_quorum) {
    return invalid("lease-based reads need check_quorum");
  }
  return absl::OkStatus();
}

uint64_t CommittedLimit(const Config& config) {
  if (config.max_committed_size_per_ready != 0) return config.max_committed_size_per_ready;
  return config.max_size_per_msg != 0 ? config.max_size_per_msg : 1;
}

MessageType ResponseTo(MessageType vote) {
  return vote == MessageType::kVote ? MessageType::kVoteResp : MessageType::kPreVoteResp;
}

bool FromLeader(MessageType type) {
  return type == MessageType::kApp || type == MessageType::kHeartbeat || type == MessageType::kSnap;
}

}  // namespace

absl::Status ProposalDropped() {
  return absl::Status(absl::StatusCode::kUnavailable, base::ToAbsl(kProposalDropped));
}

Machine::Machine(const Config& config, LogStorage* storage, base::Random* random)
    : config_(config), storage_(storage), random_(random), log_(storage, CommittedLimit(config)) {}

absl::StatusOr<std::unique_ptr<Machine>> Machine::Create(const Config& config, LogStorage* storage,
                                                         base::Random* random) {
  RETURN_IF_ERROR(CheckConfig(config));
  ASSIGN_OR_RETURN(const LogStorage::InitialState state, storage->Load());
  std::unique_ptr<Machine> machine(new Machine(config, storage, random));
  Log& log = machine->log_;

  absl::StatusOr<Group> group = MakeGroup(state.conf_state, machine->NewMemberParameters());
  if (!group.ok()) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "stored raft configuration: {}",
                            base::Message(group.status()));
  }
  machine->group_ = *std::move(group);

  // A commit index alone is never synced, so the stored one may lag behind what a snapshot covers
  // or what is applied, which must have been committed to get there.
  const HardState& hard = state.hard_state;
  const Index committed = std::max({hard.commit, log.committed(), config.applied});
  if (committed > log.last_index()) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "entry {} was committed or applied, but the log ends at {}", committed,
                            log.last_index());
  }
  if (config.applied != 0 && config.applied < log.applied()) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "applied index {} lies before the log, which begins at {}",
                            config.applied, log.first_index());
  }
  if (hard.term > kTermOrIndexMax) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "stored term {} is impossible", hard.term);
  }
  machine->term_ = hard.term;
  machine->vote_ = hard.vote;
  log.Start(committed, config.applied);
  machine->BecomeFollower(machine->term_, kNoNode);
  return machine;
}

NewMember Machine::NewMemberParameters() const {
  return {.last_index = log_.last_index(),
          .max_inflight_msgs = config_.max_inflight_msgs,
          .max_inflight_bytes = config_.max_inflight_bytes};
}

Role Machine::role() const {
  if (std::holds_alternative<Leader>(role_)) return Role::kLeader;
  if (const auto* candidate = std::get_if<Candidate>(&role_)) {
    return candidate->pre ? Role::kPreCandidate : Role::kCandidate;
  }
  return Role::kFollower;
}

NodeId Machine::lead_transferee() const {
  const Leader* self = leader();
  return self == nullptr ? kNoNode : self->transferee;
}

bool Machine::HasCommittedInTerm() const {
  return leader() != nullptr && log_.TermAt(log_.committed()) == term_;
}

bool Machine::IsOnlyVoter() const {
  const Configuration& config = group_.config;
  // The one voter must be this node: a leader that was removed must not take the remaining voter
  // for itself.
  return !config.joint() && config.incoming.size() == 1 && config.incoming.front() == id();
}

bool Machine::is_learner() const {
  const auto self = group_.progress.find(id());
  return self != group_.progress.end() && self->second.is_learner;
}

void Machine::Send(Message message) {
  if (message.from == kNoNode) message.from = id();
  switch (message.type) {
    case MessageType::kVote:
    case MessageType::kPreVote:
    case MessageType::kVoteResp:
    case MessageType::kPreVoteResp:
      // These speak of a term that need not be the sender's: the caller sets it.
      CHECK(message.term != 0);
      break;
    case MessageType::kProp:
    case MessageType::kReadIndex:
      // Forwarded on behalf of a client, for whichever term the leader is in.
      CHECK(message.term == 0);
      break;
    default:
      CHECK(message.term == 0);
      message.term = term_;
  }
  if (message.type == MessageType::kAppResp || message.type == MessageType::kVoteResp ||
      message.type == MessageType::kPreVoteResp) {
    // These promise that log and vote are durable. (A pre-vote promises nothing, but keeps its
    // place among the others.)
    messages_after_append.push_back(std::move(message));
    return;
  }
  CHECK_OP(message.to, !=, id());
  messages.push_back(std::move(message));
}

void Machine::Reset(Term term) {
  if (term_ != term) {
    term_ = term;
    vote_ = kNoNode;
  }
  lead_ = kNoNode;
  role_ = Follower();
  election_elapsed_ = 0;
  const auto election = static_cast<uint64_t>(config_.election_ticks);
  randomized_election_timeout_ =
      config_.election_ticks + static_cast<int>(random_->Below(election));
  const Index last = log_.last_index();
  for (auto& [member, progress] : group_.progress) {
    progress = Progress(member == id() ? last : 0, last + 1, progress.is_learner,
                        Inflights(config_.max_inflight_msgs, config_.max_inflight_bytes));
  }
}

void Machine::BecomeFollower(Term term, NodeId lead) {
  Reset(term);
  lead_ = lead;
}

void Machine::BecomePreCandidate() {
  // Asking changes nothing: term, vote and timers stay.
  CHECK(leader() == nullptr);
  lead_ = kNoNode;
  role_ = Candidate{.pre = true, .votes = {}};
}

void Machine::BecomeCandidate() {
  CHECK(leader() == nullptr);
  Reset(term_ + 1);
  vote_ = id();
  role_ = Candidate{.pre = false, .votes = {}};
}

void Machine::BecomeLeader() {
  CHECK(role() == Role::kCandidate);
  Reset(term_);
  lead_ = id();
  Leader& self = role_.emplace<Leader>();
  // Whatever is in the log and not applied may be a configuration change.
  self.pending_conf_index = log_.last_index();
  if (const auto it = group_.progress.find(id()); it != group_.progress.end()) {
    it->second.BecomeReplicate();
    it->second.recent_active = true;
  }
  // Only an entry of its own term lets a leader commit, and with it all that precedes it.
  AppendAsLeader({Entry()});
}

bool Machine::Promotable() const {
  const auto self = group_.progress.find(id());
  return self != group_.progress.end() && !self->second.is_learner && !log_.unstable().snapshot();
}

bool Machine::HasConfChangeIn(Index after, Index last) const {
  constexpr uint64_t kPageBytes = 1 << 20;
  std::vector<Entry> page;
  for (Index low = std::max(after + 1, log_.first_index()); low <= last; low += page.size()) {
    page.clear();
    CHECK(log_.Slice(low, last + 1, kPageBytes, &page).ok());
    for (const Entry& entry : page) {
      if (entry.type != EntryType::kNormal) return true;
    }
  }
  return false;
}

void Machine::Hup(bool transfer) {
  if (leader() != nullptr || !Promotable()) return;
  // It would count votes by a configuration that is known to be out of date. (Committed entries are
  // never below the first index, unless a snapshot is pending, and then the node is not
  // promotable.)
  if (HasConfChangeIn(log_.applied(), log_.committed())) return;
  if (transfer) {
    StartCampaign(Campaign::kTransfer);
  } else {
    StartCampaign(config_.pre_vote ? Campaign::kPreElection : Campaign::kElection);
  }
}

void Machine::StartCampaign(Campaign campaign) {
  const bool pre = campaign == Campaign::kPreElection;
  if (pre) {
    BecomePreCandidate();
  } else {
    BecomeCandidate();
  }
  const Term term = pre ? term_ + 1 : term_;
  const EntryId last = log_.LastId();
  for (const NodeId voter : group_.config.Voters()) {
    if (voter == id()) {
      // The own vote counts when it is durable, like everyone else's.
      Send({.type = pre ? MessageType::kPreVoteResp : MessageType::kVoteResp,
            .to = voter,
            .term = term});
      continue;
    }
    Message request{.type = pre ? MessageType::kPreVote : MessageType::kVote,
                    .to = voter,
                    .term = term,
                    .log_term = last.term,
                    .index = last.index};
    if (campaign == Campaign::kTransfer) request.context = Buffer::Copy(kCampaignTransfer);
    Send(std::move(request));
  }
}

VoteResult Machine::Tally(const Candidate& candidate) const {
  const Configuration& config = group_.config;
  return JointVote(config.incoming, config.outgoing, [&](NodeId voter) -> std::optional<bool> {
    const auto it = candidate.votes.find(voter);
    if (it == candidate.votes.end()) return std::nullopt;
    return it->second;
  });
}

void Machine::Tick() {
  if (leader() != nullptr) {
    TickLeader();
    return;
  }
  ++election_elapsed_;
  if (election_elapsed_ >= randomized_election_timeout_ && Promotable()) {
    election_elapsed_ = 0;
    Hup(false);
  }
}

absl::Status Machine::Step(Message message) {
  bool drop = false;
  RETURN_IF_ERROR(StepTerm(message, &drop));
  if (drop) return absl::OkStatus();
  switch (message.type) {
    case MessageType::kHup:
      Hup(false);
      return absl::OkStatus();
    case MessageType::kStorageAppendResp:
      return StepStorageAppendResp(message);
    case MessageType::kStorageApplyResp:
      if (!message.entries.empty()) {
        uint64_t bytes = 0;
        for (const Entry& entry : message.entries) bytes += entry.EncodedBytes();
        AppliedTo(message.entries.back().index, bytes);
        ReduceUncommitted(message.entries);
      }
      return absl::OkStatus();
    case MessageType::kVote:
    case MessageType::kPreVote:
      HandleVote(message);
      return absl::OkStatus();
    default:
      break;
  }
  if (leader() != nullptr) return StepLeader(std::move(message));
  if (std::holds_alternative<Candidate>(role_)) return StepCandidate(std::move(message));
  return StepFollower(std::move(message));
}

// The rules about terms, before all else: *drop when they settle the message.
absl::Status Machine::StepTerm(const Message& message, bool* drop) {
  if (message.term == 0 || message.term == term_) return absl::OkStatus();
  const bool vote = message.type == MessageType::kVote || message.type == MessageType::kPreVote;
  if (message.term > term_) {
    const bool forced = message.context.view() == kCampaignTransfer;
    const bool in_lease =
        config_.check_quorum && lead_ != kNoNode && election_elapsed_ < config_.election_ticks;
    if (vote && !forced && in_lease) {
      // This node hears its leader: whoever campaigns is cut off or removed and must not disturb
      // (thesis §4.2.3).
      *drop = true;
      return absl::OkStatus();
    }
    if (message.type == MessageType::kPreVote) return absl::OkStatus();
    // A granted pre-vote carries the term that was asked for; the term is only entered by the
    // election that follows.
    if (message.type == MessageType::kPreVoteResp && !message.reject) return absl::OkStatus();
    BecomeFollower(message.term, FromLeader(message.type) ? message.from : kNoNode);
    return absl::OkStatus();
  }
  *drop = true;
  if ((config_.check_quorum || config_.pre_vote) &&
      (message.type == MessageType::kHeartbeat || message.type == MessageType::kApp)) {
    // A leader of an old term that is not disturbed by elections would never learn that it is
    // stale: tell it.
    Send({.type = MessageType::kAppResp, .to = message.from});
  } else if (message.type == MessageType::kPreVote) {
    // So that the candidate, whose log is up to date but whose term is not, catches up and can win.
    Send({.type = MessageType::kPreVoteResp, .reject = true, .to = message.from, .term = term_});
  } else if (message.type == MessageType::kStorageAppendResp && message.snapshot) {
    // Entries acknowledged under an older term may have been replaced since; a snapshot is never
    // replaced.
    AppliedSnapshot(*message.snapshot);
  }
  return absl::OkStatus();
}

absl::Status Machine::StepStorageAppendResp(const Message& message) {
  if (message.index != 0) log_.StableUpTo({.term = message.log_term, .index = message.index});
  if (message.snapshot) AppliedSnapshot(*message.snapshot);
  return absl::OkStatus();
}

void Machine::HandleVote(const Message& message) {
  const bool pre = message.type == MessageType::kPreVote;
  const bool can_vote = vote_ == message.from || (vote_ == kNoNode && lead_ == kNoNode) ||
                        (pre && message.term > term_);
  // Learners answer too: one that was promoted may not know it yet, and its vote may be needed to
  // elect the leader that tells it.
  if (!can_vote || !log_.IsUpToDate({.term = message.log_term, .index = message.index})) {
    // A node that has not seen any term has none to refuse with.
    if (term_ == 0) return;
    Send({.type = ResponseTo(message.type), .reject = true, .to = message.from, .term = term_});
    return;
  }
  Send({.type = ResponseTo(message.type), .to = message.from, .term = message.term});
  if (pre) return;
  election_elapsed_ = 0;
  vote_ = message.from;
}

absl::Status Machine::StepCandidate(Message message) {
  auto& candidate = std::get<Candidate>(role_);
  switch (message.type) {
    case MessageType::kProp:
      return ProposalDropped();
    case MessageType::kApp:
    case MessageType::kHeartbeat:
    case MessageType::kSnap:
      // Somebody else has won this term.
      BecomeFollower(term_, message.from);
      HandleLeaderMessage(std::move(message));
      return absl::OkStatus();
    case MessageType::kVoteResp:
    case MessageType::kPreVoteResp: {
      if (candidate.pre != (message.type == MessageType::kPreVoteResp)) return absl::OkStatus();
      candidate.votes.try_emplace(message.from, !message.reject);
      const VoteResult result = Tally(candidate);
      if (result == VoteResult::kLost) {
        BecomeFollower(term_, kNoNode);
      } else if (result == VoteResult::kWon && candidate.pre) {
        StartCampaign(Campaign::kElection);
      } else if (result == VoteResult::kWon) {
        BecomeLeader();
        BroadcastAppend();
      }
      return absl::OkStatus();
    }
    default:
      return absl::OkStatus();
  }
}

absl::Status Machine::Bootstrap(std::span<const BootstrapPeer> peers) {
  if (log_.last_index() != 0 || term_ != 0) {
    return absl::Status(absl::StatusCode::kFailedPrecondition, "raft: the log is not empty");
  }
  std::vector<Entry> entries;
  Group group = group_;
  for (const BootstrapPeer& peer : peers) {
    const ConfChange change{
        .type = ConfChangeType::kAddNode, .node_id = peer.id, .context = peer.context};
    ASSIGN_OR_RETURN(group, Change(group, change.AsV2(), NewMemberParameters()));
    std::string data;
    EncodeConfChange(change, &data);
    entries.push_back({.term = 1,
                       .index = entries.size() + 1,
                       .type = EntryType::kConfChange,
                       .data = Buffer::Own(std::move(data))});
  }
  BecomeFollower(1, kNoNode);
  const Index last = entries.size();
  log_.Append(std::move(entries));
  log_.CommitTo(last);
  // The configuration holds from now on, so that the node counts as promotable; applying the
  // entries later finds nothing to change.
  SwitchTo(std::move(group));
  return absl::OkStatus();
}

absl::StatusOr<ConfState> Machine::ApplyConfChange(const ConfChangeV2& change) {
  ASSIGN_OR_RETURN(Group group, Change(group_, change, NewMemberParameters()));
  SwitchTo(std::move(group));
  return group_.config.ToConfState();
}

void Machine::SwitchTo(Group group) {
  group_ = std::move(group);
  if (leader() == nullptr) return;
  const auto self = group_.progress.find(id());
  if (config_.step_down_on_removal && (self == group_.progress.end() || self->second.is_learner)) {
    BecomeFollower(term_, kNoNode);
    return;
  }
  if (group_.config.incoming.empty()) return;
  if (MaybeCommit()) {
    // The quorum may have shrunk.
    ReleaseEarlyReads();
    BroadcastAppend();
  } else {
    // New members are probed at once rather than at the next heartbeat.
    for (const auto& [member, progress] : group_.progress) {
      if (member != id()) MaybeSendAppend(member, false);
    }
  }
  AnswerConfirmedReads();
  Leader* still = leader();
  if (still->transferee != kNoNode && !group_.config.IsVoter(still->transferee)) {
    still->transferee = kNoNode;
  }
}

void Machine::AppliedTo(Index index, uint64_t bytes) {
  log_.AppliedTo(std::max(index, log_.applied()), bytes);
  const Leader* self = leader();
  if (self == nullptr || !group_.config.auto_leave || log_.applied() < self->pending_conf_index)
    return;
  // The entry that entered the joint configuration is applied: leave it. Should the proposal be
  // dropped (a transfer is in progress), a later call tries again.
  Message leave{.type = MessageType::kProp};
  leave.entries.push_back({.type = EntryType::kConfChangeV2});
  Step(std::move(leave)).IgnoreError();
}

void Machine::AppliedSnapshot(const Snapshot& snapshot) {
  log_.SnapshotStable(snapshot.metadata.index);
  AppliedTo(snapshot.metadata.index, 0);
}

absl::Status Machine::ForgetLeader() {
  if (config_.read_only_option == ReadOnlyOption::kLeaseBased) {
    return absl::Status(absl::StatusCode::kFailedPrecondition,
                        "raft: a follower that forgets its leader would break lease-based reads");
  }
  return Step({.type = MessageType::kForgetLeader});
}

}  // namespace raft
