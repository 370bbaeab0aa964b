// How a log comes to be: Create and Open of class Log.
#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "wal/log.h"
#include "wal/replay.h"
#include "wal/scan.h"
#include "wal/segment_reader.h"

namespace wal {
namespace {

constexpr uint64_t kCopyBytes = 1U << 20;
constexpr std::string_view kBrokenSuffix = ".broken";

// Copies a whole file. Runs of zeros, which are most of a preallocated segment, stay holes in the
// copy.
absl::Status CopyFile(base::Files& files, const base::File& from, const std::string& to) {
  ASSIGN_OR_RETURN(
      const auto copy,
      files.Open(to, {.write = true, .create = true, .truncate = true, .mode = kFileMode}));
  ASSIGN_OR_RETURN(const uint64_t size, from.Size());
  std::string chunk;
  for (uint64_t offset = 0; offset < size; offset += chunk.size()) {
    chunk.resize(std::min(kCopyBytes, size - offset));
    ASSIGN_OR_RETURN(const size_t got, from.ReadAt(offset, chunk.data(), chunk.size()));
    if (got == 0) break;
    chunk.resize(got);
    if (chunk.find_first_not_of('\0') != std::string::npos)
      RETURN_IF_ERROR(copy->WriteAt(offset, chunk));
  }
  RETURN_IF_ERROR(copy->Truncate(size));
  return copy->Sync();
}

// The first segment of a new log, in a directory of its own.
absl::Status WriteFirstSegment(base::Files& files, const std::string& dir, const Metadata& metadata,
                               const LogOptions& options) {
  RETURN_IF_ERROR(files.MakeDirectory(dir, kDirectoryMode));
  const std::string path = base::JoinPath(dir, FormatSegmentName({}));
  ASSIGN_OR_RETURN(
      auto file,
      files.Open(path, {.write = true, .create = true, .exclusive = true, .mode = kFileMode}));
  RETURN_IF_ERROR(file->Allocate(options.segment_bytes));
  SegmentWriter writer(std::move(file), 0, 0);
  writer.AppendCrc();
  std::string encoded;
  EncodeMetadata(metadata, &encoded);
  writer.Append(RecordType::kMetadata, encoded);
  encoded.clear();
  EncodeSnapshot({}, &encoded);
  writer.Append(RecordType::kSnapshot, encoded);
  RETURN_IF_ERROR(writer.Write());
  RETURN_IF_ERROR(writer.Sync());
  return files.SyncDirectory(dir);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Log>> Log::Create(base::Files& files, const std::string& dir,
                                                 const Metadata& metadata,
                                                 const LogOptions& options) {
  ASSIGN_OR_RETURN(const bool exists, HasLog(files, dir));
  if (exists) {
    return base::MakeStatus(absl::StatusCode::kAlreadyExists,
                            "wal: the directory {} holds a log already", dir);
  }
  const std::string scratch = dir + ".tmp";
  RETURN_IF_ERROR(base::RemoveTree(files, scratch));
  RETURN_IF_ERROR(WriteFirstSegment(files, scratch, metadata, options));
  // rename(2) takes the place of an empty directory and refuses any other.
  RETURN_IF_ERROR(files.Rename(scratch, dir));
  if (absl::Status status = files.SyncDirectory(base::DirName(dir)); !status.ok()) {
    // Not known to be durable, so it must not be taken for a log that was in use. Both errors are
    // told.
    if (absl::Status undone = files.Rename(dir, scratch); !undone.ok()) {
      return base::Annotate(
          status, fmt::format("wal: {} must be removed by hand ({})", dir, base::Message(undone)));
    }
    return status;
  }
  ASSIGN_OR_RETURN(Opened opened, Open(files, dir, {}, options));
  return std::move(opened.log);
}

absl::StatusOr<Log::Opened> Log::Open(base::Files& files, const std::string& dir,
                                      const SnapshotRecord& start, const LogOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<SegmentName> all, ListSegments(files, dir));
  ASSIGN_OR_RETURN(const std::vector<SegmentName> names, SelectSegments(all, start.index, dir));
  Opened opened;
  opened.log.reset(new Log(files, dir, options));
  RETURN_IF_ERROR(opened.log->LockSegments(names));
  RETURN_IF_ERROR(opened.log->RemoveNextFiles());
  RETURN_IF_ERROR(opened.log->Recover(start, &opened.recovered));
  return opened;
}

absl::Status Log::LockSegments(const std::vector<SegmentName>& names) {
  for (const SegmentName& name : names) {
    const std::string path = PathOf(name);
    ASSIGN_OR_RETURN(auto file, files_.Open(path, {.write = true}));
    ASSIGN_OR_RETURN(const bool locked, file->TryLock(base::LockKind::kOfdWrite));
    if (!locked) {
      return base::MakeStatus(
          absl::StatusCode::kFailedPrecondition,
          "wal: lock {}: resource temporarily unavailable (another process uses this log)", path);
    }
    segments_.push_back({.name = name, .file = std::move(file)});
  }
  return absl::OkStatus();
}

// What a process that did not stop cleanly had prepared.
absl::Status Log::RemoveNextFiles() {
  for (const std::string_view name : {"0.tmp", "1.tmp"}) {
    const absl::Status status = files_.Remove(base::JoinPath(dir_, name));
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  return absl::OkStatus();
}

absl::Status Log::Recover(const SnapshotRecord& start, Recovered* recovered) {
  ASSIGN_OR_RETURN(const uint64_t former_bytes, segments_.back().file->Size());
  ASSIGN_OR_RETURN(bool torn, ReplaySegments(start, recovered));
  if (torn) {
    RETURN_IF_ERROR(CutTornTail(recovered));
    const std::optional<TornTail> torn_tail = recovered->torn_tail;
    // Once only: what is torn after the cut is not the work of a crash.
    ASSIGN_OR_RETURN(torn, ReplaySegments(start, recovered));
    if (torn) return Damage("cannot be repaired", torn_tail->path, recovered->torn_tail->offset);
    recovered->torn_tail = torn_tail;
  }
  return PrepareTail(former_bytes);
}

// Reads all segments and sets the members that describe the log. True when the last one is torn;
// recovered->torn_tail.offset is then where.
absl::StatusOr<bool> Log::ReplaySegments(const SnapshotRecord& start, Recovered* recovered) {
  entries_.Clear();
  Replay replay(start, &entries_);
  uint32_t crc = 0;
  for (const Segment& segment : segments_) {
    const bool last = &segment == &segments_.back();
    const std::string path = PathOf(segment.name);
    ASSIGN_OR_RETURN(const uint64_t size, segment.file->Size());
    SegmentReader reader(*segment.file, path, {.limit = size, .crc = crc, .last_segment = last});
    RecordView record;
    ReadOutcome outcome = ReadOutcome::kEnd;
    while (true) {
      ASSIGN_OR_RETURN(outcome, reader.Next(&record));
      if (outcome != ReadOutcome::kRecord) break;
      RETURN_IF_ERROR(replay.Apply(record, segment.name.sequence, path));
    }
    crc = reader.crc();
    if (outcome == ReadOutcome::kTorn) {
      if (!last)
        return Damage("unexpected end of a segment that is not the last", path, reader.offset());
      *recovered = {};
      recovered->torn_tail =
          TornTail{.path = path, .offset = reader.offset(), .cut_bytes = size - reader.offset()};
      return true;
    }
    tail_written_ = reader.offset();
  }
  if (!replay.has_metadata())
    return Damage("no metadata record found", PathOf(segments_.front().name), 0);
  metadata_ = replay.metadata();
  metadata_bytes_ = replay.metadata_bytes();
  state_ = replay.state();
  const uint64_t count = replay.entries().size();
  last_index_ = start.index + count;
  tail_crc_ = crc;
  *recovered = {.metadata = metadata_,
                .state = state_,
                .entries = std::move(replay.entries()),
                .snapshot_found = replay.snapshot_found()};
  return false;
}

absl::Status Log::CutTornTail(Recovered* recovered) {
  TornTail& torn = *recovered->torn_tail;
  torn.broken_path = torn.path + std::string(kBrokenSuffix);
  base::File& file = *segments_.back().file;
  RETURN_IF_ERROR(CopyFile(files_, file, torn.broken_path));
  RETURN_IF_ERROR(files_.SyncDirectory(dir_));
  RETURN_IF_ERROR(file.Truncate(torn.offset));
  return file.Sync();
}

// Zeroes what lies behind the last record, by cutting it off and allocating again, and makes what
// was read durable: a process that was killed may have left it in the page cache, and raft will
// vouch for it from now on.
absl::Status Log::PrepareTail(uint64_t former_bytes) {
  auto file = std::move(segments_.back().file);
  RETURN_IF_ERROR(file->Truncate(tail_written_));
  const absl::Status reserved = file->Allocate(std::max(former_bytes, options_.segment_bytes));
  // A full disk must not keep a member from starting, or nobody could free space through it.
  // Without the reserve appends extend the file, and report the lack of space themselves.
  if (!reserved.ok() && !absl::IsResourceExhausted(reserved)) return reserved;
  RETURN_IF_ERROR(file->Sync());
  tail_ = std::make_unique<SegmentWriter>(std::move(file), tail_written_, tail_crc_);
  opened_at_ = tail_written_;
  if (tail_written_ != 0) return absl::OkStatus();
  // An empty last segment (its content was lost or cut) gets its head, so that a later start may
  // begin with it.
  AppendHead(tail_.get());
  RETURN_IF_ERROR(tail_->Write());
  RETURN_IF_ERROR(tail_->Sync());
  tail_written_ = tail_->written_bytes();
  return absl::OkStatus();
}

}  // namespace wal
