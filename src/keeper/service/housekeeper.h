// What the daemon does with the objects of one cluster that are stored already: merges chunks of
// its log and rolls up segments, so that a store holds few objects: its own in the history that
// lives at every pass, and more seldom those of histories that ended and of keepers that are gone.
// Works beside everything else and waits for nothing but the stores. Run() takes a thread until
// Stop(), which any may call.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/config.h"
#include "depot/rollup.h"
#include "ledger/load.h"
#include "ledger/log.h"
#include "service/setup.h"

namespace service {

class Housekeeper {
 public:
  // The log of the timeline that lives at that moment.
  using LogOf = std::function<std::shared_ptr<ledger::LogWriter>()>;
  // The own log of any timeline, which is begun where there is none.
  using OpenLog =
      std::function<absl::StatusOr<std::shared_ptr<ledger::LogWriter>>(const catalog::Timeline&)>;
  // `config` and the cluster in it outlive it. `scratch_path` is a file for its use alone.
  Housekeeper(Environment env, const config::Config& config, const config::Cluster& cluster,
              std::string scratch_path, LogOf log_of, OpenLog open_log);

  void Run();
  void Stop();

 private:
  absl::Status Pass();
  absl::Status OpenStores();
  absl::Status RollUpOthers(const ledger::Place& own);
  absl::StatusOr<ledger::Catalog> LoadAll();
  absl::Status SignOldHeads(const ledger::Place& own);
  absl::Status NoteIn(const catalog::Timeline& timeline, const std::vector<ledger::Fact>& facts);
  depot::RollUpOptions Options();
  stores::Deadline Soon() const;
  bool Pause(base::Duration time);

  const Environment env_;
  const config::Config& config_;
  const config::Cluster& cluster_;
  const std::string scratch_path_;
  const LogOf log_of_;
  const OpenLog open_log_;
  bool old_heads_signed_ = false;
  std::optional<base::Duration> others_at_;   // when others' segments were last looked at
  std::vector<depot::RollUpStore> stores_;    // once all of them were opened
  std::shared_ptr<ledger::LogWriter> log_;    // of the timeline that lived at the last pass
  std::unique_ptr<depot::RollUps> roll_ups_;  // of that log; none where nothing is rolled up
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mutex_
};

}  // namespace service
