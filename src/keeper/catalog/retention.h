// What may be deleted. Pure functions, thread-safe; pointers into the inventory are valid as long
// as it is unchanged.
//
// Kept are, each with its reason: (1) every revision that can be restored and was the newest at
// some moment of the recovery window, with the full and the segments it needs; (2) the newest full
// of each of the newest `hourly` hours, `daily` days, `weekly` ISO weeks and `monthly` months (UTC)
// that have any; (3) the newest `keep_proven` proven fulls, and always the newest one of all and of
// the living timeline; (4) what is pinned, with what it needs; (5) the newest restorable point; (6)
// what is not in a store yet. Within the window fulls are thinned to one every `thin_every` where
// segments that were read back, or other fulls, hold the same revisions.
//
// The window is counted back from the newest moment the logs know, not from `now`, if that is
// later, and a silence in the logs counts for a day at most, however long it lasted: neither a
// clock that jumped ahead nor a keeper that stood still for a month makes the days before it old.
// Fulls of hours, days, weeks and months that are yet to come take no other's place in (2).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "catalog/inventory.h"

namespace catalog {

struct RetentionPolicy {
  Time window{0};
  uint32_t hourly = 0;
  uint32_t daily = 0;
  uint32_t weekly = 0;
  uint32_t monthly = 0;
  uint32_t keep_proven = 0;
  Time thin_every = std::chrono::hours(1);  // 0: fulls in the window are not thinned
};

struct Kept {
  const Object* object = nullptr;
  std::string why;
};

struct Deletion {
  std::string name;                    // of the object in the stores, or of a roll-up
  std::vector<const Object*> objects;  // what goes with it: a roll-up, then all that it holds
  std::vector<std::string> names;      // what may have to be deleted in a store: `name`, and what
                                       // lies beside it as long as not every store holds it in it
  uint64_t stored_bytes = 0;
  std::string why;
};

struct RetentionPlan {
  // Not empty: nothing may be deleted now, for this reason, and `deletions` is empty.
  std::string stopped;
  std::vector<Deletion> deletions;  // in the inventory's order
  std::vector<Kept> keeps;          // everything else that is not pruned yet, in that order
};

RetentionPlan Retain(Time now, const Inventory& inventory, const RetentionPolicy& policy);

}  // namespace catalog
