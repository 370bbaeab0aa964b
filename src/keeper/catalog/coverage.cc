#include "catalog/coverage.h"

#include <algorithm>

namespace catalog {
namespace {

// The range of `merged` that could hold `revision`: the last that begins at or below it.
const Range* Candidate(const std::vector<Range>& merged, int64_t revision) {
  const auto above =
      std::upper_bound(merged.begin(), merged.end(), revision,
                       [](int64_t value, const Range& range) { return value < range.first; });
  return above == merged.begin() ? nullptr : &*std::prev(above);
}

}  // namespace

bool Usable(const Object& object) {
  if (!object.Available()) return false;
  const bool whole =
      std::any_of(object.stores.begin(), object.stores.end(),
                  [&](const auto& store) { return !object.damaged.contains(store); });
  if (!whole) return false;
  switch (object.kind) {
    case Kind::kFull:
      return object.last_revision >= 1 && object.compact_revision <= object.last_revision;
    case Kind::kSegment:
      return object.first_revision >= 1 && object.first_revision <= object.last_revision;
    case Kind::kBundle:
    case Kind::kDrill:
    case Kind::kRollUp:
      return true;
  }
  return false;
}

Range RangeOf(const Object& full) {
  return {.first = std::max<int64_t>(1, full.compact_revision), .last = full.last_revision};
}

std::vector<Range> Merge(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  std::vector<Range> merged;
  for (const Range& range : ranges) {
    if (!merged.empty() && range.first - 1 <= merged.back().last) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

bool Contains(const std::vector<Range>& merged, int64_t revision) {
  const Range* range = Candidate(merged, revision);
  return range != nullptr && revision <= range->last;
}

bool Covers(const std::vector<Range>& merged, const Range& range) {
  const Range* candidate = Candidate(merged, range.first);
  return candidate != nullptr && range.last <= candidate->last;
}

std::vector<Range> Subtract(const std::vector<Range>& from, const std::vector<Range>& what) {
  std::vector<Range> left;
  auto cut = what.begin();
  for (const Range& range : from) {
    int64_t next = range.first;
    while (cut != what.end() && cut->last < range.first) ++cut;
    for (auto it = cut; it != what.end() && it->first <= range.last; ++it) {
      if (it->first > next) left.push_back({.first = next, .last = it->first - 1});
      next = std::max(next, it->last + 1);
    }
    if (next <= range.last) left.push_back({.first = next, .last = range.last});
  }
  return left;
}

std::vector<Range> From(const std::vector<Range>& merged, int64_t revision) {
  std::vector<Range> out;
  for (const Range& range : merged) {
    if (range.last >= revision) {
      out.push_back({.first = std::max(range.first, revision), .last = range.last});
    }
  }
  return out;
}

std::vector<Range> Archived(std::span<const Object* const> segments) {
  std::vector<Range> ranges;
  ranges.reserve(segments.size());
  for (const Object* segment : segments) {
    ranges.push_back({.first = segment->first_revision, .last = segment->last_revision});
  }
  return Merge(std::move(ranges));
}

std::vector<Range> Restorable(std::span<const Object* const> fulls,
                              const std::vector<Range>& archived) {
  std::vector<Range> ranges;
  ranges.reserve(fulls.size());
  for (const Object* full : fulls) {
    Range range = RangeOf(*full);
    // A chain goes on from r where a segment holds r + 1, even if it begins below.
    const Range* chain = Candidate(archived, range.last + 1);
    if (chain != nullptr) range.last = std::max(range.last, chain->last);
    ranges.push_back(range);
  }
  return Merge(std::move(ranges));
}

std::vector<Piece> Cover(std::span<const Object* const> segments, const Range& range) {
  std::vector<Piece> pieces;
  int64_t next = range.first;
  size_t i = 0;
  while (next <= range.last) {
    const Object* best = nullptr;
    for (; i < segments.size() && segments[i]->first_revision <= next; ++i) {
      if (best == nullptr || segments[i]->last_revision > best->last_revision) best = segments[i];
    }
    // What an earlier round passed over ends below `next`: it is not looked at again.
    if (best != nullptr && best->last_revision >= next) {
      const int64_t last = std::min(best->last_revision, range.last);
      pieces.push_back({.segment = best, .first = next, .last = last});
      next = last + 1;
      continue;
    }
    if (i == segments.size()) break;
    next = segments[i]->first_revision;
  }
  return pieces;
}

}  // namespace catalog
