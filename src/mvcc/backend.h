// The db file as the store sees it: a pending batch in memory in front of a bolt file. The apply
// thread is the only writer and never waits for the file; the backend thread commits, defragments
// and runs compaction slices; readers on any thread pin a view. Each method says which thread may
// call it. bolt itself is known to bolt_backend*.cc alone.
//
//   apply thread          AppendRecord / Put / Delete -> active batch --EndEntry--> (border)
//   backend thread        border: active -> sealed; sealed batches -> one bolt commit -> new view
//   readers               view = bolt read transaction + sealed batches + active batch, pinned by a
//   shared_ptr
//
// A commit always ends at an entry border and carries that entry's consistent_index and term, so
// the file never holds a part of an entry (docs/internals/mvcc.md).
//
// Lock order: Store's index lock, then the locks in here (entry, view, loop), which never call out.
// None is held across file I/O except the one that serialises the backend's own steps, which no
// reader and no writer takes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/random.h"
#include "bolt/tx.h"
#include "mvcc/revision.h"

namespace mvcc {

// The ten buckets of a member's db file, in the order they have in the file.
enum class Bucket : uint8_t {
  kAlarm,
  kAuth,
  kAuthRoles,
  kAuthUsers,
  kCluster,
  kKey,
  kLease,
  kMembers,
  kMembersRemoved,
  kMeta,
};
inline constexpr int kBucketCount = 10;
std::string_view BucketName(Bucket bucket);

// One record of the key bucket. `value` is the stored KeyValue and lives as long as the view it was
// read from.
struct Record {
  Revision revision;
  bool tombstone = false;
  std::string_view value;
};

// Told from the backend thread (or from the caller's thread in threadless mode). Implementations
// must be quick.
class BackendObserver {
 public:
  virtual ~BackendObserver() = default;
  struct Commit {
    base::Duration total{};
    base::Duration rebalance{};
    base::Duration spill{};
    base::Duration write{};
    uint64_t operations = 0;
  };
  virtual void OnCommit(const Commit&) {}
  // A defragmentation ended; `status` is why it failed, if it did.
  virtual void OnDefragment(base::Duration /*total*/, const absl::Status& /*status*/) {}
};

struct BackendOptions {
  base::Files* files = nullptr;    // borrowed
  base::Clock* clock = nullptr;    // borrowed
  base::Random* random = nullptr;  // borrowed; names of scratch files
  std::string path;                // <data-dir>/member/snap/db
  base::Duration batch_interval = std::chrono::milliseconds(100);
  uint64_t batch_operations_max = 10000;
  // Writes not yet in the file. At this mark BeginEntry() waits for the backend thread.
  uint64_t pending_bytes_max = 64u << 20;
  bool no_sync = false;         // --unsafe-no-fsync
  bool store_freelist = false;  // etcd on Linux rebuilds the freelist at open instead
  bool existing_only = false;   // NotFound instead of creating the file
  uint64_t map_reserve_bytes = 10ull << 30;
  base::Duration lock_timeout{};              // 0 = wait for the file lock for ever
  absl::AnyInvocable<void()> on_lock_wait;    // called once when the lock takes more than 10 s
  uint64_t defragment_step_bytes = 1u << 20;  // copied and synced at a time
  base::Duration defragment_pause = std::chrono::milliseconds(2);  // between two steps
  // The first failed write or sync. The file may not be used after it, so the process should end;
  // every later call that needs the file returns the same status. Called once.
  std::function<void(const absl::Status&)> on_fatal;
  BackendObserver* observer = nullptr;  // borrowed, may be null
};

// An immutable picture of the file plus what is pending. Thread-safe; whoever holds the shared_ptr
// may keep the views it handed out. It keeps pages and batches alive, so hold it for a request, not
// for a session.
// What makes a run of Find() calls on one view faster when their revisions lie close together. One
// thread at a time.
using FindHint = bolt::LeafHint;

class ReadView {
 public:
  virtual ~ReadView() = default;

  // The stored KeyValue of a put at exactly `revision`; nullopt when there is no such record.
  // DataLoss for a damaged file.
  virtual absl::StatusOr<std::optional<std::string_view>> Find(Revision revision,
                                                               FindHint* hint = nullptr) const = 0;

  // Visits records with revision >= from in ascending order until `visit` returns false. Records of
  // the batch being written are seen up to the one appended last, so the visitor must stop at the
  // revision it may see.
  virtual absl::Status Scan(Revision from, absl::FunctionRef<bool(const Record&)> visit) const = 0;

  // Main revision of the last record, 0 if there is none.
  virtual absl::StatusOr<int64_t> LastRevision() const = 0;

  // Reads of the other buckets see what is pending.
  virtual absl::StatusOr<std::optional<std::string>> Get(Bucket bucket,
                                                         std::string_view key) const = 0;
  // All pairs in key order, until `visit` returns false.
  virtual absl::Status ForEach(
      Bucket bucket,
      absl::FunctionRef<bool(std::string_view key, std::string_view value)> visit) const = 0;
};
using ViewPtr = std::shared_ptr<const ReadView>;

// A consistent image of the file, as Maintenance.Snapshot streams it (without the sha256 trailer).
// It holds a read transaction until destroyed. One thread at a time.
class BackendImage {
 public:
  virtual ~BackendImage() = default;
  virtual uint64_t size_bytes() const = 0;
  virtual uint64_t consistent_index() const = 0;
  virtual uint64_t term() const = 0;
  // `meta/storageVersion` in the image, empty if absent.
  virtual const std::string& storage_version() const = 0;
  // Reads exactly n bytes; offset + n <= size_bytes().
  virtual absl::Status Read(uint64_t offset, char* out, size_t n) const = 0;
  // All pairs of a small bucket in the image in key order, until `visit` returns false.
  virtual absl::Status ForEach(
      Bucket bucket,
      absl::FunctionRef<bool(std::string_view key, std::string_view value)> visit) const = 0;
};

struct BackendSizes {
  uint64_t file_bytes = 0;  // "db size": allocated pages x page size
  // Less the pages freed but perhaps still seen by a reader, too: what the keys really need.
  uint64_t live_bytes = 0;
  uint64_t in_use_bytes = 0;   // less the free pages
  uint64_t pending_bytes = 0;  // not yet in the file
  int open_readers = 0;        // read transactions
  bool defragmenting = false;
};

// Work of the store that runs in slices on the backend thread (physical compaction).
class BackendJob {
 public:
  virtual ~BackendJob() = default;
  // Does one slice. Returns the pause before the next one, or nullopt when there is nothing to do.
  virtual absl::StatusOr<std::optional<base::Duration>> Step() = 0;
};

class Backend {
 public:
  // Opens or creates the file, creates missing buckets, removes leftover scratch files of a
  // defragmentation. Waits for the file lock. DataLoss when the file is damaged.
  static absl::StatusOr<std::unique_ptr<Backend>> Open(BackendOptions options);
  virtual ~Backend() = default;

  // --- the backend thread ---
  // Start() runs the loop on a thread of its own; Stop() commits everything acknowledged, ends and
  // joins it. Without Start() the object works threadless: RunOnce() is the loop, and calls that
  // wait for a commit do it themselves.
  virtual void Start() = 0;
  virtual absl::Status Stop() = 0;
  // Does what is due. Returns the time until something is due again (Duration::max() = when woken).
  // Threadless mode.
  virtual base::Duration RunOnce() = 0;

  // --- apply thread ---
  // Every write lies between BeginEntry and EndEntry; a lone Put or Delete outside is an entry of
  // its own that leaves the index alone. BeginEntry waits while pending bytes are at their cap;
  // returns the fatal status if there is one.
  virtual absl::Status BeginEntry() = 0;
  // `index` and `term` of the raft entry just finished; 0, 0 leaves them as they are.
  virtual void EndEntry(uint64_t index, uint64_t term) = 0;
  // Appends to the key bucket; revisions ascend. Returns room for `size` bytes, which the caller
  // fills before its next call.
  virtual char* AppendRecord(Revision revision, bool tombstone, size_t size) = 0;
  virtual void Put(Bucket bucket, std::string_view key, std::string_view value) = 0;
  virtual void Delete(Bucket bucket, std::string_view key) = 0;
  // Asks for a commit as soon as the running entry ends; `done` (may be null) is called on the
  // backend thread when what was written so far, the running entry included, is durable, or with
  // the fatal status.
  virtual void RequestCommit(absl::AnyInvocable<void(const absl::Status&)> done) = 0;
  // Restores consistent_index and term downwards or upwards, as a received database or a forced
  // start needs.
  virtual void SetConsistentIndex(uint64_t index, uint64_t term) = 0;
  // Replaces the whole database by the file at `path` (a database received from the leader; it is
  // renamed over the old one). Pending writes are dropped; views pinned before stay valid. The
  // caller reopens what it built from the old one.
  virtual absl::Status ReplaceFile(const std::string& path) = 0;

  // --- any thread but the backend thread and, inside an entry, the apply thread ---
  // Commits everything acknowledged (up to the last finished entry) and waits for it.
  virtual absl::Status ForceCommit() = 0;
  // ForceCommit, then an image of the result.
  virtual absl::StatusOr<std::unique_ptr<BackendImage>> Image() = 0;
  // Maintenance.Hash: CRC-32C over all buckets less meta's consistent_index, term and
  // storageVersion.
  virtual absl::StatusOr<uint32_t> Hash() = 0;
  // Copies the live pages into a new file while serving goes on, and puts it in place. Waits for
  // the end. ResourceExhausted when the disk has not room for the copy; Aborted when one is running
  // already or the backend stops.
  virtual absl::Status Defragment() = 0;

  // --- any thread ---
  // Defragment without waiting: `done` is called on the backend thread at the end, or at once when
  // refused.
  virtual void StartDefragment(absl::AnyInvocable<void(const absl::Status&)> done) = 0;
  virtual ViewPtr View() const = 0;
  // Of the last finished entry.
  virtual uint64_t consistent_index() const = 0;
  virtual uint64_t term() const = 0;
  // In the file, durably.
  virtual uint64_t durable_index() const = 0;
  virtual BackendSizes sizes() const = 0;
  virtual absl::Status fatal_status() const = 0;
  virtual const std::string& path() const = 0;

  // --- for the store ---
  // The job is stepped by the loop until it says it has nothing to do; WakeJob() makes the loop ask
  // again. Steps run on the backend thread, never beside a defragmentation. SetJob waits for a
  // running step; null removes the job.
  virtual void SetJob(BackendJob* job) = 0;
  virtual void WakeJob() = 0;
  // Within a job step: visits committed records from `from` on, and commits the deletion of records
  // (and the meta pairs) in one bolt transaction at once.
  virtual absl::Status ScanCommitted(Revision from,
                                     absl::FunctionRef<bool(const Record&)> visit) const = 0;
  // Records first to last, both included, all of which go.
  struct RecordRun {
    RevisionKey first;
    RevisionKey last;
  };
  struct Deletion {
    std::span<const RecordRun> runs;  // ascending
    std::string_view meta_key;        // a pair of bucket meta to write with it; empty = none
    std::string_view meta_value;
  };
  virtual absl::Status CommitDeletion(const Deletion& deletion) = 0;
};

}  // namespace mvcc
