// What a peer may send. Everything is verified here, before the machine changes in any way, so that
// the handlers can rely on it.
#include <algorithm>

#include "base/status.h"
#include "raft/codec.h"
#include "raft/machine.h"

namespace raft {
namespace {

template <typename... Args>
absl::Status Impossible(const Message& message, fmt::format_string<Args...> format,
                        Args&&... args) {
  return base::MakeStatus(absl::StatusCode::kInvalidArgument, "raft: {} from {:x}: {}",
                          MessageTypeName(message.type), message.from,
                          fmt::format(format, std::forward<Args>(args)...));
}

// Types that members pass on to whom they take for the leader, keeping the sender. While they
// disagree about that, a message may come back to where it came from.
bool IsPassedOn(MessageType type) {
  return type == MessageType::kProp || type == MessageType::kReadIndex ||
         type == MessageType::kTransferLeader;
}

// Proposals and requests that are passed on carry no term, nearly everything else does.
bool TermFits(const Message& message) {
  switch (message.type) {
    case MessageType::kProp:
    case MessageType::kReadIndex:
      return message.term == 0;
    case MessageType::kTransferLeader:
    case MessageType::kForgetLeader:
      return true;
    default:
      return message.term != 0;
  }
}

}  // namespace

absl::Status Machine::CheckPeerMessage(const Message& message) const {
  RETURN_IF_ERROR(CheckShape(message));
  if (message.from == kAppendThread || message.from == kApplyThread)
    return CheckLocalResponse(message);
  if (IsResponseMessage(message.type) &&
      group_.progress.find(message.from) == group_.progress.end()) {
    return absl::Status(absl::StatusCode::kNotFound, "raft: cannot step as peer not found");
  }
  // Whatever is of an older term is answered or ignored without a look inside.
  const bool stale = message.term != 0 && message.term < term_;
  switch (message.type) {
    case MessageType::kProp:
      if (message.entries.empty()) return Impossible(message, "no entries");
      for (const Entry& entry : message.entries) {
        if (entry.type == EntryType::kNormal) continue;
        if (const auto change = DecodeConfChangeEntry(entry); !change.ok()) {
          return Impossible(message, "{}", base::Message(change.status()));
        }
      }
      return absl::OkStatus();
    case MessageType::kReadIndex:
    case MessageType::kReadIndexResp:
      if (message.entries.size() != 1) {
        return Impossible(message, "{} entries, expected one", message.entries.size());
      }
      return absl::OkStatus();
    case MessageType::kApp:
      return CheckAppend(message);
    case MessageType::kSnap:
      return CheckSnapshot(message);
    case MessageType::kHeartbeat:
      if (!stale && message.commit > log_.last_index()) {
        return base::MakeStatus(
            absl::StatusCode::kDataLoss,
            "raft: leader {:x} has committed entry {}, which this member had acknowledged, but "
            "its log ends at {}: was it truncated, replaced or lost?",
            message.from, message.commit, log_.last_index());
      }
      return absl::OkStatus();
    case MessageType::kAppResp:
      if (!message.reject && message.term == term_ && leader() != nullptr &&
          message.index > log_.last_index()) {
        return base::MakeStatus(
            absl::StatusCode::kDataLoss,
            "raft: member {:x} acknowledges entry {} of term {}, but the leader's log ends at {}",
            message.from, message.index, term_, log_.last_index());
      }
      return absl::OkStatus();
    default:
      return absl::OkStatus();
  }
}

absl::Status Machine::CheckShape(const Message& message) const {
  const bool from_worker = message.from == kAppendThread || message.from == kApplyThread;
  if (IsLocalMessage(message.type) && !(from_worker && config_.async_storage_writes)) {
    return Impossible(message, "cannot step raft local message");
  }
  if (from_worker && !config_.async_storage_writes) return Impossible(message, "reserved sender");
  if (message.from == kNoNode) return Impossible(message, "no sender");
  if (message.to != id())
    return Impossible(message, "addressed to {:x}, this is {:x}", message.to, id());
  // With asynchronous writes the owner brings back what this node says to itself.
  const bool own_response = config_.async_storage_writes && IsResponseMessage(message.type);
  if (message.from == id() && !own_response && !IsPassedOn(message.type)) {
    return Impossible(message, "the sender is this node");
  }
  if (std::max({message.term, message.log_term, message.index, message.commit,
                message.reject_hint}) > kTermOrIndexMax) {
    return Impossible(message, "term or index out of range");
  }
  if (from_worker) return absl::OkStatus();
  if (!TermFits(message)) return Impossible(message, "term {}", message.term);
  return absl::OkStatus();
}

absl::Status Machine::CheckAppend(const Message& message) const {
  if (message.log_term > message.term) {
    return Impossible(message, "previous entry of term {} in term {}", message.log_term,
                      message.term);
  }
  if ((message.index == 0) != (message.log_term == 0)) {
    return Impossible(message, "previous entry {} of term {}", message.index, message.log_term);
  }
  Term previous_term = std::max<Term>(message.log_term, 1);
  Index next = message.index + 1;
  for (const Entry& entry : message.entries) {
    if (entry.index != next || entry.index > kTermOrIndexMax) {
      return Impossible(message, "entry {} where {} belongs", entry.index, next);
    }
    if (entry.term < previous_term || entry.term > message.term) {
      return Impossible(message, "entry {} of term {} after term {} in term {}", entry.index,
                        entry.term, previous_term, message.term);
    }
    previous_term = entry.term;
    ++next;
  }
  return absl::OkStatus();
}

absl::Status Machine::CheckSnapshot(const Message& message) const {
  if (!message.snapshot) return Impossible(message, "no snapshot");
  const SnapshotMetadata& metadata = message.snapshot->metadata;
  if (metadata.index == 0 || metadata.index > kTermOrIndexMax) {
    return Impossible(message, "snapshot index {}", metadata.index);
  }
  if (metadata.term == 0 || metadata.term > message.term) {
    return Impossible(message, "snapshot of term {} in term {}", metadata.term, message.term);
  }
  const absl::StatusOr<Group> group = MakeGroup(metadata.conf_state, NewMemberParameters());
  if (!group.ok()) return Impossible(message, "{}", base::Message(group.status()));
  if (group->config.incoming.empty()) return Impossible(message, "configuration has no voters");
  return absl::OkStatus();
}

absl::Status Machine::CheckLocalResponse(const Message& message) const {
  if (message.type == MessageType::kStorageAppendResp) {
    if (message.snapshot && message.snapshot->metadata.index > log_.committed()) {
      return Impossible(message, "snapshot {} was never restored",
                        message.snapshot->metadata.index);
    }
    return absl::OkStatus();
  }
  if (message.type == MessageType::kStorageApplyResp) {
    if (!message.entries.empty() && message.entries.back().index > log_.applying()) {
      return Impossible(message, "entry {} was never handed out", message.entries.back().index);
    }
    return absl::OkStatus();
  }
  return Impossible(message, "not a response of a storage worker");
}

}  // namespace raft
