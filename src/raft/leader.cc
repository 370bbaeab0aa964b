// What a leader does: proposals, replication and flow control, commit, reads, transfer.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/status.h"
#include "raft/codec.h"
#include "raft/machine.h"

namespace raft {
namespace {

// As for ReadQueue: nobody may make a leader hold requests without end.
constexpr size_t kEarlyReadsMax = 1 << 16;

uint64_t PayloadBytes(const std::vector<Entry>& entries) {
  uint64_t bytes = 0;
  for (const Entry& entry : entries) bytes += entry.PayloadBytes();
  return bytes;
}

}  // namespace

void Machine::TickLeader() {
  Leader& self = std::get<Leader>(role_);
  ++self.heartbeat_elapsed;
  ++election_elapsed_;
  if (election_elapsed_ >= config_.election_ticks) {
    election_elapsed_ = 0;
    if (config_.check_quorum) CheckQuorumActive();
    if (leader() == nullptr) return;
    // A transfer that takes longer than an election would is given up, so that proposals are
    // accepted again.
    self.transferee = kNoNode;
  }
  if (self.heartbeat_elapsed >= config_.heartbeat_ticks) {
    self.heartbeat_elapsed = 0;
    BroadcastHeartbeat();
  }
}

void Machine::CheckQuorumActive() {
  const Configuration& config = group_.config;
  const VoteResult active =
      JointVote(config.incoming, config.outgoing, [this](NodeId voter) -> std::optional<bool> {
        const auto it = group_.progress.find(voter);
        return it != group_.progress.end() && it->second.recent_active;
      });
  if (active != VoteResult::kWon) BecomeFollower(term_, kNoNode);
  for (auto& [member, progress] : group_.progress) {
    if (member != id()) progress.recent_active = false;
  }
}

absl::Status Machine::StepLeader(Message message) {
  switch (message.type) {
    case MessageType::kProp:
      return ProposeAsLeader(std::move(message));
    case MessageType::kReadIndex:
      HandleReadIndex(std::move(message));
      return absl::OkStatus();
    default:
      break;
  }
  const auto it = group_.progress.find(message.from);
  if (it == group_.progress.end()) return absl::OkStatus();
  Progress& progress = it->second;
  switch (message.type) {
    case MessageType::kAppResp:
      HandleAppendResponse(message, &progress);
      break;
    case MessageType::kHeartbeatResp:
      HandleHeartbeatResponse(message, &progress);
      break;
    case MessageType::kSnapStatus:
      if (progress.state() != ProgressState::kSnapshot) break;
      if (message.reject) {
        progress.AbortSnapshot();
      } else {
        progress.BecomeProbe();
      }
      // The follower will say when it has applied the snapshot; a failed one is tried again after
      // the next heartbeat.
      progress.Pause();
      break;
    case MessageType::kUnreachable:
      // Appends on their way are probably lost.
      if (progress.state() == ProgressState::kReplicate) progress.BecomeProbe();
      break;
    case MessageType::kTransferLeader:
      HandleTransferLeader(message.from, progress);
      break;
    default:
      break;
  }
  return absl::OkStatus();
}

absl::Status Machine::ProposeAsLeader(Message message) {
  Leader& self = std::get<Leader>(role_);
  // A leader that was removed may still lead, but has no say.
  if (group_.progress.find(id()) == group_.progress.end()) return ProposalDropped();
  if (self.transferee != kNoNode) return ProposalDropped();
  std::vector<Entry>& entries = message.entries;
  const bool has_conf_change = std::any_of(entries.begin(), entries.end(), [](const Entry& entry) {
    return entry.type != EntryType::kNormal;
  });
  if (has_conf_change) {
    for (const Entry& entry : entries) {
      if (entry.type == EntryType::kNormal) continue;
      if (const auto change = DecodeConfChangeEntry(entry); !change.ok()) return change.status();
    }
  }
  if (config_.max_uncommitted_entries_size != 0) {
    const uint64_t payload = PayloadBytes(entries);
    if (self.uncommitted_bytes > 0 && payload > 0 &&
        self.uncommitted_bytes + payload > config_.max_uncommitted_entries_size) {
      return ProposalDropped();
    }
  }
  if (has_conf_change) RefuseUnfitConfChanges(&entries);
  AppendAsLeader(std::move(entries));
  BroadcastAppend();
  return absl::OkStatus();
}

void Machine::RefuseUnfitConfChanges(std::vector<Entry>* entries) {
  Leader& self = std::get<Leader>(role_);
  for (size_t i = 0; i < entries->size(); ++i) {
    Entry& entry = (*entries)[i];
    if (entry.type == EntryType::kNormal) continue;
    const absl::StatusOr<ConfChangeV2> change = DecodeConfChangeEntry(entry);
    CHECK(change.ok());
    const bool pending = self.pending_conf_index > log_.applied();
    const bool joint = group_.config.joint();
    const bool leaves = change->changes.empty();
    if (!config_.disable_conf_change_validation && (pending || joint != leaves)) {
      // The proposer finds out when the entry comes up without its change.
      entry = Entry();
    } else {
      self.pending_conf_index = log_.last_index() + i + 1;
    }
  }
}

void Machine::AppendAsLeader(std::vector<Entry> entries) {
  Leader& self = std::get<Leader>(role_);
  Index last = log_.last_index();
  for (Entry& entry : entries) {
    entry.term = term_;
    entry.index = ++last;
  }
  if (config_.max_uncommitted_entries_size != 0) self.uncommitted_bytes += PayloadBytes(entries);
  log_.Append(std::move(entries));
  // The leader is a follower of itself: it acknowledges when the entries are durable.
  Send({.type = MessageType::kAppResp, .to = id(), .index = last});
}

void Machine::ReduceUncommitted(const std::vector<Entry>& applied) {
  Leader* self = leader();
  if (self == nullptr || config_.max_uncommitted_entries_size == 0) return;
  self->uncommitted_bytes -= std::min(self->uncommitted_bytes, PayloadBytes(applied));
}

bool Machine::MaybeCommit() {
  const Configuration& config = group_.config;
  const Index index = JointCommitted(config.incoming, config.outgoing,
                                     [this](NodeId voter) -> std::optional<Index> {
                                       const auto it = group_.progress.find(voter);
                                       if (it == group_.progress.end()) return std::nullopt;
                                       return it->second.match();
                                     });
  // Entries of older terms are committed only through one of this term (raft paper §5.4.2).
  if (index <= log_.committed() || !log_.Matches({.term = term_, .index = index})) return false;
  log_.CommitTo(index);
  return true;
}

void Machine::HandleAppendResponse(const Message& message, Progress* progress) {
  const NodeId from = message.from;
  progress->recent_active = true;
  if (message.reject) {
    Index hint = message.reject_hint;
    if (message.log_term > 0) {
      // Everything of a later term than the follower has at its hint cannot match either.
      hint = log_.FindConflictByTerm(std::min(hint, log_.last_index()), message.log_term).index;
    }
    if (!progress->Reject(message.index, hint)) return;
    if (progress->state() == ProgressState::kReplicate) progress->BecomeProbe();
    SendAppend(from);
    return;
  }
  const bool probe_answered =
      progress->match() == message.index && progress->state() == ProgressState::kProbe;
  if (!progress->Acknowledge(message.index) && !probe_answered) return;
  switch (progress->state()) {
    case ProgressState::kProbe:
      progress->BecomeReplicate();
      break;
    case ProgressState::kSnapshot:
      // However it got there: from here on the log can bring it up.
      if (progress->match() + 1 >= log_.first_index()) {
        progress->BecomeProbe();
        progress->BecomeReplicate();
      }
      break;
    case ProgressState::kReplicate:
      progress->inflights().FreeUpTo(message.index);
      break;
  }
  if (MaybeCommit()) {
    ReleaseEarlyReads();
    BroadcastAppend();
  } else if (from != id() && progress->WantsCommit(log_.committed())) {
    SendAppend(from);
  }
  if (from == id()) return;
  // The acknowledgement may have opened the window for more than one message.
  while (MaybeSendAppend(from, false)) {
  }
  if (from == std::get<Leader>(role_).transferee && progress->match() == log_.last_index()) {
    SendTimeoutNow(from);
  }
}

void Machine::HandleHeartbeatResponse(const Message& message, Progress* progress) {
  progress->recent_active = true;
  // Appends may have been lost; an answer shows that it is worth trying again.
  progress->Unpause();
  if (progress->match() < log_.last_index() || progress->state() == ProgressState::kProbe) {
    SendAppend(message.from);
  }
  if (config_.read_only_option != ReadOnlyOption::kSafe || message.context.empty()) return;
  ReadQueue& reads = std::get<Leader>(role_).reads;
  if (reads.Acknowledge(message.from, message.context)) AnswerConfirmedReads();
}

void Machine::AnswerConfirmedReads() {
  ReadQueue& reads = std::get<Leader>(role_).reads;
  for (const ReadQueue::Read& read : reads.TakeConfirmed(group_.config)) {
    AnswerRead(read.request, read.index);
  }
}

void Machine::HandleTransferLeader(NodeId transferee, const Progress& progress) {
  Leader& self = std::get<Leader>(role_);
  if (progress.is_learner || transferee == self.transferee || transferee == id()) return;
  self.transferee = transferee;
  election_elapsed_ = 0;
  if (progress.match() == log_.last_index()) {
    SendTimeoutNow(transferee);
  } else {
    SendAppend(transferee);
  }
}

void Machine::SendTimeoutNow(NodeId to) { Send({.type = MessageType::kTimeoutNow, .to = to}); }

void Machine::HandleReadIndex(Message request) {
  Leader& self = std::get<Leader>(role_);
  if (IsOnlyVoter() && HasCommittedInTerm()) {
    AnswerRead(request, log_.committed());
  } else if (HasCommittedInTerm()) {
    StartRead(std::move(request));
  } else if (self.early_reads.size() < kEarlyReadsMax) {
    self.early_reads.push_back(std::move(request));
  }
}

void Machine::StartRead(Message request) {
  if (config_.read_only_option == ReadOnlyOption::kLeaseBased) {
    AnswerRead(request, log_.committed());
    return;
  }
  ReadQueue& reads = std::get<Leader>(role_).reads;
  // Beyond the bound a read is lost, as with a lost message: it is asked for again.
  if (reads.full()) return;
  reads.Add(std::move(request), log_.committed());
  reads.AcknowledgeAll(id());
  BroadcastHeartbeat();
}

void Machine::ReleaseEarlyReads() {
  Leader& self = std::get<Leader>(role_);
  if (self.early_reads.empty() || !HasCommittedInTerm()) return;
  std::vector<Message> requests;
  requests.swap(self.early_reads);
  for (Message& request : requests) HandleReadIndex(std::move(request));
}

void Machine::AnswerRead(const Message& request, Index index) {
  if (request.from == kNoNode || request.from == id()) {
    read_states.push_back({.index = index, .context = request.entries.front().data});
    return;
  }
  Send({.type = MessageType::kReadIndexResp,
        .to = request.from,
        .index = index,
        .entries = request.entries});
}

void Machine::BroadcastAppend() {
  for (const auto& [member, progress] : group_.progress) {
    if (member != id()) SendAppend(member);
  }
}

void Machine::BroadcastHeartbeat() {
  const Buffer context = std::get<Leader>(role_).reads.Context();
  for (const auto& [member, progress] : group_.progress) {
    if (member == id()) continue;
    // Never beyond what the follower is known to have: it might have something else there.
    Send({.type = MessageType::kHeartbeat,
          .to = member,
          .commit = std::min(progress.match(), log_.committed()),
          .context = context});
  }
}

bool Machine::MaybeSendAppend(NodeId to, bool even_if_empty) {
  Progress& progress = group_.progress.at(to);
  if (progress.paused()) return false;
  const Index previous = progress.next() - 1;
  const std::optional<Term> previous_term = log_.TermAt(previous);
  // The entries before are compacted: only a snapshot can help.
  if (!previous_term) return MaybeSendSnapshot(to, &progress);
  std::vector<Entry> entries;
  // With a full window an empty append still tells the commit index, and makes the follower answer
  // should all in the window be lost.
  const bool window_open =
      progress.state() != ProgressState::kReplicate || !progress.inflights().full();
  if (window_open && progress.next() <= log_.last_index()) {
    const absl::Status status =
        log_.Slice(progress.next(), log_.last_index() + 1, config_.max_size_per_msg, &entries);
    if (absl::IsOutOfRange(status)) return MaybeSendSnapshot(to, &progress);
    if (!status.ok()) return false;
  }
  if (entries.empty() && !even_if_empty) return false;
  progress.Sent(entries.size(), PayloadBytes(entries), log_.committed());
  Send({.type = MessageType::kApp,
        .to = to,
        .log_term = *previous_term,
        .index = previous,
        .commit = log_.committed(),
        .entries = std::move(entries)});
  return true;
}

bool Machine::MaybeSendSnapshot(NodeId to, Progress* progress) {
  // A snapshot is too much to send to a follower that may be down.
  if (!progress->recent_active) return false;
  absl::StatusOr<SnapshotPtr> snapshot = storage_->GetSnapshot();
  if (!snapshot.ok()) return false;
  CHECK(*snapshot != nullptr);
  CHECK(!(*snapshot)->empty());
  progress->BecomeSnapshot((*snapshot)->metadata.index);
  Send({.type = MessageType::kSnap, .to = to, .snapshot = *std::move(snapshot)});
  return true;
}

}  // namespace raft
