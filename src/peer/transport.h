// How a member reaches the others: raft messages, snapshots and questions. The member sees this
// interface alone, so tests and the simulation put their own network in its place. HttpTransport is
// the real one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "raft/types.h"

namespace peer {

// The database that goes with a snapshot message, pinned while this lives. One thread at a time.
class SnapshotSource {
 public:
  virtual ~SnapshotSource() = default;
  virtual uint64_t size_bytes() const = 0;
  // Reads exactly n bytes; offset + n <= size_bytes().
  virtual absl::Status Read(uint64_t offset, char* out, size_t n) const = 0;
};

struct OutgoingSnapshot {
  raft::SnapshotPtr snapshot;
  std::unique_ptr<SnapshotSource> database;
};

// Where a received database goes. Destroyed without Commit, it leaves nothing behind. One thread at
// a time.
class SnapshotSink {
 public:
  virtual ~SnapshotSink() = default;
  virtual absl::Status Write(std::string_view bytes) = 0;
  // Makes what was written durable under its name.
  virtual absl::Status Commit() = 0;
};

// The member, as its transport sees it. Thread-safe; called on the transport's threads and on
// loops, so what may block says so.
class Host {
 public:
  // A message of another member for this one. What does not fit into the queue is dropped.
  virtual void OnMessage(raft::Message message) = 0;
  virtual bool IsRemoved(raft::NodeId id) const = 0;
  // Messages to `id` were or may be lost.
  virtual void OnUnreachable(raft::NodeId id) = 0;
  // How sending a snapshot to `id` went.
  virtual void OnSnapshotSent(raft::NodeId id, bool ok) = 0;
  // The others say that this member was removed.
  virtual void OnSelfRemoved() = 0;
  // The state of now, for a follower whose entries are gone. Blocks.
  virtual absl::StatusOr<OutgoingSnapshot> OpenSnapshot() = 0;
  // Room for the database of a snapshot at `index`. Blocks.
  virtual absl::StatusOr<std::unique_ptr<SnapshotSink>> ReceiveSnapshot(raft::Index index) = 0;

 protected:
  ~Host() = default;
};

struct Identity {
  raft::NodeId member_id = raft::kNoNode;
  uint64_t cluster_id = 0;
};

// A question to another member's peer port.
struct Question {
  std::string method = "GET";
  std::string path;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
};

struct Answer {
  int status = 0;
  std::string cluster_id;  // of the response's X-Etcd-Cluster-Id
  std::string body;
};

// What is known of the way to a member; for metrics.
struct PeerFacts {
  raft::NodeId id = raft::kNoNode;
  bool active = false;
  uint64_t sent_bytes = 0;  // raft messages and databases, without HTTP's framing
  uint64_t received_bytes = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Called once, before the first message; `host` outlives Close().
  virtual void Open(const Identity& /*identity*/, Host& /*host*/) {}
  // Ends all threads; nothing is called on the host afterwards, provided that what serves others'
  // requests has ended before. Idempotent.
  virtual void Close() {}

  // In order per receiver and kind. What cannot be sent is dropped; raft asks again. Never blocks.
  // Consensus thread.
  virtual void Send(std::vector<raft::Message> messages) = 0;

  // Who the others are. Adding one that is there changes its URLs. Thread-safe, never blocks.
  virtual void AddPeer(raft::NodeId /*id*/, const std::vector<std::string>& /*urls*/) {}
  virtual void RemovePeer(raft::NodeId /*id*/) {}
  // Since when messages get through, on the monotonic clock; nullopt when they do not. Thread-safe.
  virtual std::optional<base::Duration> ActiveSince(raft::NodeId /*id*/) const {
    return std::nullopt;
  }

  // Of all peers, by id. Thread-safe.
  virtual std::vector<PeerFacts> Peers() const { return {}; }

  // Blocks up to about `timeout`: for starts and helper threads. Thread-safe, also before Open().
  virtual absl::StatusOr<Answer> Ask(const std::string& /*url*/, const Question& /*question*/,
                                     base::Duration /*timeout*/) {
    return absl::UnavailableError("this transport reaches nobody");
  }
};

}  // namespace peer
