// What a db file or snapshot file holds, found without ever changing it: opened with a shared lock,
// mapped read-only. Functions are blocking and safe on any thread.
//
// All of them give the same verdict on a damaged file: a digest that does not fit, a structure that
// is broken or a record that is none is DataLoss, whichever is asked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"

namespace bolt {
class DB;
class ReadTx;
}  // namespace bolt

namespace snapshot {

struct ReadOptions {
  // How long to wait while a server or another tool has the file; 0 = forever. Then
  // DeadlineExceeded.
  base::Duration lock_timeout{0};
  // Compare the SHA-256 at the end, where there is one, before anything else.
  bool verify_trailer = true;
};

// A db file that is read. The transaction goes first.
struct OpenedDb {
  std::unique_ptr<bolt::DB> db;
  std::unique_ptr<bolt::ReadTx> tx;
  bool has_trailer = false;
  OpenedDb();
  OpenedDb(OpenedDb&&) noexcept;
  OpenedDb& operator=(OpenedDb&&) noexcept;
  ~OpenedDb();
};

// Opens `path` read-only, whole: digest (see options) and all pages are checked. NotFound "stat
// <path>: no such file or directory"; DataLoss "invalid database", or "snapshot file integrity
// check failed. N errors found." and the errors, a line each.
absl::StatusOr<OpenedDb> OpenChecked(base::Files& files, base::Clock& clock,
                                     const std::string& path, const ReadOptions& options);

struct Summary {
  uint32_t hash = 0;         // CRC-32C over all buckets, as etcdutl counts it
  int64_t revision = 0;      // of the newest record; 0 without any
  uint64_t total_keys = 0;   // live user keys
  uint64_t total_bytes = 0;  // of the database by its own account, the digest not counted
  std::string version;       // "3.7.0"; empty in files of 3.5 and older
  bool has_trailer = false;  // whether a SHA-256 vouches for the bytes
};
absl::StatusOr<Summary> Inspect(base::Files& files, base::Clock& clock, const std::string& path,
                                const ReadOptions& options = {});
// The same of a transaction.
absl::StatusOr<Summary> Summarize(const bolt::ReadTx& tx);

struct HashKv {
  uint32_t hash = 0;
  int64_t hash_revision = 0;
  int64_t compact_revision = 0;  // -1: never compacted
};
// What the server's HashKV answers at `revision` (0: the newest) after a start from this file. A
// compaction that is scheduled counts as done, as it does there. OutOfRange "mvcc: required
// revision has been compacted", "mvcc: required revision is a future revision".
absl::StatusOr<HashKv> HashKvOffline(base::Files& files, base::Clock& clock,
                                     const std::string& path, int64_t revision,
                                     const ReadOptions& options = {});
absl::StatusOr<HashKv> HashKvOf(const bolt::ReadTx& tx, int64_t revision);

}  // namespace snapshot
