// The multi-version store: every change of every key under a revision, readable at any revision
// that is not compacted.
//
// Threads. The apply thread is the only writer: it opens a WriteTxn, changes keys, ends it; a
// reader sees whole transactions only. Queries run on any thread. Physical compaction runs in
// slices on the backend thread.
//
// Lock order: index lock (writer-preferring, in here) -> backend's locks -> watch hub's lock. The
// index lock is held for at most kKeysPerLock keys at a time; no file is read or written under it.
// LeaseHooks are called under no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mvcc/backend.h"
#include "mvcc/key_index.h"
#include "mvcc/key_value.h"
#include "mvcc/revision.h"

namespace mvcc {

class WatchHub;
class WriteTxn;

inline constexpr size_t kKeysPerLock = 1000;

// OutOfRange with the texts clients compare: "etcdserver: mvcc: required revision has been
// compacted" and "etcdserver: mvcc: required revision is a future revision".
absl::Status CompactedError();
absl::Status FutureRevisionError();

enum class SortOrder : uint8_t { kNone = 0, kAscend = 1, kDescend = 2 };
enum class SortTarget : uint8_t { kKey = 0, kVersion = 1, kCreate = 2, kMod = 3, kValue = 4 };

// A RangeRequest as plain values; the views must outlive the call (a cursor copies them).
// `range_end` empty is the single key, "\0" every key >= key, else the half-open interval.
struct RangeQuery {
  std::string_view key{};
  std::string_view range_end{};
  int64_t limit = 0;     // <= 0: none
  int64_t revision = 0;  // <= 0: current
  SortOrder sort_order = SortOrder::kNone;
  SortTarget sort_target = SortTarget::kKey;
  bool keys_only = false;
  bool count_only = false;
  int64_t min_mod_revision = 0;  // filters are off when 0
  int64_t max_mod_revision = 0;
  int64_t min_create_revision = 0;
  int64_t max_create_revision = 0;
};

struct RangeResult {
  int64_t revision = 0;       // the store's current revision when read: header.revision
  int64_t read_revision = 0;  // the revision read at
  int64_t count = 0;          // keys of the interval at read_revision, before limit and filters
  int64_t returned = 0;       // key-values appended
  bool more = false;
};

struct HashKv {
  uint32_t hash = 0;
  int64_t hash_revision = 0;
  int64_t compact_revision = 0;  // -1 if never compacted
  int64_t current_revision = 0;
};

// The lessor's side of key-lease attachment. Called on the apply thread for each change, in order.
class LeaseHooks {
 public:
  virtual ~LeaseHooks() = default;
  // `key` was put with `lease` (0 = none); an attachment to another lease ends.
  virtual void OnKeyPut(std::string_view key, int64_t lease) = 0;
  virtual void OnKeyDeleted(std::string_view key) = 0;
};

struct StoreOptions {
  LeaseHooks* leases = nullptr;  // borrowed, may be null
  int load_threads = 0;          // for the start-up scan; 0 = one per core
  // Physical compaction: one slice works about this long before it lets commits and others run.
  // Where CPUs are few, the kernel lets whoever is to be woken, a sync's completion for one, wait
  // for the slice's end.
  base::Duration compaction_slice = std::chrono::microseconds(250);
  base::Duration compaction_pause = std::chrono::microseconds(500);
  // etcd's --experimental-compaction-batch-limit: upper bound of records deleted per bolt commit.
  size_t compaction_batch_records = 4000;
  // Changes of the number of live keys kept for counting at revisions a little below the current
  // one.
  size_t count_window = 16384;
  base::Clock* clock = nullptr;  // borrowed; slices the compaction
};

// Facts for metrics.
struct StoreStats {
  int64_t current_revision = 0;
  int64_t compact_revision = -1;
  int64_t live_keys = 0;
  uint64_t index_bytes = 0;
  uint64_t puts = 0;
  uint64_t put_bytes = 0;  // of their keys and values
  uint64_t deletes = 0;
  uint64_t txns = 0;
  uint64_t ranges = 0;
  uint64_t compactions_running = 0;   // accepted and not finished
  uint64_t compacted_keys = 0;        // records removed, in all
  base::Duration compaction_total{};  // time spent in finished physical compactions
};

class Store {
 public:
  // Reads the whole key bucket and rebuilds the index. A compaction that was scheduled but did not
  // finish is resumed. `backend` is borrowed and must not have been started yet (Start() may follow
  // at once); on replacement see Reload.
  static absl::StatusOr<std::unique_ptr<Store>> Open(Backend& backend, StoreOptions options);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // (lease id, key) of all live keys with a lease as found at Open or Reload, in key order; the
  // caller feeds them to the lessor. Empties the list. Apply thread.
  std::vector<std::pair<int64_t, std::string>> TakeAttachments();

  // Apply thread, between entries: replaces the database by the file at `path` (see
  // Backend::ReplaceFile) and rebuilds everything from it, under the feet of readers: a query after
  // this sees the new contents, a cursor from before ends with what it pinned. Watchers go on from
  // their next revision. Revisions may have jumped in either direction.
  absl::Status Reload(const std::string& path);

  // --- any thread ---
  int64_t current_revision() const { return current_revision_.load(std::memory_order_acquire); }
  // The last accepted compaction, -1 if none.
  int64_t compact_revision() const { return compact_revision_.load(std::memory_order_acquire); }

  // The steps of a range, filters, sorting and their quirks as clients know them. Appends each
  // key-value to `out` as field `field` of the message under construction (2 in RangeResponse).
  // Errors leave `out` as it was.
  absl::StatusOr<RangeResult> Range(const RangeQuery& query, std::string* out,
                                    uint32_t field = 2) const;

  // HashKV; revision 0 = current. Long: reads the whole bucket up to `revision`, in slices; not for
  // an I/O thread.
  absl::StatusOr<HashKv> HashByRevision(int64_t revision) const;
  // Stored results of finished compactions, highest revision first, at most 10.
  std::vector<HashKv> CompactionHashes() const;

  StoreStats stats() const;
  Backend& backend() { return backend_; }
  const Backend& backend() const { return backend_; }

  // --- apply thread, between BeginEntry and EndEntry of the backend ---
  // One write transaction at a time.
  WriteTxn BeginWrite();

  struct CompactCallbacks {
    // Called on the backend thread once the scheduled revision is durable (before that the answer
    // must not leave).
    absl::AnyInvocable<void(const absl::Status&)> scheduled{};
    // Called on the backend thread once the old records are gone and that is committed.
    absl::AnyInvocable<void(const absl::Status&)> finished{};
  };
  // Compacted (revision <= the last one) or FutureRevision; the callbacks are then not called. On
  // OK, reads and watches below `revision` fail from here on.
  absl::Status Compact(int64_t revision, CompactCallbacks callbacks);
  // Calls back when all compactions accepted so far have finished; at once if there is none.
  void AfterCompactions(absl::AnyInvocable<void(const absl::Status&)> done);

  struct Impl;  // for the files of this layer

 private:
  friend class WriteTxn;
  friend class WatchHub;
  friend class WatcherGroup;
  friend class RangeCursor;
  friend class IndexWalk;

  Store(Backend& backend, StoreOptions options);
  absl::Status Load();
  absl::StatusOr<HashKv> HashAt(int64_t revision) const;
  absl::StatusOr<RangeResult> RangeAt(const RangeQuery& query, const WriteTxn* txn, uint32_t field,
                                      std::string* out) const;

  Backend& backend_;
  std::atomic<int64_t> current_revision_{1};
  std::atomic<int64_t> compact_revision_{-1};
  std::unique_ptr<Impl> impl_;
};

// The open write transaction of the apply thread. Changes are seen by its own reads at once, by
// everybody else after End(). Destroying it without End() is a bug (checked).
class WriteTxn {
 public:
  WriteTxn(WriteTxn&& other) noexcept;
  WriteTxn(const WriteTxn&) = delete;
  WriteTxn& operator=(const WriteTxn&) = delete;
  ~WriteTxn();

  // The revision before the transaction, and the one its changes get.
  int64_t base_revision() const { return base_; }
  int64_t write_revision() const { return base_ + 1; }
  bool changed() const { return sub_ > 0; }
  // What an operation's header says: write_revision() after the first change, base_revision()
  // before.
  int64_t header_revision() const { return changed() ? base_ + 1 : base_; }

  // Reads own writes; query.revision <= 0 reads at header_revision(), and base_revision() reads
  // what was before. The checks against compaction and the future are against base_revision(), as
  // for any range.
  absl::StatusOr<RangeResult> Range(const RangeQuery& query, std::string* out, uint32_t field = 2);
  // State of one key now, or of all live keys of an interval (ascending, until false); values are
  // not read.
  std::optional<KeyState> State(std::string_view key) const;
  void VisitStates(std::string_view key, std::string_view range_end,
                   absl::FunctionRef<bool(std::string_view key, const KeyState&)> visit) const;
  // The stored bytes of a state; valid until the end of the transaction.
  absl::StatusOr<std::string_view> Stored(const KeyState& state) const;
  // State and bytes in one; nullopt when the key is not there.
  absl::StatusOr<std::optional<std::string_view>> Get(std::string_view key) const;

  // Always makes a change, also when nothing differs. Whether the lease exists is the caller's
  // check. `value` and `key` are copied before the call returns. `previous`, if wanted, gets the
  // stored bytes before (valid until the end of the transaction).
  absl::Status Put(std::string_view key, std::string_view value, int64_t lease,
                   std::optional<std::string_view>* previous = nullptr);

  // Deletes the keys of the interval in ascending order; returns how many. `previous`, if not null,
  // gets their key-values appended as field `field` (3 in DeleteRangeResponse).
  absl::StatusOr<int64_t> DeleteRange(std::string_view key, std::string_view range_end,
                                      std::string* previous = nullptr, uint32_t field = 3);

  // Publishes the changes to readers and watchers. Returns the store's revision after it.
  int64_t End();

 private:
  friend class Store;
  WriteTxn(Store* store, int64_t base) : store_(store), base_(base) {}
  absl::StatusOr<std::optional<std::string_view>> PreviousForEvent(
      std::string_view key, const std::optional<KeyState>& previous) const;
  // Writes the record and the event of the change counted last, the deletion of `key`.
  absl::Status Tombstone(std::string_view key, const std::optional<KeyState>& state,
                         std::string* previous, uint32_t field);

  Store* store_;  // null after End()
  int64_t base_;
  int64_t sub_ = 0;  // changes so far
};

// One range read in steps at a pinned revision, for RangeStream and for answers too large to hold.
// Sorting and filters are not supported: keys come in key order. One thread at a time, any thread.
class RangeCursor {
 public:
  // Takes copies of the query's views. Errors as Range.
  static absl::StatusOr<std::unique_ptr<RangeCursor>> Open(const Store& store,
                                                           const RangeQuery& query);
  ~RangeCursor();

  int64_t revision() const { return revision_; }  // current when opened
  int64_t read_revision() const { return read_revision_; }

  struct Size {
    uint64_t bytes = 0;  // that all Next calls together will append
    bool more = false;   // as in the last chunk
    int64_t count = 0;
  };
  // Optional, before the first Next: walks the index once and notes what is to be sent (a few bytes
  // a key), so that later steps cannot meet a compaction. A read of the current revision may move
  // on to a newer one here: look at revision() afterwards.
  absl::StatusOr<Size> Plan(uint32_t field = 2);

  struct Chunk {
    int64_t returned = 0;
    bool done = false;
    bool more = false;  // with done: the limit cut the answer
    int64_t count = 0;  // with done: keys in the interval at read_revision
  };
  // Appends up to `keys_max` key-values, stopping early once `bytes_max` are appended. Compacted if
  // a compaction passed read_revision and there is no plan.
  absl::StatusOr<Chunk> Next(size_t keys_max, uint64_t bytes_max, std::string* out,
                             uint32_t field = 2);

 private:
  struct State;
  RangeCursor();
  int64_t revision_ = 0;
  int64_t read_revision_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace mvcc
