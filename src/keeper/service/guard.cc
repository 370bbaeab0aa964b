#include "service/guard.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "base/time_text.h"
#include "capture/sealed_file.h"
#include "capture/timeline.h"
#include "catalog/schedule.h"
#include "catalog/suspicion.h"
#include "client/methods.h"
#include "proto/rpc.pb.h"
#include "service/housekeeper.h"
#include "service/notes.h"
#include "service/requests.h"

namespace service {
namespace {

constexpr base::Duration kCallTimeout = std::chrono::seconds(5);
constexpr base::Duration kRetryEvery = std::chrono::seconds(1);
constexpr base::Duration kFullRetryEvery = std::chrono::seconds(10);
constexpr base::Duration kHeadEvery = std::chrono::minutes(1);
constexpr int kFullNiceness = 10;
constexpr base::Duration kTick = std::chrono::milliseconds(200);
constexpr base::Duration kAskEvery = std::chrono::milliseconds(50);
constexpr char kVersion[] = ENGRAM_VERSION;

// Names in the state directory of a cluster.
constexpr std::string_view kStateName = "state.json";
constexpr std::string_view kRowsName = "rows";
constexpr std::string_view kScratchName = "scratch";
constexpr std::string_view kSpoolName = "spool";
constexpr std::string_view kSealedName = "full.sealed";
constexpr std::string_view kContainerName = "container";
constexpr std::string_view kLockName = "lock";
constexpr std::string_view kRequestsName = "requests";

}  // namespace

Guard::Guard(Environment env, const config::Config& config, const config::Cluster& cluster)
    : env_(env),
      config_(config),
      cluster_config_(cluster),
      dir_(base::JoinPath(base::JoinPath(config.state_dir, "clusters"), cluster.name)) {}

Guard::~Guard() = default;

absl::StatusOr<std::unique_ptr<Guard>> Guard::Create(Environment env, const config::Config& config,
                                                     const config::Cluster& cluster) {
  std::unique_ptr<Guard> guard(new Guard(env, config, cluster));
  ASSIGN_OR_RETURN(guard->writer_, WriterId(env, config.state_dir));
  ASSIGN_OR_RETURN(guard->keys_, LoadWriterKeys(env, config));
  RETURN_IF_ERROR(base::MakeDirectories(env.files, guard->dir_, 0700));
  return guard;
}

std::string Guard::PathOf(std::string_view name) const { return base::JoinPath(dir_, name); }

std::shared_ptr<Guard::Books> Guard::books() {
  const std::lock_guard lock(mutex_);
  return books_;
}

absl::StatusOr<bool> Guard::Own() {
  if (lock_ != nullptr) return true;
  ASSIGN_OR_RETURN(auto file, env_.files.Open(PathOf(kLockName), {.write = true, .create = true}));
  ASSIGN_OR_RETURN(const bool locked, file->TryLock(base::LockKind::kFlockExclusive));
  if (locked) lock_ = std::move(file);
  return locked;
}

absl::StatusOr<std::optional<BackupResult>> Guard::OwnOrAsk(base::Duration timeout) {
  Requests requests(env_.files, PathOf(kRequestsName));
  const std::string id = fmt::format("{:016x}", env_.random.Next());
  const base::Duration end = env_.clock.Monotonic() + timeout;
  while (true) {
    ASSIGN_OR_RETURN(std::optional<BackupResult> answer, requests.TakeAnswer(id));
    if (answer.has_value()) return answer;
    ASSIGN_OR_RETURN(const bool own, Own());
    if (own || env_.clock.Monotonic() > end) {
      requests.Withdraw(id);
      if (own) return std::nullopt;
      return base::MakeStatus(absl::StatusCode::kUnavailable,
                              "another process works on {} and gave no answer", dir_);
    }
    RETURN_IF_ERROR(requests.Ask(id));
    if (Pause(kAskEvery)) return absl::CancelledError("stopped");
  }
}

absl::Status Guard::Attach() {
  ASSIGN_OR_RETURN(const bool own, Own());
  if (!own) {
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition,
                            "another engram-keeper works on {}", dir_);
  }
  stores_ = OpenStores(env_, config_, cluster_config_);
  RETURN_IF_ERROR(Readable(stores_).status());
  // Before the cluster is asked: a dead one's last segments must reach the stores.
  if (!took_up_old_books_) RETURN_IF_ERROR(TakeUpOldBooks());
  took_up_old_books_ = true;
  ASSIGN_OR_RETURN(cluster_, OpenCluster(env_, cluster_config_));
  ASSIGN_OR_RETURN(const capture::HistoryMark now, cluster_->Now(kCallTimeout));
  const absl::StatusOr<StateFile> remembered = LoadState(env_.files, PathOf(kStateName));
  if (!remembered.ok() && !absl::IsNotFound(remembered.status())) {
    LOG_WARN("what was remembered of the cluster cannot be read and is done without",
             {"cluster", cluster_config_.name}, {"error", remembered.status()});
  }
  if (!remembered.ok()) {
    std::string why;
    ASSIGN_OR_RETURN(StateFile first, FirstState(now, &why));
    return Enter(first, why);
  }
  const std::string why = capture::WhyAnotherHistory(remembered->mark, now);
  {
    const std::lock_guard lock(mutex_);
    state_ = *remembered;
  }
  if (!why.empty()) return EnterAnotherHistory(now, why);
  StateFile state = *remembered;
  state.mark = now;
  return Enter(state, "");
}

// A state directory that knows nothing: perhaps it was lost, and the stores know the timeline.
absl::StatusOr<StateFile> Guard::FirstState(const capture::HistoryMark& now, std::string* why) {
  StateFile state;
  state.mark = now;
  state.timeline = {.cluster_id = now.cluster_id, .first_revision = now.revision};
  *why = "first seen";
  ASSIGN_OR_RETURN(const auto readable, Readable(stores_));
  ASSIGN_OR_RETURN(const ReaderKeys keys, LoadReaderKeys(env_, config_));
  const auto known =
      ledger::LoadCatalog(env_.clock, readable, cluster_config_.name, {.trusted = keys.trusted});
  if (!known.ok()) return known.status();
  if (known->inventory.timelines.empty()) return state;
  // What the newest objects of the last timeline say about it is all that is remembered.
  const catalog::Timeline& last = known->inventory.timelines.back();
  capture::HistoryMark mark{.cluster_id = last.cluster_id, .revision = last.first_revision};
  for (const catalog::Object& object : known->inventory.objects) {
    if (object.timeline != last) continue;
    mark.revision = std::max(mark.revision, object.last_revision);
    mark.raft_index = std::max(mark.raft_index, object.raft_index);
  }
  const std::string another = capture::WhyAnotherHistory(mark, now);
  if (another.empty()) {
    state.timeline = last;
    *why = "another writer joined";
  } else {
    *why = another;
    while (std::find(known->inventory.timelines.begin(), known->inventory.timelines.end(),
                     state.timeline) != known->inventory.timelines.end()) {
      ++state.timeline.first_revision;
    }
  }
  return state;
}

absl::StatusOr<std::shared_ptr<Guard::Books>> Guard::OpenBooks(const catalog::Timeline& timeline) {
  auto books = std::make_shared<Books>();
  const ledger::Place place{
      .cluster = cluster_config_.name, .timeline = timeline, .writer = writer_};
  ASSIGN_OR_RETURN(books->log, ledger::LogWriter::Open(env_.files, env_.clock, LogsDir(config_),
                                                       place, keys_->signing));
  std::vector<depot::NamedStore> stores;
  for (const OpenedStore& store : stores_) {
    stores.push_back({store.name, store.store != nullptr
                                      ? store.store
                                      : OpenStoreLate(env_, config_, store.name)});
  }
  ASSIGN_OR_RETURN(
      books->depot,
      depot::Depot::Open(env_.files, env_.clock,
                         {.spool_dir = base::JoinPath(PathOf(kSpoolName), timeline.Name()),
                          .spool_bytes_max = config_.spool_bytes_max},
                         std::move(stores), *books->log));
  return books;
}

// Objects of a timeline that ended before all stores had them are still brought there.
absl::Status Guard::TakeUpOldBooks() {
  const std::string spool = PathOf(kSpoolName);
  if (!base::Exists(env_.files, spool)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names, env_.files.List(spool));
  std::vector<std::shared_ptr<Books>> old;
  for (const std::string& name : names) {
    const auto timeline = catalog::Timeline::Parse(name);
    if (!timeline.has_value()) continue;
    ASSIGN_OR_RETURN(const auto objects, env_.files.List(base::JoinPath(spool, name)));
    if (objects.empty()) continue;
    ASSIGN_OR_RETURN(auto books, OpenBooks(*timeline));
    old.push_back(std::move(books));
  }
  const std::lock_guard lock(mutex_);
  old_books_ = std::move(old);
  return absl::OkStatus();
}

absl::Status Guard::EnterAnotherHistory(const capture::HistoryMark& now, const std::string& why) {
  StateFile state;
  state.mark = now;
  state.timeline = {.cluster_id = now.cluster_id, .first_revision = now.revision};
  {
    const std::lock_guard lock(mutex_);
    // A timeline's name is its own, also when a cluster came back to the very revision at which
    // another one began.
    while (base::Exists(env_.files, base::JoinPath(PathOf(kSpoolName), state.timeline.Name()))) {
      ++state.timeline.first_revision;
    }
  }
  LOG_WARN("the cluster tells another history: a new timeline begins",
           {"cluster", cluster_config_.name}, {"why", why}, {"timeline", state.timeline.Name()});
  // Rows of another history prove nothing of this one.
  if (base::Exists(env_.files, PathOf(kRowsName))) {
    RETURN_IF_ERROR(env_.files.Remove(PathOf(kRowsName)));
  }
  return Enter(state, why);
}

absl::Status Guard::Enter(const StateFile& state, const std::string& why) {
  std::shared_ptr<Books> entered;
  {
    // Books of this timeline may have been taken up already.
    const std::lock_guard lock(mutex_);
    for (const auto& old : old_books_) {
      if (old->log->place().timeline == state.timeline) entered = old;
    }
    if (entered != nullptr) std::erase(old_books_, entered);
  }
  if (entered == nullptr) {
    ASSIGN_OR_RETURN(entered, OpenBooks(state.timeline));
  }
  if (entered->log->last_seq() == 0) {
    RETURN_IF_ERROR(
        entered->log->Append({OpeningOf(cluster_config_, state.timeline, keys_->signing,
                                        why.empty() ? "what was remembered had no log" : why)}));
  }
  const std::lock_guard lock(mutex_);
  if (books_ != nullptr && books_ != entered) old_books_.push_back(books_);
  books_ = std::move(entered);
  state_ = state;
  if (!why.empty()) archive_rows_.Clear();
  // It goes on in the timeline that is entered.
  if (archiver_ != nullptr && archiver_->options().timeline != state.timeline) archiver_->Stop();
  full_wanted_ = full_wanted_ || !why.empty();
  SaveStateLocked();
  return absl::OkStatus();
}

absl::Status Guard::CheckHistory() {
  const std::lock_guard history_lock(history_mutex_);
  // Read before the cluster is asked: what the archive sees meanwhile makes its answer no fall.
  capture::HistoryMark before;
  {
    const std::lock_guard lock(mutex_);
    before = state_.mark;
  }
  ASSIGN_OR_RETURN(const capture::HistoryMark now, cluster_->Now(kCallTimeout));
  const std::string why = capture::WhyAnotherHistory(before, now);
  if (!why.empty()) return EnterAnotherHistory(now, why);
  const std::lock_guard lock(mutex_);
  state_.mark.revision = std::max(state_.mark.revision, now.revision);
  state_.mark.raft_index = std::max(state_.mark.raft_index, now.raft_index);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Guard::Books>> Guard::BooksOf(const std::string& name) {
  const auto place = ledger::Place::OfName(name);
  CHECK(place.has_value());
  {
    const std::lock_guard lock(mutex_);
    if (books_->log->place().timeline == place->timeline) return books_;
    for (const auto& old : old_books_) {
      if (old->log->place().timeline == place->timeline) return old;
    }
  }
  ASSIGN_OR_RETURN(auto books, OpenBooks(place->timeline));
  const std::lock_guard lock(mutex_);
  old_books_.push_back(books);
  return books;
}

void Guard::SaveStateLocked() {
  const absl::Status saved = SaveState(env_.files, PathOf(kStateName), state_);
  if (!saved.ok()) {
    LOG_WARN("what is remembered of the cluster cannot be saved", {"cluster", cluster_config_.name},
             {"error", saved});
  }
}

// --- fulls ---

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
  ASSIGN_OR_RETURN(const capture::Full full,
                   capture::TakeFull(*cluster_, env_.files, env_.clock, env_.random,
                                     {.scratch_dir = scratch,
                                      .sealed_path = sealed,
                                      .seal = keys_->seal,
                                      .bytes_per_second_max = cluster_config_.snapshot_bandwidth,
                                      .on_progress = progress}));
  RETURN_IF_ERROR(CheckHistory());
  if (full.member.cluster_id != books->log->place().timeline.cluster_id || books != this->books()) {
    return base::MakeStatus(absl::StatusCode::kAborted,
                            "the cluster was exchanged while its snapshot was taken");
  }
  catalog::Object object = Describe(full, books->log->last_seq());
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
  SaveStateLocked();
  return BackupResult{
      .object = std::move(object), .member = full.member, .received_in = full.received_in};
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

// --- the control plane's files ---

absl::StatusOr<BundleResult> Guard::TakeBundle() {
  const std::vector<std::string>& paths = cluster_config_.bundle.paths;
  if (paths.empty()) {
    return absl::FailedPreconditionError("the configuration names no bundle paths");
  }
  BundleResult result;
  bundle::CheckOptions check{.now = env_.clock.Wall(), .endpoints = cluster_config_.endpoints};
  {
    const std::lock_guard lock(mutex_);
    check.value_prefixes = encryptions_;
  }
  const std::shared_ptr<Books> books = this->books();
  catalog::Object& object = result.object;
  object.kind = catalog::Kind::kBundle;
  object.timeline = books->log->place().timeline;
  object.writer = writer_;
  object.keeper_version = kVersion;
  object.first_seen = object.last_seen = {env_.clock.Wall(), env_.clock.Wall()};
  object.name = fmt::format("{}/bundles/{}-{}.tar.zst{}", books->log->place().Folder(),
                            base::CompactUtc(object.first_seen.from), books->log->last_seq(),
                            keys_->seal.recipients.empty() ? "" : ".age");
  const std::string path = books->depot->NewPath(object.name);
  std::string tar;
  ASSIGN_OR_RETURN(
      const vault::Sealed sealed,
      capture::SealFile(env_.files, env_.random, path, keys_->seal, [&](vault::Sink& sink) {
        auto taken = bundle::Take(paths, [&](std::string_view bytes) {
          tar += bytes;
          return sink.Write(bytes);
        });
        if (taken.ok()) result.taken = *std::move(taken);
        return taken.status();
      }));
  capture::SetSealed(sealed, &object);
  ASSIGN_OR_RETURN(result.report, bundle::Check(tar, check));
  RETURN_IF_ERROR(books->depot->Submit(object, path));
  const std::lock_guard lock(mutex_);
  certificate_expiry_days_ = result.report.first_expiry_days;
  return result;
}

absl::Status Guard::WaitStored(const std::string& name, base::Duration timeout) {
  const std::shared_ptr<Books> books = this->books();
  const auto opened = std::count_if(stores_.begin(), stores_.end(),
                                    [](const OpenedStore& s) { return s.store != nullptr; });
  RETURN_IF_ERROR(books->depot->WaitStored(name, static_cast<size_t>(opened), timeout));
  books->depot->SignHeads();
  for (const OpenedStore& store : stores_) {
    if (store.store != nullptr) continue;
    return base::MakeStatus(absl::StatusCode::kUnavailable, "store {}: {}", store.name,
                            base::Message(store.status));
  }
  return absl::OkStatus();
}

// --- guarding ---

void Guard::Run() {
  Requests requests(env_.files, PathOf(kRequestsName));
  requests.Clear();
  while (true) {
    const std::vector<std::string> asked = requests.Open();
    const absl::Status attached = Attach();
    if (attached.ok()) break;
    // Who asks is not left waiting; unless it waits for its own turn, and owns the state soon.
    if (lock_ != nullptr) requests.Answer(asked, attached);
    SetError(std::string(base::Message(attached)));
    if (Pause(kRetryEvery)) return;
  }
  SetError("");
  std::thread archive;
  if (cluster_config_.policy.archive()) archive = std::thread([this] { RunArchive(); });
  Housekeeper housekeeper(env_, config_, cluster_config_, PathOf(kContainerName), [this] {
    const std::shared_ptr<Books> living = books();
    return std::shared_ptr<ledger::LogWriter>(living, living->log.get());
  });
  std::thread housekeeping([&] { housekeeper.Run(); });
  RunSchedule();
  housekeeper.Stop();
  housekeeping.join();
  if (archive.joinable()) archive.join();
  // Heads that speak of everything: a keeper that was stopped in order leaves no doubt about tails.
  books()->depot->SignHeads();
}

void Guard::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  if (archiver_ != nullptr) archiver_->Stop();
  changed_.notify_all();
}

bool Guard::Pause(base::Duration time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return stopping_; });
}

void Guard::SetError(const std::string& error) {
  const std::lock_guard lock(mutex_);
  if (!error.empty() && error != error_) {
    LOG_WARN("the cluster is not guarded", {"cluster", cluster_config_.name}, {"error", error});
  }
  error_ = error;
}

void Guard::LogBundle(const BundleResult& result) const {
  for (const bundle::Trouble& trouble : result.taken.refused) {
    LOG_WARN("not in the bundle", {"cluster", cluster_config_.name}, {"path", trouble.path},
             {"why", trouble.what});
  }
  for (const bundle::Finding& finding : result.report.findings) {
    if (finding.level == bundle::Finding::Level::kOk) continue;
    LOG_WARN("the bundle has a fault", {"cluster", cluster_config_.name},
             {"subject", finding.subject}, {"what", finding.text});
  }
}

void Guard::RunSchedule() {
  // Fulls are read, examined and sealed by this thread and those it makes: members on the same
  // machine go first. The archive keeps its priority, since what it is behind would be lost. On
  // Linux the call is for this thread alone; it is refused only where it is so already.
  if (::setpriority(PRIO_PROCESS, 0, kFullNiceness) != 0) {
    LOG_WARN("fulls cannot be made to step back", {"cluster", cluster_config_.name});
  }
  Requests requests(env_.files, PathOf(kRequestsName));
  base::Duration heads_signed{0};
  base::Duration not_before{0};
  base::Duration bundle_not_before{0};
  while (!Pause(kTick)) {
    const base::Duration now = env_.clock.Monotonic();
    if (heads_signed == base::Duration(0) || now - heads_signed >= kHeadEvery) {
      books()->depot->SignHeads();
      heads_signed = env_.clock.Monotonic();
    }
    if (!cluster_config_.bundle.paths.empty() && now >= bundle_not_before) {
      bundle_not_before = now + cluster_config_.bundle.every;
      const auto taken = TakeBundle();
      if (!taken.ok()) {
        LOG_WARN("the bundle cannot be taken", {"cluster", cluster_config_.name},
                 {"error", taken.status()});
        bundle_not_before = now + kFullRetryEvery;
      } else {
        LogBundle(*taken);
      }
    }
    bool due = false;
    {
      const std::lock_guard lock(mutex_);
      std::optional<catalog::Time> last;
      if (state_.last_full.has_value()) last = state_.last_full->first_seen.from;
      const catalog::Time wall = env_.clock.Wall();
      due =
          full_wanted_ || catalog::NextFull(wall, last, cluster_config_.policy.full_every) <= wall;
      std::erase_if(old_books_, [this](const auto& old) {
        const bool written =
            archiver_ != nullptr && archiver_->options().timeline == old->log->place().timeline;
        return !written && old->depot->spool_bytes() == 0;
      });
    }
    const std::vector<std::string> asked = requests.Open();
    if (asked.empty() && (!due || now < not_before)) continue;
    const auto backup = Backup({});
    requests.Answer(asked, backup);
    if (backup.ok()) {
      LOG_INFO("a full was taken", {"cluster", cluster_config_.name},
               {"revision", backup->object.last_revision}, {"bytes", backup->object.stored_bytes});
      SetError("");
    } else {
      SetError(fmt::format("no full can be taken: {}", base::Message(backup.status())));
      not_before = env_.clock.Monotonic() + kFullRetryEvery;
    }
  }
}

void Guard::RunArchive() {
  while (true) {
    const absl::Status checked = CheckHistory();
    if (!checked.ok()) {
      SetError(fmt::format("the archive stands still: {}", client::ErrorText(checked)));
      if (Pause(kRetryEvery)) return;
      continue;
    }
    capture::ArchiverOptions options{
        .cluster = cluster_config_.name,
        .writer = writer_,
        .segment_every = cluster_config_.policy.segment_every,
        .segment_bytes_max = cluster_config_.policy.segment_bytes_max,
        .seal = keys_->seal,
        .keeper_version = kVersion,
    };
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      if (state_.archive.revision == 0) {
        state_.archive.revision = state_.mark.revision;
        state_.archive.at = env_.clock.Wall();
      }
      options.timeline = state_.timeline;
      options.position = state_.archive;
      capture::ArchiveSink& sink = *this;
      archiver_ = std::make_unique<capture::Archiver>(*cluster_, env_.files, env_.clock,
                                                      env_.random, options, sink);
      error_.clear();
    }
    const capture::ArchiveEnd end = archiver_->Run();
    {
      const std::lock_guard lock(mutex_);
      const capture::ArchiverOptions& left = archiver_->options();
      if (left.timeline == state_.timeline) {
        state_.archive = left.position;
        SaveStateLocked();
      }
      archiver_.reset();
      if (stopping_) return;
    }
    absl::Status handled;
    switch (end.why) {
      case capture::ArchiveEnd::Why::kStopped:  // because another timeline was entered
        break;
      case capture::ArchiveEnd::Why::kCompacted:
        handled = CloseHole();
        break;
      case capture::ArchiveEnd::Why::kAnotherHistory: {
        const std::lock_guard history_lock(history_mutex_);
        const auto now = cluster_->Now(kCallTimeout);
        if (!now.ok()) {
          handled = now.status();
        } else if (books()->log->place().timeline == options.timeline) {
          handled = EnterAnotherHistory(*now, end.text);
        }
        break;
      }
      case capture::ArchiveEnd::Why::kFailed:
        handled = absl::UnavailableError(end.text);
        break;
    }
    if (handled.ok()) continue;
    SetError(fmt::format("the archive stands still: {}", base::Message(handled)));
    if (Pause(kRetryEvery)) return;
  }
}

// Compaction overtook the archive. A full holds what is still there; what it does not hold is lost,
// and that is said for ever.
absl::Status Guard::CloseHole() {
  const std::lock_guard backup_lock(backup_mutex_);
  // A cluster that was restored and marked compacted looks the same at first.
  const std::shared_ptr<Books> before = books();
  RETURN_IF_ERROR(CheckHistory());
  if (books() != before) return absl::OkStatus();
  ASSIGN_OR_RETURN(const BackupResult full, BackupLocked({}));
  catalog::Hole hole;
  {
    const std::lock_guard lock(mutex_);
    if (books_ != before) return absl::OkStatus();  // the hole is of a history that ended
    hole = {
        .timeline = state_.timeline,
        .first_revision = state_.archive.revision + 1,
        .last_revision = full.object.compact_revision - 1,
        .from = std::max(state_.watched_at, state_.archive.at),
        .to = env_.clock.Wall(),
        .why = fmt::format("compacted at {} before it was archived", full.object.compact_revision)};
    state_.archive.revision = std::max(state_.archive.revision, full.object.compact_revision);
    state_.archive.digest.reset();
    state_.archive.at = env_.clock.Wall();
    archive_rows_.Clear();
    SaveStateLocked();
    if (hole.last_revision < hole.first_revision) return absl::OkStatus();
    ++holes_;
  }
  LOG_ERROR("revisions were lost to the archive", {"cluster", cluster_config_.name},
            {"first", hole.first_revision}, {"last", hole.last_revision});
  return before->depot->Note({ledger::HoleFound{hole}});
}

// --- the archive's sink ---

// A segment goes into the books of its own timeline, also when another one was entered meanwhile.
std::string Guard::NewPath(const std::string& name) {
  const auto books = BooksOf(name);
  return books.ok() ? (*books)->depot->NewPath(name)
                    : base::JoinPath(PathOf(kScratchName), base::BaseName(name));
}

absl::Status Guard::Segment(catalog::Object object, const std::string& path) {
  const uint64_t events = object.events;
  ASSIGN_OR_RETURN(const std::shared_ptr<Books> books, BooksOf(object.name));
  RETURN_IF_ERROR(books->depot->Submit(std::move(object), path));
  const std::lock_guard lock(mutex_);
  events_ += events;
  return absl::OkStatus();
}

void Guard::Seen(int64_t revision, const capture::RowDigest& digest) {
  const std::lock_guard lock(mutex_);
  if (!ArchivesLivingLocked()) return;
  archive_rows_.Append(revision, digest);
  state_.mark.revision = std::max(state_.mark.revision, revision);
}

void Guard::Watched(int64_t revision, base::Duration at) {
  const std::lock_guard lock(mutex_);
  if (!ArchivesLivingLocked()) return;
  const bool moved = revision != state_.archive.revision;
  state_.watched_at = at;
  books_->depot->SetWatched({.revision = revision, .at = at});
  if (!moved) return;
  state_.archive = archiver_->options().position;
  SaveStateLocked();
}

bool Guard::ArchivesLivingLocked() const {
  return archiver_ != nullptr && archiver_->options().timeline == state_.timeline;
}

GuardState Guard::state() {
  const std::lock_guard lock(mutex_);
  GuardState out{.cluster = cluster_config_.name,
                 .timeline = state_.timeline,
                 .error = error_,
                 .archived_revision = state_.archive.revision,
                 .watched_at = state_.watched_at,
                 .holes = holes_,
                 .events = events_,
                 .certificate_expiry_days = certificate_expiry_days_};
  if (state_.last_full.has_value()) {
    const catalog::Object& full = *state_.last_full;
    out.last_full_at = full.last_seen.to;
    out.last_full_revision = full.last_revision;
    out.suspect = full.suspect;
    if (full.Proven()) {
      out.newest_proven_revision = full.last_revision;
      out.newest_proven_at = full.last_seen.to;
    }
  }
  if (books_ != nullptr) {
    out.stores = books_->depot->states();
    out.spool_bytes = books_->depot->spool_bytes();
  }
  return out;
}

}  // namespace service
