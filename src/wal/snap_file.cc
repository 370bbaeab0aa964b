#include "wal/snap_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "base/wire.h"

namespace wal {
namespace {

using base::wire::Reader;
using base::wire::Type;

constexpr std::string_view kSnapSuffix = ".snap";
constexpr std::string_view kSnapDbSuffix = ".snap.db";
constexpr std::string_view kBrokenSuffix = ".broken";
// Names that begin so are deleted at every start, by etcd as well.
constexpr std::string_view kScratchPrefix = "tmp";
constexpr std::string_view kDefragPrefix = "db.tmp";
constexpr size_t kHexDigits = 16;
constexpr uint32_t kSnapFileMode = 0644;

absl::Status Damaged(std::string_view what, const std::string& path) {
  return base::MakeStatus(absl::StatusCode::kDataLoss, "snap: {}: in file '{}'", what, path);
}

bool DecodeSnapshotMetadata(std::string_view bytes, SnapshotRecord* out) {
  Reader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1 && reader.Expect(Type::kBytes) &&
        !DecodeConfState(reader.bytes(), &out->conf_state)) {
      return false;
    }
    if (reader.field() == 2 && reader.Expect(Type::kVarint)) out->index = reader.varint();
    if (reader.field() == 3 && reader.Expect(Type::kVarint)) out->term = reader.varint();
  }
  return reader.ok();
}

bool DecodeRaftSnapshot(std::string_view bytes, SnapFile* out) {
  Reader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1 && reader.Expect(Type::kBytes)) out->data = reader.bytes();
    if (reader.field() == 2 && reader.Expect(Type::kBytes) &&
        !DecodeSnapshotMetadata(reader.bytes(), &out->record)) {
      return false;
    }
  }
  return reader.ok();
}

// Deletes from the front of `names` while more than `files_max` are left.
absl::Status PurgeOldest(base::Files& files, const std::string& dir,
                         const std::vector<std::string>& names, uint64_t files_max,
                         std::vector<std::string>* deleted) {
  for (size_t i = 0; names.size() - i > files_max; ++i) {
    const std::string path = base::JoinPath(dir, names[i]);
    ASSIGN_OR_RETURN(const auto file, files.Open(path, {.write = true}));
    ASSIGN_OR_RETURN(const bool locked, file->TryLock(base::LockKind::kOfdWrite));
    if (!locked) break;
    RETURN_IF_ERROR(files.Remove(path));
    deleted->push_back(names[i]);
  }
  return absl::OkStatus();
}

// Deletes the names for which `unwanted` is true.
template <typename Predicate>
absl::StatusOr<std::vector<std::string>> RemoveMatching(base::Files& files, const std::string& dir,
                                                        Predicate unwanted) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(dir));
  std::vector<std::string> deleted;
  for (const std::string& name : names) {
    if (!unwanted(name)) continue;
    RETURN_IF_ERROR(files.Remove(base::JoinPath(dir, name)));
    deleted.push_back(name);
  }
  if (!deleted.empty()) RETURN_IF_ERROR(files.SyncDirectory(dir));
  return deleted;
}

}  // namespace

std::string SnapFileName(uint64_t term, uint64_t index) {
  return fmt::format("{:016x}-{:016x}{}", term, index, kSnapSuffix);
}

std::string SnapDbFileName(uint64_t index) {
  return fmt::format("{:016x}{}", index, kSnapDbSuffix);
}

std::optional<SnapName> ParseSnapFileName(std::string_view name) {
  if (name.size() != 2 * kHexDigits + 1 + kSnapSuffix.size() || !name.ends_with(kSnapSuffix) ||
      name[kHexDigits] != '-') {
    return std::nullopt;
  }
  SnapName parsed;
  if (!base::ParseHexId(name.substr(0, kHexDigits), &parsed.term) ||
      !base::ParseHexId(name.substr(kHexDigits + 1, kHexDigits), &parsed.index)) {
    return std::nullopt;
  }
  return parsed;
}

std::optional<uint64_t> ParseSnapDbFileName(std::string_view name) {
  uint64_t index = 0;
  if (name.size() != kHexDigits + kSnapDbSuffix.size() || !name.ends_with(kSnapDbSuffix) ||
      !base::ParseHexId(name.substr(0, kHexDigits), &index)) {
    return std::nullopt;
  }
  return index;
}

std::string EncodeSnapFile(const SnapFile& snap) {
  std::string metadata;
  std::string conf_state;
  EncodeConfState(snap.record.conf_state, &conf_state);
  base::wire::AppendBytes(&metadata, 1, conf_state);
  base::wire::AppendUint(&metadata, 2, snap.record.index);
  base::wire::AppendUint(&metadata, 3, snap.record.term);
  std::string raft_snapshot;
  base::wire::AppendNonEmpty(&raft_snapshot, 1, snap.data);
  base::wire::AppendBytes(&raft_snapshot, 2, metadata);
  std::string file;
  base::wire::AppendUint(&file, 1, base::Crc32c(0, raft_snapshot));
  base::wire::AppendBytes(&file, 2, raft_snapshot);
  return file;
}

absl::StatusOr<SnapFile> DecodeSnapFile(std::string_view bytes, const std::string& path) {
  if (bytes.empty()) return Damaged("empty snapshot", path);
  uint32_t crc = 0;
  std::string_view raft_snapshot;
  Reader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1 && reader.Expect(Type::kVarint))
      crc = static_cast<uint32_t>(reader.varint());
    if (reader.field() == 2 && reader.Expect(Type::kBytes)) raft_snapshot = reader.bytes();
  }
  if (!reader.ok()) return Damaged("malformed snapshot", path);
  if (crc == 0 || raft_snapshot.empty()) return Damaged("empty snapshot", path);
  if (const uint32_t computed = base::Crc32c(0, raft_snapshot); computed != crc) {
    return Damaged(fmt::format("crc mismatch: expected: {:x} computed: {:x}", crc, computed), path);
  }
  SnapFile snap;
  if (!DecodeRaftSnapshot(raft_snapshot, &snap)) return Damaged("malformed snapshot", path);
  return snap;
}

absl::Status WriteSnapFile(base::Files& files, const std::string& dir, const SnapFile& snap) {
  const std::string name = SnapFileName(snap.record.term, snap.record.index);
  if (snap.data.empty()) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "snap: {} has no data", name);
  }
  const std::string scratch = base::JoinPath(dir, fmt::format("{}-{}", kScratchPrefix, name));
  {
    ASSIGN_OR_RETURN(
        const auto file,
        files.Open(scratch,
                   {.write = true, .create = true, .truncate = true, .mode = kSnapFileMode}));
    RETURN_IF_ERROR(file->WriteAt(0, EncodeSnapFile(snap)));
    RETURN_IF_ERROR(file->Sync());
  }
  RETURN_IF_ERROR(files.Rename(scratch, base::JoinPath(dir, name)));
  return files.SyncDirectory(dir);
}

absl::StatusOr<SnapFile> ReadSnapFile(base::Files& files, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(files, path));
  return DecodeSnapFile(bytes, path);
}

absl::StatusOr<std::vector<std::string>> ListSnapFiles(base::Files& files, const std::string& dir) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, files.List(dir));
  std::erase_if(names,
                [](const std::string& name) { return !ParseSnapFileName(name).has_value(); });
  // Fixed-width hex: the order of the names is the order of (term, index).
  std::sort(names.begin(), names.end(), std::greater<>());
  return names;
}

absl::StatusOr<LoadedSnap> LoadNewestSnap(base::Files& files, const std::string& dir,
                                          std::span<const SnapshotRecord> records,
                                          bool rename_broken) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListSnapFiles(files, dir));
  LoadedSnap loaded;
  for (const std::string& name : names) {
    std::string path = base::JoinPath(dir, name);
    auto snap = ReadSnapFile(files, path);
    if (absl::IsDataLoss(snap.status())) {
      if (rename_broken) {
        const std::string broken = path + std::string(kBrokenSuffix);
        RETURN_IF_ERROR(files.Rename(path, broken));
        path = broken;
      }
      loaded.broken_paths.push_back(std::move(path));
      continue;
    }
    RETURN_IF_ERROR(snap.status());
    const bool recorded =
        std::any_of(records.begin(), records.end(), [&snap](const SnapshotRecord& record) {
          return record.term == snap->record.term && record.index == snap->record.index;
        });
    if (!recorded) continue;
    loaded.snap = std::move(*snap);
    break;
  }
  return loaded;
}

absl::StatusOr<std::vector<std::string>> PurgeSnapFiles(base::Files& files, const std::string& dir,
                                                        uint64_t files_max) {
  std::vector<std::string> deleted;
  if (files_max == 0) return deleted;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(dir));
  std::vector<std::string> snaps;
  std::vector<std::string> databases;
  for (const std::string& name : names) {
    if (ParseSnapFileName(name).has_value()) snaps.push_back(name);
    if (ParseSnapDbFileName(name).has_value()) databases.push_back(name);
  }
  RETURN_IF_ERROR(PurgeOldest(files, dir, snaps, files_max, &deleted));
  RETURN_IF_ERROR(PurgeOldest(files, dir, databases, files_max, &deleted));
  return deleted;
}

absl::StatusOr<std::vector<std::string>> RemoveSnapDbsBelow(base::Files& files,
                                                            const std::string& dir,
                                                            uint64_t index) {
  return RemoveMatching(files, dir, [index](const std::string& name) {
    const auto parsed = ParseSnapDbFileName(name);
    return parsed.has_value() && *parsed < index;
  });
}

absl::StatusOr<std::vector<std::string>> RemoveScratchFiles(base::Files& files,
                                                            const std::string& dir) {
  return RemoveMatching(files, dir, [](const std::string& name) {
    return name.starts_with(kScratchPrefix) || name.starts_with(kDefragPrefix);
  });
}

}  // namespace wal
