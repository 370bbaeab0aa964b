// The db file: an ordered map of buckets in one file, in bbolt's format, so that etcd and its tools
// open what we write and we open what they write. Entry class of the layer: DB; what one does in it
// is in tx.h, the format in page.h.
//
// Threads. DB is thread-safe: BeginRead and the figures may be called from anywhere at any time.
// One write transaction at a time: BeginWrite waits for the one before it, and a WriteTx stays on
// its thread.
//
// Invariants, the ground of crash safety:
//  1. The newest valid one of the two meta pages is the only commit point. It is written, whole,
//  after everything it refers
//     to has been synced, and synced itself before Commit returns.
//  2. A page that the newest meta, or a meta pinned by a reader, can reach is never overwritten:
//  changed pages are written to
//     free ones. A page freed by transaction t is free for use from t + 1 on, once no reader sees
//     it: a reader with txid r sees a page allocated by a and freed by t if a <= r < t.
//  3. The address of a mapped page never changes while a transaction can see it. Growth within the
//  reserved address space
//     moves nothing; beyond it, the file is mapped anew and the old mapping lives as long as its
//     readers.
//  4. The first failed write, truncate or sync is final: the kernel may have dropped dirty pages,
//  so every later write
//     operation returns that failure. Readers go on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "bolt/page.h"
#include "bolt/tx.h"

namespace bolt {

struct Options {
  // Of a new file; 0 means 4096. An existing file's own page size is found and used.
  uint32_t page_bytes = 0;
  // Opens with a shared lock and never writes. The file must exist.
  bool read_only = false;
  // NotFound instead of a new file.
  bool existing_only = false;
  // Store the list of free pages with each commit. etcd on Linux does not: the list is found by
  // scanning at open.
  bool store_freelist = false;
  // Address space to reserve at first, rounded as bbolt does (a power of two up to 1 GiB, then
  // whole GiB). It also decides how the file grows: above 16 MiB by 16 MiB beyond need (etcd's db
  // files), else to the rounded size (offline tools: 0).
  uint64_t map_reserve_bytes = uint64_t{10} << 30;
  // Skips all syncs: for scratch files, and for --unsafe-no-fsync.
  bool no_sync = false;
  // How long to wait for the lock; 0 = forever.
  base::Duration lock_timeout{0};
  // Called after each failed attempt (every 50 ms) with the time waited so far.
  absl::AnyInvocable<void(base::Duration)> on_lock_wait;
  // Sleeps between two attempts; unset: the calling thread sleeps.
  absl::AnyInvocable<void(base::Duration)> sleep;
};

// What one commit did and how long its parts took.
struct CommitStats {
  TxId txid = 0;
  base::Duration rebalance{0};  // merging small pages
  base::Duration spill{0};      // splitting, allocating
  base::Duration write{0};      // encoding and writing pages, growth, all syncs, the meta page
  base::Duration sync{0};       // the part of `write` spent in syncs
  uint64_t pages_written = 0;   // data pages, overflow included
  uint64_t pages_freed = 0;
  uint64_t writes = 0;  // write calls for data pages
};

struct DbStats {
  TxId txid = 0;              // of the newest commit
  uint64_t size_bytes = 0;    // pages ever allocated times page size: etcd's "db size"
  uint64_t in_use_bytes = 0;  // without free pages, with pending ones
  uint64_t free_pages = 0;
  uint64_t pending_pages = 0;   // freed, but perhaps seen by a reader
  uint64_t freelist_bytes = 0;  // what a stored list of these would take
  uint64_t open_readers = 0;
  uint64_t commits = 0;  // since open
};

class DB {
 public:
  // Opens or creates `path`. DataLoss names damage: neither meta page valid ("invalid database",
  // "version mismatch", "checksum error"), a file too small or shorter than its meta page says, or,
  // when the free pages must be found by a scan, a page that is wrong, referenced twice or out of
  // order. DeadlineExceeded "timeout" when the lock is held too long. `files` and `clock` must
  // outlive the DB and its transactions.
  static absl::StatusOr<std::unique_ptr<DB>> Open(base::Files& files, const std::string& path,
                                                  Options options, base::Clock& clock);
  // Does not wait for readers: the file and its lock stay until the last transaction is gone.
  ~DB();
  DB(const DB&) = delete;
  DB& operator=(const DB&) = delete;

  // Pins the newest committed state. Cheap; never waits for I/O.
  std::unique_ptr<ReadTx> BeginRead();
  // Waits for an earlier WriteTx to end. FailedPrecondition when read_only, or the first write
  // failure, ever after.
  absl::StatusOr<std::unique_ptr<WriteTx>> BeginWrite();

  // Free and pending pages are 0 in a read_only DB, which does not look for them.
  DbStats stats() const;
  uint64_t size_bytes() const { return stats().size_bytes; }
  uint64_t in_use_bytes() const { return stats().in_use_bytes; }
  uint32_t page_bytes() const;
  const std::string& path() const;
  // OK, or the write failure that ended writing.
  absl::Status failure() const;

 private:
  explicit DB(std::shared_ptr<internal::Store> store);
  const std::shared_ptr<internal::Store> store_;
};

}  // namespace bolt
