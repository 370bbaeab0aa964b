// What Store keeps, for the files that implement it (store*.cc, write_txn.cc, range_cursor.cc,
// compaction.cc, watcher_group.cc). Internal to mvcc.
// Not thread-safe: used by the one thread that owns the objects it is given.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "mvcc/compaction.h"
#include "mvcc/event_builder.h"
#include "mvcc/key_index.h"
#include "mvcc/rw_lock.h"
#include "mvcc/store.h"

namespace mvcc {

// A key came to life or died: what counting at a slightly older revision has to take back.
struct CountChange {
  int64_t main = 0;
  int delta = 0;  // +1 or -1
  std::string key;
};

struct Store::Impl {
  StoreOptions options;

  mutable RwLock lock;  // the index lock; guards what follows
  KeyIndex index;
  std::deque<CountChange> count_changes;  // ascending; all with main >= count_from
  int64_t count_from = 0;
  uint64_t epoch = 0;  // counts Reload: a walk in slices starts again when it changed
  std::shared_ptr<CompactionJob> compaction;  // replaced by Reload

  // --- apply thread only ---
  WatchHub* hub = nullptr;  // set by the hub itself, before the first write
  bool writing = false;
  bool collect_events = false;
  bool collect_previous = false;
  ViewPtr view;  // of the open transaction, pinned when first needed
  EventBuilder events;
  std::vector<std::pair<int64_t, std::string>> attachments;

  std::atomic<uint64_t> puts{0};
  std::atomic<uint64_t> put_bytes{0};
  std::atomic<uint64_t> deletes{0};
  std::atomic<uint64_t> txns{0};
  mutable std::atomic<uint64_t> ranges{0};

  std::shared_ptr<CompactionJob> Compaction() const {
    std::shared_lock guard(lock);
    return compaction;
  }

  // Under the exclusive lock.
  void NoteCount(int64_t main, int delta, std::string_view key);

  // Live keys of the interval at `at_main`, if that can be told without a walk. Under the shared
  // lock.
  std::optional<int64_t> QuickCount(std::string_view key, std::string_view end,
                                    int64_t at_main) const;
};

// What the reads of a range need to know about where they read; txn reads differ from outside ones.
struct ReadPoint {
  int64_t revision = 0;  // the header's
  int64_t at_main = 0;
  uint64_t epoch = 0;
  ViewPtr view;
  mutable FindHint hint;  // begins anew with each view
};

// Where a query reads, outside (`txn` null) or inside the write transaction, and whether it may.
// Under the shared lock.
absl::Status TakeReadPoint(const Store& store, const Store::Impl& impl, const RangeQuery& query,
                           const WriteTxn* txn, ReadPoint* point);

// The record of a state that the index gave at this point; its absence is damage.
absl::StatusOr<std::string_view> FetchStored(const Store& store, const ReadPoint& point,
                                             const KeyState& state);

void AppendKeyOnly(uint32_t field, std::string_view key, const KeyState& state, int64_t lease,
                   std::string* out);

// Whether `k` lies in the interval as requests give it.
bool InInterval(std::string_view k, std::string_view key, std::string_view end);

// The walk in slices that all reads share.
class IndexWalk {
 public:
  // The interval is copied; `point` is borrowed.
  IndexWalk(const Store& store, std::string_view key, std::string_view end, const ReadPoint& point)
      : store_(store), impl_(*store.impl_), key_(key), end_(end), point_(point) {}

  // One slice of at most `keys_max` keys (dead ones included): calls `visit` under the index lock
  // until it returns false. False when the walk is over or was stopped. Compacted when a compaction
  // has passed the revision read; Aborted when the database was replaced.
  absl::StatusOr<bool> Slice(absl::FunctionRef<bool(std::string_view, const KeyState&)> visit,
                             size_t keys_max = kKeysPerLock);
  // The live keys of the whole interval.
  absl::StatusOr<int64_t> Count();

 private:
  absl::Status Check() const;

  const Store& store_;
  const Store::Impl& impl_;
  std::string key_;
  const std::string end_;
  const ReadPoint& point_;
};

}  // namespace mvcc
