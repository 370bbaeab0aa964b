#include "snapshot/inspect.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/crc32c.h"
#include "base/status.h"
#include "bolt/check.h"
#include "bolt/db.h"
#include "snapshot/records.h"
#include "snapshot/trailer.h"

namespace snapshot {
namespace {

// Two meta pages of the smallest kind.
constexpr uint64_t kFileBytesMin = 2048;

// The hash etcdutl prints: every top-level bucket's name and all its elements, in order.
absl::StatusOr<uint32_t> HashAll(const bolt::ReadTx& tx) {
  uint32_t hash = 0;
  bolt::Cursor buckets = tx.root().cursor();
  ASSIGN_OR_RETURN(bool more, buckets.First());
  while (more) {
    if (buckets.is_bucket()) {
      hash = base::Crc32c(hash, buckets.key());
      ASSIGN_OR_RETURN(const bolt::Bucket bucket, tx.bucket(buckets.key()));
      RETURN_IF_ERROR(ForEach(bucket, [&hash](std::string_view key, std::string_view value) {
        hash = base::Crc32c(base::Crc32c(hash, key), value);
        return absl::OkStatus();
      }));
    }
    ASSIGN_OR_RETURN(more, buckets.Next());
  }
  return hash;
}

}  // namespace

OpenedDb::OpenedDb() = default;
OpenedDb::OpenedDb(OpenedDb&&) noexcept = default;
OpenedDb& OpenedDb::operator=(OpenedDb&&) noexcept = default;
OpenedDb::~OpenedDb() { tx.reset(); }

absl::StatusOr<OpenedDb> OpenChecked(base::Files& files, base::Clock& clock,
                                     const std::string& path, const ReadOptions& options) {
  ASSIGN_OR_RETURN(const base::FileInfo info, files.Stat(path));
  if (info.is_directory || info.size_bytes < kFileBytesMin)
    return absl::DataLossError("invalid database");
  OpenedDb opened;
  opened.has_trailer = HasTrailer(info.size_bytes);
  ASSIGN_OR_RETURN(opened.db, bolt::DB::Open(files, path,
                                             {.read_only = true,
                                              .existing_only = true,
                                              .map_reserve_bytes = 0,
                                              .lock_timeout = options.lock_timeout},
                                             clock));
  if (options.verify_trailer) RETURN_IF_ERROR(VerifyTrailer(files, path).status());
  opened.tx = opened.db->BeginRead();
  const bolt::CheckReport report = bolt::Check(*opened.tx);
  if (!report.ok()) {
    std::string text = fmt::format("snapshot file integrity check failed. {} errors found.",
                                   report.findings_count);
    for (const std::string& finding : report.findings) text += "\n" + finding;
    return absl::DataLossError(text);
  }
  return opened;
}

absl::StatusOr<Summary> Summarize(const bolt::ReadTx& tx) {
  Summary summary;
  ASSIGN_OR_RETURN(summary.hash, HashAll(tx));
  std::unordered_set<std::string_view> live;
  RETURN_IF_ERROR(ForEachRecord(tx, [&](const KeyRecord& record) {
    summary.revision = record.revision.revision.main;
    if (record.revision.tombstone) {
      live.erase(record.user_key);
    } else {
      live.insert(record.user_key);
    }
    return absl::OkStatus();
  }));
  summary.total_keys = live.size();
  summary.total_bytes = tx.size_bytes();
  ASSIGN_OR_RETURN(summary.version, StorageVersion(tx));
  return summary;
}

absl::StatusOr<Summary> Inspect(base::Files& files, base::Clock& clock, const std::string& path,
                                const ReadOptions& options) {
  ASSIGN_OR_RETURN(const OpenedDb opened, OpenChecked(files, clock, path, options));
  ASSIGN_OR_RETURN(Summary summary, Summarize(*opened.tx));
  summary.has_trailer = opened.has_trailer;
  return summary;
}

absl::StatusOr<HashKv> HashKvOf(const bolt::ReadTx& tx, int64_t revision) {
  ASSIGN_OR_RETURN(const auto finished, MetaRevision(tx, kFinishedCompactKey));
  ASSIGN_OR_RETURN(const auto scheduled, MetaRevision(tx, kScheduledCompactKey));
  ASSIGN_OR_RETURN(const int64_t latest, LatestRevision(tx));
  // A start resumes a compaction that was scheduled and not finished before it answers anything.
  const int64_t compacted = std::max(finished.value_or(-1), scheduled.value_or(-1));
  const int64_t current = std::max({int64_t{1}, latest, compacted});
  if (revision > 0 && revision < compacted) {
    return absl::OutOfRangeError("mvcc: required revision has been compacted");
  }
  if (revision > current)
    return absl::OutOfRangeError("mvcc: required revision is a future revision");
  const int64_t r = revision == 0 ? current : revision;

  // The newest record of each key at r.
  std::unordered_map<std::string_view, mvcc::RevisionKey> newest;
  RETURN_IF_ERROR(ForEachRecord(tx, [&](const KeyRecord& record) {
    if (record.revision.revision.main <= r) newest[record.user_key] = record.revision;
    return absl::OkStatus();
  }));
  // Of these, only what a compaction had to keep matters below.
  bool keep_any = false;
  std::vector<mvcc::Revision> keep;
  for (const auto& [key, change] : newest) {
    if (change.tombstone) continue;
    keep_any = true;
    if (change.revision.main <= compacted) keep.push_back(change.revision);
  }
  std::sort(keep.begin(), keep.end());

  uint32_t hash = base::Crc32c(0, kKeyBucket);
  size_t next = 0;
  RETURN_IF_ERROR(ForEachRecord(tx, [&](const KeyRecord& record) {
    const mvcc::Revision at = record.revision.revision;
    if (at.main > r) return absl::OkStatus();
    if (at.main <= compacted && keep_any) {
      while (next < keep.size() && keep[next] < at) ++next;
      if (record.revision.tombstone || next == keep.size() || keep[next] != at)
        return absl::OkStatus();
    }
    if (at.main == compacted && record.revision.tombstone) return absl::OkStatus();
    hash = base::Crc32c(base::Crc32c(hash, record.stored_key), record.value);
    return absl::OkStatus();
  }));
  return HashKv{.hash = hash, .hash_revision = r, .compact_revision = compacted};
}

absl::StatusOr<HashKv> HashKvOffline(base::Files& files, base::Clock& clock,
                                     const std::string& path, int64_t revision,
                                     const ReadOptions& options) {
  ASSIGN_OR_RETURN(const OpenedDb opened, OpenChecked(files, clock, path, options));
  return HashKvOf(*opened.tx, revision);
}

}  // namespace snapshot
