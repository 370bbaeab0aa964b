// Brings every object to every store, from a store that has it whole. Blocking; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "catalog/inventory.h"
#include "ledger/load.h"
#include "restore/fetch.h"

namespace restore {

struct HealResult {
  uint64_t copied = 0;
  uint64_t healed = 0;  // of them: replaced a damaged or missing copy
  uint64_t bytes = 0;
  std::vector<BadCopy> failed;  // no store has it whole, or the store does not take it
  // What the logs should say of it, by timeline.
  std::map<catalog::Timeline, std::vector<ledger::Fact>> facts;
};

// With `check` every copy that should be there is read back; else only its presence and length are
// looked at. `scratch_dir` holds one stored object at a time.
absl::StatusOr<HealResult> Heal(base::Files& files, base::Clock& clock,
                                const catalog::Inventory& inventory,
                                const std::vector<ledger::ReadableStore>& stores, bool check,
                                const std::string& scratch_dir);

// Whether a store has an object whole: present, of its length, and, when read back, with its
// digest.
absl::Status CheckCopy(base::Clock& clock, const ledger::ReadableStore& store,
                       const catalog::Object& object, bool read_back);

}  // namespace restore
