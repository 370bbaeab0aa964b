#include "catalog/timetable.h"

#include <algorithm>

#include "base/time_text.h"

namespace catalog {
namespace {

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
    if (revision > 0) {
      there_.push_back({revision, time});
      not_there_.push_back({revision + 1, time});
    }
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
    if (!Given(last)) return;
    there_.push_back({object.last_revision, last.to});
    not_there_.push_back({object.last_revision + 1, last.from});
  } else if (object.kind == Kind::kSegment && object.first_revision > 0 &&
             object.first_revision <= object.last_revision) {
    newest_revision_ = std::max(newest_revision_, object.last_revision);
    if (Given(object.first_seen)) {
      there_.push_back({object.first_revision, object.first_seen.to});
      not_there_.push_back({object.first_revision, object.first_seen.from});
    }
    if (Given(last)) {
      there_.push_back({object.last_revision, last.to});
      not_there_.push_back({object.last_revision, last.from});
    }
  }
}

void Timetable::Settle() {
  const auto by_revision = [](const Fact& a, const Fact& b) {
    return a.revision != b.revision ? a.revision < b.revision : a.time < b.time;
  };
  std::sort(there_.begin(), there_.end(), by_revision);
  std::sort(not_there_.begin(), not_there_.end(), by_revision);
  for (const Fact& fact : there_) {
    newest_revision_ = std::max(newest_revision_, fact.revision);
    end_ = std::max(end_.value_or(fact.time), fact.time);
  }
  for (size_t i = there_.size(); i-- > 1;) {
    there_[i - 1].time = std::min(there_[i - 1].time, there_[i].time);
  }
  for (size_t i = 1; i < not_there_.size(); ++i) {
    not_there_[i].time = std::max(not_there_[i].time, not_there_[i - 1].time);
  }
}

Seen Timetable::Of(int64_t revision) const {
  Seen seen{.from = Time(0), .to = Time::max()};
  const auto below = [](const Fact& fact, int64_t value) { return fact.revision < value; };
  const auto there = std::lower_bound(there_.begin(), there_.end(), revision, below);
  if (there != there_.end()) seen.to = there->time;
  const auto after = std::lower_bound(not_there_.begin(), not_there_.end(), revision + 1, below);
  if (after != not_there_.begin()) seen.from = std::prev(after)->time;
  // Two keepers' clocks may disagree by more than the event took: then it is known no better than
  // that.
  if (seen.from > seen.to) std::swap(seen.from, seen.to);
  return seen;
}

int64_t Timetable::SurelyAt(Time time) const {
  const auto later = std::partition_point(there_.begin(), there_.end(),
                                          [&](const Fact& fact) { return fact.time <= time; });
  return later == there_.begin() ? 0 : std::prev(later)->revision;
}

int64_t Timetable::PossiblyAt(Time time) const {
  const auto excluded = std::partition_point(not_there_.begin(), not_there_.end(),
                                             [&](const Fact& fact) { return fact.time <= time; });
  const int64_t newest = excluded == not_there_.end() ? newest_revision_ : excluded->revision - 1;
  return std::max(SurelyAt(time), std::min(newest, newest_revision_));
}

std::optional<Time> Timetable::begin() const {
  return there_.empty() ? std::nullopt : std::optional(there_.front().time);
}

std::optional<Time> Timetable::end() const { return end_; }

}  // namespace catalog
