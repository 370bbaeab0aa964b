// Wraps stored objects for other recipients: a new header for the same file key before the same
// sealed bytes. Whoever could open the old object still can, as long as a copy of it is anywhere:
// this lets new keys in, and revokes nothing. Blocking; one thread.
//
// Objects are write-once, so a re-wrapped one is a new object beside the old one. For each: the new
// bytes are made in a file of the scratch folder, put into every store that has the object, read
// back there; then the log says that the new object stands for the old one; then the old one is
// deleted. Killed anywhere, the next run goes on: before the log spoke, with the very bytes of the
// scratch folder; after it, with what is left to delete.
//
// Segments in roll-ups are re-wrapped in the same way, but into new roll-ups: one record says of
// all that such a one holds that it lies there from now on. An old roll-up goes once nothing lies
// in it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/random.h"
#include "catalog/inventory.h"
#include "ledger/load.h"
#include "ledger/record.h"
#include "restore/fetch.h"
#include "vault/age_keys.h"

namespace restore {

struct RewrapPlan {
  // Encrypted, not pruned, and wrapped for others than the recipients.
  std::vector<const catalog::Object*> objects;
  // Outermost roll-ups that hold such objects, and all encrypted segments in each, also those that
  // are wrapped as they should be: what stays would keep the old roll-up.
  struct RollUp {
    const catalog::Object* container = nullptr;
    std::vector<const catalog::Object*> segments;  // by revision
  };
  std::vector<RollUp> roll_ups;
  uint64_t bytes = 0;  // of both
};
RewrapPlan PlanRewrap(const catalog::Inventory& inventory,
                      const std::vector<vault::Recipient>& recipients);

struct RewrapWorld {
  base::Files& files;
  base::Clock& clock;
  base::Random& random;
  const std::vector<vault::Identity>& identities;
  const std::vector<vault::Recipient>& recipients;
  // Every store of the cluster.
  const std::vector<ledger::ReadableStore>& stores;
  // The same with the right to delete, where it could be had. Where it could not, old copies stay.
  const std::vector<ledger::ReadableStore>& emptied;
  std::string scratch_dir;  // of this cluster's own
  std::string writer;       // whose log `note` writes; new roll-ups lie beside it
  // Writes facts into this keeper's log of a timeline.
  std::function<absl::Status(const catalog::Timeline&, const std::vector<ledger::Fact>&)> note;
  std::function<void(uint64_t done, uint64_t total)> progress;  // may be empty
};

struct RewrapResult {
  uint64_t rewrapped = 0;  // objects, those in roll-ups too
  uint64_t bytes = 0;
  // Could not be opened (PermissionDenied), read or put; nothing was changed about them.
  std::vector<BadCopy> failed;
  // Old copies that could not be deleted.
  std::vector<BadCopy> left;
};

// Errors are those of the scratch folder and the log; everything before them is done.
absl::StatusOr<RewrapResult> Rewrap(const RewrapWorld& world, const catalog::Inventory& inventory,
                                    const RewrapPlan& plan);

}  // namespace restore
