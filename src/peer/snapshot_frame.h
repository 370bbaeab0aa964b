// The body of POST /raft/snapshot: the length of a MsgSnap in 8 bytes, big-endian, the message, and
// the database to the body's end. A value of one thread; pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "raft/types.h"

namespace peer {

// What etcd accepts.
inline constexpr uint64_t kSnapshotMessageBytesMax = 64 << 20;

// Length and message; the database follows.
std::string EncodeSnapshotHead(const raft::Message& message);

class SnapshotHeadReader {
 public:
  // Takes bytes as they arrive. Once the message is complete, done() is true and what follows it in
  // `bytes` goes to `on_database`. InvalidArgument, in etcd's words, for what is no message.
  absl::Status Feed(std::string_view bytes, absl::FunctionRef<void(std::string_view)> on_database);
  bool done() const { return done_; }
  const raft::Message& message() const { return message_; }

 private:
  std::string pending_;
  uint64_t length_ = 0;  // known once 8 bytes are there
  bool done_ = false;
  raft::Message message_;
};

}  // namespace peer
