#include "peer/stream_codec.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "raft/codec.h"

namespace peer {
namespace {

constexpr size_t kWordBytes = 8;

// First byte of a frame on the stream of appends.
enum FrameType : uint8_t { kLinkHeartbeat = 0, kEntries = 1, kWholeMessage = 2 };

absl::Status Broken(std::string_view what) {
  return base::MakeStatus(absl::StatusCode::kInvalidArgument, "broken stream: {}", what);
}

void AppendWord(uint64_t value, std::string* out) {
  char bytes[kWordBytes];
  base::StoreBe64(bytes, value);
  out->append(bytes, sizeof bytes);
}

// Appends what `encode` appends, its length in front.
template <typename F>
void AppendFramed(std::string* out, F encode) {
  const size_t at = out->size();
  AppendWord(0, out);
  encode(out);
  base::StoreBe64(out->data() + at, out->size() - at - kWordBytes);
}

}  // namespace

std::string_view StreamName(StreamKind kind) {
  return kind == StreamKind::kMsgApp ? "msgapp" : "message";
}

void StreamEncoder::Encode(const raft::Message& m, std::string* out) {
  if (kind_ == StreamKind::kMessage) {
    AppendFramed(out, [&m](std::string* to) { raft::EncodeMessage(m, to); });
    return;
  }
  if (m.index == index_ && m.log_term == term_ && m.log_term == m.term) {
    out->push_back(static_cast<char>(kEntries));
    AppendWord(m.entries.size(), out);
    for (const raft::Entry& entry : m.entries) {
      AppendFramed(out, [&entry](std::string* to) { raft::EncodeEntry(entry, to); });
    }
    AppendWord(m.commit, out);
    index_ += m.entries.size();
    return;
  }
  out->push_back(static_cast<char>(kWholeMessage));
  AppendFramed(out, [&m](std::string* to) { raft::EncodeMessage(m, to); });
  term_ = m.term;
  index_ = m.entries.empty() ? m.index : m.entries.back().index;
}

void StreamEncoder::LinkHeartbeat(std::string* out) const {
  if (kind_ == StreamKind::kMsgApp) {
    out->push_back(static_cast<char>(kLinkHeartbeat));
    return;
  }
  const raft::Message heartbeat{.type = raft::MessageType::kHeartbeat};
  AppendFramed(out, [&](std::string* to) { raft::EncodeMessage(heartbeat, to); });
}

absl::Status StreamDecoder::Feed(std::string_view bytes,
                                 absl::FunctionRef<void(raft::Message)> on_message) {
  while (!bytes.empty()) {
    if (state_ == State::kType) {
      const auto type = static_cast<uint8_t>(bytes[0]);
      bytes.remove_prefix(1);
      if (type == kLinkHeartbeat) continue;
      if (type > kWholeMessage) return Broken("unknown kind of frame");
      in_entries_ = type == kEntries;
      frame_bytes_ = 0;
      state_ = in_entries_ ? State::kCount : State::kLength;
      continue;
    }
    const uint64_t wanted = state_ == State::kBody ? length_ : kWordBytes;
    std::string_view part;
    if (pending_.empty() && bytes.size() >= wanted) {
      part = bytes.substr(0, wanted);
      bytes.remove_prefix(wanted);
    } else {
      const size_t n = std::min<uint64_t>(wanted - pending_.size(), bytes.size());
      pending_.append(bytes.substr(0, n));
      bytes.remove_prefix(n);
      if (pending_.size() < wanted) return absl::OkStatus();
      part = pending_;
    }
    switch (state_) {
      case State::kCount:
        entries_left_ = base::LoadBe64(part.data());
        state_ = entries_left_ == 0 ? State::kCommit : State::kLength;
        break;
      case State::kLength:
        length_ = base::LoadBe64(part.data());
        frame_bytes_ += kWordBytes;
        if (length_ > kFrameBytesMax || frame_bytes_ + length_ > kFrameBytesMax)
          return Broken("frame too long");
        frame_bytes_ += length_;
        state_ = State::kBody;
        break;
      case State::kBody:
        RETURN_IF_ERROR(in_entries_ ? TakeEntry(part) : TakeMessage(part, on_message));
        break;
      case State::kCommit:
        RETURN_IF_ERROR(FinishEntries(base::LoadBe64(part.data()), on_message));
        break;
      case State::kType:
        break;
    }
    pending_.clear();
    // A body of no bytes is complete as soon as its length is known.
    if (state_ == State::kBody && length_ == 0) {
      RETURN_IF_ERROR(in_entries_ ? TakeEntry({}) : TakeMessage({}, on_message));
    }
  }
  // A large message must not keep its memory for the life of the stream.
  constexpr size_t kKeptBytes = 1 << 20;
  if (pending_.empty() && pending_.capacity() > kKeptBytes) std::string().swap(pending_);
  return absl::OkStatus();
}

absl::Status StreamDecoder::TakeEntry(std::string_view bytes) {
  ASSIGN_OR_RETURN(raft::Entry entry, raft::DecodeEntry(bytes));
  entries_.push_back(std::move(entry));
  --entries_left_;
  state_ = entries_left_ == 0 ? State::kCommit : State::kLength;
  return absl::OkStatus();
}

absl::Status StreamDecoder::FinishEntries(uint64_t commit,
                                          absl::FunctionRef<void(raft::Message)> on_message) {
  raft::Message message{.type = raft::MessageType::kApp,
                        .to = local_,
                        .from = remote_,
                        .term = term_,
                        .log_term = term_,
                        .index = index_,
                        .commit = commit,
                        .entries = std::exchange(entries_, {})};
  index_ += message.entries.size();
  if (index_ > raft::kTermOrIndexMax) return Broken("index out of range");
  state_ = FirstState();
  in_entries_ = false;
  on_message(std::move(message));
  return absl::OkStatus();
}

absl::Status StreamDecoder::TakeMessage(std::string_view bytes,
                                        absl::FunctionRef<void(raft::Message)> on_message) {
  ASSIGN_OR_RETURN(raft::Message message, raft::DecodeMessage(bytes));
  state_ = FirstState();
  frame_bytes_ = 0;
  if (kind_ == StreamKind::kMsgApp) {
    if (message.type != raft::MessageType::kApp) return Broken("no append on a stream of appends");
    term_ = message.term;
    index_ = message.entries.empty() ? message.index : message.entries.back().index;
    if (index_ > raft::kTermOrIndexMax) return Broken("index out of range");
  } else if (message.type == raft::MessageType::kHeartbeat && message.from == raft::kNoNode &&
             message.to == raft::kNoNode) {
    return absl::OkStatus();
  }
  on_message(std::move(message));
  return absl::OkStatus();
}

}  // namespace peer
