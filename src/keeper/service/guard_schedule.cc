#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "catalog/schedule.h"
#include "service/guard.h"
#include "service/guard_names.h"
#include "service/housekeeper.h"
#include "service/requests.h"

namespace service {
namespace {

constexpr base::Duration kRetryEvery = std::chrono::seconds(1);
constexpr base::Duration kRetryAfterFailure = std::chrono::seconds(10);
constexpr base::Duration kHeadEvery = std::chrono::minutes(1);
constexpr base::Duration kStopPatience = std::chrono::seconds(10);
constexpr base::Duration kTick = std::chrono::milliseconds(200);

}  // namespace

void Guard::Run() {
  Requests requests(env_.files, PathOf(kRequestsName));
  requests.Clear();
  while (true) {
    const std::vector<Requests::Asked> asked = requests.Open();
    const absl::Status attached = Attach();
    if (attached.ok()) break;
    // Who asks is not left waiting; unless it waits for its own turn, and owns the state soon.
    if (lock_ != nullptr) {
      requests.Answer(asked, absl::StatusOr<BackupResult>(attached));
      requests.Answer(asked, absl::StatusOr<BundleResult>(attached));
    }
    SetError(std::string(base::Message(attached)));
    if (Pause(kRetryEvery)) return;
  }
  SetError("");
  {
    const std::lock_guard lock(mutex_);
    clock_watch_.GoOn(state_.clock);
    watches_clock_ = true;
    SaveStateLocked();
  }
  std::thread archive;
  if (cluster_config_.policy.archive()) archive = std::thread([this] { RunArchive(); });
  Housekeeper housekeeper(
      env_, config_, cluster_config_, PathOf(kContainerName),
      [this] {
        const std::shared_ptr<Books> living = books();
        return std::shared_ptr<ledger::LogWriter>(living, living->log.get());
      },
      [this](
          const catalog::Timeline& timeline) -> absl::StatusOr<std::shared_ptr<ledger::LogWriter>> {
        ASSIGN_OR_RETURN(const auto books, BegunBooks(timeline, "segments of it are rolled up"));
        return std::shared_ptr<ledger::LogWriter>(books, books->log.get());
      });
  std::thread housekeeping([&] { housekeeper.Run(); });
  // Reading the logs and deleting may take long, and no full waits for it.
  std::thread retention;
  if (cluster_config_.retention.every > base::Duration(0)) {
    retention = std::thread([this] { RunRetention(); });
  }
  RunSchedule();
  housekeeper.Stop();
  housekeeping.join();
  if (archive.joinable()) archive.join();
  if (retention.joinable()) retention.join();
  // What was seen is stored, unless a store is away or slow: those get it after the next start.
  books()->depot->WaitIdle(kStopPatience);
  // Heads that speak of everything: a keeper that was stopped in order leaves no doubt about tails.
  books()->depot->SignHeads();
}

void Guard::RunSchedule() {
  // Fulls are read, examined and sealed by this thread and those it makes: members on the same
  // machine go first. The archive keeps its priority, since what it is behind would be lost.
  if (!StepBack()) {
    LOG_WARN("fulls cannot be made to step back", {"cluster", cluster_config_.name});
  }
  Requests requests(env_.files, PathOf(kRequestsName));
  base::Duration heads_due{0};
  base::Duration full_not_before{0};
  base::Duration bundle_due{0};
  while (!Pause(kTick)) {
    const base::Duration now = env_.clock.Monotonic();
    const uint64_t steps = clock_watch_.steps();
    clock_watch_.Look();
    if (now >= heads_due || clock_watch_.steps() != steps) {
      books()->depot->SignHeads();
      heads_due = env_.clock.Monotonic() + kHeadEvery;
      const std::lock_guard lock(mutex_);
      SaveStateLocked();
    }
    const std::vector<Requests::Asked> asked = requests.Open();
    const auto wants = [&](Wanted wanted) {
      return std::any_of(asked.begin(), asked.end(),
                         [&](const Requests::Asked& one) { return one.wanted == wanted; });
    };
    const bool bundle_scheduled = !cluster_config_.bundle.paths.empty() && now >= bundle_due;
    if (bundle_scheduled || wants(Wanted::kBundle)) {
      const auto taken = TakeBundle();
      requests.Answer(asked, taken);
      LogBundle(taken);
      bundle_due = now + (taken.ok() ? cluster_config_.bundle.every : kRetryAfterFailure);
    }
    DropEmptyBooks();
    if (wants(Wanted::kFull) || (FullIsDue() && now >= full_not_before)) {
      const auto backup = Backup({});
      requests.Answer(asked, backup);
      if (backup.ok()) {
        LOG_INFO("a full was taken", {"cluster", cluster_config_.name},
                 {"revision", backup->object.last_revision},
                 {"bytes", backup->object.stored_bytes});
        SetError("");
      } else {
        SetError(fmt::format("no full can be taken: {}", base::Message(backup.status())));
        full_not_before = env_.clock.Monotonic() + kRetryAfterFailure;
      }
    }
  }
}

bool Guard::FullIsDue() {
  const std::lock_guard lock(mutex_);
  std::optional<catalog::Time> last;
  if (state_.last_full.has_value()) last = state_.last_full->first_seen.from;
  const catalog::Time wall = env_.clock.Wall();
  return full_wanted_ || catalog::NextDue(wall, last, cluster_config_.policy.full_every) <= wall;
}

void Guard::DropEmptyBooks() {
  const std::lock_guard lock(mutex_);
  std::erase_if(old_books_, [this](const auto& old) {
    const bool written =
        archiver_ != nullptr && archiver_->options().timeline == old->log->place().timeline;
    return !written && old->depot->spool_bytes() == 0;
  });
}

}  // namespace service
