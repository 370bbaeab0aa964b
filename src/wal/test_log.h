// Short ways to build, read and damage logs in tests. For test code only; not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/files.h"
#include "base/testing.h"
#include "wal/log.h"
#include "wal/scan.h"
#include "wal/segment_reader.h"
#include "wal/segment_writer.h"

namespace wal {

inline constexpr Metadata kTestMetadata{.node_id = 0xa759d8e1c4eeb940,
                                        .cluster_id = 0x65ab6007cf6ff544};

inline std::string FromHex(std::string_view hex) {
  std::string bytes;
  std::string digits;
  for (const char c : hex) {
    if (c == ' ' || c == '|' || c == '\n') continue;
    digits.push_back(c);
    if (digits.size() < 2) continue;
    uint64_t value = 0;
    if (!base::ParseHexId(digits, &value)) ADD_FAILURE() << "not hex: " << digits;
    bytes.push_back(static_cast<char>(value));
    digits.clear();
  }
  return bytes;
}

inline Entry MakeEntry(uint64_t index, uint64_t term, std::string data) {
  return {.term = term, .index = index, .type = 0, .data = std::move(data)};
}

inline std::vector<EntryView> Views(const std::vector<Entry>& entries) {
  std::vector<EntryView> views;
  for (const Entry& entry : entries) views.push_back(entry.view());
  return views;
}

// Saves [from, to] of `term` with `data_bytes` bytes each, in one save, and a state that commits up
// to `to`.
inline absl::Status SaveRange(Log* log, uint64_t from, uint64_t to, uint64_t term,
                              size_t data_bytes) {
  std::vector<Entry> entries;
  for (uint64_t i = from; i <= to; ++i) {
    entries.push_back(MakeEntry(i, term, std::string(data_bytes, static_cast<char>('a' + i % 26))));
  }
  return log->Save(Views(entries), HardState{.term = term, .vote = 1, .commit = to}, true);
}

inline SnapshotRecord MakeSnapshot(uint64_t index, uint64_t term) {
  return {.index = index, .term = term, .conf_state = {.voters = {1}, .auto_leave = false}};
}

// Opens at the newest usable snapshot, as a server does.
inline absl::StatusOr<Log::Opened> OpenNewest(base::Files& files, const std::string& dir,
                                              const LogOptions& options = {}) {
  ASSIGN_OR_RETURN(const SnapshotScan scan, ValidSnapshotRecords(files, dir));
  return Log::Open(files, dir, scan.snapshots.back(), options);
}

// The path of the n-th segment.
inline std::string SegmentPath(base::Files& files, const std::string& dir, size_t n) {
  const auto names = ListSegments(files, dir);
  if (!names.ok() || n >= names->size()) {
    ADD_FAILURE() << "no segment " << n << " in " << dir;
    return "";
  }
  return base::JoinPath(dir, FormatSegmentName((*names)[n]));
}

// Decodes a record and appends it to `writer` from its parts.
inline absl::Status EncodeAgain(const RecordView& record, SegmentWriter* writer) {
  std::string encoded;
  bool decoded = false;
  switch (static_cast<RecordType>(record.type)) {
    case RecordType::kMetadata: {
      Metadata metadata;
      decoded = DecodeMetadata(record.data, &metadata);
      EncodeMetadata(metadata, &encoded);
      break;
    }
    case RecordType::kEntry: {
      EntryView entry;
      decoded = DecodeEntry(record.data, &entry);
      char head[kEntryHeadBytesMax];
      encoded.assign(head, EncodeEntryHead(entry, head));
      encoded.append(entry.data);
      break;
    }
    case RecordType::kState: {
      HardState state;
      decoded = DecodeState(record.data, &state);
      EncodeState(state, &encoded);
      break;
    }
    case RecordType::kCrc:
      writer->AppendCrc();
      return absl::OkStatus();
    case RecordType::kSnapshot: {
      SnapshotRecord snapshot;
      decoded = DecodeSnapshot(record.data, &snapshot);
      EncodeSnapshot(snapshot, &encoded);
      break;
    }
  }
  if (!decoded) return absl::DataLossError("a record that cannot be decoded");
  writer->Append(static_cast<RecordType>(record.type), encoded);
  return absl::OkStatus();
}

// Where the records of a segment start, and last where they end. Stops at damage.
inline std::vector<uint64_t> RecordOffsets(base::Files& files, const std::string& path) {
  std::vector<uint64_t> offsets;
  const auto file = files.Open(path, {});
  if (!file.ok()) {
    ADD_FAILURE() << file.status();
    return offsets;
  }
  SegmentReader reader(**file, path, {.limit = (*file)->Size().value(), .last_segment = true});
  RecordView record;
  while (true) {
    const auto outcome = reader.Next(&record);
    if (!outcome.ok() || *outcome != ReadOutcome::kRecord) break;
    offsets.push_back(record.offset);
  }
  offsets.push_back(reader.offset());
  return offsets;
}

}  // namespace wal
