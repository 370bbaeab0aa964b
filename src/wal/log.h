// The write-ahead log of one member: a directory of segment files that holds raft entries and
// states in the order they were made durable. Owned by the consensus thread; the methods marked
// [any thread] may be called from others at the same time.
//
//   Create ──▶ Open ──▶ Save* ──▶ SaveSnapshotRecord ──▶ ReleaseTo ──▶ … ──▶ Close
//                        PreallocateNext, Purge, ReadEntries: helpers
//
// The first failed write, sync, cut or rename is final: it is returned ever after, because the
// kernel may have dropped pages that nobody can write again. The owner ends the process.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "wal/entry_map.h"
#include "wal/format.h"
#include "wal/records.h"
#include "wal/segment_writer.h"

namespace wal {

struct LogOptions {
  uint64_t segment_bytes = kSegmentBytes;  // smaller in tests only
};

// What Open cut off the end of the log. The owner logs it.
struct TornTail {
  std::string path;         // the segment
  std::string broken_path;  // the copy made before the cut
  uint64_t offset = 0;      // where the last whole record ends: the segment's length now
  uint64_t cut_bytes = 0;   // how much was behind it (preallocated zeros included)
};

// What the log says about the time before this start.
struct Recovered {
  Metadata metadata;
  HardState state;
  std::vector<Entry>
      entries;  // those after the start snapshot, without gaps, superseded ones left out
  // Whether a record of exactly the start snapshot is in the log. A missing one is not an error for
  // a server (as in etcd); tools and checks treat it as one.
  bool snapshot_found = false;
  std::optional<TornTail> torn_tail;
};

class Log {
 public:
  struct Opened;

  // Makes a new log that holds `metadata` and the snapshot record {0, 0}. It is built in
  // "<dir>.tmp" (a leftover of that name is removed), synced, renamed to `dir`, and the parent
  // directory is synced: after a crash there is the whole log or none. AlreadyExists when `dir`
  // holds a log; an empty directory `dir` is replaced, the parent must exist.
  static absl::StatusOr<std::unique_ptr<Log>> Create(base::Files& files, const std::string& dir,
                                                     const Metadata& metadata,
                                                     const LogOptions& options = {});

  // Opens for appending from `start` (take it from ValidSnapshotRecords). Locks the segments from
  // there on, reads them, cuts a torn tail once, zeroes what lies behind the last record, and goes
  // on there. NotFound: no segment fits `start`. FailedPrecondition: another process holds a
  // segment. DataLoss: damage, with file and offset.
  static absl::StatusOr<Opened> Open(base::Files& files, const std::string& dir,
                                     const SnapshotRecord& start, const LogOptions& options = {});

  // Drops the locks. What was saved without `sync` since the last synced call may be lost, as in a
  // kill; see Close.
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // Appends entries, then the state if given, with one write and, if `sync`, one fdatasync. An
  // entry with an index at or below the last one supersedes it and all after it. Entries must be
  // consecutive and start at most one above the last index. Without entries and without `sync` the
  // state is only remembered and goes out with the next write: a commit index alone is not worth a
  // system call. May cut the segment, which costs two more fdatasyncs. Must-sync rule (the
  // caller's): entries, or a changed vote or term.
  absl::Status Save(std::span<const EntryView> entries, const std::optional<HardState>& state,
                    bool sync);

  // Records a snapshot and makes it durable together with all that was saved before. The database
  // must hold everything up to record.index durably by then.
  absl::Status SaveSnapshotRecord(const SnapshotRecord& record);

  // Makes all that was saved so far durable.
  absl::Status Sync();

  // Gives up the locks on the segments that a start from a snapshot at `index` does not need, so
  // that Purge may delete them.
  void ReleaseTo(uint64_t index);

  // Writes and syncs what is outstanding, removes the preallocated file and drops the locks.
  // Nothing may be saved after it. No helper may be inside an [any thread] method.
  absl::Status Close();

  // [any thread] Prepares the next segment's file, so that a cut does not wait for the allocation.
  // Does nothing when one is ready or being prepared. Call it after Open and after each cut (see
  // cuts()). A failure costs nothing but time: the cut then tries again itself.
  absl::Status PreallocateNext();

  // [any thread] Deletes the oldest segments while there are more than `files_max`, stopping at the
  // first one that is still locked. Returns the names of the deleted ones. 0 means no limit.
  absl::StatusOr<std::vector<std::string>> Purge(uint64_t files_max);

  // [any thread] Entries with from <= index < to, at least one, and as many as have up to
  // `data_bytes_max` of data. Reads only what was written since the start snapshot of Open.
  // OutOfRange when `from` is not there (any more, or yet).
  absl::StatusOr<std::vector<Entry>> ReadEntries(uint64_t from, uint64_t to,
                                                 uint64_t data_bytes_max) const;

  // The index of the last saved entry, or of the newest snapshot record if that is greater.
  uint64_t last_index() const { return last_index_; }
  const Metadata& metadata() const { return metadata_; }
  // How many segments were begun since Open.
  uint64_t cuts() const { return cuts_; }
  // How many bytes were written since Open, to all segments.
  uint64_t written_bytes() const {
    return earlier_segments_bytes_ + tail_->written_bytes() - opened_at_;
  }
  // How many bytes the current segment holds.
  uint64_t tail_bytes() const { return tail_->written_bytes(); }
  // OK until the first failure.
  const absl::Status& failure() const { return failure_; }

 private:
  struct Segment {
    SegmentName name;
    std::unique_ptr<base::File>
        file;  // holds the lock; empty once released, and for the tail, whose writer has it
  };

  Log(base::Files& files, std::string dir, const LogOptions& options);

  struct NextFile {
    std::unique_ptr<base::File> file;
    std::string path;
  };
  // Where an entry that is being written lies.
  struct StagedEntry {
    uint64_t index = 0;
    uint64_t offset = 0;
    uint32_t crc_before = 0;
  };

  // log.cc
  absl::Status CheckUsable() const;
  absl::Status Fail(absl::Status status);
  void AppendState(const HardState& state);
  void AppendPendingState();
  void AppendHead(SegmentWriter* writer);
  absl::Status WriteAndPublish();
  absl::Status Cut();
  std::string NextPathBeside(const std::string& in_use) const;
  absl::StatusOr<NextFile> TakeNextFile();
  absl::StatusOr<std::unique_ptr<base::File>> MakeNextFile(const std::string& path) const;
  std::string PathOf(const SegmentName& name) const;
  // log_open.cc
  absl::Status LockSegments(const std::vector<SegmentName>& names);
  absl::Status RemoveNextFiles();
  absl::Status Recover(const SnapshotRecord& start, Recovered* recovered);
  absl::StatusOr<bool> ReplaySegments(const SnapshotRecord& start, Recovered* recovered);
  absl::Status CutTornTail(Recovered* recovered);
  absl::Status PrepareTail(uint64_t former_bytes);

  base::Files& files_;
  const std::string dir_;
  const LogOptions options_;

  // Of the consensus thread.
  Metadata metadata_;
  std::string metadata_bytes_;  // as first recorded; every segment repeats them unchanged
  HardState state_;             // the newest one given to Save, or recovered
  bool state_pending_ = false;  // state_ is not written yet
  // The index of a snapshot record above the commit index recorded so far (a received snapshot),
  // else 0. The log cannot start from it before a state with that commit index is recorded.
  uint64_t unconfirmed_snapshot_ = 0;
  uint64_t last_index_ = 0;
  uint64_t cuts_ = 0;
  uint64_t opened_at_ = 0;               // what the tail held when it was opened
  uint64_t earlier_segments_bytes_ = 0;  // of the segments completed since
  bool closed_ = false;
  absl::Status failure_;
  std::unique_ptr<SegmentWriter> tail_;
  uint32_t tail_crc_ =
      0;  // the running CRC at the end of what was recovered; the writer carries it on
  std::string scratch_;  // for encoding small records
  std::vector<StagedEntry>
      staged_;  // the entries appended and not yet published; keeps its capacity

  // Shared with helpers; held for moments, never across I/O.
  mutable std::mutex mutex_;
  std::deque<Segment> segments_;  // by sequence, without gaps; the last one is the tail
  uint64_t tail_written_ = 0;     // how much of the tail may be read
  EntryMap entries_;
  // What a helper made or is making for the next cut. A path and no file: being made. No path:
  // nothing.
  NextFile next_;
  std::string cutting_path_;  // the file that a cut is making a segment of, until it is renamed
};

struct Log::Opened {
  std::unique_ptr<Log> log;
  Recovered recovered;
};

}  // namespace wal
