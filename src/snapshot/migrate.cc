#include "snapshot/migrate.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "base/wire.h"
#include "bolt/db.h"
#include "snapshot/records.h"
#include "wal/replay.h"
#include "wal/scan.h"
#include "wal/segment_reader.h"

namespace snapshot {
namespace {

using cluster::Version;

constexpr Version kOldest{3, 5, 0};
constexpr Version kNewest{3, 7, 0};
// Of InternalRaftRequest: a request that exists to hold back a downgrade, with the version it wants
// in its field 1.
constexpr uint32_t kVersionTestField = 9900;
constexpr Version kVersionTest{3, 6, 0};

std::string Text(const Version& version) {
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

absl::Status Refused(std::string text) { return absl::FailedPreconditionError(text); }

absl::StatusOr<Version> DetectVersion(const bolt::ReadTx& tx) {
  ASSIGN_OR_RETURN(const std::string stored, StorageVersion(tx));
  if (!stored.empty()) {
    ASSIGN_OR_RETURN(Version version, cluster::ParseVersion(stored));
    return version;
  }
  ASSIGN_OR_RETURN(const auto term, MetaNumber(tx, kTermKey));
  if (term.value_or(0) == 0) return Refused("missing term information");
  return kOldest;
}

// The versions to write one after the other.
absl::StatusOr<std::vector<Version>> PlanSteps(Version from, const Version& to) {
  if (from.major != to.major) {
    return Refused("cannot create migration plan: changing major storage version is not supported");
  }
  std::vector<Version> steps;
  while (from.minor != to.minor) {
    const bool up = from.minor < to.minor;
    // A step has the name of the higher version, which must be known.
    const Version step{from.major, up ? from.minor + 1 : from.minor, 0};
    if (step > kNewest || step <= kOldest) {
      return Refused(
          fmt::format("cannot create migration plan: version \"{}\" is not supported", Text(step)));
    }
    from = {from.major, up ? from.minor + 1 : from.minor - 1, 0};
    steps.push_back(from);
  }
  return steps;
}

// The lowest version that can read this entry, where it is above kOldest.
absl::StatusOr<std::optional<Version>> NeededBy(const wal::Entry& entry) {
  if (entry.type != 0) return std::nullopt;
  base::wire::Reader request(entry.data);
  std::optional<Version> needed;
  while (request.Next()) {
    if (request.field() != kVersionTestField) continue;
    needed = std::max(needed.value_or(kVersionTest), kVersionTest);
    base::wire::Reader test(request.bytes());
    while (test.Next()) {
      const auto named =
          cluster::ParseVersion(test.field() == 1 ? test.bytes() : std::string_view());
      if (named.ok()) needed = std::max(*needed, *named);
    }
  }
  if (!request.ok()) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "log entry {} is no request", entry.index);
  }
  return needed;
}

// Reads the entries after the last snapshot; changes nothing.
absl::StatusOr<std::optional<Version>> NeededByLog(base::Files& files, const std::string& wal_dir) {
  ASSIGN_OR_RETURN(const wal::SnapshotScan scan, wal::ValidSnapshotRecords(files, wal_dir));
  const wal::SnapshotRecord& start = scan.snapshots.back();
  ASSIGN_OR_RETURN(const auto all, wal::ListSegments(files, wal_dir));
  ASSIGN_OR_RETURN(const auto names, wal::SelectSegments(all, start.index, wal_dir));
  wal::Replay replay(start, nullptr);
  uint32_t crc = 0;
  for (const wal::SegmentName& name : names) {
    const std::string path = base::JoinPath(wal_dir, wal::FormatSegmentName(name));
    ASSIGN_OR_RETURN(const auto file, files.Open(path, {}));
    ASSIGN_OR_RETURN(const uint64_t size, file->Size());
    wal::SegmentReader reader(*file, path,
                              {.limit = size, .crc = crc, .last_segment = name == names.back()});
    wal::RecordView record;
    while (true) {
      ASSIGN_OR_RETURN(const wal::ReadOutcome outcome, reader.Next(&record));
      if (outcome != wal::ReadOutcome::kRecord) break;
      RETURN_IF_ERROR(replay.Apply(record, name.sequence, path));
    }
    crc = reader.crc();
  }
  std::optional<Version> needed;
  for (const wal::Entry& entry : replay.entries()) {
    ASSIGN_OR_RETURN(const std::optional<Version> by_entry, NeededBy(entry));
    if (by_entry.has_value()) needed = std::max(needed.value_or(*by_entry), *by_entry);
  }
  return needed;
}

absl::Status WriteVersion(bolt::DB& db, const Version& version) {
  ASSIGN_OR_RETURN(const std::unique_ptr<bolt::WriteTx> tx, db.BeginWrite());
  ASSIGN_OR_RETURN(bolt::WriteBucket * meta, tx->CreateBucketIfMissing(kMetaBucket));
  if (version <= kOldest) {
    RETURN_IF_ERROR(meta->Delete(kStorageVersionKey).status());
  } else {
    RETURN_IF_ERROR(meta->Put(kStorageVersionKey, Text(version)));
  }
  return tx->Commit().status();
}

absl::Status MigrateInSteps(base::Files& files, bolt::DB& db, const Version& current,
                            const MigrateOptions& options, MigrateObserver& observer) {
  if (current.major == options.target.major && current.minor == options.target.minor) {
    observer.UpToDate(options.target);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<Version> steps, PlanSteps(current, options.target));
  if (options.target < current) {
    ASSIGN_OR_RETURN(const std::optional<Version> needed,
                     NeededByLog(files, base::JoinPath(options.data_dir, "member/wal")));
    if (needed.has_value() && options.target < *needed) {
      return Refused(
          fmt::format("cannot downgrade storage, WAL contains newer entries, as the target version "
                      "({}) is lower than the "
                      "version ({}) detected from WAL logs",
                      Text(options.target), Text(*needed)));
    }
  }
  // One write: a migration that stops in the middle would leave a version nobody asked for.
  RETURN_IF_ERROR(WriteVersion(db, options.target));
  for (const Version& step : steps) observer.Updated(step);
  return absl::OkStatus();
}

}  // namespace

absl::Status Migrate(base::Files& files, base::Clock& clock, const MigrateOptions& options,
                     MigrateObserver& observer) {
  const std::string db_path = base::JoinPath(options.data_dir, "member/snap/db");
  RETURN_IF_ERROR(files.Stat(db_path).status());
  ASSIGN_OR_RETURN(
      const std::unique_ptr<bolt::DB> db,
      bolt::DB::Open(files, db_path, {.existing_only = true, .lock_timeout = options.lock_timeout},
                     clock));
  // A file that does not tell its version is none that force could help.
  ASSIGN_OR_RETURN(const Version current, DetectVersion(*db->BeginRead()));
  const absl::Status status = MigrateInSteps(files, *db, current, options, observer);
  if (status.ok() || !options.force) return status;
  observer.Forcing(status);
  RETURN_IF_ERROR(WriteVersion(*db, options.target));
  observer.Forced(options.target);
  return absl::OkStatus();
}

}  // namespace snapshot
