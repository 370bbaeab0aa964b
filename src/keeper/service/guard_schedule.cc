#include <fmt/format.h>
#include <sys/resource.h>

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
constexpr base::Duration kFullRetryEvery = std::chrono::seconds(10);
constexpr base::Duration kHeadEvery = std::chrono::minutes(1);
constexpr int kFullNiceness = 10;
constexpr base::Duration kTick = std::chrono::milliseconds(200);

}  // namespace

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

}  // namespace service
