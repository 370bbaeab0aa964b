// Looking at a WAL directory without changing it: what is there, where a start may begin, and what
// is wrong with it. Nothing here locks or writes; thread-safe, blocking (each call reads all
// segments concerned).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "wal/format.h"
#include "wal/records.h"

namespace wal {

// Whether `dir` holds a log, i.e. exists and has at least one file that ends in ".wal".
absl::StatusOr<bool> HasLog(base::Files& files, const std::string& dir);

// The segments of `dir` by sequence number; other names are passed over.
absl::StatusOr<std::vector<SegmentName>> ListSegments(base::Files& files, const std::string& dir);

// What a first pass over all segments tells.
struct SnapshotScan {
  // Snapshot records with index <= state.commit, in the order of the log. The last one is where a
  // start begins.
  std::vector<SnapshotRecord> snapshots;
  HardState state;    // the last one recorded
  Metadata metadata;  // of the first segment that has it
  bool has_metadata = false;
  bool torn_tail =
      false;  // the last segment ends in an incomplete record, which Log::Open would cut
};

// Reads every segment in `dir`, also those older than the newest snapshot, and checks all CRCs. A
// torn tail is tolerated. NotFound when there is no segment; DataLoss, naming file and offset, for
// anything damaged, a missing middle segment, or a log without any usable snapshot record.
absl::StatusOr<SnapshotScan> ValidSnapshotRecords(base::Files& files, const std::string& dir);

// One thing wrong with a log.
struct Finding {
  std::string path;
  uint64_t offset = 0;  // of the record concerned
  std::string what;
};

struct VerifyReport {
  std::vector<Finding> findings;  // empty: the log is whole
  std::optional<Metadata> metadata;
  HardState state;
  std::vector<SnapshotRecord> snapshots;  // all of them, also those above the commit index
  uint64_t first_index = 0;               // of the entries after `start`; 0 when there are none
  uint64_t last_index = 0;                // the greater of start.index and the last entry's index
  uint64_t last_term = 0;                 // term at last_index
  bool snapshot_found = false;            // whether a record of exactly `start` is there
  uint64_t segments = 0;
  uint64_t records = 0;
};

// Checks the log from `start` on, and reports all that it finds: it goes on behind damage with the
// next segment. A torn tail is a finding too. An error status only when the directory or a file
// cannot be read at all.
absl::StatusOr<VerifyReport> Verify(base::Files& files, const std::string& dir,
                                    const SnapshotRecord& start);

}  // namespace wal
