// Puts segments that are in the stores together into containers, which replace them. What is done
// is told by the log and the stores alone, so that a keeper that is killed anywhere goes on with
// the next pass: a container without a record is overwritten or removed, one with a record is
// brought to every store and read back, and only then do its parts go.
//
// A pass uploads by itself, beside the spool: it never stands before a segment or a full. Blocking;
// one thread, one at a time for a writer.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/files.h"
#include "catalog/inventory.h"
#include "catalog/rollup.h"
#include "ledger/log.h"
#include "stores/store.h"

namespace depot {

struct RollUpStore {
  std::string name;  // of the configuration
  std::shared_ptr<stores::Store> store;
  std::shared_ptr<stores::Store> pruning;  // the same, with the right to delete
};

struct RollUpOptions {
  catalog::RollUpPolicy policy;
  base::Duration parts_stay{0};  // after their container was read back
  std::string scratch_path;      // a file that holds one container at a time
  const std::atomic<bool>* cancelled = nullptr;
  // Called after each container with the time it took; true ends the pass.
  std::function<bool(base::Duration took)> pause;
};

// Does all that is due in the timeline of `log`, the own writer's. `inventory` is what all stores
// and logs say now, without a finding: it must not be older than the log. PermissionDenied when a
// store lets nothing be deleted: then nothing is rolled up.
absl::Status RollUp(base::Files& files, base::Clock& clock, const catalog::Inventory& inventory,
                    const std::vector<RollUpStore>& stores, ledger::LogWriter& log,
                    const RollUpOptions& options);

}  // namespace depot
