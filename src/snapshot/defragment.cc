#include "snapshot/defragment.h"

#include <memory>

#include "base/status.h"
#include "bolt/check.h"
#include "bolt/compact.h"
#include "bolt/db.h"

namespace snapshot {
namespace {

constexpr uint64_t kStepBytes = uint64_t{1} << 20;
// Room for the branch pages and half-filled last pages of the copy.
constexpr uint64_t kSlackBytes = uint64_t{1} << 20;

DefragmentSizes SizesOf(const bolt::DB& db) {
  const bolt::DbStats stats = db.stats();
  return {.size_bytes = stats.size_bytes, .in_use_bytes = stats.in_use_bytes};
}

std::string ParentOf(const std::string& path) {
  const std::string parent = base::DirName(path);
  return parent.empty() ? "." : parent;
}

absl::StatusOr<DefragmentSizes> CopyTo(base::Files& files, base::Clock& clock, bolt::DB& source,
                                       const std::string& path) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<bolt::DB> copy,
      bolt::DB::Open(files, path, {.page_bytes = source.page_bytes(), .map_reserve_bytes = 0},
                     clock));
  const std::unique_ptr<bolt::ReadTx> tx = source.BeginRead();
  const bolt::CheckReport report = bolt::Check(*tx);
  if (!report.ok()) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "db file {}: {}", source.path(),
                            report.findings.front());
  }
  bolt::CompactCopier copier(*tx, *copy);
  while (true) {
    ASSIGN_OR_RETURN(const bool done, copier.Step(kStepBytes));
    if (done) return SizesOf(*copy);
  }
}

}  // namespace

absl::StatusOr<DefragmentResult> Defragment(
    base::Files& files, base::Clock& clock, const std::string& db_path, base::Duration lock_timeout,
    absl::FunctionRef<void(const DefragmentSizes&)> started) {
  RETURN_IF_ERROR(files.Stat(db_path).status());
  const base::Duration start = clock.Monotonic();
  ASSIGN_OR_RETURN(
      const std::unique_ptr<bolt::DB> source,
      bolt::DB::Open(files, db_path,
                     {.existing_only = true, .map_reserve_bytes = 0, .lock_timeout = lock_timeout},
                     clock));
  DefragmentResult result{.before = SizesOf(*source), .after = {}, .took = {}};
  started(result.before);
  ASSIGN_OR_RETURN(const uint64_t free_bytes, files.FreeBytes(ParentOf(db_path)));
  if (free_bytes < result.before.in_use_bytes + kSlackBytes) {
    return base::MakeStatus(absl::StatusCode::kResourceExhausted,
                            "{}: {} bytes are free on the file system, the copy needs {}", db_path,
                            free_bytes, result.before.in_use_bytes + kSlackBytes);
  }
  const std::string scratch = db_path + ".tmp.defrag";
  if (base::Exists(files, scratch)) RETURN_IF_ERROR(files.Remove(scratch));
  const absl::StatusOr<DefragmentSizes> copied = CopyTo(files, clock, *source, scratch);
  absl::Status status = copied.status();
  if (status.ok()) status = files.Rename(scratch, db_path);
  if (!status.ok()) {
    if (base::Exists(files, scratch)) {
      if (const absl::Status removed = files.Remove(scratch); !removed.ok()) {
        return base::MakeStatus(status.code(), "{} ({} is left behind: {})", base::Message(status),
                                scratch, base::Message(removed));
      }
    }
    return status;
  }
  RETURN_IF_ERROR(files.SyncDirectory(ParentOf(db_path)));
  result.after = *copied;
  result.took = clock.Monotonic() - start;
  return result;
}

}  // namespace snapshot
