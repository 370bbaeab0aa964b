#include "snapshot/check.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/bytes.h"
#include "base/status.h"
#include "bolt/check.h"
#include "bolt/db.h"
#include "cluster/membership.h"
#include "mvcc/key_value.h"
#include "snapshot/records.h"
#include "snapshot/trailer.h"
#include "wal/scan.h"
#include "wal/snap_file.h"
#include "wal/v2_store.h"

namespace snapshot {
namespace {

constexpr size_t kRecordFindingsMax = 20;

// What the log must fit.
struct DbFacts {
  bool readable = false;
  uint64_t consistent_index = 0;
  uint64_t term = 0;
  std::map<uint64_t, cluster::Member> members;
  std::map<uint64_t, bool> removed;
};

class Checker {
 public:
  Checker(base::Files& files, base::Clock& clock, const CheckOptions& options)
      : files_(files), clock_(clock), options_(options) {}

  absl::Status CheckDbFile(const std::string& path, bool may_have_trailer) {
    ASSIGN_OR_RETURN(const base::FileInfo info, files_.Stat(path));
    if (may_have_trailer) {
      const absl::StatusOr<bool> trailer = VerifyTrailer(files_, path);
      if (absl::IsDataLoss(trailer.status())) {
        Find(path, base::Message(trailer.status()));
      } else {
        RETURN_IF_ERROR(trailer.status());
        Tell(*trailer
                 ? fmt::format("{}: sha256 fits {} bytes", path, info.size_bytes - kTrailerBytes)
                 : fmt::format("{}: no sha256 in the file, values cannot be vouched for", path));
      }
    }
    auto db = bolt::DB::Open(files_, path,
                             {.read_only = true,
                              .existing_only = true,
                              .map_reserve_bytes = 0,
                              .lock_timeout = options_.lock_timeout},
                             clock_);
    if (absl::IsDataLoss(db.status())) {
      Find("", base::Message(db.status()));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(db.status());
    const std::unique_ptr<bolt::ReadTx> tx = (*db)->BeginRead();
    const bolt::CheckReport report = bolt::Check(*tx);
    for (const std::string& finding : report.findings) Find(path, finding);
    if (report.findings_count > report.findings.size()) {
      Find(path,
           fmt::format("and {} more findings", report.findings_count - report.findings.size()));
    }
    // Broken pages would be met again behind every record.
    if (!report.ok()) return absl::OkStatus();
    CheckRecords(*tx, path, report.reachable_pages);
    CheckMeta(*tx);
    CheckMembers(*tx, path);
    return absl::OkStatus();
  }

  absl::Status CheckDirectory(const std::string& dir) {
    const std::string snap_dir = base::JoinPath(dir, "member/snap");
    const std::string wal_dir =
        options_.wal_dir.empty() ? base::JoinPath(dir, "member/wal") : options_.wal_dir;
    const std::string db_path = base::JoinPath(snap_dir, "db");
    if (base::Exists(files_, db_path)) {
      RETURN_IF_ERROR(CheckDbFile(db_path, /*may_have_trailer=*/false));
    } else {
      Find(db_path, "the database is missing");
    }
    if (base::Exists(files_, snap_dir)) RETURN_IF_ERROR(CheckMarkers(snap_dir));
    return CheckLog(wal_dir, db_path, snap_dir);
  }

  CheckResult TakeResult() { return std::move(result_); }

 private:
  void Find(std::string_view path, std::string_view what) {
    result_.findings.push_back(path.empty() ? std::string(what)
                                            : fmt::format("{}: {}", path, what));
  }
  void Tell(std::string text) { result_.facts.push_back(std::move(text)); }

  // Every record must be what a server wrote: a key-value whose revisions fit its place.
  void CheckRecords(const bolt::ReadTx& tx, const std::string& path, uint64_t pages) {
    uint64_t records = 0;
    uint64_t wrong = 0;
    int64_t latest = 0;
    const absl::Status walked = ForEachRecord(tx, [&](const KeyRecord& record) {
      ++records;
      latest = record.revision.revision.main;
      if (record.revision.tombstone || record.value.empty()) return absl::OkStatus();
      const auto kv = mvcc::DecodeKeyValue(record.value);
      const bool fits =
          kv.ok() && kv->mod_revision == latest && kv->create_revision <= latest && kv->version > 0;
      if (!fits && ++wrong <= kRecordFindingsMax) {
        Find(path, fmt::format("bucket key, record {}: the value does not fit its revision",
                               base::ToHex(record.stored_key)));
      }
      return absl::OkStatus();
    });
    if (!walked.ok()) Find("", base::Message(walked));
    if (wrong > kRecordFindingsMax) {
      Find(path, fmt::format("and {} more records that do not fit", wrong - kRecordFindingsMax));
    }
    Tell(fmt::format("{}: {} pages, {} records up to revision {}", path, pages, records, latest));
  }

  void CheckMeta(const bolt::ReadTx& tx) {
    const auto number = [&](std::string_view key, uint64_t* out) {
      const auto value = MetaNumber(tx, key);
      if (!value.ok()) return Find("", base::Message(value.status()));
      *out = value->value_or(0);
    };
    number(kConsistentIndexKey, &db_.consistent_index);
    number(kTermKey, &db_.term);
    for (const std::string_view key : {kScheduledCompactKey, kFinishedCompactKey}) {
      const auto revision = MetaRevision(tx, key);
      if (!revision.ok()) Find("", base::Message(revision.status()));
    }
  }

  void CheckMembers(const bolt::ReadTx& tx, const std::string& path) {
    const absl::Status status = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(const auto members, FindBucket(tx, kMembersBucket));
      if (members.has_value()) {
        RETURN_IF_ERROR(ForEach(*members, [&](std::string_view key, std::string_view value) {
          uint64_t id = 0;
          auto member = cluster::DecodeMember(value);
          if (!base::ParseHexId(key, &id) || !member.ok() || member->id != id) {
            Find(path, fmt::format("bucket members, {}: no member of this id", base::ToHex(key)));
          } else {
            db_.members[id] = *std::move(member);
          }
          return absl::OkStatus();
        }));
      }
      ASSIGN_OR_RETURN(const auto removed, FindBucket(tx, kMembersRemovedBucket));
      if (!removed.has_value()) return absl::OkStatus();
      return ForEach(*removed, [&](std::string_view key, std::string_view) {
        uint64_t id = 0;
        if (base::ParseHexId(key, &id)) db_.removed[id] = true;
        return absl::OkStatus();
      });
    }();
    if (!status.ok()) return Find("", base::Message(status));
    db_.readable = true;
  }

  absl::Status CheckMarkers(const std::string& snap_dir) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, wal::ListSnapFiles(files_, snap_dir));
    for (const std::string& name : names) {
      const auto snap = wal::ReadSnapFile(files_, base::JoinPath(snap_dir, name));
      if (!snap.ok()) {
        Find("", base::Message(snap.status()));
      } else if (!wal::DecodeV2Store(snap->data).ok()) {
        Find(base::JoinPath(snap_dir, name), "the membership in it cannot be read");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckLog(const std::string& wal_dir, const std::string& db_path,
                        const std::string& snap_dir) {
    ASSIGN_OR_RETURN(const bool has_log, wal::HasLog(files_, wal_dir));
    if (!has_log) {
      Find(wal_dir, "no write-ahead log is there");
      return absl::OkStatus();
    }
    wal::SnapshotRecord start;
    const auto scan = wal::ValidSnapshotRecords(files_, wal_dir);
    if (scan.ok()) {
      start = scan->snapshots.back();
    } else if (absl::IsDataLoss(scan.status()) || absl::IsNotFound(scan.status())) {
      Find("", base::Message(scan.status()));
    } else {
      return scan.status();
    }
    ASSIGN_OR_RETURN(const wal::VerifyReport report, wal::Verify(files_, wal_dir, start));
    for (const wal::Finding& finding : report.findings) {
      std::string line = finding.offset > 0 ? fmt::format("{}: offset {}: {}", finding.path,
                                                          finding.offset, finding.what)
                                            : fmt::format("{}: {}", finding.path, finding.what);
      // The first pass named the same damage already.
      if (!scan.ok() && base::Message(scan.status()).find(finding.what) != std::string_view::npos)
        continue;
      result_.findings.push_back(std::move(line));
    }
    Tell(fmt::format("{}: {} segments, {} records, snapshot at {}, entries up to {}, commit {}",
                     wal_dir, report.segments, report.records, start.index, report.last_index,
                     report.state.commit));
    if (db_.readable && scan.ok()) CheckTogether(start, report, db_path, snap_dir);
    return absl::OkStatus();
  }

  // The database may lag behind the log, not behind the log's snapshot, and never lead it.
  void CheckTogether(const wal::SnapshotRecord& start, const wal::VerifyReport& report,
                     const std::string& db_path, const std::string& snap_dir) {
    const uint64_t index = db_.consistent_index;
    if (index < start.index &&
        !base::Exists(files_, base::JoinPath(snap_dir, wal::SnapDbFileName(start.index)))) {
      Find(db_path, fmt::format("consistent index {} lies below the log's snapshot at {}", index,
                                start.index));
    }
    if (index > report.last_index) {
      Find(db_path, fmt::format("consistent index {} lies above the log's last entry {}", index,
                                report.last_index));
    }
    if (db_.term > report.state.term) {
      Find(db_path, fmt::format("term {} is above the log's term {}", db_.term, report.state.term));
    }
    if (!report.metadata.has_value() || db_.members.empty()) return;
    const uint64_t own = report.metadata->node_id;
    if (!db_.members.contains(own) && !db_.removed.contains(own)) {
      Find(db_path,
           fmt::format("the log's member {} is not among the members", base::IdToHex(own)));
    }
  }

  base::Files& files_;
  base::Clock& clock_;
  const CheckOptions& options_;
  CheckResult result_;
  DbFacts db_;
};

}  // namespace

absl::StatusOr<CheckResult> Check(base::Files& files, base::Clock& clock, const std::string& path,
                                  const CheckOptions& options) {
  ASSIGN_OR_RETURN(const base::FileInfo info, files.Stat(path));
  Checker checker(files, clock, options);
  if (info.is_directory) {
    RETURN_IF_ERROR(checker.CheckDirectory(path));
  } else {
    RETURN_IF_ERROR(checker.CheckDbFile(path, /*may_have_trailer=*/true));
  }
  return checker.TakeResult();
}

}  // namespace snapshot
