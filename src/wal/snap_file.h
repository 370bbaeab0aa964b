// The raft snapshot markers "<term>-<index>.snap" beside the database, and the housekeeping of
// their directory. etcd up to 3.6 needs a marker for every snapshot record of the log; 3.7 writes
// them and looks at the log only. Thread-safe, blocking; no two calls for one directory at the same
// time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "wal/records.h"

namespace wal {

// One marker. `data` is the JSON that MembershipStore (v2_store.h) writes.
struct SnapFile {
  SnapshotRecord record;
  std::string data;
  friend bool operator==(const SnapFile&, const SnapFile&) = default;
};

// "<term %016x>-<index %016x>.snap", term first.
std::string SnapFileName(uint64_t term, uint64_t index);
// "<index %016x>.snap.db": a database received from a leader, before it takes the place of the
// member's own.
std::string SnapDbFileName(uint64_t index);
// Of a marker's name; empty when it is none.
struct SnapName {
  uint64_t term = 0;
  uint64_t index = 0;
};
std::optional<SnapName> ParseSnapFileName(std::string_view name);
// Of a received database's name; empty when it is none.
std::optional<uint64_t> ParseSnapDbFileName(std::string_view name);

std::string EncodeSnapFile(const SnapFile& snap);
// DataLoss, naming `path`, for a wrong checksum, an empty snapshot or bytes that are none.
absl::StatusOr<SnapFile> DecodeSnapFile(std::string_view bytes, const std::string& path);

// Writes a marker durably: beside, synced, renamed, directory synced. snap.data must not be empty
// (3.6 refuses such a file).
absl::Status WriteSnapFile(base::Files& files, const std::string& dir, const SnapFile& snap);
absl::StatusOr<SnapFile> ReadSnapFile(base::Files& files, const std::string& path);

// The names of the markers, newest (greatest term, then index) first.
absl::StatusOr<std::vector<std::string>> ListSnapFiles(base::Files& files, const std::string& dir);

struct LoadedSnap {
  std::optional<SnapFile> snap;  // empty: none fits
  std::vector<std::string>
      broken_paths;  // unreadable ones that were passed over, under their present names
};
// The newest readable marker whose term and index match one of `records`, the way 3.6 starts. With
// `rename_broken` an unreadable one is renamed to "<name>.broken", which only 3.6 and older do at
// start.
absl::StatusOr<LoadedSnap> LoadNewestSnap(base::Files& files, const std::string& dir,
                                          std::span<const SnapshotRecord> records,
                                          bool rename_broken);

// Deletes the oldest markers beyond `files_max`, and of the received databases the same; a file
// that somebody locked stops the round. 0 means no limit. Returns the deleted names.
absl::StatusOr<std::vector<std::string>> PurgeSnapFiles(base::Files& files, const std::string& dir,
                                                        uint64_t files_max);
// Deletes received databases with an index below `index`. Returns the deleted names.
absl::StatusOr<std::vector<std::string>> RemoveSnapDbsBelow(base::Files& files,
                                                            const std::string& dir, uint64_t index);
// For the start: deletes what an interrupted download, marker or defragmentation left ("tmp*",
// "db.tmp*"). Returns the names.
absl::StatusOr<std::vector<std::string>> RemoveScratchFiles(base::Files& files,
                                                            const std::string& dir);

}  // namespace wal
