#include "client/snapshot.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "proto/rpc.pb.h"

namespace client {
namespace {

constexpr size_t kPageBytes = 512;  // the smallest unit a db file consists of

base::Duration ReadTimeout(const SnapshotOptions& options) {
  return options.stall_timeout;  // the whole download is bounded by the stream's deadline
}

absl::StatusOr<SnapshotResult> Download(Client& client, base::File& file,
                                        const SnapshotOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                   client.OpenServerStream(kSnapshotMethod, pb::SnapshotRequest(),
                                           {.timeout = options.timeout}));
  if (options.on_stream_opened) options.on_stream_opened();
  SnapshotResult result;
  TrailingDigest digest;
  uint64_t remaining = 0;
  uint64_t synced_bytes = 0;
  pb::SnapshotResponse chunk;
  for (;;) {
    const Stream::ReadResult read = stream->Read(&chunk, ReadTimeout(options));
    if (read == Stream::ReadResult::kTimeout) {
      return absl::DeadlineExceededError("context deadline exceeded");
    }
    if (read == Stream::ReadResult::kEnd) break;
    if (result.version.empty()) result.version = chunk.version();
    RETURN_IF_ERROR(file.Append(chunk.blob()));
    if (options.check_digest) digest.Add(chunk.blob());
    result.bytes += chunk.blob().size();
    if (options.sync_every_bytes > 0 && result.bytes - synced_bytes >= options.sync_every_bytes) {
      RETURN_IF_ERROR(file.Sync());
      synced_bytes = result.bytes;
    }
    remaining = chunk.remaining_bytes();
    if (options.on_progress) {
      options.on_progress({.received_bytes = result.bytes, .remaining_bytes = remaining});
    }
    if (options.may_go_on) RETURN_IF_ERROR(options.may_go_on());
  }
  RETURN_IF_ERROR(stream->Finish());
  if (options.on_read_done) options.on_read_done();
  if (remaining != 0) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "snapshot ended {} bytes early, after {} bytes", remaining,
                            result.bytes);
  }
  if (result.bytes % kPageBytes != base::kDigestBytes) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "sha256 checksum not found [bytes: {}]",
                            result.bytes);
  }
  if (options.check_digest) RETURN_IF_ERROR(digest.Check());
  return result;
}

}  // namespace

void TrailingDigest::Add(std::string_view data) {
  bytes_ += data.size();
  if (data.size() >= base::kDigestBytes) {
    stream_.Update(tail_);
    stream_.Update(data.substr(0, data.size() - base::kDigestBytes));
    tail_ = data.substr(data.size() - base::kDigestBytes);
    return;
  }
  tail_ += data;
  if (tail_.size() > base::kDigestBytes) {
    const size_t surplus = tail_.size() - base::kDigestBytes;
    stream_.Update(std::string_view(tail_).substr(0, surplus));
    tail_.erase(0, surplus);
  }
}

absl::Status TrailingDigest::Check() {
  const base::Digest digest = stream_.Finish();
  if (tail_ == base::DigestBytes(digest)) return absl::OkStatus();
  return base::MakeStatus(absl::StatusCode::kDataLoss,
                          "snapshot does not match its sha256 checksum [bytes: {}]", bytes_);
}

absl::StatusOr<SnapshotResult> SaveSnapshot(Client& client, base::Files& files,
                                            const std::string& path,
                                            const SnapshotOptions& options) {
  const std::string part = path + ".part";
  auto opened = files.Open(part, {.write = true, .create = true, .truncate = true, .mode = 0600});
  if (!opened.ok()) {
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition, "could not open {} ({})", part,
                            base::Message(opened.status()));
  }
  if (options.on_file_created) options.on_file_created();
  absl::StatusOr<SnapshotResult> result = Download(client, **opened, options);
  absl::Status status = result.status();
  if (status.ok() && options.durable) status = (*opened)->Sync();
  opened->reset();
  if (status.ok()) status = files.Rename(part, path);
  if (!status.ok()) {
    // The failure is what matters; a .part file that cannot be removed is at least never taken for
    // a snapshot.
    if (const absl::Status removed = files.Remove(part); !removed.ok()) {
      return base::MakeStatus(status.code(), "{} (and {})", base::Message(status),
                              base::Message(removed));
    }
    return status;
  }
  if (options.durable) RETURN_IF_ERROR(files.SyncDirectory(base::DirName(path)));
  return result;
}

}  // namespace client
