// What the daemon does with the objects of one cluster that are stored already: merges chunks of
// its log and rolls up segments, so that a store holds few objects. Works beside everything else
// and waits for nothing but the stores. Run() takes a thread until Stop(), which any may call.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "config/config.h"
#include "depot/rollup.h"
#include "ledger/log.h"
#include "service/setup.h"

namespace service {

class Housekeeper {
 public:
  // The log of the timeline that lives at that moment.
  using LogOf = std::function<std::shared_ptr<ledger::LogWriter>()>;
  // `config` and the cluster in it outlive it. `scratch_path` is a file for its use alone.
  Housekeeper(Environment env, const config::Config& config, const config::Cluster& cluster,
              std::string scratch_path, LogOf log_of);

  void Run();
  void Stop();

 private:
  absl::Status Pass();
  absl::Status OpenStores();
  bool Pause(base::Duration time);

  const Environment env_;
  const config::Config& config_;
  const config::Cluster& cluster_;
  const std::string scratch_path_;
  const LogOf log_of_;
  std::vector<depot::RollUpStore> stores_;    // once all of them were opened
  std::shared_ptr<ledger::LogWriter> log_;    // of the timeline that lived at the last pass
  std::unique_ptr<depot::RollUps> roll_ups_;  // of that log; none where nothing is rolled up
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mutex_
};

}  // namespace service
