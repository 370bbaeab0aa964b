// Brings a copy of a snapshot to another revision: later rows are left out, archived rows are added
// straight to the db file, in the order of revisions, so that revisions, versions and lease ids
// stay the originals. No server is involved. One thread; blocking.
//
// The file is a private copy and not durable before Finish() returns: after an error or a crash it
// is worth nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "mvcc/revision.h"
#include "snapshot/inspect.h"

namespace bolt {
class DB;
class ReadTx;
class WriteBucket;
class WriteTx;
}  // namespace bolt

namespace snapshot {

// One event as a row of the key bucket.
struct Row {
  mvcc::Revision revision;
  bool tombstone = false;
  // mvccpb.KeyValue as stored: of a put the whole, of a tombstone the key alone.
  std::string_view value;
  int64_t lease = 0;  // as `value` says
};

// The revisions a db file can serve.
struct Bounds {
  int64_t compact_revision = 0;  // 0: never compacted. The oldest revision that can be read
  int64_t revision = 0;          // the newest one; 1 in a store without records, as etcd counts
};
absl::StatusOr<Bounds> BoundsOf(const bolt::ReadTx& tx);

struct ReplayStats {
  uint64_t rows_left_out = 0;
  uint64_t rows_added = 0;
  uint64_t leases_added = 0;
  uint64_t alarms_dropped = 0;
};

class Replay {
 public:
  // `path` is a db file without a SHA-256 behind it, or with one: it is cut off, since it would no
  // longer fit. All pages are checked. DataLoss for damage.
  static absl::StatusOr<std::unique_ptr<Replay>> Open(base::Files& files, base::Clock& clock,
                                                      const std::string& path);
  ~Replay();

  const Bounds& bounds() const { return bounds_; }

  // HashKV of the file as it was opened, whatever was added or left out since. Once, before
  // Finish() begins; another thread may call it beside everything else.
  absl::StatusOr<HashKv> HashAsOpened(int64_t revision);

  // Leaves out every row above `revision`. OutOfRange when the file does not hold that revision.
  // Before the first Append.
  absl::Status LeaveOutAfter(int64_t revision);

  // Adds one row; copied. Rows come in order and without a gap: the first has the revision after
  // bounds().revision, or after the row before; sub-revisions count from 0. DataLoss otherwise.
  absl::Status Append(const Row& row);

  // Makes sure that lease `id` exists; one the file knows keeps its record.
  absl::Status EnsureLease(int64_t id, int64_t ttl_seconds);

  // Drops raised alarms, commits and syncs. Nothing can be called afterwards but stats() and
  // bounds().
  absl::Status Finish();
  const ReplayStats& stats() const { return stats_; }

 private:
  Replay(base::Files& files, std::string path);
  absl::Status Begin();
  absl::Status Commit();

  base::Files& files_;
  const std::string path_;
  std::unique_ptr<bolt::DB> db_;
  std::unique_ptr<bolt::ReadTx> opened_;  // these two go before db_
  std::unique_ptr<bolt::WriteTx> tx_;
  bolt::WriteBucket* keys_ = nullptr;
  Bounds bounds_;
  mvcc::Revision last_;  // of the newest row
  uint64_t uncommitted_bytes_ = 0;
  ReplayStats stats_;
};

}  // namespace snapshot
