#include "wal/scan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/status.h"
#include "wal/replay.h"
#include "wal/segment_reader.h"

namespace wal {
namespace {

// The first pass over one segment's records: no rule about entries applies, for those before the
// start may have gaps.
absl::Status ScanRecord(const RecordView& record, const std::string& path,
                        std::string* metadata_bytes, SnapshotScan* scan) {
  switch (static_cast<RecordType>(record.type)) {
    case RecordType::kMetadata: {
      if (scan->has_metadata && record.data != *metadata_bytes) {
        return Damage("conflicting metadata found", path, record.offset);
      }
      if (!DecodeMetadata(record.data, &scan->metadata))
        return Damage("malformed metadata record", path, record.offset);
      scan->has_metadata = true;
      *metadata_bytes = record.data;
      return absl::OkStatus();
    }
    case RecordType::kState:
      if (!DecodeState(record.data, &scan->state))
        return Damage("malformed state record", path, record.offset);
      return absl::OkStatus();
    case RecordType::kSnapshot: {
      SnapshotRecord snapshot;
      if (!DecodeSnapshot(record.data, &snapshot))
        return Damage("malformed snapshot record", path, record.offset);
      scan->snapshots.push_back(std::move(snapshot));
      return absl::OkStatus();
    }
    default:
      return absl::OkStatus();
  }
}

// Collects what Verify reports, record by record.
class Verifier {
 public:
  Verifier(const SnapshotRecord& start, VerifyReport* report) : start_(start), report_(*report) {
    report_.last_index = start.index;
    report_.last_term = start.term;
  }

  void AddFinding(const std::string& path, uint64_t offset, std::string what) {
    report_.findings.push_back({path, offset, std::move(what)});
  }

  void Add(const RecordView& record, const std::string& path) {
    ++report_.records;
    switch (static_cast<RecordType>(record.type)) {
      case RecordType::kMetadata:
        return AddMetadata(record, path);
      case RecordType::kEntry:
        return AddEntry(record, path);
      case RecordType::kState:
        if (!DecodeState(record.data, &report_.state))
          AddFinding(path, record.offset, "malformed state record");
        return;
      case RecordType::kCrc:
        return;
      case RecordType::kSnapshot:
        return AddSnapshot(record, path);
    }
    AddFinding(path, record.offset, fmt::format("unexpected block type {}", record.type));
  }

 private:
  void AddMetadata(const RecordView& record, const std::string& path) {
    Metadata metadata;
    if (!DecodeMetadata(record.data, &metadata))
      return AddFinding(path, record.offset, "malformed metadata record");
    if (report_.metadata.has_value() && metadata != *report_.metadata) {
      return AddFinding(path, record.offset, "conflicting metadata found");
    }
    report_.metadata = metadata;
  }

  void AddEntry(const RecordView& record, const std::string& path) {
    EntryView entry;
    if (!DecodeEntry(record.data, &entry))
      return AddFinding(path, record.offset, "malformed entry record");
    if (entry.index <= start_.index) {
      // Supersedes what was collected before it.
      report_.first_index = 0;
      report_.last_index = start_.index;
      report_.last_term = start_.term;
      return;
    }
    if (entry.index > report_.last_index + 1) {
      AddFinding(path, record.offset,
                 fmt::format("slice bounds out of range: entry {} follows entry {}", entry.index,
                             report_.last_index));
    }
    if (report_.first_index == 0) report_.first_index = entry.index;
    report_.last_index = entry.index;
    report_.last_term = entry.term;
  }

  void AddSnapshot(const RecordView& record, const std::string& path) {
    SnapshotRecord snapshot;
    if (!DecodeSnapshot(record.data, &snapshot)) {
      return AddFinding(path, record.offset, "malformed snapshot record");
    }
    if (snapshot.index == start_.index) {
      if (snapshot.term == start_.term) {
        report_.snapshot_found = true;
      } else {
        AddFinding(path, record.offset,
                   fmt::format("snapshot mismatch: term {} recorded for index {}, {} expected",
                               snapshot.term, snapshot.index, start_.term));
      }
    }
    report_.snapshots.push_back(std::move(snapshot));
  }

  const SnapshotRecord& start_;
  VerifyReport& report_;
};

// Reads one segment into `verifier`; sets *crc to the running value behind it, 0 where damage makes
// it unknown.
absl::Status VerifySegment(base::Files& files, const std::string& path, bool last,
                           Verifier* verifier, uint32_t* crc) {
  ASSIGN_OR_RETURN(const auto file, files.Open(path, {}));
  ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  SegmentReader reader(*file, path, {.limit = size, .crc = *crc, .last_segment = last});
  while (true) {
    RecordView record;
    const auto outcome = reader.Next(&record);
    if (absl::IsDataLoss(outcome.status())) {
      verifier->AddFinding(path, reader.offset(), std::string(base::Message(outcome.status())));
      *crc = 0;
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(outcome.status());
    if (*outcome == ReadOutcome::kRecord) {
      verifier->Add(record, path);
      continue;
    }
    *crc = reader.crc();
    if (*outcome == ReadOutcome::kTorn) {
      verifier->AddFinding(
          path, reader.offset(),
          last ? "torn tail: the last record is incomplete" : "unexpected end of the segment");
      *crc = 0;
    }
    return absl::OkStatus();
  }
}

}  // namespace

absl::StatusOr<bool> HasLog(base::Files& files, const std::string& dir) {
  const auto names = files.List(dir);
  if (absl::IsNotFound(names.status())) return false;
  RETURN_IF_ERROR(names.status());
  return std::any_of(names->begin(), names->end(),
                     [](const std::string& name) { return name.ends_with(".wal"); });
}

absl::StatusOr<std::vector<SegmentName>> ListSegments(base::Files& files, const std::string& dir) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(dir));
  std::vector<SegmentName> segments;
  for (const std::string& name : names) {
    if (const auto parsed = ParseSegmentName(name); parsed.has_value()) segments.push_back(*parsed);
  }
  std::sort(segments.begin(), segments.end(), [](const SegmentName& a, const SegmentName& b) {
    return std::tie(a.sequence, a.index) < std::tie(b.sequence, b.index);
  });
  return segments;
}

absl::StatusOr<SnapshotScan> ValidSnapshotRecords(base::Files& files, const std::string& dir) {
  ASSIGN_OR_RETURN(const std::vector<SegmentName> names, ListSegments(files, dir));
  if (names.empty()) {
    return base::MakeStatus(absl::StatusCode::kNotFound, "wal: file not found: no segment in {}",
                            dir);
  }
  RETURN_IF_ERROR(CheckSequence(names, dir));
  SnapshotScan scan;
  std::string metadata_bytes;
  uint32_t crc = 0;
  for (const SegmentName& name : names) {
    const bool last = name == names.back();
    const std::string path = base::JoinPath(dir, FormatSegmentName(name));
    ASSIGN_OR_RETURN(const auto file, files.Open(path, {}));
    ASSIGN_OR_RETURN(const uint64_t size, file->Size());
    SegmentReader reader(*file, path, {.limit = size, .crc = crc, .last_segment = last});
    RecordView record;
    ReadOutcome outcome = ReadOutcome::kEnd;
    while (true) {
      ASSIGN_OR_RETURN(outcome, reader.Next(&record));
      if (outcome != ReadOutcome::kRecord) break;
      RETURN_IF_ERROR(ScanRecord(record, path, &metadata_bytes, &scan));
    }
    crc = reader.crc();
    if (outcome == ReadOutcome::kTorn) {
      if (!last)
        return Damage("unexpected end of a segment that is not the last", path, reader.offset());
      scan.torn_tail = true;
    }
  }
  std::erase_if(scan.snapshots, [&scan](const SnapshotRecord& snapshot) {
    return snapshot.index > scan.state.commit;
  });
  if (scan.snapshots.empty()) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "wal: no snapshot record at or below the commit index {} in {}",
                            scan.state.commit, dir);
  }
  return scan;
}

absl::StatusOr<VerifyReport> Verify(base::Files& files, const std::string& dir,
                                    const SnapshotRecord& start) {
  ASSIGN_OR_RETURN(const std::vector<SegmentName> all, ListSegments(files, dir));
  VerifyReport report;
  Verifier verifier(start, &report);
  auto selected = SelectSegments(all, start.index, dir);
  std::vector<SegmentName> names = all;
  if (selected.ok()) {
    names = std::move(*selected);
  } else {
    verifier.AddFinding(dir, 0, std::string(base::Message(selected.status())));
  }
  uint32_t crc = 0;
  for (const SegmentName& name : names) {
    const std::string path = base::JoinPath(dir, FormatSegmentName(name));
    RETURN_IF_ERROR(VerifySegment(files, path, name == names.back(), &verifier, &crc));
    ++report.segments;
  }
  if (!report.metadata.has_value()) verifier.AddFinding(dir, 0, "no metadata record found");
  if (!report.snapshot_found) {
    verifier.AddFinding(
        dir, 0,
        fmt::format("no snapshot record of index {} and term {} found", start.index, start.term));
  }
  // Raft refuses such a state. Where entries are known to be missing already, it says nothing new.
  if (report.state.commit > report.last_index && report.findings.empty()) {
    verifier.AddFinding(dir, 0,
                        fmt::format("the recorded commit index {} is above the last entry {}",
                                    report.state.commit, report.last_index));
  }
  return report;
}

}  // namespace wal
