#include "peer/snapshot_frame.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "raft/codec.h"

namespace peer {
namespace {
constexpr size_t kLengthBytes = 8;
}  // namespace

std::string EncodeSnapshotHead(const raft::Message& message) {
  std::string out(kLengthBytes, '\0');
  raft::EncodeMessage(message, &out);
  base::StoreBe64(out.data(), out.size() - kLengthBytes);
  return out;
}

absl::Status SnapshotHeadReader::Feed(std::string_view bytes,
                                      absl::FunctionRef<void(std::string_view)> on_database) {
  while (!done_) {
    const uint64_t wanted = pending_.size() < kLengthBytes ? kLengthBytes : kLengthBytes + length_;
    const size_t n = std::min<uint64_t>(wanted - pending_.size(), bytes.size());
    pending_.append(bytes.substr(0, n));
    bytes.remove_prefix(n);
    if (pending_.size() < wanted) return absl::OkStatus();
    if (wanted == kLengthBytes) {
      length_ = base::LoadBe64(pending_.data());
      if (length_ > kSnapshotMessageBytesMax)
        return absl::InvalidArgumentError("rafthttp: error limit exceeded");
      if (length_ > 0) continue;
    }
    ASSIGN_OR_RETURN(message_,
                     raft::DecodeMessage(std::string_view(pending_).substr(kLengthBytes)));
    done_ = true;
    std::string().swap(pending_);
  }
  if (!bytes.empty()) on_database(bytes);
  return absl::OkStatus();
}

}  // namespace peer
