#include "catalog/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "catalog/coverage.h"
#include "catalog/timetable.h"

namespace catalog {
namespace {

bool Overlaps(const Range& range, int64_t first, int64_t last) {
  return first <= range.last && last >= range.first;
}

// Events of the pieces, those of a partly used segment in proportion.
uint64_t CountEvents(const std::vector<Piece>& pieces) {
  uint64_t events = 0;
  for (const Piece& piece : pieces) {
    const Object& segment = *piece.segment;
    const auto taken = static_cast<unsigned __int128>(piece.last - piece.first + 1);
    const auto whole =
        static_cast<unsigned __int128>(segment.last_revision - segment.first_revision + 1);
    events += static_cast<uint64_t>((segment.events * taken + whole / 2) / whole);
  }
  return events;
}

Window MakeWindow(const Range& range, const Parts& parts, const Timetable& times) {
  Window window{.first_revision = range.first, .last_revision = range.last};
  window.from = times.Of(range.first).to;
  const Seen last = times.Of(range.last);
  // The window lasts until the first revision outside of it may have come, or until now.
  window.to = range.last == times.newest_revision()
                  ? times.end().value_or(last.to)
                  : std::max(last.to, times.Of(range.last + 1).from);
  // A clock that was set back may have seen its beginning later than its end.
  window.from = std::min(window.from, window.to);
  window.events = CountEvents(Cover(parts.segments, range));
  for (const Object* full : parts.fulls) {
    if (!Overlaps(range, full->last_revision, full->last_revision)) continue;
    ++window.fulls;
    if (!full->suspect.empty()) ++window.suspect_fulls;
  }
  return window;
}

// Why revisions that nobody recorded as lost cannot be restored.
std::string ReasonOf(const Range& range, const Inventory& inventory, const Timeline& timeline) {
  std::string damaged;
  size_t damaged_count = 0;
  bool unconnected = false;
  bool pruned = false;
  for (const Object& object : inventory.objects) {
    if (object.timeline != timeline) continue;
    const bool full = object.kind == Kind::kFull;
    if (!full && object.kind != Kind::kSegment) continue;
    const int64_t first = full ? RangeOf(object).first : object.first_revision;
    if (!Overlaps(range, first, object.last_revision)) continue;
    if (object.pruned) {
      pruned = true;
    } else if (Usable(object)) {
      unconnected = true;
    } else if (damaged_count++ == 0) {
      damaged = object.name;
    }
  }
  if (damaged_count == 1) return fmt::format("`{}` is whole in no store", damaged);
  if (damaged_count > 1) {
    return fmt::format("`{}` and {} more are whole in no store", damaged, damaged_count - 1);
  }
  if (unconnected) return "its segments do not connect to a full below them";
  if (pruned) return "pruned";
  return "no full or segment covers it";
}

Gap MakeGap(const Range& range, const Inventory& inventory, const Timeline& timeline) {
  Gap gap{.first_revision = range.first, .last_revision = range.last};
  std::set<std::string> said;
  for (const Hole& hole : inventory.holes) {
    if (hole.timeline != timeline || !Overlaps(range, hole.first_revision, hole.last_revision)) {
      continue;
    }
    gap.from = gap.recorded ? std::min(gap.from, hole.from) : hole.from;
    gap.to = std::max(gap.to, hole.to);
    gap.recorded = true;
    if (said.insert(hole.why).second) gap.why += (gap.why.empty() ? "" : "; ") + hole.why;
  }
  if (gap.why.empty()) gap.why = ReasonOf(range, inventory, timeline);
  return gap;
}

// What the objects that were not pruned would restore if all were whole and connected.
std::vector<Range> Stated(const Inventory& inventory, const Timeline& timeline) {
  std::vector<Range> ranges;
  for (const Object& object : inventory.objects) {
    if (object.timeline != timeline || object.pruned || !object.Available()) continue;
    const Range range = object.kind == Kind::kFull
                            ? RangeOf(object)
                            : Range{object.first_revision, object.last_revision};
    const bool data = object.kind == Kind::kFull || object.kind == Kind::kSegment;
    if (data && range.first >= 1 && range.first <= range.last) ranges.push_back(range);
  }
  return ranges;
}

// Times that the hole itself does not tell are those of the windows beside it.
void FillTimes(const std::vector<Window>& windows, Gap* gap) {
  const auto above = std::find_if(windows.begin(), windows.end(), [&](const Window& window) {
    return window.first_revision > gap->last_revision;
  });
  if (gap->from == Time(0) && above != windows.begin()) gap->from = std::prev(above)->to;
  if (gap->to == Time(0) && above != windows.end()) gap->to = above->from;
}

}  // namespace

std::vector<Timeline> TimelinesOf(const Inventory& inventory) {
  const std::set<Timeline> listed(inventory.timelines.begin(), inventory.timelines.end());
  std::set<Timeline> unlisted;
  for (const Object& object : inventory.objects) {
    if (!listed.contains(object.timeline)) unlisted.insert(object.timeline);
  }
  std::vector<Timeline> all(unlisted.begin(), unlisted.end());
  all.insert(all.end(), inventory.timelines.begin(), inventory.timelines.end());
  return all;
}

Parts PartsOf(const Inventory& inventory, const Timeline& timeline) {
  Parts parts;
  for (const Object& object : inventory.objects) {
    if (object.timeline != timeline || !Usable(object)) continue;
    if (object.kind == Kind::kFull) parts.fulls.push_back(&object);
    if (object.kind == Kind::kSegment) parts.segments.push_back(&object);
  }
  std::stable_sort(parts.fulls.begin(), parts.fulls.end(), [](const Object* a, const Object* b) {
    return a->last_revision < b->last_revision;
  });
  std::stable_sort(
      parts.segments.begin(), parts.segments.end(),
      [](const Object* a, const Object* b) { return a->first_revision < b->first_revision; });
  return parts;
}

TimelineWindows FindWindows(const Inventory& inventory, const Timeline& timeline) {
  TimelineWindows found{.timeline = timeline};
  const Parts parts = PartsOf(inventory, timeline);
  const Timetable times(inventory, timeline);
  const std::vector<Range> ranges = Restorable(parts.fulls, Archived(parts.segments));
  for (const Range& range : ranges) found.windows.push_back(MakeWindow(range, parts, times));

  std::vector<Range> lost = Stated(inventory, timeline);
  if (!ranges.empty()) lost.push_back({ranges.front().first, ranges.back().last});
  for (const Hole& hole : inventory.holes) {
    if (hole.timeline == timeline && hole.first_revision <= hole.last_revision) {
      lost.push_back({hole.first_revision, hole.last_revision});
    }
  }
  for (const Range& range : Subtract(Merge(lost), ranges)) {
    found.holes.push_back(MakeGap(range, inventory, timeline));
    FillTimes(found.windows, &found.holes.back());
  }
  return found;
}

std::vector<TimelineWindows> FindWindows(const Inventory& inventory) {
  std::vector<TimelineWindows> all;
  for (const Timeline& timeline : TimelinesOf(inventory)) {
    all.push_back(FindWindows(inventory, timeline));
  }
  if (!all.empty()) all.back().living = true;
  return all;
}

}  // namespace catalog
