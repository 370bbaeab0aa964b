#include "service/housekeeper.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace service {
namespace {

constexpr base::Duration kPassEvery = std::chrono::minutes(10);
constexpr base::Duration kSettle = std::chrono::minutes(1);
constexpr base::Duration kCallTimeout = std::chrono::minutes(1);
// Each container is followed by a rest of so many times what it took: the disk and the stores
// belong to the archive and the fulls.
constexpr int kRestFactor = 3;
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

absl::Status Housekeeper::Pass() {
  RETURN_IF_ERROR(OpenStores());
  const std::shared_ptr<ledger::LogWriter> log = log_of_();
  const auto soon = [&] { return stores::Deadline::In(env_.clock, kCallTimeout, &cancelled_); };
  // Each store has then by its own log what is about to be taken away from it.
  for (const depot::RollUpStore& store : stores_) {
    RETURN_IF_ERROR(log->Ship(store.name, *store.store, soon()));
    RETURN_IF_ERROR(base::Annotate(log->MergeChunks(*store.store, *store.pruning, soon()),
                                   "store " + store.name));
  }
  const std::vector<base::Duration>& spans = cluster_.policy.roll_ups;
  if (spans.empty()) return absl::OkStatus();
  if (log != log_) {
    depot::RollUpOptions options{
        .policy = {.spans = spans, .taken = {}, .settle = std::min(kSettle, spans.front() / 2)},
        .parts_stay = cluster_.policy.parts_stay,
        .scratch_path = scratch_path_,
        .cancelled = &cancelled_,
        .pause =
            [this](base::Duration took) { return Pause(std::min(kRestMax, kRestFactor * took)); },
    };
    roll_ups_ =
        std::make_unique<depot::RollUps>(env_.files, env_.clock, stores_, *log, std::move(options));
    log_ = log;
  }
  return roll_ups_->Pass();
}

}  // namespace service
