// The rules by which records, read in order, become the state of a log. Used by one thread; not
// thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "wal/entry_map.h"
#include "wal/records.h"
#include "wal/segment_reader.h"

namespace wal {

// Names the record in an error: "...: in file '<path>' at position: N", as a DataLoss.
absl::Status Damage(std::string_view what, const std::string& path, uint64_t offset);

// The segments a start from a snapshot at `index` reads: the last one whose name's index is <=
// `index`, and all behind it. NotFound when there is none, DataLoss when a sequence number is
// missing among them.
absl::StatusOr<std::vector<SegmentName>> SelectSegments(const std::vector<SegmentName>& all,
                                                        uint64_t index, const std::string& dir);
// DataLoss unless the sequence numbers follow each other without a gap.
absl::Status CheckSequence(const std::vector<SegmentName>& names, const std::string& dir);

class Replay {
 public:
  // Entries are collected from start.index + 1 on; `map`, if given, learns where they lie and must
  // outlive the replay.
  Replay(SnapshotRecord start, EntryMap* map) : start_(std::move(start)), map_(map) {}

  // Takes the next record, which was read from segment number `sequence` at `path`. DataLoss for
  // one that breaks a rule.
  absl::Status Apply(const RecordView& record, uint64_t sequence, const std::string& path);

  const std::string& metadata_bytes() const { return metadata_bytes_; }
  bool has_metadata() const { return has_metadata_; }
  const Metadata& metadata() const { return metadata_; }
  const HardState& state() const { return state_; }
  const std::vector<SnapshotRecord>& snapshots() const { return snapshots_; }
  bool snapshot_found() const { return snapshot_found_; }
  std::vector<Entry>& entries() { return entries_; }

 private:
  absl::Status ApplyMetadata(std::string_view data, const std::string& path, uint64_t offset);
  absl::Status ApplyEntry(const RecordView& record, uint64_t sequence, const std::string& path);
  absl::Status ApplySnapshot(std::string_view data, const std::string& path, uint64_t offset);

  const SnapshotRecord start_;
  EntryMap* const map_;
  bool has_metadata_ = false;
  std::string metadata_bytes_;
  Metadata metadata_;
  HardState state_;
  std::vector<SnapshotRecord> snapshots_;
  bool snapshot_found_ = false;
  std::vector<Entry> entries_;
};

}  // namespace wal
