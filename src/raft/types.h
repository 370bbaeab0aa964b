// The values raft exchanges with its owner: entries, messages, configurations, snapshots. Plain
// data without a thread of its own; a value may move between threads, and the bytes behind a Buffer
// are immutable and may be shared by them. Wire format: raft/codec.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace raft {

// Aliases rather than classes: these numbers cross the wire, the WAL and the db file, whose layers
// know plain integers.
using NodeId = uint64_t;
using Term = uint64_t;
using Index = uint64_t;

// No node has this id; as a leader it means "unknown", as a vote "none".
inline constexpr NodeId kNoNode = 0;
// Addresses of the owner's storage workers when writes are asynchronous. Never on the network.
inline constexpr NodeId kAppendThread = UINT64_MAX;
inline constexpr NodeId kApplyThread = UINT64_MAX - 1;
inline constexpr uint64_t kNoLimit = UINT64_MAX;
// Terms and indexes above this are refused as malformed, so that arithmetic on them cannot wrap.
inline constexpr uint64_t kTermOrIndexMax = uint64_t{1} << 62;

// Immutable bytes with shared ownership: copying one shares the bytes. An entry travels from the
// proposal to the WAL, the state machine and the network without copying its data. May be part of a
// larger allocation, which it then keeps alive.
class Buffer {
 public:
  Buffer() = default;
  // Copies.
  static Buffer Copy(std::string_view bytes);
  // Takes the string over without copying its bytes.
  static Buffer Own(std::string bytes);
  // A part of what `owner` keeps alive, e.g. of the network frame it arrived in; `bytes` must lie
  // within it.
  static Buffer Alias(std::shared_ptr<const void> owner, std::string_view bytes);

  std::string_view view() const { return {bytes_.get(), size_}; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  friend bool operator==(const Buffer& a, const Buffer& b) { return a.view() == b.view(); }

 private:
  std::shared_ptr<const char> bytes_;
  size_t size_ = 0;
};

enum class EntryType : uint8_t { kNormal = 0, kConfChange = 1, kConfChangeV2 = 2 };

struct Entry {
  Term term = 0;
  Index index = 0;
  EntryType type = EntryType::kNormal;
  // Empty: a leader's first entry, or a refused configuration change; for kConfChangeV2, "leave the
  // joint configuration".
  Buffer data = {};

  // What flow control counts (inflight bytes, uncommitted bytes).
  size_t PayloadBytes() const { return data.size(); }
  // The size of the encoded message; what MaxSizePerMsg and MaxCommittedSizePerReady count.
  size_t EncodedBytes() const;

  friend bool operator==(const Entry&, const Entry&) = default;
};

// What must survive a restart besides the entries. All zero means "none".
struct HardState {
  Term term = 0;
  NodeId vote = kNoNode;
  Index commit = 0;

  bool empty() const { return term == 0 && vote == kNoNode && commit == 0; }
  friend bool operator==(const HardState&, const HardState&) = default;
};

// A configuration as stored and sent. Lists made by this library are sorted; readers must not rely
// on it.
struct ConfState {
  std::vector<NodeId> voters = {};  // the incoming half when joint
  std::vector<NodeId> learners = {};
  std::vector<NodeId> voters_outgoing = {};  // not empty iff joint
  // Outgoing voters that become learners when the joint configuration is left.
  std::vector<NodeId> learners_next = {};
  bool auto_leave = false;  // the leader leaves the joint configuration by itself

  friend bool operator==(const ConfState&, const ConfState&) = default;
};

struct SnapshotMetadata {
  ConfState conf_state = {};
  Index index = 0;  // of the last entry the snapshot covers; 0 in an empty snapshot
  Term term = 0;    // of that entry

  friend bool operator==(const SnapshotMetadata&, const SnapshotMetadata&) = default;
};

struct Snapshot {
  Buffer data = {};  // opaque to raft
  SnapshotMetadata metadata = {};

  bool empty() const { return metadata.index == 0; }
  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};
// Null where a message or batch has no snapshot.
using SnapshotPtr = std::shared_ptr<const Snapshot>;

enum class ConfChangeType : uint8_t {
  kAddNode = 0,
  kRemoveNode = 1,
  kUpdateNode = 2,
  kAddLearnerNode = 3
};
enum class ConfChangeTransition : uint8_t { kAuto = 0, kJointImplicit = 1, kJointExplicit = 2 };

struct ConfChangeSingle {
  ConfChangeType type = ConfChangeType::kAddNode;
  NodeId node_id = kNoNode;  // 0: no operation

  friend bool operator==(const ConfChangeSingle&, const ConfChangeSingle&) = default;
};

struct ConfChangeV2 {
  ConfChangeTransition transition = ConfChangeTransition::kAuto;
  std::vector<ConfChangeSingle> changes = {};
  std::string context = {};  // the application's, opaque to raft

  // Whether this asks to leave a joint configuration.
  bool LeavesJoint() const { return transition == ConfChangeTransition::kAuto && changes.empty(); }
  // Whether this enters a joint configuration.
  bool EntersJoint() const {
    return transition != ConfChangeTransition::kAuto || changes.size() > 1;
  }
  // Whether the joint configuration it enters is to be left without the application asking.
  bool AutoLeave() const { return transition != ConfChangeTransition::kJointExplicit; }

  friend bool operator==(const ConfChangeV2&, const ConfChangeV2&) = default;
};

// The only form of change etcd proposes; never propose ConfChangeV2 in a cluster that has etcd
// members.
struct ConfChange {
  uint64_t id = 0;  // the application's request id, opaque to raft
  ConfChangeType type = ConfChangeType::kAddNode;
  NodeId node_id = kNoNode;
  std::string context = {};

  ConfChangeV2 AsV2() const;

  friend bool operator==(const ConfChange&, const ConfChange&) = default;
};

// Values are those on the wire.
enum class MessageType : uint8_t {
  kHup = 0,
  kBeat = 1,
  kProp = 2,
  kApp = 3,
  kAppResp = 4,
  kVote = 5,
  kVoteResp = 6,
  kSnap = 7,
  kHeartbeat = 8,
  kHeartbeatResp = 9,
  kUnreachable = 10,
  kSnapStatus = 11,
  kCheckQuorum = 12,
  kTransferLeader = 13,
  kTimeoutNow = 14,
  kReadIndex = 15,
  kReadIndexResp = 16,
  kPreVote = 17,
  kPreVoteResp = 18,
  kStorageAppend = 19,
  kStorageAppendResp = 20,
  kStorageApply = 21,
  kStorageApplyResp = 22,
  kForgetLeader = 23,
};
inline constexpr int kMessageTypeCount = 24;

// "MsgApp" and so on, the names etcd uses in logs and metrics.
std::string_view MessageTypeName(MessageType type);
// Types that a node only sends to itself or to its storage workers: received from the network they
// are to be dropped.
bool IsLocalMessage(MessageType type);
// Replies; they are meaningful only from members of the configuration.
bool IsResponseMessage(MessageType type);

// Which fields mean what for which type: docs/internals/raft.md.
struct Message {
  MessageType type = MessageType::kHup;
  bool reject = false;
  NodeId to = kNoNode;
  NodeId from = kNoNode;
  Term term = 0;  // 0: proposals, read requests and local messages
  Term log_term = 0;
  Index index = 0;
  Index commit = 0;
  NodeId vote = kNoNode;  // storage messages only
  Index reject_hint = 0;
  std::vector<Entry> entries = {};
  SnapshotPtr snapshot = nullptr;  // null when absent
  Buffer context = {};
  std::vector<Message> responses = {};  // storage messages only

  friend bool operator==(const Message& a, const Message& b);
};

// A linearizable read that was asked for with `context` may be served once entry `index` is
// applied.
struct ReadState {
  Index index = 0;
  Buffer context = {};

  friend bool operator==(const ReadState&, const ReadState&) = default;
};

enum class Role : uint8_t { kFollower = 0, kPreCandidate = 1, kCandidate = 2, kLeader = 3 };
// "StateFollower" and so on, as etcd logs them.
std::string_view RoleName(Role role);

// What need not survive a restart; worth telling the application when it changes.
struct SoftState {
  NodeId lead = kNoNode;
  Role role = Role::kFollower;

  friend bool operator==(const SoftState&, const SoftState&) = default;
};

}  // namespace raft
