#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "base/time_text.h"
#include "capture/sealed_file.h"
#include "catalog/suspicion.h"
#include "client/methods.h"
#include "proto/rpc.pb.h"
#include "service/guard.h"
#include "service/guard_names.h"

namespace service {
namespace {

constexpr base::Duration kMetricsTimeout = std::chrono::seconds(2);
// How long a snapshot that yields may stay open: the db grows meanwhile, and the next one comes.
constexpr base::Duration kOpenMax = std::chrono::minutes(2);
constexpr std::string_view kSealedName = "full.sealed";
constexpr char kVersion[] = ENGRAM_VERSION;

}  // namespace

absl::StatusOr<BackupResult> Guard::Backup(
    std::function<void(uint64_t received, uint64_t remaining)> progress) {
  const std::lock_guard backup_lock(backup_mutex_);
  RETURN_IF_ERROR(CheckHistory());
  return BackupLocked(progress);
}

absl::StatusOr<BackupResult> Guard::BackupLocked(
    const std::function<void(uint64_t received, uint64_t remaining)>& progress) {
  const std::string scratch = PathOf(kScratchName);
  const std::string sealed = base::JoinPath(scratch, kSealedName);
  const std::shared_ptr<Books> books = this->books();
  std::unique_ptr<capture::SourceWatch> watch;
  capture::MemberState asked;
  const auto taken =
      capture::TakeFull(*cluster_, env_.files, env_.clock, env_.random,
                        {.scratch_dir = scratch,
                         .sealed_path = sealed,
                         .seal = keys_->seal,
                         .bytes_per_second = cluster_config_.snapshot_bandwidth,
                         .open_max = std::min(kOpenMax, cluster_config_.policy.full_every / 2),
                         .on_progress = progress,
                         .may_go_on = [&](const capture::MemberState& member) -> absl::Status {
                           if (Stopping()) return absl::CancelledError("stopped");
                           if (cluster_config_.pause_max == base::Duration(0))
                             return absl::OkStatus();
                           if (watch == nullptr) {
                             asked = member;
                             watch = WatchSource(member);
                           }
                           return watch->AtPiece();
                         },
                         .avoid_member = std::exchange(avoid_member_, 0)});
  // The next attempt is another member's, where there is one.
  if (!taken.ok()) avoid_member_ = asked.member_id;
  if (watch != nullptr) EndWatch(asked.endpoint, *watch);
  RETURN_IF_ERROR(taken.status());
  const capture::Full& full = *taken;
  RETURN_IF_ERROR(CheckHistory());
  if (full.member.cluster_id != books->log->place().timeline.cluster_id || books != this->books()) {
    return base::MakeStatus(absl::StatusCode::kAborted,
                            "the cluster was exchanged while its snapshot was taken");
  }
  catalog::Object object = Describe(full, books->log->last_seq());
  if (watch != nullptr) object.strain = watch->Summary();
  Prove(full, &object);
  if (cluster_config_.hashkv_by_rpc) RETURN_IF_ERROR(ProveByRpc(full, &object));
  if (!object.suspect.empty()) {
    LOG_ERROR("a full is suspect", {"cluster", cluster_config_.name}, {"full", object.name},
              {"why", object.suspect});
  }
  const std::string path = books->depot->NewPath(object.name);
  RETURN_IF_ERROR(env_.files.Rename(sealed, path));
  const absl::Status submitted = books->depot->Submit(object, path);
  if (!submitted.ok()) {
    env_.files.Remove(path).IgnoreError();  // the spool clears it at the next start otherwise
    return submitted;
  }
  RETURN_IF_ERROR(full.examination.rows.Save(env_.files, PathOf(kRowsName), object.name));
  const std::lock_guard lock(mutex_);
  state_.last_full = object;
  encryptions_ = full.examination.encryptions;
  state_.mark.revision = std::max(state_.mark.revision, object.last_revision);
  full_wanted_ = false;
  CoveredLocked(object.last_seen.to);
  SaveStateLocked();
  return BackupResult{.object = std::move(object),
                      .member = full.member,
                      .received_in = full.received_in,
                      .yielded = full.yielded};
}

std::unique_ptr<capture::SourceWatch> Guard::WatchSource(const capture::MemberState& member) {
  const auto& endpoints = cluster_config_.endpoints;
  const auto at = std::find(endpoints.begin(), endpoints.end(), member.endpoint);
  const auto place = static_cast<size_t>(at - endpoints.begin());
  const auto& pages = cluster_config_.metrics_endpoints;
  const capture::MetricsAccess access{
      .url = place < pages.size() ? pages[place] : member.endpoint,
      .ca_file = cluster_config_.tls.ca_file,
      .cert_file = cluster_config_.tls.cert_file,
      .key_file = cluster_config_.tls.key_file,
  };
  std::optional<capture::Vitals> before;
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = vitals_.find(member.endpoint); known != vitals_.end()) {
      before = known->second;
    }
  }
  return std::make_unique<capture::SourceWatch>(
      env_.clock, capture::SourceWatchOptions{.pause_max = cluster_config_.pause_max},
      [access] { return capture::ReadVitals(access, kMetricsTimeout); },
      [this](base::Duration time) { return Pause(time); },
      [this, endpoint = member.endpoint](bool paused, const std::string& why) {
        const std::lock_guard lock(mutex_);
        if (paused) {
          LOG_WARN("a full pauses: its member suffers", {"cluster", cluster_config_.name},
                   {"member", endpoint}, {"why", why});
        } else {
          LOG_INFO("a full goes on", {"cluster", cluster_config_.name}, {"member", endpoint},
                   {"why", why});
        }
        paused_ = paused;
        pauses_ += paused;
      },
      before);
}

void Guard::EndWatch(const std::string& endpoint, const capture::SourceWatch& watch) {
  const std::lock_guard lock(mutex_);
  paused_ = false;
  paused_for_ += watch.paused();
  if (watch.last().has_value()) vitals_[endpoint] = *watch.last();
  if (watch.unwatched().ok()) {
    unwatched_.erase(endpoint);
  } else if (unwatched_.insert(endpoint).second) {
    LOG_WARN("a member's metrics cannot be had: fulls do not pause when it suffers",
             {"cluster", cluster_config_.name}, {"member", endpoint}, {"error", watch.unwatched()});
  }
}

catalog::Object Guard::Describe(const capture::Full& full, uint64_t number) {
  catalog::Object object;
  object.kind = catalog::Kind::kFull;
  object.timeline = books()->log->place().timeline;
  object.writer = writer_;
  object.last_revision = full.examination.bounds.revision;
  object.first_revision = std::max(int64_t{1}, full.examination.bounds.compact_revision);
  object.compact_revision = full.examination.bounds.compact_revision;
  object.name = fmt::format("{}/fulls/{:016x}-{}-{}.db.zst{}", books()->log->place().Folder(),
                            object.last_revision, base::CompactUtc(full.seen.from), number,
                            keys_->seal.recipients.empty() ? "" : ".age");
  object.first_seen = object.last_seen = full.seen;
  capture::SetSealed(full.sealed, &object);
  object.member_id = full.member.member_id;
  object.raft_index = full.member.raft_index;
  object.server_version = full.member.version;
  object.storage_version = full.examination.storage_version;
  object.keeper_version = kVersion;
  object.key_count = full.examination.key_count;
  object.prefix_counts = full.examination.prefix_counts;
  object.encryptions = full.examination.encryptions;
  const std::lock_guard lock(mutex_);
  object.kubernetes_version = kubernetes_version_;
  return object;
}

void Guard::Prove(const capture::Full& full, catalog::Object* object) {
  const snapshot::HashKv& hash = full.examination.hash;
  object->proofs.push_back({.method = catalog::Proof::Method::kHashOfFile,
                            .to = hash.hash_revision,
                            .compact_revision = std::max(int64_t{0}, hash.compact_revision),
                            .hash = hash.hash,
                            .at = env_.clock.Wall()});
  {
    const std::lock_guard lock(mutex_);
    const std::optional<catalog::Object>& before = state_.last_full;
    if (before.has_value() && before->timeline == object->timeline) {
      object->suspect =
          catalog::Suspicion(*before, *object, {.share = cluster_config_.suspect_share});
    }
    CompareRows(full, archive_rows_, "archive", object);
  }
  std::string source;
  const auto rows = capture::RowDigests::Load(env_.files, PathOf(kRowsName), &source);
  if (rows.ok()) CompareRows(full, *rows, source, object);
}

void Guard::CompareRows(const capture::Full& full, const capture::RowDigests& other,
                        const std::string& source, catalog::Object* object) {
  const auto compared =
      full.examination.rows.CompareWith(other, full.examination.bounds.compact_revision);
  if (compared.first_difference.has_value()) {
    object->suspect = fmt::format("revision {} is not what {} has", *compared.first_difference,
                                  source == "archive" ? "the archive" : source);
  } else if (compared.to > compared.from) {
    object->proofs.push_back({.method = catalog::Proof::Method::kRows,
                              .from = compared.from,
                              .to = compared.to,
                              .rows = static_cast<uint64_t>(compared.to - compared.from),
                              .against = source,
                              .at = env_.clock.Wall()});
  }
}

absl::Status Guard::ProveByRpc(const capture::Full& full, catalog::Object* object) {
  ASSIGN_OR_RETURN(const auto member, cluster_->Only(full.member.endpoint));
  etcdserverpb::HashKVRequest request;
  request.set_revision(object->last_revision);
  const auto answer = member->Call(client::kHashKV, request, {.timeout = std::chrono::minutes(1)});
  RETURN_IF_ERROR(base::Annotate(answer.status(), full.member.endpoint));
  // Only equal triples say anything: a compaction in between changes the hash.
  const int64_t compact = std::max(int64_t{0}, answer->compact_revision());
  if (compact != object->compact_revision) return absl::OkStatus();
  if (answer->hash() != full.examination.hash.hash) {
    object->suspect = fmt::format(
        "HashKV at revision {} is {:08x} in the snapshot, and member {:x} answers {:08x}",
        object->last_revision, full.examination.hash.hash, full.member.member_id, answer->hash());
    return absl::OkStatus();
  }
  object->proofs.push_back({.method = catalog::Proof::Method::kHashByRpc,
                            .to = object->last_revision,
                            .compact_revision = compact,
                            .hash = answer->hash(),
                            .against = fmt::format("{:016x}", full.member.member_id),
                            .at = env_.clock.Wall()});
  return absl::OkStatus();
}

}  // namespace service
