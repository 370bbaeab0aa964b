#include "service/housekeeper.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "ledger/load.h"

namespace service {
namespace {

constexpr base::Duration kPassEvery = std::chrono::minutes(10);
constexpr base::Duration kSettle = std::chrono::minutes(1);
constexpr base::Duration kCallTimeout = std::chrono::minutes(1);
// Each container is followed by a rest of so many times what it took: the disk and the stores
// belong to the archive and the fulls.
constexpr int kRestFactor = 3;
// Of the time, one part in so many goes into reading logs at most.
constexpr int kReadingShare = 20;
constexpr base::Duration kRestMax = std::chrono::seconds(30);

}  // namespace

Housekeeper::Housekeeper(Environment env, const config::Config& config,
                         const config::Cluster& cluster, std::string scratch_path, LogOf log_of)
    : env_(env),
      config_(config),
      cluster_(cluster),
      scratch_path_(std::move(scratch_path)),
      log_of_(std::move(log_of)) {}

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
  while (!Pause(std::max(every, kReadingShare * reading_took_))) {
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

absl::Status Housekeeper::Pass() {
  RETURN_IF_ERROR(OpenStores());
  const std::shared_ptr<ledger::LogWriter> log = log_of_();
  if (log == nullptr) return absl::OkStatus();
  const auto soon = [&] { return stores::Deadline::In(env_.clock, kCallTimeout, &cancelled_); };
  // What the stores say is then no less than what this keeper did.
  for (const depot::RollUpStore& store : stores_) {
    RETURN_IF_ERROR(log->Ship(store.name, *store.store, soon()));
  }
  for (const depot::RollUpStore& store : stores_) {
    RETURN_IF_ERROR(base::Annotate(log->MergeChunks(*store.store, *store.pruning, soon()),
                                   "store " + store.name));
  }
  return cluster_.policy.roll_ups.empty() ? absl::OkStatus() : RollUp(*log);
}

absl::Status Housekeeper::RollUp(ledger::LogWriter& log) {
  std::vector<ledger::ReadableStore> readable;
  for (const depot::RollUpStore& store : stores_) readable.push_back({store.name, store.store});
  ASSIGN_OR_RETURN(const ReaderKeys keys, LoadReaderKeys(env_, config_));
  const base::Duration began = env_.clock.Monotonic();
  ASSIGN_OR_RETURN(
      const ledger::Catalog catalog,
      ledger::LoadCatalog(env_.clock, readable, cluster_.name, {.trusted = keys.trusted}));
  reading_took_ = env_.clock.Monotonic() - began;
  // As with prune: nothing is taken away while the log or a store is not as it should be. Logs of
  // other writers, perhaps of keys that are not known here, speak of other objects.
  for (const std::string& finding : catalog.findings) {
    if (finding.find(log.place().Folder()) == std::string::npos) continue;
    return absl::FailedPreconditionError(finding);
  }
  for (const auto& [store, why] : catalog.unreadable) {
    return base::Annotate(why, "store " + store);
  }
  const std::vector<base::Duration>& spans = cluster_.policy.roll_ups;
  const depot::RollUpOptions options{
      .policy = {.spans = spans, .settle = std::min(kSettle, spans.front() / 2)},
      .parts_stay = cluster_.policy.parts_stay,
      .scratch_path = scratch_path_,
      .cancelled = &cancelled_,
      .pause =
          [this](base::Duration took) { return Pause(std::min(kRestMax, kRestFactor * took)); },
  };
  return depot::RollUp(env_.files, env_.clock, catalog.inventory, stores_, log, options);
}

}  // namespace service
