#include "snapshot/replay.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "base/wire.h"
#include "bolt/check.h"
#include "bolt/db.h"
#include "bolt/tx.h"
#include "snapshot/records.h"
#include "snapshot/trailer.h"

namespace snapshot {
namespace {

constexpr std::string_view kLeaseBucket = "lease";
constexpr std::string_view kAlarmBucket = "alarm";
// What a transaction may hold in memory before it is committed.
constexpr uint64_t kCommitBytes = uint64_t{64} << 20;
// Rows only ever come behind the last one: pages are left nearly full, as etcd does.
constexpr double kAppendFill = 0.9;

std::string LeaseKey(int64_t id) {
  std::string key(8, '\0');
  base::StoreBe64(key.data(), static_cast<uint64_t>(id));
  return key;
}

// leasepb.Lease with a remaining time of 0: the granted one counts from the start.
std::string LeaseRecord(int64_t id, int64_t ttl_seconds) {
  std::string record;
  base::wire::AppendNonZero(&record, 1, static_cast<uint64_t>(id));
  base::wire::AppendNonZero(&record, 2, static_cast<uint64_t>(ttl_seconds));
  return record;
}

absl::Status CutTrailer(base::Files& files, const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, files.Open(path, {.write = true}));
  ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  if (!HasTrailer(size)) return absl::OkStatus();
  return file->Truncate(size - kTrailerBytes);
}

}  // namespace

absl::StatusOr<Bounds> BoundsOf(const bolt::ReadTx& tx) {
  ASSIGN_OR_RETURN(const auto finished, MetaRevision(tx, kFinishedCompactKey));
  ASSIGN_OR_RETURN(const auto scheduled, MetaRevision(tx, kScheduledCompactKey));
  ASSIGN_OR_RETURN(const int64_t latest, LatestRevision(tx));
  Bounds bounds;
  // A compaction that was scheduled counts as done: its rows may or may not be there any more.
  bounds.compact_revision = std::max({int64_t{0}, finished.value_or(0), scheduled.value_or(0)});
  // All rows up to a compaction may be gone, when they were deletions.
  bounds.revision = std::max({int64_t{1}, latest, bounds.compact_revision});
  return bounds;
}

Replay::Replay(base::Files& files, std::string path) : files_(files), path_(std::move(path)) {}
Replay::~Replay() = default;

absl::StatusOr<std::unique_ptr<Replay>> Replay::Open(base::Files& files, base::Clock& clock,
                                                     const std::string& path) {
  RETURN_IF_ERROR(CutTrailer(files, path));
  std::unique_ptr<Replay> replay(new Replay(files, path));
  ASSIGN_OR_RETURN(replay->db_,
                   bolt::DB::Open(files, path, {.existing_only = true, .no_sync = true}, clock));
  replay->opened_ = replay->db_->BeginRead();
  const bolt::CheckReport report = bolt::Check(*replay->opened_);
  if (!report.ok()) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "{}: {} errors found, the first: {}", path,
                            report.findings_count, report.findings.front());
  }
  ASSIGN_OR_RETURN(replay->bounds_, BoundsOf(*replay->opened_));
  replay->last_ = {replay->bounds_.revision, 0};
  RETURN_IF_ERROR(replay->Begin());
  return replay;
}

absl::Status Replay::Begin() {
  ASSIGN_OR_RETURN(tx_, db_->BeginWrite());
  ASSIGN_OR_RETURN(keys_, tx_->CreateBucketIfMissing(kKeyBucket));
  keys_->set_fill_percent(kAppendFill);
  uncommitted_bytes_ = 0;
  return absl::OkStatus();
}

absl::Status Replay::Commit() {
  RETURN_IF_ERROR(tx_->Commit().status());
  keys_ = nullptr;
  tx_ = nullptr;
  return absl::OkStatus();
}

absl::Status Replay::LeaveOutAfter(int64_t revision) {
  // Revision 1 is the empty store.
  const int64_t oldest = std::max(int64_t{1}, bounds_.compact_revision);
  if (revision < oldest || revision > bounds_.revision) {
    return base::MakeStatus(absl::StatusCode::kOutOfRange,
                            "{}: revision {} is not in it: it holds {} to {}", path_, revision,
                            oldest, bounds_.revision);
  }
  const mvcc::RevisionKeyBytes first_left_out({revision + 1, 0});
  ASSIGN_OR_RETURN(stats_.rows_left_out, keys_->DeleteRange(first_left_out.view(), std::nullopt));
  bounds_.revision = revision;
  last_ = {revision, 0};
  return absl::OkStatus();
}

absl::Status Replay::Append(const Row& row) {
  const bool next_revision = row.revision.main == last_.main + 1 && row.revision.sub == 0;
  const bool next_change =
      stats_.rows_added > 0 && row.revision.main == last_.main && row.revision.sub == last_.sub + 1;
  if (!next_revision && !next_change) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "archived row {}/{} does not follow {}/{}",
                            row.revision.main, row.revision.sub, last_.main, last_.sub);
  }
  const mvcc::RevisionKeyBytes key(row.revision, row.tombstone);
  RETURN_IF_ERROR(keys_->Put(key.view(), row.value));
  last_ = row.revision;
  bounds_.revision = row.revision.main;
  ++stats_.rows_added;
  uncommitted_bytes_ += key.view().size() + row.value.size();
  if (uncommitted_bytes_ < kCommitBytes) return absl::OkStatus();
  RETURN_IF_ERROR(Commit());
  return Begin();
}

absl::Status Replay::EnsureLease(int64_t id, int64_t ttl_seconds) {
  ASSIGN_OR_RETURN(bolt::WriteBucket * leases, tx_->CreateBucketIfMissing(kLeaseBucket));
  const std::string key = LeaseKey(id);
  ASSIGN_OR_RETURN(const auto known, leases->Get(key));
  if (known.has_value()) return absl::OkStatus();
  ++stats_.leases_added;
  return leases->Put(key, LeaseRecord(id, ttl_seconds));
}

absl::StatusOr<HashKv> Replay::HashAsOpened(int64_t revision) {
  // While it is open no page that is freed can be used again.
  const std::unique_ptr<bolt::ReadTx> opened = std::move(opened_);
  return HashKvOf(*opened, revision);
}

absl::Status Replay::Finish() {
  ASSIGN_OR_RETURN(bolt::WriteBucket * alarms, tx_->CreateBucketIfMissing(kAlarmBucket));
  ASSIGN_OR_RETURN(stats_.alarms_dropped, alarms->DeleteRange("", std::nullopt));
  RETURN_IF_ERROR(Commit());
  opened_ = nullptr;
  db_ = nullptr;
  ASSIGN_OR_RETURN(const auto file, files_.Open(path_, {.write = true}));
  return file->Sync();
}

}  // namespace snapshot
