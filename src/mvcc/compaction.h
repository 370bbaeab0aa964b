// Physical compaction: removes from the index and from the db file what accepted compactions made
// unreachable, in the order they were accepted. Runs as a job of the backend loop, in slices; each
// slice takes the index lock for moments and reads or writes a bounded number of records, so
// neither the apply thread nor commits wait long.
//
//   index    KeyIndex::Compact in slices of keys; what it drops is noted (DropList)
//   file     the key bucket is walked up to the revision: dropped records are deleted, batch by
//   batch, and all are hashed
//            on the way for the stored HashKV result; the last batch writes finishedCompactRev
//
// Enqueue and the queries may be called from any thread; Step belongs to the backend thread.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "mvcc/backend.h"
#include "mvcc/store.h"

namespace mvcc {

class RwLock;

// What goes: records in any order in, in the order of revisions out. 16 bytes each, for there may
// be millions, and sorted in pieces, for to sort them all at once holds up whoever waits for a CPU.
class DropList {
 public:
  void Add(const RevisionKey& key);
  // All are in. Then only Goes().
  void Close();
  // Whether the record `key` is in the list; `key` ascends from call to call.
  bool Goes(const RevisionKey& key);

 private:
  struct Note {
    int64_t main = 0;
    uint64_t sub_and_kind = 0;  // sub << 1 | tombstone
    friend auto operator<=>(const Note&, const Note&) = default;
  };
  struct Piece {  // of notes_, sorted; from the one that is next
    size_t next = 0;
    size_t end = 0;
  };
  static Note ToNote(const RevisionKey& key);
  bool Later(const Piece& a, const Piece& b) const;
  void EndPiece();

  std::vector<Note> notes_;
  size_t sorted_ = 0;          // so many lie in pieces
  std::vector<Piece> pieces_;  // closed: a heap, the one with the least next note on top
};

class CompactionJob final : public BackendJob {
 public:
  using Done = absl::AnyInvocable<void(const absl::Status&)>;

  // All borrowed. `index` is guarded by `lock`.
  CompactionJob(Backend& backend, RwLock& lock, KeyIndex& index, const StoreOptions& options);

  struct Request {
    int64_t revision = 0;
    int64_t previous = -1;  // compact revision before it
    bool resumed =
        false;  // found unfinished at start: parts may be deleted already, so no hash comes of it
    bool ready = false;  // set once all records up to `revision` are in the db file
    Done done;
  };
  void Enqueue(Request request);
  // The records that requests enqueued so far concern are in the db file now.
  void MarkReady();
  // Ends what was enqueued, without doing it; not beside Step. `status` goes to the callbacks.
  void Cancel(const absl::Status& status);
  // Calls back once everything enqueued so far is done; at once if that is so.
  void WhenIdle(Done done);
  size_t pending() const;

  // The stored hashes, newest first.
  std::vector<HashKv> hashes() const;
  std::optional<HashKv> FindHash(int64_t revision) const;
  uint64_t removed() const { return removed_.load(std::memory_order_relaxed); }
  base::Duration total() const { return base::Duration(total_ns_.load(std::memory_order_relaxed)); }

  absl::StatusOr<std::optional<base::Duration>> Step() override;

 private:
  enum class Phase { kIdle, kIndex, kFile };

  bool TakeNext();
  void StepIndex();
  absl::StatusOr<bool> StepFile();  // true when the compaction is finished
  void ForgetBatch();
  void Finish();
  base::Duration Now() const;

  Backend& backend_;
  RwLock& lock_;
  KeyIndex& index_;
  const StoreOptions& options_;

  // --- backend thread ---
  Phase phase_ = Phase::kIdle;
  Request current_;
  bool hashing_ = false;
  std::string resume_key_;
  DropList drops_;
  bool any_kept_ = false;  // keep(revision) of the hash is not empty
  Revision from_;          // where the walk of the file goes on
  // The batch: what was met of it and is not deleted yet.
  std::vector<Backend::RecordRun> runs_;
  bool in_run_ = false;  // the last record that was met goes too
  size_t removing_ = 0;
  uint32_t hash_ = 0;
  base::Duration started_{};

  std::atomic<uint64_t> removed_{0};
  std::atomic<int64_t> total_ns_{0};

  mutable std::mutex mutex_;  // leaf; guards what follows
  std::deque<Request> queue_;
  bool running_ = false;
  std::vector<Done> idle_waiters_;
  bool last_finished_ = true;  // the newest request finished before the next came
  std::vector<HashKv> hashes_;
};

}  // namespace mvcc
