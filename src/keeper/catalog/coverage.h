// Arithmetic of revision ranges: what fulls and segments cover together. Pure functions,
// thread-safe; pointers into an inventory are valid as long as it is unchanged.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "catalog/inventory.h"

namespace catalog {

struct Range {
  int64_t first = 0;
  int64_t last = 0;  // inclusive; never below `first`
  friend bool operator==(const Range&, const Range&) = default;
};

// Whether an object can serve a restore: some store has it whole and undamaged, and its range makes
// sense.
bool Usable(const Object& object);
// The revisions that a full restores by itself.
Range RangeOf(const Object& full);

// Sorted, disjoint, and with at least one revision between neighbours.
std::vector<Range> Merge(std::vector<Range> ranges);
bool Contains(const std::vector<Range>& merged, int64_t revision);
// Whether every revision of `range` lies in `merged`.
bool Covers(const std::vector<Range>& merged, const Range& range);
// What of `from` is not in `what`; both merged.
std::vector<Range> Subtract(const std::vector<Range>& from, const std::vector<Range>& what);
// `merged` without what lies below `revision`.
std::vector<Range> From(const std::vector<Range>& merged, int64_t revision);

// What segments cover, whether or not a full lies below.
std::vector<Range> Archived(std::span<const Object* const> segments);
// What can be restored: each full's own range, and from its revision on as far as `archived`
// reaches without a gap.
std::vector<Range> Restorable(std::span<const Object* const> fulls,
                              const std::vector<Range>& archived);

// The part of a segment that a restore takes.
struct Piece {
  const Object* segment = nullptr;
  int64_t first = 0;
  int64_t last = 0;
};
// The fewest segments that cover `range`, each revision once, in order; revisions that none covers
// are left out. `segments` are sorted by first_revision.
std::vector<Piece> Cover(std::span<const Object* const> segments, const Range& range);

}  // namespace catalog
