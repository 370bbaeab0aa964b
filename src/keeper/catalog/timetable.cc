#include "catalog/timetable.h"

#include <algorithm>

#include "base/time_text.h"

namespace catalog {
namespace {

// Clocks of two keepers may differ by so much without one of them having been set.
constexpr Time kClocksApart = std::chrono::seconds(1);

bool Given(const Seen& seen) { return seen.to > Time(0); }

}  // namespace

Seen SeenOf(const Object& object) {
  return Given(object.last_seen) ? object.last_seen : object.first_seen;
}

std::string TimeText(Time time) {
  const bool whole = time % std::chrono::seconds(1) == Time(0);
  return base::Rfc3339(time, whole ? 0 : 3);
}

Timetable::Timetable(const Inventory& inventory, const Timeline& timeline) {
  for (const Object& object : inventory.objects) {
    if (object.timeline == timeline) AddObject(object);
  }
  if (const auto watched = inventory.watched.find(timeline); watched != inventory.watched.end()) {
    const auto& [revision, time] = watched->second;
    const Seen seen{.from = time, .to = time};
    if (revision > 0) looks_.push_back({revision, revision + 1, seen, revision, seen});
  }
  for (const Hole& hole : inventory.holes) {
    // A hole says that its revisions existed, whatever became of them.
    if (hole.timeline == timeline)
      newest_revision_ = std::max(newest_revision_, hole.last_revision);
  }
  Settle();
}

void Timetable::AddObject(const Object& object) {
  const Seen last = SeenOf(object);
  if (object.kind == Kind::kFull && object.last_revision > 0) {
    newest_revision_ = std::max(newest_revision_, object.last_revision);
    const int64_t own = object.last_revision;
    if (Given(last)) looks_.push_back({own, own + 1, last, own, last});
  } else if (object.kind == Kind::kSegment && object.first_revision > 0 &&
             object.first_revision <= object.last_revision) {
    newest_revision_ = std::max(newest_revision_, object.last_revision);
    const int64_t first = object.first_revision;
    const Seen began = Given(object.first_seen) ? object.first_seen : last;
    if (Given(object.first_seen)) looks_.push_back({first, first, began, first, began});
    if (Given(last)) {
      looks_.push_back({object.last_revision, object.last_revision, last, first, began});
    }
  }
}

void Timetable::Settle() {
  const auto by_revision = [](const auto& a, const auto& b) {
    return a.revision != b.revision ? a.revision < b.revision : a.time < b.time;
  };
  for (const Look& look : looks_) {
    newest_revision_ = std::max(newest_revision_, look.there);
    there_.push_back({look.there, look.seen.to});
  }
  std::sort(there_.begin(), there_.end(), by_revision);
  for (size_t i = there_.size(); i-- > 1;) {
    there_[i - 1].time = std::min(there_[i - 1].time, there_[i].time);
  }
  std::sort(looks_.begin(), looks_.end(), [](const Look& a, const Look& b) {
    return a.not_there != b.not_there ? a.not_there < b.not_there : a.seen.from < b.seen.from;
  });
  const auto below = [](const There& there, int64_t value) { return there.revision < value; };
  Time latest{0};
  std::vector<Look> set_back;
  for (const Look& look : looks_) {
    const auto there = std::lower_bound(there_.begin(), there_.end(), look.not_there, below);
    const bool differ = there != there_.end() && there->time < look.seen.from;
    if (!differ) latest = std::max(latest, look.seen.from);
    not_there_.push_back({look.not_there, latest, std::nullopt});
    if (differ) not_there_.back().by = look.seen.to;
    if (differ && look.seen.from - there->time > kClocksApart) {
      set_back.push_back(look);
    } else {
      end_ = std::max(end_.value_or(look.seen.to), look.seen.to);
    }
  }
  looks_ = std::move(set_back);
}

Seen Timetable::Of(int64_t revision) const {
  Seen seen{.from = Time(0), .to = Time::max()};
  const auto below = [](const auto& fact, int64_t value) { return fact.revision < value; };
  const auto there = std::lower_bound(there_.begin(), there_.end(), revision, below);
  if (there != there_.end()) seen.to = there->time;
  const auto after = std::lower_bound(not_there_.begin(), not_there_.end(), revision + 1, below);
  if (after == not_there_.begin()) return seen;
  const NotThere& last = *std::prev(after);
  seen.from = last.time;
  // Where it was seen by a clock that was set back since, both say when.
  if (last.by.has_value()) seen.to = std::max(seen.to, *last.by);
  return seen;
}

int64_t Timetable::SurelyAt(Time time) const {
  const auto later = std::partition_point(there_.begin(), there_.end(),
                                          [&](const There& fact) { return fact.time <= time; });
  const int64_t newest = later == there_.begin() ? 0 : std::prev(later)->revision;
  return std::min(newest, SurelyBySetBackClock(time).value_or(newest));
}

// The least that any of them says; nothing where none showed `time`.
std::optional<int64_t> Timetable::SurelyBySetBackClock(Time time) const {
  std::optional<int64_t> least;
  for (size_t i = 0; i < looks_.size();) {
    // From one look to the next such a clock went on, or it was set back once more.
    const size_t begin = i++;
    while (i < looks_.size() && looks_[i - 1].seen.from <= looks_[i].seen.from) ++i;
    if (time < looks_[begin].began.from || looks_[i - 1].seen.to <= time) continue;
    int64_t there = looks_[begin].began_there - 1;
    for (size_t look = begin; look < i; ++look) {
      if (looks_[look].began.to <= time) there = std::max(there, looks_[look].began_there);
      if (looks_[look].seen.to <= time) there = std::max(there, looks_[look].there);
    }
    least = std::min(least.value_or(there), there);
  }
  return least;
}

int64_t Timetable::PossiblyAt(Time time) const {
  const auto excluded =
      std::partition_point(not_there_.begin(), not_there_.end(),
                           [&](const NotThere& fact) { return fact.time <= time; });
  const int64_t newest = excluded == not_there_.end() ? newest_revision_ : excluded->revision - 1;
  return std::max(SurelyAt(time), std::min(newest, newest_revision_));
}

std::optional<Time> Timetable::begin() const {
  return there_.empty() ? std::nullopt : std::optional(there_.front().time);
}

std::optional<Time> Timetable::end() const { return end_; }

}  // namespace catalog
