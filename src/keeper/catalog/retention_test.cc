#include "catalog/retention.h"

#include <map>

#include "base/testing.h"
#include "catalog/calendar.h"
#include "catalog/plan.h"
#include "catalog/test_inventory.h"
#include "catalog/timetable.h"

namespace catalog {
namespace {

using std::chrono::hours;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr int64_t kHour = 3600;
constexpr int64_t kDay = 24 * kHour;
// 2026-08-10T00:00:00Z, a Monday.
constexpr int64_t kMonday = 1'786'320'000;

std::vector<std::string> Deleted(const RetentionPlan& plan) {
  std::vector<std::string> names;
  for (const Deletion& deletion : plan.deletions) names.push_back(deletion.name);
  return names;
}

std::string WhyKept(const RetentionPlan& plan, const std::string& name) {
  for (const Kept& kept : plan.keeps) {
    if (kept.object->name == name) return kept.why;
  }
  return "not kept";
}

Object Named(Object object, const std::string& name) {
  object.name = name;
  return object;
}

TEST(Retention, KeepsTheNewestOfEachBucketInUtc) {
  Inventory inventory = Of({});
  // Two fulls an hour for three days; revision = half hours since Monday.
  for (int64_t i = 1; i <= 144; ++i) {
    inventory.objects.push_back(Named(Full(i, i, kMonday + i * kHour / 2 - 1), std::to_string(i)));
  }
  const RetentionPlan plan = Retain(At(kMonday + 3 * kDay), inventory, {.hourly = 3, .daily = 2});
  EXPECT_EQ(plan.stopped, "");
  ASSERT_EQ(plan.keeps.size(), 4u);
  EXPECT_THAT(WhyKept(plan, "144"), HasSubstr("newest of the hour 2026-08-12T23Z"));
  EXPECT_THAT(WhyKept(plan, "144"), HasSubstr("newest of the day 2026-08-12"));
  EXPECT_EQ(WhyKept(plan, "142"), "newest of the hour 2026-08-12T22Z");
  EXPECT_EQ(WhyKept(plan, "96"), "newest of the day 2026-08-11");
  EXPECT_EQ(plan.deletions.size(), 140u);
  EXPECT_EQ(plan.deletions[0].why, "older than the recovery window, and no rung needs it");
  EXPECT_EQ(plan.deletions[0].stored_bytes, 1000u);
}

TEST(Retention, WeeksBeginOnMondayAndMonthsOnTheFirst) {
  EXPECT_EQ(PeriodText(Period::kWeek, At(kMonday)), "the week of 2026-08-10");
  EXPECT_EQ(PeriodText(Period::kWeek, At(kMonday - 1)), "the week of 2026-08-03");
  EXPECT_EQ(PeriodOf(Period::kWeek, At(kMonday)),
            PeriodOf(Period::kWeek, At(kMonday + 7 * kDay - 1)));
  EXPECT_NE(PeriodOf(Period::kWeek, At(kMonday)), PeriodOf(Period::kWeek, At(kMonday - 1)));
  EXPECT_EQ(PeriodText(Period::kMonth, At(kMonday)), "the month 2026-08");
  EXPECT_NE(PeriodOf(Period::kMonth, At(kMonday)),
            PeriodOf(Period::kMonth, At(kMonday - 10 * kDay)));
  EXPECT_EQ(PeriodOf(Period::kHour, At(-1)), -1);
  EXPECT_LT(PeriodOf(Period::kMonth, At(kMonday - 230 * kDay)),
            PeriodOf(Period::kMonth, At(kMonday)));
}

TEST(Retention, CountsBucketsThatHoldFullsNotThoseThatPassed) {
  Inventory inventory =
      Of({Full(1, 1, kMonday), Full(2, 2, kMonday + 10 * kDay), Full(3, 3, kMonday + 400 * kDay)});
  EXPECT_THAT(Retain(At(kMonday + 500 * kDay), inventory, {.daily = 3}).deletions, IsEmpty());
  EXPECT_THAT(Deleted(Retain(At(kMonday + 500 * kDay), inventory, {.daily = 2})),
              ElementsAre(inventory.objects[0].name));
}

TEST(Retention, KeepsWhatTheWindowNeeds) {
  // The window begins at 300 s, within the second segment: its base is the full at revision 20.
  const Inventory inventory =
      Of({Named(Full(1, 10, 100), "old"), Named(Segment(11, 20, 110, 200), "before"),
          Named(Full(20, 20, 200), "base"), Named(Segment(21, 25, 210, 250), "leads"),
          Named(Segment(26, 35, 260, 350), "across"), Named(Segment(36, 50, 360, 500), "in")});
  const RetentionPlan plan = Retain(At(500), inventory, {.window = At(200)});
  EXPECT_THAT(Deleted(plan), UnorderedElementsAre("old", "before"));
  EXPECT_EQ(WhyKept(plan, "base"), "the recovery window begins with it");
  // Within a segment only its ends have times: 26 is the newest that was surely there at 300 s.
  EXPECT_EQ(WhyKept(plan, "leads"), "leads to the recovery window");
  EXPECT_EQ(WhyKept(plan, "in"), "in the recovery window");
}

Inventory Thinnable() {
  Inventory inventory = Of({});
  // A full every ten minutes and a verified segment between each, for four hours.
  for (int64_t i = 0; i < 24; ++i) {
    const int64_t at = kMonday + i * 600;
    inventory.objects.push_back(Full(i * 10, 1 + i * 10, at));
    Object segment = Segment(2 + i * 10, 11 + i * 10, at + 10, at + 600);
    segment.reread = At(at + 700);
    inventory.objects.push_back(segment);
  }
  return inventory;
}

TEST(Retention, ThinsFullsInTheWindowToHourly) {
  Inventory inventory = Thinnable();
  const RetentionPlan plan = Retain(At(kMonday + 4 * kHour), inventory, {.window = hours(24)});
  size_t fulls = 0;
  for (const Kept& kept : plan.keeps) fulls += kept.object->kind == Kind::kFull ? 1 : 0;
  // The first one, the newest of each of three hours, and those of the last hour.
  EXPECT_EQ(fulls, 1u + 3u + 5u);
  EXPECT_EQ(plan.keeps.size() - fulls, 24u);
  for (const Deletion& deletion : plan.deletions) EXPECT_THAT(deletion.why, HasSubstr("thinned"));
}

TEST(Retention, DoesNotThinBeforeTheSegmentsAreVerified) {
  Inventory inventory = Thinnable();
  for (Object& object : inventory.objects) object.reread.reset();
  const RetentionPlan plan = Retain(At(kMonday + 4 * kHour), inventory, {.window = hours(24)});
  EXPECT_THAT(plan.deletions, IsEmpty());
  EXPECT_THAT(WhyKept(plan, inventory.objects[2].name), HasSubstr("until the segments"));
}

TEST(Retention, DoesNotThinAFullThatConnectsOthers) {
  Inventory inventory = Thinnable();
  // The segment before the third full is gone for good: only that full bridges the hole.
  inventory.objects[3].pruned = true;
  const RetentionPlan plan = Retain(At(kMonday + 4 * kHour), inventory, {.window = hours(24)});
  EXPECT_EQ(WhyKept(plan, inventory.objects[4].name), "connects others in the recovery window");
}

TEST(Retention, NeverDeletesTheLastProvenFull) {
  const Inventory inventory =
      Of({Named(Proven(Full(1, 10, 100)), "older"), Named(Proven(Full(1, 11, 200)), "proven"),
          Full(12, 12, 300), Full(13, 13, 400)});
  EXPECT_THAT(Deleted(Retain(At(500), inventory, {.hourly = 1})),
              UnorderedElementsAre("older", inventory.objects[2].name));
  EXPECT_THAT(Deleted(Retain(At(500), inventory, {.hourly = 1, .keep_proven = 2})),
              UnorderedElementsAre(inventory.objects[2].name));
}

TEST(Retention, ASuspectFullOfTheLivingTimelineStopsEverything) {
  Inventory inventory = Of({Full(1, 10, 100), Full(11, 11, 200)});
  inventory.objects[1].suspect = "all keys are gone";
  RetentionPlan plan = Retain(At(900'000), inventory, {.hourly = 1});
  EXPECT_THAT(plan.stopped, HasSubstr("is suspect: all keys are gone"));
  EXPECT_THAT(plan.deletions, IsEmpty());
  EXPECT_EQ(plan.keeps.size(), 2u);
  // On a timeline that ended it stops nothing, and does not stand for its hour.
  inventory.timelines.push_back(kSecond);
  inventory.objects.push_back(Full(1, 5, 9000));
  inventory.objects.back().timeline = kSecond;
  plan = Retain(At(900'000), inventory, {.hourly = 2});
  EXPECT_EQ(plan.stopped, "");
  EXPECT_THAT(Deleted(plan), ElementsAre(inventory.objects[1].name));
}

TEST(Retention, PinsKeepWhatTheyNeed) {
  Inventory inventory =
      Of({Named(Full(1, 10, 100), "base"), Named(Segment(11, 20, 110, 200), "first"),
          Named(Segment(21, 30, 210, 300), "second"), Named(Segment(31, 40, 310, 400), "third"),
          Named(Full(40, 40, 400), "newest")});
  inventory.objects[2].pinned = true;
  const RetentionPlan plan = Retain(At(500), inventory, {.hourly = 1});
  EXPECT_THAT(Deleted(plan), ElementsAre("third"));
  EXPECT_EQ(WhyKept(plan, "second"), "pinned; needed by pinned `second`");
  EXPECT_EQ(WhyKept(plan, "base"), "needed by pinned `second`");
}

TEST(Retention, ARollUpGoesOnlyAsAWhole) {
  Inventory inventory = Of({Full(1, 10, 100), Segment(11, 20, 110, 200), Segment(21, 30, 210, 300),
                            Full(30, 30, 300), Segment(31, 40, 310, 400)});
  inventory.objects[1].container = "roll-a";
  inventory.objects[2].container = "roll-a";
  RetentionPlan plan = Retain(At(400), inventory, {.hourly = 1});
  ASSERT_EQ(plan.deletions.size(), 2u);
  EXPECT_EQ(plan.deletions[1].name, "roll-a");
  EXPECT_EQ(plan.deletions[1].objects.size(), 2u);
  EXPECT_EQ(plan.deletions[1].stored_bytes, 20u);
  inventory.objects[4].container = "roll-a";
  plan = Retain(At(400), inventory, {.hourly = 1});
  EXPECT_THAT(Deleted(plan), ElementsAre(inventory.objects[0].name));
  EXPECT_EQ(WhyKept(plan, inventory.objects[1].name), "in a roll-up with others that are kept");
}

TEST(Retention, ARollUpThatAStoreReadsSegmentsInStays) {
  Inventory inventory = Of({Full(1, 10, 100), Segment(11, 20, 110, 200), Segment(21, 30, 210, 300),
                            Full(30, 30, 300), Segment(31, 40, 310, 400)});
  for (const char* name : {"roll-a", "roll-b"}) {
    Object roll_up{.kind = Kind::kRollUp, .name = name, .timeline = kFirst, .writer = "w1"};
    roll_up.level = 1;
    roll_up.stores = {"disk"};
    inventory.objects.push_back(std::move(roll_up));
  }
  // Two keepers put the last two into containers: the first one counts, the other holds nothing.
  for (const size_t i : {2u, 4u}) inventory.objects[i].container = "roll-a";
  const RetentionPolicy policy{.hourly = 1};
  EXPECT_THAT(Deleted(Retain(At(400), inventory, policy)),
              ElementsAre(inventory.objects[0].name, inventory.objects[1].name, "roll-b"));
  // But for where it was not read back, and the other was.
  inventory.objects[4].held["disk"] = {.name = "roll-b", .offset = 0};
  inventory.objects[1].container = "roll-b";
  EXPECT_THAT(Deleted(Retain(At(400), inventory, policy)), ElementsAre(inventory.objects[0].name));
}

TEST(Retention, AClockThatJumpedAheadMakesNothingOld) {
  Inventory inventory = Thinnable();
  const RetentionPolicy policy{.window = hours(24)};
  const size_t kept = Retain(At(kMonday + 4 * kHour), inventory, policy).keeps.size();
  EXPECT_EQ(Retain(At(kMonday + 4000 * kDay), inventory, policy).keeps.size(), kept);
}

TEST(Retention, AClockThatJumpsWhileTheKeeperRunsMakesNothingOld) {
  Inventory inventory = Thinnable();
  const RetentionPolicy policy{.window = hours(48)};
  const auto kept = Retain(At(kMonday + 4 * kHour), inventory, policy).keeps.size();
  // A year ahead, and the keeper goes on there.
  Object full = Full(241, 241, kMonday + 365 * kDay);
  inventory.objects.push_back(full);
  inventory.objects.push_back(Full(241, 242, kMonday + 365 * kDay + 60));
  EXPECT_EQ(Retain(At(kMonday + 365 * kDay + 100), inventory, policy).keeps.size(), kept + 2 - 4)
      << "but for those that were young then, which are thinned now";
  // Once the new time has filled the window, the old one is out of it.
  for (int64_t i = 1; i <= 72; ++i) {
    inventory.objects.push_back(Full(242, 242 + i, kMonday + 365 * kDay + i * kHour));
  }
  const RetentionPlan plan = Retain(At(kMonday + 368 * kDay), inventory, policy);
  EXPECT_EQ(WhyKept(plan, inventory.objects[0].name), "not kept");
}

TEST(Retention, WhatAClockThatWasAheadTookTakesNoOthersPlace) {
  Inventory inventory =
      Of({Full(1, 10, kMonday), Full(11, 20, kMonday + kHour), Full(21, 30, kMonday + 365 * kDay),
          Full(31, 40, kMonday + 366 * kDay), Full(41, 50, kMonday + 2 * kHour)});
  const RetentionPlan plan =
      Retain(At(kMonday + 2 * kHour + 60), inventory, {.hourly = 3, .daily = 1, .monthly = 1});
  EXPECT_THAT(plan.deletions, IsEmpty());
  // Once their time has come they are like any other.
  inventory.objects.push_back(Full(51, 60, kMonday + 366 * kDay + 60));
  EXPECT_THAT(Deleted(Retain(At(kMonday + 366 * kDay + 120), inventory, {.hourly = 2})),
              ElementsAre(inventory.objects[0].name, inventory.objects[1].name,
                          inventory.objects[3].name, inventory.objects[4].name));
}

TEST(Retention, WhatIsInNoStoreYetStays) {
  Inventory inventory = Of({Full(1, 10, 100), Full(11, 20, kDay), Full(21, 30, 2 * kDay)});
  inventory.objects[0].stores.clear();
  inventory.objects[1].damaged = {"disk"};
  RetentionPlan plan = Retain(At(2 * kDay), inventory, {.hourly = 1});
  EXPECT_EQ(WhyKept(plan, inventory.objects[0].name), "not in a store yet");
  EXPECT_THAT(Deleted(plan), ElementsAre(inventory.objects[1].name));
  plan = Retain(At(2 * kDay), inventory, {.window = hours(72), .hourly = 1});
  EXPECT_THAT(WhyKept(plan, inventory.objects[1].name), HasSubstr("may still be healed"));
}

TEST(Retention, BundlesStayWithTheirPoints) {
  Inventory inventory = Of({});
  for (int64_t day = 0; day < 10; ++day) {
    Object bundle = Full(0, 0, kMonday + day * kDay);
    bundle.kind = Kind::kBundle;
    inventory.objects.push_back(Named(bundle, "bundle-" + std::to_string(day)));
    bundle.kind = Kind::kDrill;
    inventory.objects.push_back(Named(bundle, "drill-" + std::to_string(day)));
  }
  inventory.objects.push_back(Full(1, 1, kMonday + 3 * kDay + kHour));
  inventory.objects.push_back(Full(2, 2, kMonday + 9 * kDay + kHour));
  const RetentionPlan plan = Retain(At(kMonday + 10 * kDay), inventory, {.daily = 2});
  EXPECT_EQ(WhyKept(plan, "bundle-3"), "belongs to a point that is kept");
  EXPECT_THAT(WhyKept(plan, "bundle-9"), HasSubstr("the newest bundle"));
  EXPECT_EQ(WhyKept(plan, "bundle-4"), "not kept");
  EXPECT_EQ(WhyKept(plan, "drill-3"), "not kept");
  EXPECT_EQ(WhyKept(plan, "drill-4"), "no older than the oldest point");
}

RetentionPolicy RandomPolicy(base::Random* random) {
  RetentionPolicy policy;
  if (!random->OneIn(4)) policy.window = At(static_cast<int64_t>(random->Below(100'000)));
  policy.hourly = static_cast<uint32_t>(random->Below(4));
  policy.daily = static_cast<uint32_t>(random->Below(3));
  policy.weekly = static_cast<uint32_t>(random->Below(2));
  policy.keep_proven = static_cast<uint32_t>(random->Below(4));
  policy.thin_every = At(static_cast<int64_t>(random->Below(3) * kHour));
  return policy;
}

// What a plan may never do, whatever the policy.
void CheckPlan(const Inventory& before, const Inventory& after, const RetentionPlan& plan,
               const RetentionPolicy& policy, Time now) {
  const std::set<int64_t> could = ModelRestorable(before, kFirst);
  const std::set<int64_t> can = ModelRestorable(after, kFirst);
  const Timetable times(before, kFirst);
  const Time newest = std::min(now, times.end().value_or(now));
  const int64_t since = times.SurelyAt(newest - policy.window);
  for (const int64_t r : could) {
    if (r >= since || r == *could.rbegin()) {
      ASSERT_TRUE(can.contains(r)) << "revision " << r << " of the window is lost";
    }
  }
  std::vector<int64_t> proven;
  for (const Object& object : before.objects) {
    if (object.kind == Kind::kFull && Usable(object) && object.Proven()) {
      proven.push_back(object.last_revision);
    }
  }
  std::sort(proven.rbegin(), proven.rend());
  proven.resize(std::min<size_t>(proven.size(), std::max<size_t>(1, policy.keep_proven)));
  std::vector<int64_t> still;
  for (size_t i = 0; i < after.objects.size(); ++i) {
    const Object& object = after.objects[i];
    const bool gone = object.pruned && !before.objects[i].pruned;
    if (object.kind == Kind::kFull && Usable(object) && object.Proven()) {
      still.push_back(object.last_revision);
    }
    ASSERT_FALSE(gone && object.pinned) << object.name;
    if (object.pinned && Usable(object) && could.contains(object.last_revision)) {
      ASSERT_TRUE(can.contains(object.last_revision)) << object.name << " lost what it needs";
    }
    ASSERT_FALSE(gone && object.stores.empty() && object.damaged.empty()) << object.name;
  }
  std::sort(still.rbegin(), still.rend());
  still.resize(std::min(still.size(), proven.size()));
  ASSERT_EQ(still, proven);
  std::set<std::string> containers;
  for (const Kept& kept : plan.keeps) containers.insert(kept.object->container);
  for (const Deletion& deletion : plan.deletions) {
    ASSERT_FALSE(deletion.why.empty());
    ASSERT_FALSE(containers.contains(deletion.name));
  }
}

// The newest full of each of the newest hours stays: counted here by hand.
void CheckHours(const Inventory& before, const Inventory& after, uint32_t hourly) {
  std::map<int64_t, Time, std::greater<>> newest;
  for (const Object& full : before.objects) {
    if (full.kind != Kind::kFull || !Usable(full)) continue;
    Time& time = newest[full.last_seen.to / At(kHour)];
    time = std::max(time, full.last_seen.to);
  }
  for (const auto& [hour, time] : newest) {
    if (hourly-- == 0) break;
    ASSERT_TRUE(
        std::any_of(after.objects.begin(), after.objects.end(), [&, at = time](const Object& full) {
          return full.kind == Kind::kFull && Usable(full) && full.last_seen.to == at;
        }));
  }
}

TEST(Retention, NeverBreaksWhatItPromises) {
  size_t deletions = 0;
  const uint64_t first = FirstSeed(1);
  for (uint64_t seed = first; seed < first + SeedCount(2000); ++seed) {
    SCOPED_TRACE("ENGRAM_SEED=" + std::to_string(seed));
    base::SeededRandom random(seed);
    const Inventory before = RandomHistory(&random).inventory;
    const RetentionPolicy policy = RandomPolicy(&random);
    const Time now =
        before.watched.at(kFirst).second + At(static_cast<int64_t>(random.Below(90'000)));
    const RetentionPlan plan = Retain(now, before, policy);
    ASSERT_EQ(plan.stopped, "");
    Inventory after = before;
    size_t listed = plan.keeps.size();
    for (const Deletion& deletion : plan.deletions) {
      deletions += deletion.objects.size();
      listed += deletion.objects.size();
      for (const Object* object : deletion.objects) {
        after.objects[static_cast<size_t>(object - before.objects.data())].pruned = true;
      }
    }
    ASSERT_EQ(listed, static_cast<size_t>(
                          std::count_if(before.objects.begin(), before.objects.end(),
                                        [](const Object& object) { return !object.pruned; })));
    CheckPlan(before, after, plan, policy, now);
    CheckHours(before, after, policy.hourly);
    if (HasFatalFailure()) return;
    // Doing it twice does no more.
    ASSERT_THAT(Retain(now, after, policy).deletions, IsEmpty());
  }
  if (std::getenv("ENGRAM_SEED") == nullptr) {
    EXPECT_GT(deletions, 1000u) << "the histories leave nothing to delete";
  }
}

}  // namespace
}  // namespace catalog
