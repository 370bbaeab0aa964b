// How one point is restored. Pure functions, thread-safe; pointers into the inventory are valid as
// long as it is unchanged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "catalog/coverage.h"
#include "catalog/inventory.h"
#include "catalog/windows.h"

namespace catalog {

struct Latest {};
// The newest revision that can be restored, a revision, or a moment.
using Target = std::variant<Latest, int64_t, Time>;

struct RestorePoint {
  Timeline timeline;
  const Object* base = nullptr;
  // Above the target: the base holds more than is wanted, and rows above `revision` are left out.
  bool base_is_above = false;
  // Each revision of (base, revision] once, in order; empty where base_is_above.
  std::vector<Piece> segments;
  int64_t revision = 0;
  Seen seen;  // when `revision` came

  // For a moment T: the newest revision that may also have been there at T; between `revision` and
  // it lies the error bar. The times within a segment stand in the segment only: `refine` is the
  // one (after `segments`) that may hold further revisions surely there at T, from revision + 1 on,
  // and whoever restores may take those. Elsewhere possibly == revision, refine empty.
  int64_t possibly = 0;
  std::optional<Piece> refine;
  // For a moment that was shown twice, since a clock was set back: `revision` was there the first
  // time, and `possibly` spans both.
  bool shown_twice = false;

  // What came after and is not restored, as far as is known.
  int64_t revisions_after = 0;
  Time time_after{0};

  // The newest proof at or below `revision`, and the full that has it; nullptr: there is none.
  const Object* proven = nullptr;
  Proof proof;

  uint64_t bytes_to_fetch = 0;  // as stored; base, segments and refine
};

// The target lies where nothing can be restored.
struct InHole {
  Timeline timeline;
  int64_t revision = 0;
  Gap hole;
  struct Neighbour {
    int64_t revision = 0;
    Time time{0};
  };
  std::optional<Neighbour> below;  // the nearest restorable ones
  std::optional<Neighbour> above;
};

using Found = std::variant<RestorePoint, InHole>;

// Without a timeline: for a moment the one that was living then, else the one living now.
// NotFound: nothing can be restored at all (or there is no such timeline). OutOfRange: the target
// never was, is older than the backups or newer than what is known; the text says what there is.
absl::StatusOr<Found> Find(const Inventory& inventory, const Target& target,
                           std::optional<Timeline> timeline = std::nullopt);

// The full from which `target` is restored with the least: the nearest below from which segments
// lead to it; else the nearest above that holds it. A suspect full serves only where no other
// does; of fulls at the same revision a proven one is taken. nullptr: it cannot be restored.
const Object* ChooseBase(const Parts& parts, const std::vector<Range>& archived, int64_t target);

// The newest revision that the cluster is known to have had, on whichever timeline: a client may
// still hold it. 0: nothing is known.
int64_t NewestRevision(const Inventory& inventory);

}  // namespace catalog
