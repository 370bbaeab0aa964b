// Which segments are put together into containers ("roll-ups"), so that a store holds few objects:
// those of a span of time at level 1, what came of these in a longer span at level 2, and so on.
// Pure functions, thread-safe; pointers into the inventory are valid as long as it is unchanged.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "catalog/inventory.h"

namespace catalog {

struct RollUpPolicy {
  // Of level 1, 2, ...: each a multiple of the one before. Empty: nothing is rolled up.
  std::vector<Time> spans;
  // A container closes before it has more than this; what is as large alone stays alone.
  uint64_t bytes_max = uint64_t{256} << 20;
  size_t parts_max = 20'000;
  // Names that containers had which the inventory no longer knows.
  std::set<std::string> taken;
  // How long after its end a span waits for segments that come late.
  Time settle = std::chrono::minutes(1);
};

struct RollUp {
  uint32_t level = 0;
  // Above 0: containers of this range were made before, of which some no longer hold these parts.
  uint32_t number = 0;
  std::vector<const Object*> parts;  // at least two, by revision
};

// What is due at `now` of the objects of `writer`, oldest first within a timeline: usable ones that
// are in no container yet, in spans that ended, or that a clock was in which has been set back
// since. A span of a higher level waits for what is due of the lower ones within it.
std::vector<RollUp> DueRollUps(Time now, const Inventory& inventory, const std::string& writer,
                               const RollUpPolicy& policy);

// The container of a roll-up, named and described, but for the digests of its bytes and the stores.
Object ContainerOf(const RollUp& roll_up);

// What a container of `inventory` holds, in the order of the offsets.
std::vector<const Object*> PartsOf(const Inventory& inventory, const Object& container);

}  // namespace catalog
