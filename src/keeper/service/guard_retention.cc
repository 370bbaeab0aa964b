#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "catalog/schedule.h"
#include "ledger/load.h"
#include "service/audit.h"
#include "service/guard.h"
#include "service/notes.h"
#include "service/prune.h"

namespace service {
namespace {

constexpr base::Duration kLookEvery = std::chrono::seconds(1);
// After a run that failed: a store may be back, and the stores must not fill up meanwhile.
constexpr base::Duration kRetryEvery = std::chrono::minutes(5);

// Why not every copy that should go went; empty: all did. What a store says differs each time (it
// numbers its requests), so which stores, and with which kind of error, is what tells news.
struct Refusals {
  std::string text;
  std::string kind;
};
Refusals RefusalsOf(const PruneResult& result) {
  Refusals refusals;
  for (const auto& [store, why] : result.refused) {
    refusals.text += fmt::format("{}store {} keeps its copies: {}",
                                 refusals.text.empty() ? "" : "; ", store, base::Message(why));
    refusals.kind += fmt::format("{} {} ", store, static_cast<int>(why.code()));
  }
  return refusals;
}

}  // namespace

void Guard::RunRetention() {
  base::Duration not_before{0};
  std::string told;
  while (!Pause(kLookEvery)) {
    std::optional<catalog::Time> last;
    {
      const std::lock_guard lock(mutex_);
      if (state_.retention.at != catalog::Time(0)) last = state_.retention.at;
    }
    const catalog::Time wall = env_.clock.Wall();
    const bool due = catalog::NextDue(wall, last, cluster_config_.retention.every) <= wall;
    if (!due || env_.clock.Monotonic() < not_before) continue;
    std::string news;
    auto run = PruneOnce(&news);
    if (!run.ok()) {
      news = absl::StatusCodeToString(run.status().code());
      not_before = env_.clock.Monotonic() + std::min(kRetryEvery, cluster_config_.retention.every);
      run = RetentionRun{.stopped = std::string(base::Message(run.status()))};
    } else {
      run->at = env_.clock.Wall();
    }
    // Said when it changes: a store without the right to delete is no news every hour.
    if (news != told) {
      told = news;
      if (run->stopped.empty()) {
        LOG_INFO("retention goes on", {"cluster", cluster_config_.name});
      } else {
        LOG_WARN("retention cannot delete all that may go", {"cluster", cluster_config_.name},
                 {"why", run->stopped});
      }
    }
    const std::lock_guard lock(mutex_);
    if (run->at == catalog::Time(0)) run->at = state_.retention.at;
    state_.retention = *std::move(run);
    SaveStateLocked();
  }
}

absl::StatusOr<RetentionRun> Guard::PruneOnce(std::string* news) {
  // What is deleted is judged by this moment: a clock that is set later is seen by the next run.
  const catalog::Time now = clock_watch_.Look();
  const std::vector<OpenedStore> stores = OpenStores(env_, config_, cluster_config_);
  ASSIGN_OR_RETURN(const auto readable, Readable(stores));
  ASSIGN_OR_RETURN(const ReaderKeys keys, LoadReaderKeys(env_, config_));
  ASSIGN_OR_RETURN(
      const ledger::Catalog known,
      ledger::LoadCatalog(env_.clock, readable, cluster_config_.name, {.trusted = keys.trusted}));
  const StoreClocks clocks = AskClocks(env_, stores);
  if (clocks.Agree()) clock_watch_.Confirm();
  const catalog::RetentionPlan plan =
      PlanPruning(now, clocks, clock_watch_.state(), cluster_config_.retention, stores, known);
  if (!plan.stopped.empty()) {
    *news = plan.stopped;
    return RetentionRun{.stopped = plan.stopped};
  }
  const std::string asked = fmt::format("(retention of {})", cluster_config_.name);
  if (!plan.deletions.empty()) RETURN_IF_ERROR(Audit(env_, config_, asked, ""));
  const auto pruned = Prune(
      env_, config_, stores, plan, known.inventory,
      [this](const catalog::Timeline& timeline,
             const std::vector<ledger::Fact>& facts) -> absl::Status {
        ASSIGN_OR_RETURN(const auto books, BegunBooks(timeline, "retention lets objects of it go"));
        return books->depot->Note(facts);
      });
  if (!plan.deletions.empty()) {
    const std::string outcome =
        pruned.ok() ? fmt::format("deleted {} objects, {} bytes", pruned->objects, pruned->bytes)
                    : std::string(base::Message(pruned.status()));
    RETURN_IF_ERROR(Audit(env_, config_, asked, outcome));
  }
  RETURN_IF_ERROR(pruned.status());
  if (pruned->objects + pruned->leftovers > 0) {
    LOG_INFO("retention deleted what is no longer needed", {"cluster", cluster_config_.name},
             {"objects", pruned->objects}, {"bytes", pruned->bytes},
             {"leftovers", pruned->leftovers});
  }
  const std::lock_guard lock(mutex_);
  pruned_objects_ += pruned->objects;
  pruned_bytes_ += pruned->bytes;
  Refusals refusals = RefusalsOf(*pruned);
  *news = std::move(refusals.kind);
  return RetentionRun{
      .objects = pruned->objects, .bytes = pruned->bytes, .stopped = std::move(refusals.text)};
}

}  // namespace service
