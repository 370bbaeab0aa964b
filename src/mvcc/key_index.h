// The index of all user keys: which changes of each key are kept, and what a key's state is at a
// revision. Owned by the store and synchronised by it (a shared mutex): any number of threads may
// run const methods at once, the others need the lock alone. No method blocks or does I/O.
//
// A key's history is a list of generations: a generation opens with a put of a key that is not
// there and closes with a tombstone. Within it, `created` is the main revision of its first put and
// `version` counts its puts from 1.
//
// A worked example ({main,sub} as 2 or 4.1, T = tombstone; the test
// KeyIndex.FollowsTheWorkedExample repeats it):
//
//   put a at 2, put a at 3, put b at 4, delete a at 5 and, in the same transaction, put a at 5.1,
//   put a at 6, delete b at 7, put c at 8
//
//     a   [2 3 5T] [5.1 6]     at 4: created 2, mod 3, version 2    at 5: created 5, mod 5.1,
//     version 1 b   [4 7T]               at 6: created 4, mod 4, version 1    at 7: not there c [8]
//
//   compaction at 4            drops 2
//     a   [3 5T] [5.1 6]       at 4 still: created 2, mod 3, version 2
//     b   [4 7T]
//   compaction at 5            drops 3 and 5T: 5.1 is the newest change at 5
//     a   [5.1 6]
//   compaction at 7            drops 5.1 and 4; 7T lies exactly at 7 and stays, so that a watch
//   from 7 sees it
//     a   [6]                  created 5, mod 6, version 2
//     b   [7T]
//   compaction at 8            drops 7T, and with it the key b
//     a   [6]
//     c   [8]
//
// The form in memory (a B+tree whose leaves hold packed bytes) is drawn in
// docs/internals/key-index.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mvcc/revision.h"

namespace mvcc {

// A live key at some revision, as the fields of its KeyValue say.
struct KeyState {
  int64_t created = 0;  // create_revision: main of the generation's first put
  Revision mod;  // the newest put; mod.main is mod_revision, and mod finds the record in the `key`
                 // bucket
  int64_t version = 0;  // puts in the generation up to `mod`
  friend bool operator==(const KeyState&, const KeyState&) = default;
};

// One change of one key.
struct Change {
  Revision revision;
  bool tombstone = false;
  int64_t created = 0;  // of the generation; for a tombstone: 0
  int64_t version = 0;  // after the change; for a tombstone: 0
  friend bool operator==(const Change&, const Change&) = default;
};

class KeyIndex {
 public:
  KeyIndex();
  ~KeyIndex();
  KeyIndex(KeyIndex&&) noexcept;
  KeyIndex& operator=(KeyIndex&&) noexcept;

  // --- Changes. `revision` must be above every earlier change of that key (checked).

  struct PutResult {
    KeyState state;                    // after the put
    std::optional<KeyState> previous;  // what was live before it
  };
  PutResult Put(std::string_view key, Revision revision);

  // Returns what was live before. If the key is missing or deleted already: nullopt, and nothing
  // changes.
  std::optional<KeyState> Tombstone(std::string_view key, Revision revision);

  // The same from records of a file in revision order, for a store that is small or grows by a few
  // records (a whole file loads faster through KeyIndexLoader). The first record of a key sets
  // `created` and `version` as stored, for a compaction may have dropped what was before it; later
  // ones count on from there. A tombstone of an unknown key is kept. kDataLoss, with nothing
  // changed, if `revision` is not above the key's newest change.
  absl::Status RestorePut(std::string_view key, int64_t created, Revision revision,
                          int64_t version);
  absl::Status RestoreTombstone(std::string_view key, Revision revision);

  // --- Queries. `at_main` is any revision >= the last compaction; the newest change with main <=
  // at_main counts.

  // The key's live state, or nullopt. Use kNow for the state after all changes, those of an open
  // transaction included.
  std::optional<KeyState> Get(std::string_view key, int64_t at_main) const;
  static constexpr int64_t kNow = INT64_MAX;

  // Intervals are given as in requests: `end` empty is the single key, "\0" (one zero byte) every
  // key >= `key`, else key <= k < end; an end that is not above `key` is an empty interval.

  // Where a walk stopped. To go on, pass `resume_key` in the place of `key`. Between two slices the
  // lock may be released and the index may change: a walk sees each key at most once, in ascending
  // order, and every key that was there all along.
  struct Slice {
    bool done = true;
    std::string resume_key;  // set if not done
  };

  // Calls `visit` for each key that is live at `at_main`, ascending, until it returns false or
  // `keys_max` keys (dead ones included; > 0) were looked at. The key's bytes are valid during the
  // call only. A walk stopped by `visit` resumes after the key that it was given last. `visit` must
  // not use this index.
  Slice Visit(std::string_view key, std::string_view end, int64_t at_main, size_t keys_max,
              absl::FunctionRef<bool(std::string_view key, const KeyState& state)> visit) const;

  // Live keys of the interval after all changes, in O(log n).
  // A count at a revision r a little below is this less the sum of the changes since: +1 for each
  // later put that had no `previous`, -1 for each tombstone that had one (keep these few with their
  // keys; the others do not matter).
  size_t CountNow(std::string_view key, std::string_view end) const;

  // As Visit, but only adds the live keys to *count.
  Slice CountAt(std::string_view key, std::string_view end, int64_t at_main, size_t keys_max,
                size_t* count) const;

  // All kept changes of a key, oldest first.
  std::vector<Change> History(std::string_view key) const;

  // Keys that are live now; keys with any change kept; bytes of memory in use, allocator overhead
  // estimated.
  size_t live_keys() const;
  size_t keys() const;
  size_t memory_bytes() const;

  // --- Compaction.

  // Drops, for up to `keys_max` keys (> 0) from `from_key` on (start with ""), what a compaction at
  // `compact_main` makes unreachable: changes below the newest one with main <= compact_main, and
  // that one too if it is a tombstone with main < compact_main. Keys with nothing left vanish.
  // Calls `record` once for every change with main <= compact_main that the index held, oldest
  // first within a key: `kept` tells whether it stays. Since the index knows each record of the
  // file, the changes not kept are exactly the records to delete. `record` must not use this index.
  // A slice also ends after `keys_max` dropped changes, even within a long history (which it then
  // takes up again), so that it is short whatever the keys have seen. Reads at >= compact_main are
  // right before, between and after slices.
  Slice Compact(int64_t compact_main, std::string_view from_key, size_t keys_max,
                absl::FunctionRef<void(const RevisionKey& change, bool kept)> record);

  // For up to `keys_max` keys from `from_key` on: calls `record` with the newest change with main
  // <= at_main, if there is one. Those that are not tombstones are keep(at_main) of HashKV.
  Slice VisitNewest(int64_t at_main, std::string_view from_key, size_t keys_max,
                    absl::FunctionRef<void(const RevisionKey& change)> record) const;

  // Walks everything and compares all counters, orders and sizes with what is there; kInternal
  // names the first difference. For tests; O(n).
  absl::Status CheckInvariants() const;

 private:
  friend class KeyIndexLoader;
  class Tree;
  std::unique_ptr<Tree> tree_;
};

// Builds a packed KeyIndex from all records of a `key` bucket, by several threads: split the bucket
// into ranges of ascending revisions, give each range a shard, feed the shards in parallel (each
// shard belongs to one thread at a time), then Build. For 1 M records this costs a fraction of a
// second of CPU in all.
class KeyIndexLoader {
 public:
  // The records of one range of revisions, to be added in revision order.
  class Shard {
   public:
    Shard();
    ~Shard();
    Shard(Shard&&) noexcept;
    Shard& operator=(Shard&&) noexcept;

    // `key` is not copied: its bytes must stay valid until Build returns (they lie in the mapped
    // file). `lease` is the record's lease id, 0 if none.
    void Put(std::string_view key, int64_t created, Revision revision, int64_t version,
             int64_t lease);
    void Tombstone(std::string_view key, Revision revision);
    // Brings the records into key order. Call it on the shard's own thread when all are added;
    // Build does it otherwise.
    void Sort();
    size_t size() const;

   private:
    friend class KeyIndexLoader;
    struct Records;
    std::unique_ptr<Records> records_;
  };

  // Merges the shards, in ascending order of their revisions, and consumes them. `attached` is
  // called, in key order, for each key whose newest record is a put with a lease. The result means
  // the same as RestorePut and RestoreTombstone of all records. kDataLoss if a key's revisions do
  // not ascend.
  static absl::StatusOr<KeyIndex> Build(
      std::vector<Shard> shards,
      absl::FunctionRef<void(std::string_view key, int64_t lease)> attached);
};

}  // namespace mvcc
