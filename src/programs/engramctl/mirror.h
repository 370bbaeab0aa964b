// Copies a prefix of one cluster into another and follows its changes. Main thread only.
//
// How far it came is kept in the destination, in one key written in the same transaction as the
// changes: so a restart goes on where the destination left off, deletes included, and no change is
// applied twice or lost. The key is "\0engram-mirror/" and the destination prefix; its value is
// "<source cluster id in hex> <revision> <source prefix quoted>". When the source has compacted
// that revision away, the mirror compares both sides instead and also deletes what is gone at the
// source. Position keys of the source are not mirrored. Where the destination's permissions do not
// reach the position key, the mirror works without it: each start copies everything and deletes
// nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"

namespace etcdserverpb {
class RequestOp;
class TxnRequest;
class WatchResponse;
}  // namespace etcdserverpb

namespace engramctl {

namespace pb = ::etcdserverpb;

struct MirrorOptions {
  std::string prefix;              // at the source
  std::string destination_prefix;  // replaces `prefix`
  int64_t start_revision = 0;      // 0: resume, or copy everything first
  uint64_t txn_ops_max = 128;
};

struct MirrorPosition {
  uint64_t cluster_id = 0;
  int64_t revision = 0;
  std::string prefix;
};
std::string FormatPosition(const MirrorPosition& position);
// False when the text is no position.
bool ParsePosition(std::string_view text, MirrorPosition* position);

class Mirror {
 public:
  // Both clients outlive it.
  Mirror(client::Client& source, client::Client& destination, MirrorOptions options)
      : source_(source), destination_(destination), options_(std::move(options)) {}

  // Returns only on failure. `on_no_position` is called when the position cannot be kept.
  absl::Status Run(const std::function<void()>& on_no_position);
  // Keys written or deleted so far; any thread.
  int64_t mirrored() const { return mirrored_; }

 private:
  absl::StatusOr<MirrorPosition> ReadPosition();
  // Copies the whole prefix as of one revision, which is returned. `reconcile`: also deletes what
  // the source does not have.
  absl::StatusOr<int64_t> CopyAll(bool reconcile);
  absl::Status DeleteSurplus(int64_t revision);
  absl::Status Follow(int64_t from_revision, bool* compacted);
  absl::Status Apply(const pb::WatchResponse& response);
  // Applies operations in transactions of at most txn_ops_max; the last one records `revision` (0:
  // none does).
  absl::Status Commit(std::vector<pb::RequestOp> ops, int64_t revision);
  std::string DestinationKey(std::string_view key) const;
  std::string PositionKey() const;

  client::Client& source_;
  client::Client& destination_;
  const MirrorOptions options_;
  uint64_t cluster_id_ = 0;
  bool keeps_position_ = true;
  std::atomic<int64_t> mirrored_{0};
};

}  // namespace engramctl
