// Saves a snapshot of one member's store to a file, checked before it gets its final name.
// Blocking; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/sha256.h"
#include "client/client.h"

namespace client {

// SHA-256 over all bytes but the last 32, which state it. One thread.
class TrailingDigest {
 public:
  void Add(std::string_view data);
  // Once, after the last byte. DataLoss when it is another one.
  absl::Status Check();

 private:
  base::Sha256Stream stream_;
  std::string tail_;  // held back, since only the end of the stream tells which bytes they are
  uint64_t bytes_ = 0;
};

struct SnapshotProgress {
  uint64_t received_bytes = 0;
  uint64_t remaining_bytes = 0;  // as the server says; 0 before the first chunk
};

struct SnapshotOptions {
  base::Duration timeout{};        // of the whole download; 0: unbounded
  base::Duration stall_timeout{};  // longest wait for one chunk; 0: unbounded
  // Whether the file must survive a power cut. A scratch file need not, and hundreds of megabytes
  // synced at once hold up whoever shares the disk, the member's own log for one.
  bool durable = true;
  // Not by a caller that reads all bytes anyway and checks them by itself (TrailingDigest).
  bool check_digest = true;
  // Synced after each so many bytes; 0: once, at the end. Small syncs leave the disk to others in
  // between.
  uint64_t sync_every_bytes = 0;
  std::function<void(const SnapshotProgress&)> on_progress = {};
  // Called after each chunk, and the download waits for it; an error ends it.
  std::function<absl::Status()> may_go_on = {};
  std::function<void()> on_file_created = {};  // "<path>.part" exists
  std::function<void()> on_stream_opened = {};
  std::function<void()> on_read_done = {};
};

struct SnapshotResult {
  std::string version;  // the storage version the server names, "3.7.0"; empty from old servers
  uint64_t bytes = 0;   // of the file: db pages and, at the end, their SHA-256
};

// Streams into `path`.part (mode 0600), checks the length and the SHA-256 at the end, syncs,
// renames to `path`, syncs the directory. On any failure the .part file is removed and `path` stays
// as it was. Errors: the server's; DataLoss for a download that is cut short or whose checksum does
// not match; "could not open X.part (open X.part: ...)" as FailedPrecondition.
absl::StatusOr<SnapshotResult> SaveSnapshot(Client& client, base::Files& files,
                                            const std::string& path,
                                            const SnapshotOptions& options);

}  // namespace client
