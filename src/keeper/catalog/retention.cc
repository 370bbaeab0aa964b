#include "catalog/retention.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/check.h"
#include "catalog/calendar.h"
#include "catalog/coverage.h"
#include "catalog/plan.h"
#include "catalog/rollup.h"
#include "catalog/timetable.h"
#include "catalog/windows.h"

namespace catalog {
namespace {

// What a time without any news counts for at most, when the window is counted back.
constexpr Time kSilenceMax = std::chrono::hours(24);

Time TimeOf(const Object& object) { return SeenOf(object).to; }

// One timeline's parts and what of it must stay restorable.
struct Branch {
  Timeline timeline;
  Parts parts;
  std::vector<Range> archived;
  std::vector<Range> verified;      // by segments that were read back
  std::optional<int64_t> since;     // the window's first revision; none: no window here
  std::vector<Range> must_restore;  // what the window promises
};

class Retainer {
 public:
  Retainer(Time now, const Inventory& inventory, const RetentionPolicy& policy);
  RetentionPlan Run();

 private:
  std::string SuspectOfTheLiving() const;
  Time BeginOfWindow() const;
  void MeasureWindow(Branch* branch, bool living);
  void KeepWindow(const Branch& branch);
  void KeepLadder();
  void KeepRungs(Period period, uint32_t count);
  void KeepProven();
  void KeepPinned();
  void KeepChain(const Branch& branch, int64_t target, const std::string& why);
  void KeepUnstoredAndDamaged();
  void KeepBundlesAndDrills();
  void Thin(const Branch& branch);
  std::string ReasonToStay(const Branch& branch, const Object& full, bool newest_of_period,
                           const std::set<const Object*>& kept) const;
  void KeepSharedRollUps();
  void TakeInto(const Object& object, Deletion* deletion) const;
  void CheckPromise(const Branch& branch) const;
  std::string ReasonToGo(const Object& object) const;
  RetentionPlan Result() const;

  void Keep(const Object* object, std::string_view why);
  bool IsKept(const Object* object) const { return why_.contains(object); }
  std::vector<const Object*> UsableFulls() const;

  const Inventory& inventory_;
  const RetentionPolicy& policy_;
  Time newest_{0};                                      // the end of the window
  Time oldest_{0};                                      // and its begin
  std::vector<Branch> branches_;                        // in order; the last is the living one
  std::unordered_map<const Object*, std::string> why_;  // what is kept
  std::set<const Object*> thinned_;
  const Containers containers_;
};

Retainer::Retainer(Time now, const Inventory& inventory, const RetentionPolicy& policy)
    : inventory_(inventory), policy_(policy), containers_(inventory) {
  std::optional<Time> known;
  std::vector<Timeline> timelines = TimelinesOf(inventory);
  for (const Timeline& timeline : timelines) {
    Branch branch{.timeline = timeline, .parts = PartsOf(inventory, timeline)};
    branch.archived = Archived(branch.parts.segments);
    std::vector<const Object*> reread;
    for (const Object* segment : branch.parts.segments) {
      if (segment->reread) reread.push_back(segment);
    }
    branch.verified = Archived(reread);
    if (const auto end = Timetable(inventory, timeline).end()) {
      known = std::max(known.value_or(*end), *end);
    }
    branches_.push_back(std::move(branch));
  }
  newest_ = std::min(now, known.value_or(now));
  oldest_ = BeginOfWindow();
  for (Branch& branch : branches_) MeasureWindow(&branch, &branch == &branches_.back());
}

Time Retainer::BeginOfWindow() const {
  std::vector<Time> moments;
  const auto note = [&](Time time) {
    if (time > Time(0) && time < newest_) moments.push_back(time);
  };
  for (const Object& object : inventory_.objects) note(TimeOf(object));
  for (const auto& [timeline, watched] : inventory_.watched) note(watched.second);
  std::sort(moments.begin(), moments.end(), std::greater<>());
  Time left = policy_.window;
  Time at = newest_;
  for (const Time moment : moments) {
    const Time counted = std::min(at - moment, kSilenceMax);
    if (counted >= left) break;
    left -= counted;
    at = moment;
  }
  return at - left;
}

void Retainer::MeasureWindow(Branch* branch, bool living) {
  const Timetable times(inventory_, branch->timeline);
  const bool reaches_in =
      policy_.window > Time(0) && times.end().has_value() && *times.end() >= oldest_;
  if (!living && !reaches_in) return;
  const std::vector<Range> all = Restorable(branch->parts.fulls, branch->archived);
  int64_t since = std::max<int64_t>(1, times.SurelyAt(oldest_));
  // However little of it can be restored, the newest point of the living timeline stays.
  if (living && !all.empty()) since = std::min(since, all.back().last);
  branch->since = since;
  branch->must_restore = From(all, since);
}

std::vector<const Object*> Retainer::UsableFulls() const {
  std::vector<const Object*> fulls;
  for (const Branch& branch : branches_) {
    fulls.insert(fulls.end(), branch.parts.fulls.begin(), branch.parts.fulls.end());
  }
  return fulls;
}

void Retainer::Keep(const Object* object, std::string_view why) {
  std::string& text = why_[object];
  // A segment of a window has one reason, told once, however many rules meet it.
  if (text.find(why) == std::string::npos) text += (text.empty() ? "" : "; ") + std::string(why);
}

std::string Retainer::SuspectOfTheLiving() const {
  if (branches_.empty()) return "";
  for (const Object& object : inventory_.objects) {
    if (object.kind == Kind::kFull && !object.pruned && !object.suspect.empty() &&
        object.timeline == branches_.back().timeline) {
      return fmt::format("`{}` is suspect: {}", object.name, object.suspect);
    }
  }
  return "";
}

// (1) and (5), but for the fulls within the window, which Thin() decides about.
void Retainer::KeepWindow(const Branch& branch) {
  if (!branch.since) return;
  const int64_t since = *branch.since;
  int64_t above = since - 1;
  const Object* base = ChooseBase(branch.parts, branch.archived, since);
  if (base != nullptr) {
    Keep(base, "the recovery window begins with it");
    if (base->last_revision <= since) above = base->last_revision;
  }
  for (const Object* segment : branch.parts.segments) {
    if (segment->last_revision <= above) continue;
    Keep(segment, segment->last_revision < since ? "leads to the recovery window"
                                                 : "in the recovery window");
  }
}

void Retainer::KeepRungs(Period period, uint32_t count) {
  std::vector<const Object*> fulls = UsableFulls();
  // A suspect full stands for a period only where nothing else does.
  std::stable_sort(fulls.begin(), fulls.end(), [](const Object* a, const Object* b) {
    if (a->suspect.empty() != b->suspect.empty()) return a->suspect.empty();
    if (TimeOf(*a) != TimeOf(*b)) return TimeOf(*a) > TimeOf(*b);
    if (a->last_revision != b->last_revision) return a->last_revision > b->last_revision;
    return a->Proven() && !b->Proven();
  });
  std::set<int64_t, std::greater<>> periods;
  for (const Object* full : fulls) periods.insert(PeriodOf(period, TimeOf(*full)));
  // Periods that are yet to come, by a clock that was ahead, take nobody's place.
  const auto ahead = static_cast<size_t>(
      std::distance(periods.begin(), periods.lower_bound(PeriodOf(period, newest_))));
  while (periods.size() > ahead + count) periods.erase(std::prev(periods.end()));
  // Histories that a period saw side by side are different points.
  std::set<std::pair<int64_t, Timeline>> taken;
  for (const Object* full : fulls) {
    const int64_t number = PeriodOf(period, TimeOf(*full));
    if (!periods.contains(number) || !taken.emplace(number, full->timeline).second) continue;
    Keep(full, "newest of " + PeriodText(period, TimeOf(*full)));
  }
}

void Retainer::KeepLadder() {
  KeepRungs(Period::kHour, policy_.hourly);
  KeepRungs(Period::kDay, policy_.daily);
  KeepRungs(Period::kWeek, policy_.weekly);
  KeepRungs(Period::kMonth, policy_.monthly);
}

void Retainer::KeepProven() {
  std::vector<const Object*> proven;
  for (const Object* full : UsableFulls()) {
    if (full->Proven()) proven.push_back(full);
  }
  // Later timelines first, whatever a clock said.
  std::map<Timeline, size_t> order;
  for (size_t i = 0; i < branches_.size(); ++i) order[branches_[i].timeline] = i;
  std::stable_sort(proven.begin(), proven.end(), [&](const Object* a, const Object* b) {
    if (a->timeline != b->timeline) return order[a->timeline] > order[b->timeline];
    return a->last_revision > b->last_revision;
  });
  const size_t count = std::max<size_t>(1, policy_.keep_proven);
  for (size_t i = 0; i < std::min(count, proven.size()); ++i) {
    Keep(proven[i], i == 0 ? std::string("the newest proven full")
                           : fmt::format("one of the newest {} proven fulls", count));
  }
}

void Retainer::KeepChain(const Branch& branch, int64_t target, const std::string& why) {
  const Object* base = ChooseBase(branch.parts, branch.archived, target);
  if (base == nullptr) return;
  Keep(base, why);
  if (base->last_revision >= target) return;
  const Range range{.first = base->last_revision + 1, .last = target};
  for (const Piece& piece : Cover(branch.parts.segments, range)) Keep(piece.segment, why);
}

void Retainer::KeepPinned() {
  for (const Object& object : inventory_.objects) {
    if (!object.pinned || object.pruned) continue;
    Keep(&object, "pinned");
    if (object.kind != Kind::kSegment) continue;
    for (const Branch& branch : branches_) {
      if (branch.timeline != object.timeline) continue;
      KeepChain(branch, object.last_revision, fmt::format("needed by pinned `{}`", object.name));
    }
  }
}

void Retainer::KeepUnstoredAndDamaged() {
  for (const Object& object : inventory_.objects) {
    if (object.pruned || Usable(object)) continue;
    if (object.stores.empty() && object.damaged.empty()) {
      Keep(&object, "not in a store yet");
    } else if (TimeOf(object) >= oldest_) {
      Keep(&object, "damaged everywhere, and may still be healed");
    }
  }
}

// A bundle goes with the points that it belongs to: the newest one taken before each kept full.
void Retainer::KeepBundlesAndDrills() {
  std::vector<const Object*> bundles;
  const Object* newest_drill = nullptr;
  Time oldest_point = newest_;
  std::set<Time> points;
  for (const auto& [object, why] : why_) {
    if (object->kind == Kind::kFull) points.insert(TimeOf(*object));
  }
  if (!points.empty()) oldest_point = std::min(oldest_point, *points.begin());
  for (const Object& object : inventory_.objects) {
    if (object.pruned || !Usable(object)) continue;
    if (object.kind == Kind::kBundle) bundles.push_back(&object);
    if (object.kind != Kind::kDrill) continue;
    if (newest_drill == nullptr || TimeOf(object) > TimeOf(*newest_drill)) newest_drill = &object;
    if (TimeOf(object) >= oldest_point) Keep(&object, "no older than the oldest point");
  }
  if (newest_drill != nullptr) Keep(newest_drill, "the newest drill");
  std::stable_sort(bundles.begin(), bundles.end(),
                   [](const Object* a, const Object* b) { return TimeOf(*a) < TimeOf(*b); });
  for (size_t i = 0; i < bundles.size(); ++i) {
    const Time from = TimeOf(*bundles[i]);
    const bool newest = i + 1 == bundles.size();
    const Time to = newest ? Time::max() : TimeOf(*bundles[i + 1]);
    const auto served = points.lower_bound(from);
    if (newest) Keep(bundles[i], "the newest bundle");
    if (to > oldest_) Keep(bundles[i], "in force during the recovery window");
    if (served != points.end() && *served < to) Keep(bundles[i], "belongs to a point that is kept");
  }
}

// Why a full within the window stays; empty: it is not needed.
std::string Retainer::ReasonToStay(const Branch& branch, const Object& full, bool newest_of_period,
                                   const std::set<const Object*>& kept) const {
  if (policy_.thin_every == Time(0)) return "in the recovery window";
  if (TimeOf(full) > newest_ - policy_.thin_every)
    return "one of the newest in the recovery window";
  if (newest_of_period) return "keeps the recovery window quick to restore";
  std::vector<const Object*> others;
  for (const Object* other : kept) {
    if (other != &full) others.push_back(other);
  }
  if (!Subtract(branch.must_restore, Restorable(others, branch.archived)).empty()) {
    return "connects others in the recovery window";
  }
  const Range own = RangeOf(full);
  const Range inside{.first = std::max(own.first, *branch.since), .last = own.last};
  if (!Covers(Restorable(others, branch.verified), inside)) {
    return "until the segments that hold the same are verified";
  }
  return "";
}

void Retainer::Thin(const Branch& branch) {
  if (!branch.since) return;
  std::set<const Object*> kept;
  std::map<int64_t, const Object*> newest;  // of each period
  const auto period_of = [&](const Object& full) {
    return policy_.thin_every == Time(0) ? 0 : TimeOf(full) / policy_.thin_every;
  };
  for (const Object* full : branch.parts.fulls) {
    if (full->last_revision >= *branch.since) newest[period_of(*full)] = full;
    if (full->last_revision >= *branch.since || IsKept(full)) kept.insert(full);
  }
  for (const Object* full : branch.parts.fulls) {
    if (full->last_revision < *branch.since) continue;
    const std::string why = ReasonToStay(branch, *full, newest[period_of(*full)] == full, kept);
    if (!why.empty()) {
      Keep(full, why);
    } else if (!IsKept(full)) {
      kept.erase(full);
      thinned_.insert(full);
    }
  }
}

// A roll-up is one object in the stores: it stays as a whole or goes as a whole. Where two keepers
// rolled up the same segments, a store may have them in another one than they are said to be in.
void Retainer::KeepSharedRollUps() {
  std::set<std::string> needed;
  const auto need = [&](const Object& object) {
    if (std::string roll_up = containers_.OutermostOf(object); !roll_up.empty()) {
      needed.insert(std::move(roll_up));
    }
    for (const auto& [store, extent] : object.held) needed.insert(extent.name);
  };
  for (const auto& [object, why] : why_) need(*object);
  for (size_t before = 0; before < needed.size();) {
    before = needed.size();
    for (const Object& object : inventory_.objects) {
      if (object.pruned || IsKept(&object)) continue;
      if (!needed.contains(containers_.OutermostOf(object))) continue;
      Keep(&object, object.kind == Kind::kRollUp ? "holds segments that are kept"
                                                 : "in a roll-up with others that are kept");
      need(object);
    }
  }
}

// Computed anew from what is kept: a mistake above must not cost a backup.
void Retainer::CheckPromise(const Branch& branch) const {
  std::vector<const Object*> fulls;
  std::vector<const Object*> segments;
  for (const Object* full : branch.parts.fulls) {
    if (IsKept(full)) fulls.push_back(full);
  }
  for (const Object* segment : branch.parts.segments) {
    if (IsKept(segment)) segments.push_back(segment);
  }
  CHECK(Subtract(branch.must_restore, Restorable(fulls, Archived(segments))).empty());
}

std::string Retainer::ReasonToGo(const Object& object) const {
  if (!Usable(object)) return "damaged everywhere, and older than the recovery window";
  switch (object.kind) {
    case Kind::kFull:
      return thinned_.contains(&object) ? "thinned: verified segments or other fulls hold the same"
                                        : "older than the recovery window, and no rung needs it";
    case Kind::kSegment:
      return "older than the recovery window";
    case Kind::kRollUp:
      return "holds nothing that is needed";
    case Kind::kBundle:
      return "belongs to no point that is kept";
    case Kind::kDrill:
      return "older than every point";
  }
  return "not needed";
}

// Takes one more object into the deletion of what it is, or lies in.
void Retainer::TakeInto(const Object& object, Deletion* deletion) const {
  const bool outermost = object.name == deletion->name;
  const bool held_everywhere =
      std::all_of(object.stores.begin(), object.stores.end(),
                  [&](const std::string& store) { return object.held.contains(store); });
  if (!outermost && !held_everywhere) deletion->names.push_back(object.name);
  if (object.kind != Kind::kRollUp) deletion->stored_bytes += object.stored_bytes;
  deletion->objects.insert(outermost ? deletion->objects.begin() : deletion->objects.end(),
                           &object);
}

RetentionPlan Retainer::Result() const {
  RetentionPlan plan;
  std::unordered_map<std::string, size_t> roll_ups;  // where in plan.deletions
  for (const Object& object : inventory_.objects) {
    if (object.pruned) continue;
    if (const auto kept = why_.find(&object); kept != why_.end()) {
      plan.keeps.push_back({.object = &object, .why = kept->second});
      continue;
    }
    const std::string roll_up = containers_.OutermostOf(object);
    const auto [at, fresh] = roll_up.empty() ? std::pair(roll_ups.end(), true)
                                             : roll_ups.emplace(roll_up, plan.deletions.size());
    if (fresh) {
      const std::string name = roll_up.empty() ? object.name : roll_up;
      plan.deletions.push_back({.name = name, .names = {name}, .why = ReasonToGo(object)});
    }
    TakeInto(object, fresh ? &plan.deletions.back() : &plan.deletions[at->second]);
  }
  return plan;
}

RetentionPlan Retainer::Run() {
  if (std::string suspect = SuspectOfTheLiving(); !suspect.empty()) {
    RetentionPlan plan{.stopped = std::move(suspect)};
    for (const Object& object : inventory_.objects) {
      if (!object.pruned) plan.keeps.push_back({.object = &object, .why = "retention is stopped"});
    }
    return plan;
  }
  for (const Branch& branch : branches_) KeepWindow(branch);
  KeepLadder();
  KeepProven();
  KeepPinned();
  for (const Branch& branch : branches_) Thin(branch);
  KeepUnstoredAndDamaged();
  KeepBundlesAndDrills();
  KeepSharedRollUps();
  for (const Branch& branch : branches_) CheckPromise(branch);
  return Result();
}

}  // namespace

RetentionPlan Retain(Time now, const Inventory& inventory, const RetentionPolicy& policy) {
  return Retainer(now, inventory, policy).Run();
}

}  // namespace catalog
