// Puts segments that are in the stores together into containers, which replace them. What is done
// is told by the log and the stores alone, so that a keeper that is killed anywhere goes on with
// its next pass: a container without a record is overwritten or removed, one with a record is
// brought to every store and read back, and only then do its parts go.
//
// A pass uploads by itself, beside the spool: it never stands before a segment or a full. Blocking;
// one thread, one at a time for a writer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/files.h"
#include "catalog/inventory.h"
#include "catalog/rollup.h"
#include "ledger/load.h"
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

// Writes facts into a log of this keeper, and brings it to every store, whole.
using Noting = std::function<absl::Status(const std::vector<ledger::Fact>&)>;

// Does all that is due of the objects of one log, that of `of`, and writes into another, of the
// writer `by` in the same timeline: for a history that ended, or a writer that is gone. `known` is
// what all logs in all stores say. What no log states is left alone, unless `of` is `by`: it may be
// on its way. So is what a third keeper rolled up, and all in a store that does not have the log of
// `of` whole. PermissionDenied as of Pass below.
absl::Status RollUpFor(base::Files& files, base::Clock& clock,
                       const std::vector<RollUpStore>& stores, const ledger::Catalog& known,
                       const ledger::Place& of, const std::string& by, const Noting& note,
                       const RollUpOptions& options);

// The roll-ups of one log, the own writer's in one timeline. It reads the log as it grows, and
// remembers of what is done with no more than names.
class RollUps {
 public:
  // `log` outlives it, as `stores` does: all those of the cluster.
  RollUps(base::Files& files, base::Clock& clock, const std::vector<RollUpStore>& stores,
          ledger::LogWriter& log, RollUpOptions options);

  // Does all that is due. Every store must have the log, whole, as far as it goes now: what is
  // taken away is stated where it was. PermissionDenied when a store lets nothing be deleted: then
  // nothing is rolled up. After DataLoss of the log nothing is done any more.
  absl::Status Pass();

  // Lets go of what other logs say is no longer to be rolled up here: pruned, re-wrapped, or held
  // in another keeper's container. `known` is what all logs in all stores say.
  void Settle(const catalog::Inventory& known);

  // How many objects it remembers.
  size_t remembered() const { return builder_.inventory().objects.size(); }

 private:
  absl::Status ReadLog();
  void ForgetWhatIsDone();
  template <typename F>
  void Forget(F done, bool clear_away);
  bool IsDone(const catalog::Object& object, catalog::Time now) const;

  base::Files& files_;
  base::Clock& clock_;
  const std::vector<RollUpStore>& stores_;
  ledger::LogWriter& log_;
  RollUpOptions options_;
  uint64_t read_ = 0;  // the last record
  absl::Status broken_;
  ledger::InventoryBuilder builder_;
  // Segments that every store holds in a container; by the first eight bytes of their names'
  // SHA-256.
  std::unordered_set<uint64_t> done_;
};

}  // namespace depot
