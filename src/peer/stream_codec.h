// The bytes on the two streams between members (docs/internals/peer.md): frames out, messages in.
// Pure; each object serves one connection and one thread. What comes in is not trusted: a frame may
// arrive in any pieces, nothing is allocated for a length before its bytes are there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "raft/types.h"

namespace peer {

enum class StreamKind : uint8_t {
  kMessage,  // everything but appends and snapshots
  kMsgApp,   // appends, whose common part is left out: msgappv2
};
// "message" and "msgapp", the last part of the stream's path.
std::string_view StreamName(StreamKind kind);

// More than any message has; a stream that announces more is broken.
inline constexpr uint64_t kFrameBytesMax = 512 << 20;

class StreamEncoder {
 public:
  explicit StreamEncoder(StreamKind kind) : kind_(kind) {}
  // Appends the frame. A stream of appends takes nothing but MsgApp.
  void Encode(const raft::Message& message, std::string* out);
  // What keeps an idle stream alive.
  void LinkHeartbeat(std::string* out) const;

 private:
  const StreamKind kind_;
  // Of the last append: the next one often begins where it ended.
  raft::Term term_ = 0;
  raft::Index index_ = 0;
};

class StreamDecoder {
 public:
  // `local` and `remote` are the receiver and the sender of appends whose head was left out.
  StreamDecoder(StreamKind kind, raft::NodeId local, raft::NodeId remote)
      : kind_(kind), local_(local), remote_(remote) {}
  // Takes all of `bytes` and hands on each message completed by them, link heartbeats left out.
  // InvalidArgument: the stream is broken and must be closed.
  absl::Status Feed(std::string_view bytes, absl::FunctionRef<void(raft::Message)> on_message);

 private:
  enum class State : uint8_t { kType, kCount, kLength, kBody, kCommit };
  absl::Status TakeMessage(std::string_view bytes,
                           absl::FunctionRef<void(raft::Message)> on_message);
  absl::Status TakeEntry(std::string_view bytes);
  absl::Status FinishEntries(uint64_t commit, absl::FunctionRef<void(raft::Message)> on_message);
  State FirstState() const { return kind_ == StreamKind::kMsgApp ? State::kType : State::kLength; }

  const StreamKind kind_;
  const raft::NodeId local_;
  const raft::NodeId remote_;
  State state_ = FirstState();
  std::string pending_;        // the beginning of the part that state_ waits for
  bool in_entries_ = false;    // the frame is a run of entries
  uint64_t entries_left_ = 0;  // of that run
  uint64_t frame_bytes_ = 0;   // of the run's entries so far
  uint64_t length_ = 0;        // of the body
  std::vector<raft::Entry> entries_;
  raft::Term term_ = 0;
  raft::Index index_ = 0;
};

}  // namespace peer
