// What a follower does with what its leader sends.
#include <algorithm>

#include "base/check.h"
#include "raft/machine.h"

namespace raft {

absl::Status Machine::StepFollower(Message message) {
  switch (message.type) {
    case MessageType::kProp:
      if (lead_ == kNoNode || config_.disable_proposal_forwarding) return ProposalDropped();
      return ForwardToLeader(std::move(message));
    case MessageType::kReadIndex:
    case MessageType::kTransferLeader:
      // Lost when no leader is known; whoever asked asks again.
      if (lead_ == kNoNode) return absl::OkStatus();
      return ForwardToLeader(std::move(message));
    case MessageType::kApp:
    case MessageType::kHeartbeat:
    case MessageType::kSnap:
      election_elapsed_ = 0;
      lead_ = message.from;
      HandleLeaderMessage(std::move(message));
      return absl::OkStatus();
    case MessageType::kReadIndexResp:
      read_states.push_back(
          {.index = message.index, .context = std::move(message.entries.front().data)});
      return absl::OkStatus();
    case MessageType::kTimeoutNow:
      // The leader itself asks for the election: no pre-vote, and leases do not count.
      Hup(true);
      return absl::OkStatus();
    case MessageType::kForgetLeader:
      // Lease-based reads rely on nobody electing another leader early.
      if (config_.read_only_option != ReadOnlyOption::kLeaseBased) lead_ = kNoNode;
      return absl::OkStatus();
    default:
      return absl::OkStatus();
  }
}

absl::Status Machine::ForwardToLeader(Message message) {
  message.to = lead_;
  // A transfer carries the term of the one who passes it on; the others carry none.
  message.term = 0;
  Send(std::move(message));
  return absl::OkStatus();
}

void Machine::HandleLeaderMessage(Message message) {
  switch (message.type) {
    case MessageType::kApp:
      HandleAppend(std::move(message));
      break;
    case MessageType::kHeartbeat:
      HandleHeartbeat(message);
      break;
    case MessageType::kSnap:
      HandleSnapshot(message);
      break;
    default:
      CHECK(false);
  }
}

void Machine::HandleAppend(Message message) {
  if (message.index < log_.committed()) {
    // An old message: everything up to the commit index matches anyway.
    Send({.type = MessageType::kAppResp, .to = message.from, .index = log_.committed()});
    return;
  }
  const Index last_new = message.index + message.entries.size();
  if (log_.AppendAfter({.term = message.log_term, .index = message.index},
                       std::move(message.entries), message.commit)) {
    Send({.type = MessageType::kAppResp, .to = message.from, .index = last_new});
    return;
  }
  const EntryId hint =
      log_.FindConflictByTerm(std::min(message.index, log_.last_index()), message.log_term);
  Send({.type = MessageType::kAppResp,
        .reject = true,
        .to = message.from,
        .log_term = hint.term,
        .index = message.index,
        .reject_hint = hint.index});
}

void Machine::HandleHeartbeat(const Message& message) {
  log_.CommitTo(message.commit);
  Send({.type = MessageType::kHeartbeatResp, .to = message.from, .context = message.context});
}

void Machine::HandleSnapshot(const Message& message) {
  const bool restored = Restore(message.snapshot);
  // For a restored snapshot this leaves once the snapshot is durable.
  Send({.type = MessageType::kAppResp,
        .to = message.from,
        .index = restored ? log_.last_index() : log_.committed()});
}

bool Machine::Restore(const SnapshotPtr& snapshot) {
  const SnapshotMetadata& metadata = snapshot->metadata;
  if (metadata.index <= log_.committed()) return false;
  CHECK(role() == Role::kFollower);
  const ConfState& state = metadata.conf_state;
  const auto contains = [this](const std::vector<NodeId>& set) {
    return std::find(set.begin(), set.end(), id()) != set.end();
  };
  // A snapshot of a group this node is no member of was meant for somebody else. (learners_next are
  // outgoing voters as well.)
  if (!contains(state.voters) && !contains(state.learners) && !contains(state.voters_outgoing)) {
    return false;
  }
  if (log_.Matches({.term = metadata.term, .index = metadata.index})) {
    // The log has all of it, only not the news that it is committed.
    log_.CommitTo(metadata.index);
    return false;
  }
  // A change that was handed out and not applied yet would be applied on top of the snapshot's
  // later configuration. The leader sends another snapshot in a while.
  if (HasConfChangeIn(log_.applied(), log_.applying())) return false;
  log_.Restore(snapshot);
  absl::StatusOr<Group> group = MakeGroup(state, NewMemberParameters());
  CHECK(group.ok());
  group_ = *std::move(group);
  return true;
}

}  // namespace raft
