// One member of a raft group as a pure state machine: ticks, messages and proposals go in, a Ready
// batch comes out that says what to persist, send and apply, and in which order. Not thread-safe:
// one thread owns a RawNode and all it is given. No clock, file, socket, lock or log line inside;
// randomness (the election timeout) comes from the generator it is given.
// More: docs/internals/raft.md.
//
//   node->Tick();  node->Step(message);  node->Propose(data);     // in
//   if (node->HasReady()) {
//     Ready ready = node->TakeReady();
//     send(ready.messages);                                       // may overlap with the write
//     persist(ready.hard_state, ready.entries, ready.snapshot);   // see Ready about fdatasync
//     send(ready.messages_after_write);
//     apply(ready.snapshot, ready.committed_entries);             // ApplyConfChange() for changes
//     node->Advance();
//   }
//
// Errors. A call that a peer's message can make fail returns a status and changes nothing:
//   kInvalidArgument  the message is malformed or impossible: drop it, log it.
//   kNotFound         "raft: cannot step as peer not found": a response of a node outside the
//                     configuration: drop it.
//   kUnavailable      "raft proposal dropped": no leader, a transfer in progress, too much
//                     uncommitted: the client may retry.
//   kDataLoss         this node's log contradicts what a legitimate leader says is committed (a
//                     heartbeat commits beyond the last index) or what a follower acknowledges:
//                     the local log has lost entries. The owner must end the process with the
//                     message; going on could lose data.
// Broken rules of the owner (Advance without Ready, entries it did not store, a LogStorage that
// cannot return committed entries) are programming errors or local corruption and fail a CHECK.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "raft/storage.h"
#include "raft/types.h"

namespace base {
class Random;
}

namespace raft {

class Machine;

enum class ReadOnlyOption : uint8_t {
  kSafe = 0,        // a round of heartbeats confirms the leadership for each batch of reads
  kLeaseBased = 1,  // relies on bounded clock drift; needs check_quorum
};

struct Config {
  NodeId id = kNoNode;
  // A follower campaigns after a time drawn from [election_ticks, 2*election_ticks) without a
  // leader's word.
  int election_ticks = 10;
  int heartbeat_ticks = 1;  // < election_ticks
  // The last index the application has applied, when it restarts: entries up to it are not handed
  // out again. 0: hand out all.
  Index applied = 0;
  // Writes and application are asked for by messages to kAppendThread and kApplyThread instead of
  // by Advance(); see Ready.
  bool async_storage_writes = false;
  uint64_t max_size_per_msg =
      1 << 20;  // encoded bytes of the entries of one MsgApp; at least one entry
  uint64_t max_committed_size_per_ready =
      0;  // encoded bytes of entries handed out but not applied; 0: max_size_per_msg
  uint64_t max_uncommitted_entries_size =
      0;                           // payload bytes; proposals beyond are dropped; 0: no limit
  size_t max_inflight_msgs = 512;  // unacknowledged MsgApps per follower
  uint64_t max_inflight_bytes =
      0;                      // their payload bytes; 0: no limit; otherwise >= max_size_per_msg
  bool check_quorum = false;  // the leader steps down when a quorum is silent
  bool pre_vote = false;      // ask before disturbing a cluster with a new term
  ReadOnlyOption read_only_option = ReadOnlyOption::kSafe;
  bool disable_proposal_forwarding = false;  // followers drop proposals instead of forwarding them
  bool disable_conf_change_validation =
      false;  // let changes into the log that do not fit the present configuration
  bool step_down_on_removal = false;  // a leader that is removed or demoted becomes a follower
};

// One batch of work. With synchronous writes (the default) the owner
//   1. sends `messages`: at once, in parallel with the write, for they do not depend on it;
//   2. persists `snapshot` (which replaces the log), `entries` (which follow it if both are there)
//      and `hard_state`, and stores them in the LogStorage. All of it is durable before step 3 if
//      must_sync is set or there is a snapshot;
//   3. sends `messages_after_write`;
//   4. applies `snapshot`, then `committed_entries`, in order. Entries of this very batch may be
//      among them: they must be durable before they are applied;
//   5. calls Advance() when step 2 is done and what was handed out is applied or queued to be
//      applied in order: the machine counts it as applied from then on.
// Configuration changes are the exception to the queue: ApplyConfChange() must have been called
// for every change among committed_entries before Advance(), and, unless this node leads, before
// step 3, so that no vote is given or counted by a configuration known to be out of date.
// For a leader `messages` holds appends and heartbeats; for all others everything waits for the
// write.
//
// With async_storage_writes `messages` also holds MsgStorageAppend and MsgStorageApply, addressed
// to kAppendThread and kApplyThread, which say what to persist and what to apply; entries,
// hard_state, snapshot and committed_entries repeat it for information. Each is handled in the
// order of its queue, and then its `responses` are delivered: to peers, or by Step() when addressed
// to this node, whose kNotFound means nothing here. messages_after_write is empty and Advance()
// must not be called. A node that restarts must not receive replies to messages of its earlier life
// (connections that die with the process see to that): it asks for votes before the log it speaks
// of is durable.
struct Ready {
  std::optional<SoftState> soft_state;  // set when it changed
  HardState hard_state;                 // empty() when unchanged
  std::vector<ReadState> read_states;
  std::vector<Entry> entries;
  SnapshotPtr snapshot;  // null when there is none
  std::vector<Entry> committed_entries;
  std::vector<Message> messages;
  std::vector<Message> messages_after_write;
  bool must_sync =
      false;  // entries are not empty, or term or vote changed: the write must be durable
};

enum class ProgressState : uint8_t { kProbe = 0, kReplicate = 1, kSnapshot = 2 };

// How far a member has come, as its leader knows.
struct MemberProgress {
  NodeId id = kNoNode;
  ProgressState state = ProgressState::kProbe;
  Index match = 0;  // known to be on the member
  Index next = 0;   // to be sent next
  Index pending_snapshot = 0;
  bool learner = false;
  bool recent_active = false;  // heard of since the last quorum check
  bool paused = false;
  size_t inflight_messages = 0;
  bool inflight_full = false;
};

struct NodeStatus {
  NodeId id = kNoNode;
  HardState hard_state;  // in memory; the stored one may be older
  SoftState soft_state;
  Index applied = 0;
  NodeId lead_transferee = kNoNode;
  ConfState conf_state;
  std::vector<MemberProgress> progress;  // sorted by id; empty unless leader
};

struct BootstrapPeer {
  NodeId id = kNoNode;
  std::string context;  // goes into the peer's configuration change
};

class RawNode {
 public:
  // `storage` and `random` must outlive the node. kInvalidArgument for a configuration that makes
  // no sense; kDataLoss when the storage's state contradicts itself (commit outside the log, an
  // impossible ConfState); the storage's error when it cannot be read.
  static absl::StatusOr<std::unique_ptr<RawNode>> Create(const Config& config, LogStorage* storage,
                                                         base::Random* random);
  ~RawNode();
  RawNode(const RawNode&) = delete;
  RawNode& operator=(const RawNode&) = delete;

  // Makes the first entries of a new cluster: a committed configuration change of term 1 for each
  // peer, in the given order (etcd's is ascending ids). They are handed out like all others, and
  // ApplyConfChange() is called for them as for all others. kFailedPrecondition unless the log is
  // empty.
  absl::Status Bootstrap(std::span<const BootstrapPeer> peers);

  // Time: call once per tick.
  void Tick();
  // Starts an election (a pre-election with pre_vote). Nothing happens when leader, when not
  // promotable, or while a committed configuration change waits to be applied.
  void Campaign();

  // Appends to the leader's log, here or by forwarding. OK only means "on its way". kUnavailable as
  // above.
  absl::Status Propose(Buffer data);
  // The same for many at once, all or none: one append, one broadcast. Only type and data of the
  // entries count. An entry that holds a configuration change that cannot be made now is replaced
  // by an empty one; that is not an error.
  absl::Status ProposeBatch(std::vector<Entry> entries);
  absl::Status ProposeConfChange(const ConfChange& change);
  absl::Status ProposeConfChange(const ConfChangeV2& change);

  // To be called when the entry of the change is applied (or, to refuse the change, not called).
  // Returns the configuration that now holds. kInvalidArgument, and nothing changes, when the
  // change does not fit (every member comes to the same verdict).
  absl::StatusOr<ConfState> ApplyConfChange(const ConfChangeV2& change);
  absl::StatusOr<ConfState> ApplyConfChange(const ConfChange& change) {
    return ApplyConfChange(change.AsV2());
  }

  // Takes in a message of a peer or, with async_storage_writes, a response addressed to this node.
  // The transport has verified that `from` is really the sender and is not this node.
  absl::Status Step(Message message);

  // Asks for a linearizable read; the answer is a ReadState with the same context (which must be
  // unique and not empty), or none when the leader is unknown or changes: ask again then.
  void ReadIndex(Buffer context);
  // Asks the leader (or here) to hand leadership to `transferee`.
  void TransferLeader(NodeId transferee);
  // A follower forgets who leads, so that it may grant pre-votes before its lease ends.
  // kFailedPrecondition with lease-based reads.
  absl::Status ForgetLeader();
  // The last message to `id` may be lost: probe instead of stream.
  void ReportUnreachable(NodeId id);
  // How sending a MsgSnap to `id` went. Must be called for each, or the follower gets nothing until
  // it answers by itself.
  void ReportSnapshot(NodeId id, bool ok);

  bool HasReady() const;
  Ready TakeReady();
  // Ends the batch of the last TakeReady(). Synchronous writes only.
  void Advance();

  Role role() const;
  NodeId lead() const;
  Term term() const;
  Index commit_index() const;
  // The last index handed out and acknowledged by Advance() or MsgStorageApplyResp.
  Index applied_index() const;
  Index last_index() const;
  // Whether this node is leader and an entry of its term is committed: its commit index then covers
  // all that was ever acknowledged.
  bool HasCommittedInTerm() const;
  // Whether this node is the only voter of a configuration that is not joint.
  bool IsOnlyVoter() const;
  ConfState conf_state() const;
  NodeStatus GetStatus() const;

  // Overrides the drawn election timeout until the next role or term change. For tests.
  void SetRandomizedElectionTimeout(int ticks);

 private:
  explicit RawNode(std::unique_ptr<Machine> machine, bool async_storage_writes);
  bool NeedStorageAppend(const Ready& ready) const;
  Message MakeStorageAppend(const Ready& ready);
  Message MakeStorageAppendResponse(const SnapshotPtr& snapshot) const;
  void AcceptReady(const Ready& ready);

  const std::unique_ptr<Machine> machine_;
  const bool async_;
  SoftState last_soft_state_;
  HardState last_hard_state_;
  bool ready_taken_ = false;         // between TakeReady() and Advance()
  std::vector<Message> self_steps_;  // what Advance() delivers to the machine
};

}  // namespace raft
