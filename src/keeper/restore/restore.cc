#include "restore/restore.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "base/time_text.h"
#include "catalog/timetable.h"
#include "snapshot/restore.h"

namespace restore {
namespace {

constexpr std::string_view kNoProof = "no proof";
constexpr int64_t kMarginMin = 1'000'000;
constexpr int64_t kPaceFactor = 10;

// The most revisions a second that a segment saw, over at least a second each.
double PeakRate(const catalog::Inventory& inventory, const catalog::Timeline& timeline) {
  double peak = 0;
  for (const catalog::Object& object : inventory.objects) {
    if (object.kind != catalog::Kind::kSegment || object.timeline != timeline) continue;
    const double seconds = std::max(
        1.0, std::chrono::duration<double>(object.last_seen.to - object.first_seen.from).count());
    peak = std::max(
        peak, static_cast<double>(object.last_revision - object.first_revision + 1) / seconds);
  }
  return peak;
}

// Removes the folder in which a restore works, however it ended.
class WorkFolder {
 public:
  WorkFolder(base::Files& files, std::string path) : files_(files), path_(std::move(path)) {}
  ~WorkFolder() {
    // What stays is cleared by the next restore to this place.
    base::RemoveTree(files_, path_).IgnoreError();
  }
  const std::string& path() const { return path_; }

 private:
  base::Files& files_;
  const std::string path_;
};

}  // namespace

Plan MakePlan(const catalog::Inventory& inventory, const catalog::RestorePoint& point,
              base::Duration lease_ttl_default, catalog::Time now) {
  Plan plan;
  plan.materials.base = *point.base;
  for (const catalog::Piece& piece : point.segments) {
    plan.materials.segments.push_back(*piece.segment);
  }
  plan.materials.revision = point.revision;
  plan.materials.lease_ttl_default_seconds = std::max(
      int64_t{1}, std::chrono::duration_cast<std::chrono::seconds>(lease_ttl_default).count());
  plan.seen = point.seen;
  plan.possibly = point.possibly;
  plan.shown_twice = point.shown_twice;
  plan.revisions_after = point.revisions_after;
  plan.time_after = point.time_after;
  plan.bytes_to_fetch = point.bytes_to_fetch;
  const catalog::Time newest_at =
      catalog::Timetable(inventory, point.timeline).end().value_or(point.seen.to);
  const double since = std::max(0.0, std::chrono::duration<double>(now - newest_at).count());
  const double grown = kPaceFactor * PeakRate(inventory, point.timeline) * since;
  // A rate and a time that make no sense must not make a revision that leaves no room.
  const int64_t margin = static_cast<int64_t>(std::min(grown, 1e15));
  plan.safe_revision =
      std::max(point.revision, catalog::NewestRevision(inventory)) + std::max(kMarginMin, margin);
  return plan;
}

absl::StatusOr<Report> Run(base::Files& files, base::Clock& clock, base::Random& random,
                           Fetcher& fetcher, const Plan& plan, const Options& options,
                           const BuildObserver& observer) {
  const base::Duration began = clock.Monotonic();
  if (base::Exists(files, options.data_dir)) {
    return base::MakeStatus(absl::StatusCode::kAlreadyExists, "{} exists already",
                            options.data_dir);
  }
  Report report{.data_dir = options.data_dir,
                .name = options.name,
                .token = options.token,
                .initial_cluster = options.initial_cluster,
                .peer_urls = options.peer_urls};
  if (report.token.empty()) {
    report.token =
        fmt::format("engram-{}-{:08x}", base::CompactUtc(clock.Wall()), random.Next() & 0xffffffff);
  }
  if (report.initial_cluster.empty()) {
    report.initial_cluster = fmt::format("{}={}", report.name, report.peer_urls);
  }
  if (options.bump) {
    report.bumped_to = options.bump_to > 0 ? options.bump_to : plan.safe_revision;
    if (report.bumped_to <= plan.materials.revision) {
      return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                              "--bump-to {} is not above revision {}", report.bumped_to,
                              plan.materials.revision);
    }
  }

  const WorkFolder work(files, options.data_dir + ".restoring");
  RETURN_IF_ERROR(base::RemoveTree(files, work.path()));
  RETURN_IF_ERROR(base::MakeDirectories(files, work.path(), 0700));
  const std::string db = base::JoinPath(work.path(), "db");
  const std::string built_dir = base::JoinPath(work.path(), "data");
  ASSIGN_OR_RETURN(report.built, BuildDb(files, clock, fetcher, plan.materials, db, observer));
  if (!report.built.proof.has_value() && !options.unproven) {
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition,
                            "{}: the log states no HashKV of {}; --unproven restores it all "
                            "the same",
                            kNoProof, plan.materials.base.name);
  }
  snapshot::RestoreOptions member{.snapshot_path = db,
                                  .name = report.name,
                                  .data_dir = built_dir,
                                  .initial_cluster = report.initial_cluster,
                                  .initial_advertise_peer_urls = report.peer_urls,
                                  .initial_cluster_token = report.token,
                                  .skip_hash_check = true,
                                  .take_snapshot = true};
  if (options.bump) {
    member.bump_revision = static_cast<uint64_t>(report.bumped_to - plan.materials.revision);
    member.mark_compacted = true;
  }
  snapshot::RestoreObserver quiet;
  RETURN_IF_ERROR(snapshot::Restore(files, clock, std::move(member), quiet).status());
  RETURN_IF_ERROR(files.Rename(built_dir, options.data_dir));
  RETURN_IF_ERROR(files.SyncDirectory(base::DirName(options.data_dir)));
  report.bad_copies = fetcher.bad_copies();
  report.took = clock.Monotonic() - began;
  return report;
}

bool IsUnproven(const absl::Status& status) {
  return base::Message(status).find(kProofFailed) != std::string_view::npos ||
         base::Message(status).find(kNoProof) != std::string_view::npos;
}

}  // namespace restore
