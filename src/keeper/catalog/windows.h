// What can be restored: per timeline the windows, and the holes between them. Pure functions,
// thread-safe.
//
// A revision is restorable when a usable full holds it (from its compact revision to its own), or
// when segments without a gap lead to it from such a full. Segments of different writers connect:
// revisions mean the same to all of them. Suspect fulls count, for they restore what a member sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "catalog/inventory.h"

namespace catalog {

// A maximal range of restorable revisions.
struct Window {
  int64_t first_revision = 0;
  int64_t last_revision = 0;
  // Each moment in [from, to] can be asked for and falls into this window.
  Time from{0};
  Time to{0};
  // Of the segments in it, each revision counted once; where two segments overlap, the events of
  // the overlap are known only in proportion.
  uint64_t events = 0;
  uint64_t fulls = 0;
  uint64_t suspect_fulls = 0;  // of `fulls`
};

// Revisions that existed and cannot be restored.
struct Gap {
  int64_t first_revision = 0;
  int64_t last_revision = 0;
  Time from{0};  // Time(0): unknown
  Time to{0};
  bool recorded = false;  // the archive itself said that it lost them
  std::string why;
};

struct TimelineWindows {
  Timeline timeline;
  bool living = false;
  std::vector<Window> windows;  // ascending, never adjacent
  // Ascending: what lies between windows, and outside of them what was recorded as lost or what
  // objects hold that are damaged or lack a full below them.
  std::vector<Gap> holes;
};

// In the order in which the timelines were first seen.
std::vector<TimelineWindows> FindWindows(const Inventory& inventory);
// One timeline's.
TimelineWindows FindWindows(const Inventory& inventory, const Timeline& timeline);

// The timelines of `inventory`, also those that only objects name (they come first).
std::vector<Timeline> TimelinesOf(const Inventory& inventory);

// The usable fulls and segments of one timeline.
struct Parts {
  std::vector<const Object*> fulls;     // by last_revision
  std::vector<const Object*> segments;  // by first_revision
};
Parts PartsOf(const Inventory& inventory, const Timeline& timeline);

}  // namespace catalog
