// Retention carried out: what the rules of catalog/retention.h let go is deleted from the stores,
// by the command `prune` and by the daemon in the same way. Blocking; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "catalog/retention.h"
#include "ledger/load.h"
#include "ledger/record.h"
#include "service/clock_watch.h"
#include "service/setup.h"

namespace service {

// What may go now. Its `stopped` also tells of a store that could not be opened or read, and of
// logs that are not as they should be: who does not see everything deletes nothing. Nor does who
// does not know what time it is: whose clock is ahead of a store's, or was set ahead (`clock`) and
// is confirmed by nothing.
catalog::RetentionPlan PlanPruning(catalog::Time now, const StoreClocks& clocks,
                                   const ClockState& clock, const config::Retention& retention,
                                   const std::vector<OpenedStore>& stores,
                                   const ledger::Catalog& known);

// Writes facts into this keeper's log of a timeline.
using Noting = std::function<absl::Status(const catalog::Timeline& timeline,
                                          const std::vector<ledger::Fact>& facts)>;

struct PruneResult {
  uint64_t objects = 0;
  uint64_t bytes = 0;
  // Copies deleted that an earlier run had to leave: the log had let them go already.
  uint64_t leftovers = 0;
  // Stores that do not let their copies go, and why. What the others deleted stays deleted; these
  // are tried again by the next run.
  std::vector<std::pair<std::string, absl::Status>> refused;
};

// Carries out `plan`, made over `known.inventory`, with the credentials that each store has for it.
// The log says first what goes, so that nothing is missed that was deleted on purpose; a run that
// was interrupted between is made up for by the next one. Before that each store is asked whether
// it lets anything go: PermissionDenied, with nothing changed, when none does.
absl::StatusOr<PruneResult> Prune(Environment env, const config::Config& config,
                                  const std::vector<OpenedStore>& stores,
                                  const catalog::RetentionPlan& plan,
                                  const catalog::Inventory& inventory, const Noting& note);

}  // namespace service
