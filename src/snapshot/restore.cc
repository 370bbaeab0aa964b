#include "snapshot/restore.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/wire.h"
#include "bolt/check.h"
#include "bolt/db.h"
#include "mvcc/revision.h"
#include "snapshot/records.h"
#include "snapshot/restoring.h"
#include "snapshot/trailer.h"
#include "wal/log.h"
#include "wal/snap_file.h"
#include "wal/v2_store.h"

namespace snapshot {
namespace {

constexpr uint32_t kDirectoryMode = 0700;
constexpr uint64_t kCopyChunkBytes = uint64_t{1} << 20;
constexpr uint32_t kConfChangeEntry = 1;
constexpr uint64_t kRestoredTerm = 1;

// raftpb.ConfChange that adds a voter: type and node id are stated, the id of the change is not.
std::string EncodeAddition(const cluster::Member& member) {
  std::string out;
  base::wire::AppendUint(&out, 2, 0);
  base::wire::AppendUint(&out, 3, member.id);
  base::wire::AppendBytes(&out, 4, cluster::EncodeMember(member));
  return out;
}

std::string BigEndian(uint64_t value) {
  std::string out(8, '\0');
  base::StoreBe64(out.data(), value);
  return out;
}

// The same place under the one name by which two paths can be compared.
std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return (error ? std::filesystem::path(path) : absolute).lexically_normal().string();
}

// One restore. Removes what it made unless the member came into place.
class Restorer {
 public:
  Restorer(base::Files& files, base::Clock& clock, const RestoreOptions& options,
           const RestorePlan& plan, RestoreObserver& observer)
      : files_(files),
        clock_(clock),
        options_(options),
        plan_(plan),
        observer_(observer),
        build_dir_(base::JoinPath(plan.data_dir, kRestoringName)),
        snap_dir_(base::JoinPath(build_dir_, "snap")),
        db_path_(base::JoinPath(snap_dir_, "db")) {
    // A log inside the member's directory is built with it; one elsewhere gets its own place and
    // name at the end.
    const std::string member_dir = Absolute(base::JoinPath(plan.data_dir, "member")) + "/";
    const std::string wal_dir = Absolute(plan.wal_dir);
    wal_inside_ = wal_dir.starts_with(member_dir);
    wal_build_dir_ = wal_inside_ ? base::JoinPath(build_dir_, wal_dir.substr(member_dir.size()))
                                 : plan.wal_dir + ".restoring";
  }

  absl::Status Run() {
    absl::Status status = RunSteps();
    if (status.ok()) return status;
    const absl::Status cleaned = CleanUp();
    if (cleaned.ok()) return status;
    return base::MakeStatus(status.code(),
                            "{} (and what was restored so far could not be removed: {})",
                            base::Message(status), base::Message(cleaned));
  }

 private:
  absl::Status RunSteps() {
    // The snapshot is looked at before anything is made.
    ASSIGN_OR_RETURN(source_, files_.Open(plan_.snapshot_path, {}));
    RETURN_IF_ERROR(OpenSource());
    RETURN_IF_ERROR(MakeBuildDirectory());
    RETURN_IF_ERROR(CopyDb());
    RETURN_IF_ERROR(RewriteDb());
    RETURN_IF_ERROR(WriteLog());
    RETURN_IF_ERROR(wal::WriteSnapFile(files_, snap_dir_, {.record = Record(), .data = V2Store()}));
    return Publish();
  }

  absl::Status OpenSource() {
    ASSIGN_OR_RETURN(const base::FileInfo info, files_.Stat(plan_.snapshot_path));
    if (info.is_directory) {
      return base::MakeStatus(absl::StatusCode::kInvalidArgument, "read {}: is a directory",
                              plan_.snapshot_path);
    }
    ASSIGN_OR_RETURN(const uint64_t size, source_->Size());
    if (size < kTrailerBytes) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "seek {}: invalid argument",
                              plan_.snapshot_path);
    }
    db_bytes_ = size;
    if (HasTrailer(size)) {
      db_bytes_ -= kTrailerBytes;
      ASSIGN_OR_RETURN(trailer_, ReadTrailer(*source_, size));
    } else if (!options_.skip_hash_check) {
      return absl::DataLossError("snapshot missing hash but --skip-hash-check=false");
    }
    return absl::OkStatus();
  }

  // Makes `dir` and what is missing above it, and remembers what was made.
  absl::Status MakeParents(const std::string& dir) {
    std::vector<std::string> missing;
    for (std::string path = dir; !base::Exists(files_, path); path = ParentOf(path)) {
      missing.push_back(path);
      if (ParentOf(path) == path) break;
    }
    made_dirs_.insert(made_dirs_.begin(), missing.begin(), missing.end());
    return base::MakeDirectories(files_, dir, kDirectoryMode);
  }

  absl::Status MakeBuildDirectory() {
    RETURN_IF_ERROR(MakeParents(plan_.data_dir));
    const std::string lock_path = base::JoinPath(build_dir_, kRestoringLockName);
    if (base::Exists(files_, lock_path)) {
      ASSIGN_OR_RETURN(const auto other, files_.Open(lock_path, {.write = true}));
      ASSIGN_OR_RETURN(const bool idle, other->TryLock(base::LockKind::kFlockExclusive));
      if (!idle) {
        return base::MakeStatus(absl::StatusCode::kFailedPrecondition,
                                "another restore into {} is under way", plan_.data_dir);
      }
    }
    RETURN_IF_ERROR(base::RemoveTree(files_, build_dir_));
    made_build_dir_ = true;
    RETURN_IF_ERROR(base::MakeDirectories(files_, snap_dir_, kDirectoryMode));
    ASSIGN_OR_RETURN(lock_,
                     files_.Open(lock_path, {.write = true, .create = true, .exclusive = true}));
    ASSIGN_OR_RETURN(const bool locked, lock_->TryLock(base::LockKind::kFlockExclusive));
    if (!locked) {
      made_build_dir_ = false;  // it is the other's
      return base::MakeStatus(absl::StatusCode::kFailedPrecondition,
                              "another restore into {} is under way", plan_.data_dir);
    }
    return absl::OkStatus();
  }

  absl::Status CopyDb() {
    if (options_.take_snapshot) return files_.Rename(plan_.snapshot_path, db_path_);
    ASSIGN_OR_RETURN(const auto copy,
                     files_.Open(db_path_, {.write = true, .create = true, .exclusive = true}));
    base::Sha256Stream stream;
    std::vector<char> chunk(static_cast<size_t>(std::min(db_bytes_, kCopyChunkBytes)));
    for (uint64_t at = 0; at < db_bytes_;) {
      const size_t wanted = static_cast<size_t>(std::min(db_bytes_ - at, kCopyChunkBytes));
      ASSIGN_OR_RETURN(const size_t n, source_->ReadAt(at, chunk.data(), wanted));
      if (n == 0) {
        return base::MakeStatus(absl::StatusCode::kDataLoss,
                                "{}: the file became shorter while it was read",
                                plan_.snapshot_path);
      }
      stream.Update({chunk.data(), n});
      RETURN_IF_ERROR(copy->WriteAt(at, {chunk.data(), n}));
      at += n;
      observer_.Copied(at, db_bytes_);
    }
    if (trailer_.has_value() && !options_.skip_hash_check) {
      RETURN_IF_ERROR(CompareDigests(*trailer_, stream.Finish()));
    }
    return copy->Sync();
  }

  // Everything of the old cluster goes, the members of the plan come; revisions are raised where
  // wanted.
  absl::Status RewriteDb() {
    ASSIGN_OR_RETURN(
        const std::unique_ptr<bolt::DB> db,
        bolt::DB::Open(files_, db_path_,
                       {.existing_only = true, .map_reserve_bytes = plan_.map_reserve_bytes},
                       clock_));
    int64_t latest = 0;
    {
      const std::unique_ptr<bolt::ReadTx> tx = db->BeginRead();
      const bolt::CheckReport report = bolt::Check(*tx);
      if (!report.ok()) {
        return base::MakeStatus(absl::StatusCode::kDataLoss,
                                "snapshot file integrity check failed. {} errors found.\n{}",
                                report.findings_count, report.findings.front());
      }
      ASSIGN_OR_RETURN(latest, LatestRevision(*tx));
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<bolt::WriteTx> tx, db->BeginWrite());
    observer_.Trimming();
    for (const std::string_view name : {kMembersBucket, kMembersRemovedBucket}) {
      ASSIGN_OR_RETURN(bolt::WriteBucket * bucket, tx->CreateBucketIfMissing(name));
      RETURN_IF_ERROR(bucket->DeleteRange("", std::nullopt).status());
    }
    ASSIGN_OR_RETURN(bolt::WriteBucket * meta, tx->CreateBucketIfMissing(kMetaBucket));
    if (options_.bump_revision > 0) RETURN_IF_ERROR(Bump(*tx, *meta, latest));
    ASSIGN_OR_RETURN(bolt::WriteBucket * members, tx->bucket(kMembersBucket));
    for (const auto& [id, member] : plan_.members) {
      RETURN_IF_ERROR(members->Put(base::IdToHex(id), cluster::EncodeMember(member)));
      observer_.AddedMember(plan_, member);
    }
    RETURN_IF_ERROR(meta->Put(kConsistentIndexKey, BigEndian(plan_.members.size())));
    RETURN_IF_ERROR(meta->Put(kTermKey, BigEndian(kRestoredTerm)));
    return tx->Commit().status();
  }

  // An empty record at the new revision makes it the newest one; it belongs to the empty key, which
  // no client can see.
  absl::Status Bump(bolt::WriteTx& tx, bolt::WriteBucket& meta, int64_t latest) {
    if (options_.bump_revision >
        static_cast<uint64_t>(std::numeric_limits<int64_t>::max() - latest)) {
      return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                              "--bump-revision {} is too much above revision {}",
                              options_.bump_revision, latest);
    }
    const int64_t bumped = latest + static_cast<int64_t>(options_.bump_revision);
    observer_.Bumping(latest, options_.bump_revision, bumped);
    ASSIGN_OR_RETURN(bolt::WriteBucket * keys, tx.CreateBucketIfMissing(kKeyBucket));
    const mvcc::RevisionKeyBytes key({bumped, 0});
    RETURN_IF_ERROR(keys->Put(key.view(), ""));
    observer_.MarkingCompacted(bumped);
    return meta.Put(kScheduledCompactKey, key.view());
  }

  wal::SnapshotRecord Record() const {
    wal::SnapshotRecord record{
        .index = plan_.members.size(), .term = kRestoredTerm, .conf_state = {}};
    for (const auto& [id, member] : plan_.members) record.conf_state.voters.push_back(id);
    return record;
  }

  std::string V2Store() const {
    wal::V2Membership membership;
    for (const auto& [id, member] : plan_.members) {
      membership.members.push_back({.id = id,
                                    .peer_urls = member.peer_urls,
                                    .is_learner = false,
                                    .name = {},
                                    .client_urls = {}});
    }
    return wal::EncodeV2Store(membership);
  }

  // The log of a cluster in which every member was added and nothing else happened.
  absl::Status WriteLog() {
    made_wal_dir_ = true;
    RETURN_IF_ERROR(base::RemoveTree(files_, wal_build_dir_));
    RETURN_IF_ERROR(MakeParents(ParentOf(wal_build_dir_)));
    ASSIGN_OR_RETURN(const std::unique_ptr<wal::Log> log,
                     wal::Log::Create(files_, wal_build_dir_,
                                      {.node_id = plan_.local_id, .cluster_id = plan_.cluster_id}));
    std::vector<std::string> data;
    for (const auto& [id, member] : plan_.members) data.push_back(EncodeAddition(member));
    std::vector<wal::EntryView> entries;
    for (const std::string& bytes : data) {
      entries.push_back({.term = kRestoredTerm,
                         .index = entries.size() + 1,
                         .type = kConfChangeEntry,
                         .data = bytes});
    }
    const wal::HardState state{
        .term = kRestoredTerm, .vote = plan_.members.begin()->first, .commit = entries.size()};
    RETURN_IF_ERROR(log->Save(entries, state, /*sync=*/true));
    RETURN_IF_ERROR(log->SaveSnapshotRecord(Record()));
    return log->Close();
  }

  // The rename of the member's directory is the moment at which the restore has happened.
  absl::Status Publish() {
    RETURN_IF_ERROR(files_.Remove(base::JoinPath(build_dir_, kRestoringLockName)));
    RETURN_IF_ERROR(files_.SyncDirectory(snap_dir_));
    RETURN_IF_ERROR(files_.SyncDirectory(build_dir_));
    if (!wal_inside_) {
      RETURN_IF_ERROR(files_.Rename(wal_build_dir_, plan_.wal_dir));
      published_wal_ = true;
      RETURN_IF_ERROR(files_.SyncDirectory(ParentOf(plan_.wal_dir)));
    }
    RETURN_IF_ERROR(files_.Rename(build_dir_, base::JoinPath(plan_.data_dir, "member")));
    published_ = true;
    RETURN_IF_ERROR(files_.SyncDirectory(plan_.data_dir));
    return files_.SyncDirectory(ParentOf(plan_.data_dir));
  }

  static std::string ParentOf(const std::string& path) {
    const std::string parent = base::DirName(path);
    return parent.empty() ? "." : parent;
  }

  absl::Status CleanUp() {
    lock_.reset();
    // The member is whole and in place; only its directory entry may not be durable yet.
    if (published_) return absl::OkStatus();
    absl::Status result;
    const auto remove = [&](const std::string& path) {
      result.Update(base::RemoveTree(files_, path));
    };
    if (made_wal_dir_ && !wal_inside_) {
      remove(wal_build_dir_);
      remove(wal_build_dir_ + ".tmp");
      if (published_wal_) remove(plan_.wal_dir);
    }
    if (made_build_dir_) remove(build_dir_);
    // Deepest first; one that somebody else uses by now stays.
    for (const std::string& dir : made_dirs_) {
      const auto names = files_.List(dir);
      if (names.ok() && names->empty()) result.Update(files_.Remove(dir));
    }
    return result;
  }

  base::Files& files_;
  base::Clock& clock_;
  const RestoreOptions& options_;
  const RestorePlan& plan_;
  RestoreObserver& observer_;
  const std::string build_dir_;
  const std::string snap_dir_;
  const std::string db_path_;
  std::string wal_build_dir_;
  bool wal_inside_ = false;

  std::unique_ptr<base::File> source_;
  uint64_t db_bytes_ = 0;  // of the source, without the digest
  std::optional<base::Digest> trailer_;
  std::unique_ptr<base::File> lock_;
  std::vector<std::string> made_dirs_;  // deepest first
  bool made_build_dir_ = false;
  bool made_wal_dir_ = false;
  bool published_wal_ = false;
  bool published_ = false;
};

}  // namespace

absl::StatusOr<RestorePlan> Restore(base::Files& files, base::Clock& clock, RestoreOptions options,
                                    RestoreObserver& observer) {
  ASSIGN_OR_RETURN(RestorePlan plan, PlanRestore(files, options));
  observer.Started(plan);
  RETURN_IF_ERROR(Restorer(files, clock, options, plan, observer).Run());
  observer.Finished(plan);
  return plan;
}

}  // namespace snapshot
