// Which segments are put together into containers ("roll-ups"), so that a store holds few objects:
// those of a span of time at level 1, what came of these in a longer span at level 2, and so on.
// Pure functions, thread-safe; pointers into the inventory are valid as long as it is unchanged.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
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

// What is due at `now` of the objects of `writer`, oldest first within a timeline, when `by` makes
// the containers: usable ones that are in no container yet, in spans that ended, or that a clock
// was in which has been set back since. A span of a higher level waits for what is due of the lower
// ones within it.
std::vector<RollUp> DueRollUps(Time now, const Inventory& inventory, const std::string& writer,
                               const std::string& by, const RollUpPolicy& policy);

// The writers whose objects `own` may roll up beside its own: those that signed nothing for
// `gone_after`, as far as it knows when each last did. Of the others the one with the smallest id
// does it, so that no two are at it. Where two are, because a clock is wrong or a keeper comes
// back, nothing is lost: the containers hold the same, and the log says which counts
// (ledger/record.h).
std::set<std::string> WritersToRollUpFor(Time now, const std::map<std::string, Time>& last_signed,
                                         const std::string& own, Time gone_after);

// The container of a roll-up that `writer` makes, named and described, but for the digests of its
// bytes and the stores.
Object ContainerOf(const RollUp& roll_up, const std::string& writer);

// The containers of an inventory, by their names.
class Containers {
 public:
  explicit Containers(const Inventory& inventory);
  // The outermost one that an object was put into, or is; empty: none.
  std::string OutermostOf(const Object& object) const;
  const Object* Find(std::string_view name) const;  // nullptr: there is none

 private:
  std::unordered_map<std::string_view, const Object*> by_name_;
};

// What a re-wrapped object is called: after its first name and its new bytes, beside the old one.
std::string RewrappedName(const Object& object, const std::string& stored_sha256);
bool IsRewrappedName(std::string_view name);

// What a container of `inventory` holds, in the order of the offsets.
std::vector<const Object*> PartsOf(const Inventory& inventory, const Object& container);

}  // namespace catalog
