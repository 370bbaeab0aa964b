#include "service/housekeeper.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "service/notes.h"

namespace service {
namespace {

constexpr base::Duration kPassEvery = std::chrono::minutes(10);
constexpr base::Duration kSettle = std::chrono::minutes(1);
constexpr base::Duration kCallTimeout = std::chrono::minutes(1);
// Each container is followed by a rest of so many times what it took: the disk and the stores
// belong to the archive and the fulls.
constexpr int kRestFactor = 3;
constexpr base::Duration kRestMax = std::chrono::seconds(30);
// All logs are read so many times while a writer counts as living that signs nothing.
constexpr int kLooksAtOthers = 4;

}  // namespace

Housekeeper::Housekeeper(Environment env, const config::Config& config,
                         const config::Cluster& cluster, std::string scratch_path, LogOf log_of,
                         OpenLog open_log)
    : env_(env),
      config_(config),
      cluster_(cluster),
      scratch_path_(std::move(scratch_path)),
      log_of_(std::move(log_of)),
      open_log_(std::move(open_log)) {}

void Housekeeper::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  cancelled_ = true;
  changed_.notify_all();
}

bool Housekeeper::Pause(base::Duration time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return stopping_; });
}

void Housekeeper::Run() {
  const std::vector<base::Duration>& spans = cluster_.policy.roll_ups;
  const base::Duration every = spans.empty() ? kPassEvery : std::min(kPassEvery, spans.front());
  std::string told;
  while (!Pause(every)) {
    const absl::Status status = Pass();
    // Said once: a store without the right to delete stays so.
    const std::string trouble(base::Message(status));
    if (!status.ok() && !absl::IsCancelled(status) && trouble != told) {
      LOG_WARN("objects of the archive and the log are left as they are",
               {"cluster", cluster_.name}, {"why", trouble});
    }
    told = trouble;
  }
}

absl::Status Housekeeper::OpenStores() {
  if (!stores_.empty()) return absl::OkStatus();
  std::vector<depot::RollUpStore> stores;
  for (OpenedStore& opened : service::OpenStores(env_, config_, cluster_)) {
    RETURN_IF_ERROR(base::Annotate(opened.status, "store " + opened.name));
    auto pruning = OpenForPruning(env_, config_, opened.name);
    if (!pruning.ok()) return base::Annotate(pruning.status(), "store " + opened.name);
    stores.push_back({opened.name, std::move(opened.store), *std::move(pruning)});
  }
  stores_ = std::move(stores);
  return absl::OkStatus();
}

stores::Deadline Housekeeper::Soon() const {
  return stores::Deadline::In(env_.clock, kCallTimeout, &cancelled_);
}

depot::RollUpOptions Housekeeper::Options() {
  const std::vector<base::Duration>& spans = cluster_.policy.roll_ups;
  return {.policy = {.spans = spans, .taken = {}, .settle = std::min(kSettle, spans.front() / 2)},
          .parts_stay = cluster_.policy.parts_stay,
          .scratch_path = scratch_path_,
          .cancelled = &cancelled_,
          .pause = [this](base::Duration took) {
            return Pause(std::min(kRestMax, kRestFactor * took));
          }};
}

absl::Status Housekeeper::Pass() {
  RETURN_IF_ERROR(OpenStores());
  const std::shared_ptr<ledger::LogWriter> log = log_of_();
  // Each store has then by its own log what is about to be taken away from it.
  for (const depot::RollUpStore& store : stores_) {
    RETURN_IF_ERROR(log->Ship(store.name, *store.store, Soon()));
    RETURN_IF_ERROR(base::Annotate(log->MergeChunks(*store.store, *store.pruning, Soon()),
                                   "store " + store.name));
  }
  if (cluster_.policy.roll_ups.empty()) return absl::OkStatus();
  if (log != log_) {
    roll_ups_ = std::make_unique<depot::RollUps>(env_.files, env_.clock, stores_, *log, Options());
    log_ = log;
    others_at_.reset();
  }
  RETURN_IF_ERROR(roll_ups_->Pass());
  const base::Duration now = env_.clock.Monotonic();
  const base::Duration every = cluster_.policy.adopt_after / kLooksAtOthers;
  if (others_at_.has_value() && now - *others_at_ < every) return absl::OkStatus();
  others_at_ = now;
  return RollUpOthers(log->place());
}

// A keeper that was killed when it began a log of a history that ended left that without a head,
// and nobody else may say that it is whole.
absl::Status Housekeeper::SignOldHeads(const ledger::Place& own) {
  if (old_heads_signed_) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      const std::vector<catalog::Timeline> timelines,
      ledger::LogWriter::TimelinesIn(env_.files, LogsDir(config_), own.cluster, own.writer));
  for (const catalog::Timeline& timeline : timelines) {
    if (timeline != own.timeline) RETURN_IF_ERROR(NoteIn(timeline, {}));
  }
  old_heads_signed_ = true;
  return absl::OkStatus();
}

// Who does not see everything moves nothing.
absl::StatusOr<ledger::Catalog> Housekeeper::LoadAll() {
  std::vector<ledger::ReadableStore> readable;
  for (const depot::RollUpStore& store : stores_) readable.push_back({store.name, store.store});
  ASSIGN_OR_RETURN(const ReaderKeys keys, LoadReaderKeys(env_, config_));
  ASSIGN_OR_RETURN(ledger::Catalog known, ledger::LoadCatalog(env_.clock, readable, cluster_.name,
                                                              {.trusted = keys.trusted}));
  if (!known.unreadable.empty()) return known.unreadable.front().second;
  if (!known.findings.empty()) {
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition,
                            "a log is not as it should be: {}", known.findings.front());
  }
  return known;
}

absl::Status Housekeeper::RollUpOthers(const ledger::Place& own) {
  RETURN_IF_ERROR(SignOldHeads(own));
  ASSIGN_OR_RETURN(ledger::Catalog known, LoadAll());
  roll_ups_->Settle(known.inventory);
  std::set<std::string> writers = catalog::WritersToRollUpFor(
      env_.clock.Wall(), ledger::LastSigned(known), own.writer, cluster_.policy.adopt_after);
  writers.insert(own.writer);
  // The own living one too: another host may have re-wrapped objects of it.
  std::set<std::pair<catalog::Timeline, std::string>> places;
  for (const catalog::Object& object : known.inventory.objects) {
    const bool rolls =
        object.kind == catalog::Kind::kSegment || object.kind == catalog::Kind::kRollUp;
    if (rolls && !object.pruned && writers.contains(object.writer)) {
      places.emplace(object.timeline, object.writer);
    }
  }
  bool noted = false;
  for (const auto& [timeline, writer] : places) {
    if (cancelled_) return absl::OkStatus();
    // What was made for another writer lies beside own objects: it must be known before the own
    // ones are cleared up.
    if (std::exchange(noted, false)) {
      ASSIGN_OR_RETURN(known, LoadAll());
    }
    const depot::Noting note = [&, of = timeline](const std::vector<ledger::Fact>& facts) {
      noted = true;
      return NoteIn(of, facts);
    };
    RETURN_IF_ERROR(
        depot::RollUpFor(env_.files, env_.clock, stores_, known,
                         {.cluster = own.cluster, .timeline = timeline, .writer = writer},
                         own.writer, note, Options()));
  }
  return absl::OkStatus();
}

// In every store, before anything goes from one of them; with a head, since nobody signs one for a
// history that ended.
absl::Status Housekeeper::NoteIn(const catalog::Timeline& timeline,
                                 const std::vector<ledger::Fact>& facts) {
  ASSIGN_OR_RETURN(const std::shared_ptr<ledger::LogWriter> log, open_log_(timeline));
  RETURN_IF_ERROR(log->Append(facts));
  for (const depot::RollUpStore& store : stores_) {
    RETURN_IF_ERROR(log->SignHead(store.name, *store.store, {}, Soon()));
  }
  return absl::OkStatus();
}

}  // namespace service
