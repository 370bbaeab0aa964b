#include "wal/replay.h"

#include <fmt/format.h>

#include "base/status.h"

namespace wal {

absl::Status Damage(std::string_view what, const std::string& path, uint64_t offset) {
  return base::MakeStatus(absl::StatusCode::kDataLoss, "wal: {}: in file '{}' at position: {}",
                          what, path, offset);
}

absl::Status CheckSequence(const std::vector<SegmentName>& names, const std::string& dir) {
  for (size_t i = 1; i < names.size(); ++i) {
    if (names[i].sequence - 1 != names[i - 1].sequence) {
      return base::MakeStatus(absl::StatusCode::kDataLoss,
                              "wal: file sequence numbers (starting from {}) do not increase "
                              "continuously: '{}' follows "
                              "'{}' in {}",
                              names.front().sequence, FormatSegmentName(names[i]),
                              FormatSegmentName(names[i - 1]), dir);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SegmentName>> SelectSegments(const std::vector<SegmentName>& all,
                                                        uint64_t index, const std::string& dir) {
  size_t first = all.size();
  for (size_t i = all.size(); i > 0; --i) {
    if (all[i - 1].index <= index) {
      first = i - 1;
      break;
    }
  }
  if (first == all.size()) {
    return base::MakeStatus(absl::StatusCode::kNotFound,
                            "wal: file not found which matches the snapshot index '{}' in {}",
                            index, dir);
  }
  std::vector<SegmentName> selected(all.begin() + static_cast<ptrdiff_t>(first), all.end());
  RETURN_IF_ERROR(CheckSequence(selected, dir));
  return selected;
}

absl::Status Replay::Apply(const RecordView& record, uint64_t sequence, const std::string& path) {
  switch (static_cast<RecordType>(record.type)) {
    case RecordType::kMetadata:
      return ApplyMetadata(record.data, path, record.offset);
    case RecordType::kEntry:
      return ApplyEntry(record, sequence, path);
    case RecordType::kState:
      if (!DecodeState(record.data, &state_))
        return Damage("malformed state record", path, record.offset);
      return absl::OkStatus();
    case RecordType::kCrc:
      return absl::OkStatus();  // the reader has checked the chain
    case RecordType::kSnapshot:
      return ApplySnapshot(record.data, path, record.offset);
  }
  return Damage(fmt::format("unexpected block type {}", record.type), path, record.offset);
}

absl::Status Replay::ApplyMetadata(std::string_view data, const std::string& path,
                                   uint64_t offset) {
  if (has_metadata_ && data != metadata_bytes_)
    return Damage("conflicting metadata found", path, offset);
  if (!DecodeMetadata(data, &metadata_)) return Damage("malformed metadata record", path, offset);
  metadata_bytes_ = data;
  has_metadata_ = true;
  return absl::OkStatus();
}

absl::Status Replay::ApplyEntry(const RecordView& record, uint64_t sequence,
                                const std::string& path) {
  EntryView entry;
  if (!DecodeEntry(record.data, &entry))
    return Damage("malformed entry record", path, record.offset);
  if (entry.index <= start_.index) {
    // It is not collected, but it supersedes what lies before it like any other entry. (etcd keeps
    // such leftovers: behind a newer entry stands one of an older term, and the member would vote
    // for candidates it must refuse.)
    entries_.clear();
    if (map_ != nullptr) map_->Clear();
    return absl::OkStatus();
  }
  const uint64_t position = entry.index - start_.index - 1;
  if (position > entries_.size()) {
    return Damage(fmt::format("slice bounds out of range: entry {} follows entry {}", entry.index,
                              start_.index + entries_.size()),
                  path, record.offset);
  }
  entries_.resize(position);
  entries_.push_back({.term = entry.term,
                      .index = entry.index,
                      .type = entry.type,
                      .data = std::string(entry.data)});
  if (map_ != nullptr) map_->Add(entry.index, {sequence, record.offset}, record.crc_before);
  return absl::OkStatus();
}

absl::Status Replay::ApplySnapshot(std::string_view data, const std::string& path,
                                   uint64_t offset) {
  SnapshotRecord snapshot;
  if (!DecodeSnapshot(data, &snapshot)) return Damage("malformed snapshot record", path, offset);
  if (snapshot.index == start_.index) {
    if (snapshot.term != start_.term) {
      return Damage(fmt::format("snapshot mismatch: term {} recorded for index {}, {} expected",
                                snapshot.term, snapshot.index, start_.term),
                    path, offset);
    }
    snapshot_found_ = true;
  }
  snapshots_.push_back(std::move(snapshot));
  return absl::OkStatus();
}

}  // namespace wal
