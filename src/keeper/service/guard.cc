#include "service/guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "capture/timeline.h"
#include "service/guard_names.h"
#include "service/notes.h"
#include "service/requests.h"

namespace service {
namespace {

constexpr base::Duration kCallTimeout = std::chrono::seconds(5);
constexpr base::Duration kAskEvery = std::chrono::milliseconds(50);

}  // namespace

Guard::Guard(Environment env, const config::Config& config, const config::Cluster& cluster)
    : env_(env),
      config_(config),
      cluster_config_(cluster),
      dir_(base::JoinPath(base::JoinPath(config.state_dir, "clusters"), cluster.name)),
      clock_watch_(env.clock, cluster.name, ConfirmedAfter(cluster.retention)) {}

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

template <typename Result>
absl::StatusOr<std::optional<Result>> Guard::OwnOrAsk(
    Wanted wanted, base::Duration timeout,
    absl::StatusOr<std::optional<Result>> (Requests::*take)(const std::string& id)) {
  Requests requests(env_.files, PathOf(kRequestsName));
  const std::string id = fmt::format("{:016x}", env_.random.Next());
  const base::Duration end = env_.clock.Monotonic() + timeout;
  while (true) {
    ASSIGN_OR_RETURN(std::optional<Result> answer, (requests.*take)(id));
    if (answer.has_value()) return answer;
    ASSIGN_OR_RETURN(const bool own, Own());
    if (own || env_.clock.Monotonic() > end) {
      requests.Withdraw(id);
      if (own) return std::nullopt;
      return base::MakeStatus(absl::StatusCode::kUnavailable,
                              "another process works on {} and gave no answer", dir_);
    }
    RETURN_IF_ERROR(requests.Ask({.id = id, .wanted = wanted}));
    if (Pause(kAskEvery)) return absl::CancelledError("stopped");
  }
}

absl::StatusOr<std::optional<BackupResult>> Guard::OwnOrAskFull(base::Duration timeout) {
  return OwnOrAsk<BackupResult>(Wanted::kFull, timeout, &Requests::TakeFull);
}

absl::StatusOr<std::optional<BundleResult>> Guard::OwnOrAskBundle(base::Duration timeout) {
  return OwnOrAsk<BundleResult>(Wanted::kBundle, timeout, &Requests::TakeBundle);
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
  const absl::StatusOr<StateFile> remembered =
      LoadState(env_.files, StatePath(config_.state_dir, cluster_config_.name));
  if (!remembered.ok() && !absl::IsNotFound(remembered.status())) {
    LOG_WARN("what was remembered of the cluster cannot be read and is done without",
             {"cluster", cluster_config_.name}, {"error", remembered.status()});
  }
  if (!remembered.ok()) {
    std::string why;
    std::optional<catalog::Timeline> follows;
    ASSIGN_OR_RETURN(StateFile first, FirstState(now, &why, &follows));
    return Enter(first, why, follows);
  }
  const std::string why = capture::WhyAnotherHistory(remembered->mark, now);
  {
    const std::lock_guard lock(mutex_);
    state_ = *remembered;
  }
  if (!why.empty()) return EnterAnotherHistory(now, why);
  StateFile state = *remembered;
  state.mark = now;
  return Enter(state, "", std::nullopt);
}

// A state directory that knows nothing: perhaps it was lost, and the stores know the timeline.
absl::StatusOr<StateFile> Guard::FirstState(const capture::HistoryMark& now, std::string* why,
                                            std::optional<catalog::Timeline>* follows) {
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
    *follows = last;
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
  catalog::Timeline follows;
  {
    const std::lock_guard lock(mutex_);
    follows = state_.timeline;
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
  return Enter(state, why, follows);
}

absl::Status Guard::Enter(const StateFile& state, const std::string& why,
                          const std::optional<catalog::Timeline>& follows) {
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
    RETURN_IF_ERROR(entered->log->Append(
        {OpeningOf(cluster_config_, state.timeline, keys_->signing,
                   why.empty() ? "what was remembered had no log" : why, follows)}));
  }
  const std::lock_guard lock(mutex_);
  if (books_ != nullptr && books_ != entered) old_books_.push_back(books_);
  books_ = std::move(entered);
  state_ = state;
  covered_.reset();
  CoveredLocked(state_.watched_at);
  if (state_.last_full.has_value()) CoveredLocked(state_.last_full->last_seen.to);
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
  for (const auto& old : old_books_) {
    if (old->log->place().timeline == place->timeline) return old;  // another thread was first
  }
  old_books_.push_back(books);
  return books;
}

void Guard::CoveredLocked(catalog::Time at) {
  if (at == catalog::Time(0)) return;
  // What is ahead of a clock that was set back was just now, as far as anybody can tell.
  const base::Instant now = base::Now(env_.clock);
  const base::Duration moment = now.steady - std::max(base::Duration(0), now.wall - at);
  covered_ = std::max(covered_.value_or(moment), moment);
}

absl::StatusOr<std::shared_ptr<Guard::Books>> Guard::BegunBooks(const catalog::Timeline& timeline,
                                                                const std::string& why) {
  const ledger::Place place{
      .cluster = cluster_config_.name, .timeline = timeline, .writer = writer_};
  ASSIGN_OR_RETURN(auto books, BooksOf(place.Folder() + "/log/"));
  if (books->log->last_seq() > 0) return books;
  RETURN_IF_ERROR(books->depot->Note({OpeningOf(cluster_config_, timeline, keys_->signing, why)}));
  books->depot->SignHeads();
  return books;
}

void Guard::SaveStateLocked() {
  if (watches_clock_) state_.clock = clock_watch_.state();
  const absl::Status saved =
      SaveState(env_.files, StatePath(config_.state_dir, cluster_config_.name), state_);
  if (!saved.ok()) {
    LOG_WARN("what is remembered of the cluster cannot be saved", {"cluster", cluster_config_.name},
             {"error", saved});
  }
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

void Guard::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  if (archiver_ != nullptr) archiver_->Stop();
  changed_.notify_all();
}

bool Guard::Stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
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

GuardState Guard::state() {
  const std::lock_guard lock(mutex_);
  GuardState out{.cluster = cluster_config_.name,
                 .timeline = state_.timeline,
                 .error = error_,
                 .archived_revision = state_.archive.revision,
                 .holes = holes_,
                 .events = events_,
                 .certificate_expiry_days = certificate_expiry_days_,
                 .retention = state_.retention,
                 .pruned_objects = pruned_objects_,
                 .pruned_bytes = pruned_bytes_,
                 .paused = paused_,
                 .pauses = pauses_,
                 .paused_for = paused_for_,
                 .clock = clock_watch_.state(),
                 .clock_steps = clock_watch_.steps()};
  if (covered_.has_value()) out.uncovered_for = env_.clock.Monotonic() - *covered_;
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
