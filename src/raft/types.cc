#include "raft/types.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "base/wire.h"

namespace raft {

Buffer Buffer::Copy(std::string_view bytes) {
  Buffer buffer;
  if (bytes.empty()) return buffer;
  // Count and bytes share one allocation.
  std::shared_ptr<char[]> copy = std::make_shared<char[]>(bytes.size());
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  buffer.bytes_ = std::shared_ptr<const char>(copy, copy.get());
  buffer.size_ = bytes.size();
  return buffer;
}

Buffer Buffer::Own(std::string bytes) {
  Buffer buffer;
  if (bytes.empty()) return buffer;
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  buffer.size_ = owner->size();
  const char* data = owner->data();
  buffer.bytes_ = std::shared_ptr<const char>(std::move(owner), data);
  return buffer;
}

Buffer Buffer::Alias(std::shared_ptr<const void> owner, std::string_view bytes) {
  Buffer buffer;
  if (bytes.empty()) return buffer;
  buffer.size_ = bytes.size();
  buffer.bytes_ = std::shared_ptr<const char>(std::move(owner), bytes.data());
  return buffer;
}

size_t Entry::EncodedBytes() const {
  using base::wire::VarintSize;
  size_t bytes = 0;
  if (type != EntryType::kNormal) bytes += 2;
  if (term != 0) bytes += 1 + VarintSize(term);
  if (index != 0) bytes += 1 + VarintSize(index);
  if (!data.empty()) bytes += 1 + VarintSize(data.size()) + data.size();
  return bytes;
}

ConfChangeV2 ConfChange::AsV2() const {
  return {.transition = ConfChangeTransition::kAuto,
          .changes = {{.type = type, .node_id = node_id}},
          .context = context};
}

std::string_view MessageTypeName(MessageType type) {
  static constexpr std::array<std::string_view, kMessageTypeCount> kNames = {"MsgHup",
                                                                             "MsgBeat",
                                                                             "MsgProp",
                                                                             "MsgApp",
                                                                             "MsgAppResp",
                                                                             "MsgVote",
                                                                             "MsgVoteResp",
                                                                             "MsgSnap",
                                                                             "MsgHeartbeat",
                                                                             "MsgHeartbeatResp",
                                                                             "MsgUnreachable",
                                                                             "MsgSnapStatus",
                                                                             "MsgCheckQuorum",
                                                                             "MsgTransferLeader",
                                                                             "MsgTimeoutNow",
                                                                             "MsgReadIndex",
                                                                             "MsgReadIndexResp",
                                                                             "MsgPreVote",
                                                                             "MsgPreVoteResp",
                                                                             "MsgStorageAppend",
                                                                             "MsgStorageAppendResp",
                                                                             "MsgStorageApply",
                                                                             "MsgStorageApplyResp",
                                                                             "MsgForgetLeader"};
  const auto i = static_cast<size_t>(type);
  CHECK_OP(i, <, kNames.size());
  return kNames[i];
}

bool IsLocalMessage(MessageType type) {
  switch (type) {
    case MessageType::kHup:
    case MessageType::kBeat:
    case MessageType::kUnreachable:
    case MessageType::kSnapStatus:
    case MessageType::kCheckQuorum:
    case MessageType::kStorageAppend:
    case MessageType::kStorageAppendResp:
    case MessageType::kStorageApply:
    case MessageType::kStorageApplyResp:
      return true;
    default:
      return false;
  }
}

bool IsResponseMessage(MessageType type) {
  switch (type) {
    case MessageType::kAppResp:
    case MessageType::kVoteResp:
    case MessageType::kHeartbeatResp:
    case MessageType::kUnreachable:
    case MessageType::kReadIndexResp:
    case MessageType::kPreVoteResp:
    case MessageType::kStorageAppendResp:
    case MessageType::kStorageApplyResp:
      return true;
    default:
      return false;
  }
}

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kFollower:
      return "StateFollower";
    case Role::kPreCandidate:
      return "StatePreCandidate";
    case Role::kCandidate:
      return "StateCandidate";
    case Role::kLeader:
      return "StateLeader";
  }
  CHECK(false);
}

bool operator==(const Message& a, const Message& b) {
  const bool same_snapshot =
      a.snapshot == b.snapshot || (a.snapshot && b.snapshot && *a.snapshot == *b.snapshot);
  return same_snapshot && a.type == b.type && a.reject == b.reject && a.to == b.to &&
         a.from == b.from && a.term == b.term && a.log_term == b.log_term && a.index == b.index &&
         a.commit == b.commit && a.vote == b.vote && a.reject_hint == b.reject_hint &&
         a.entries == b.entries && a.context == b.context && a.responses == b.responses;
}

}  // namespace raft
