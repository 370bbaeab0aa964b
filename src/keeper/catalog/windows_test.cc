#include "catalog/windows.h"

#include "base/testing.h"
#include "catalog/test_inventory.h"
#include "catalog/timetable.h"

namespace catalog {
namespace {

using testing::HasSubstr;

TimelineWindows Only(const Inventory& inventory) {
  const std::vector<TimelineWindows> all = FindWindows(inventory);
  EXPECT_EQ(all.size(), 1u);
  return all.empty() ? TimelineWindows() : all.back();
}

TEST(InventoryNames, TimelinesAreReadBack) {
  const Timeline timeline{.cluster_id = 0xcdf818194e3a8c32, .first_revision = 1140871};
  EXPECT_EQ(timeline.Name(), "cdf818194e3a8c32-0000000000116887");
  EXPECT_EQ(Timeline::Parse(timeline.Name()), timeline);
  for (const char* wrong :
       {"", "cdf818194e3a8c32", "cdf818194e3a8c32-000000000011688",
        "CDF818194e3a8c32-0000000000116887", "cdf818194e3a8c32_0000000000116887",
        "cdf818194e3a8c32-ffffffffffffffff"}) {
    EXPECT_EQ(Timeline::Parse(wrong), std::nullopt) << wrong;
  }
  EXPECT_STREQ(KindName(Kind::kBundle), "bundle");
  EXPECT_STREQ(ProofMethodName(Proof::Method::kRestored), "restored");
}

TEST(Windows, AFullIsAWindowByItself) {
  const TimelineWindows found = Only(Of({Full(10, 20, 100)}));
  EXPECT_TRUE(found.living);
  ASSERT_EQ(found.windows.size(), 1u);
  EXPECT_EQ(found.windows[0].first_revision, 10);
  EXPECT_EQ(found.windows[0].last_revision, 20);
  EXPECT_EQ(found.windows[0].to, At(100));
  EXPECT_EQ(found.windows[0].fulls, 1u);
  EXPECT_TRUE(found.holes.empty());
}

TEST(Windows, WithoutCompactionAFullReachesToTheFirstRevision) {
  for (const int64_t never : {-1, 0}) {
    EXPECT_EQ(Only(Of({Full(never, 20, 100)})).windows[0].first_revision, 1);
  }
}

TEST(Windows, OverlappingFullsNeedNoArchive) {
  const TimelineWindows found = Only(Of({Full(1, 20, 100), Full(15, 40, 200), Full(41, 60, 300)}));
  ASSERT_EQ(found.windows.size(), 1u);
  EXPECT_EQ(found.windows[0].last_revision, 60);
  EXPECT_EQ(found.windows[0].fulls, 3u);
}

TEST(Windows, SegmentsLeadOnFromAFullWhateverTheirWriter) {
  Object other = Segment(24, 35, 124, 135);
  other.writer = "w2";
  const TimelineWindows found = Only(Of({Full(20, 20, 120), Segment(18, 25, 118, 125), other}));
  ASSERT_EQ(found.windows.size(), 1u);
  EXPECT_EQ(found.windows[0].first_revision, 20);
  EXPECT_EQ(found.windows[0].last_revision, 35);
  EXPECT_EQ(found.windows[0].events, 16u);
  EXPECT_EQ(found.windows[0].to, At(135));
}

TEST(Windows, NamesHolesTheirTimesAndReasons) {
  Inventory inventory = Of({Full(5, 10, 100), Full(20, 30, 300)});
  inventory.holes.push_back({.timeline = kFirst,
                             .first_revision = 11,
                             .last_revision = 20,
                             .from = At(110),
                             .to = At(290),
                             .why = "compacted at 20 while the keeper was down"});
  TimelineWindows found = Only(inventory);
  ASSERT_EQ(found.holes.size(), 1u);
  EXPECT_EQ(found.holes[0].first_revision, 11);
  EXPECT_EQ(found.holes[0].last_revision, 19);
  EXPECT_TRUE(found.holes[0].recorded);
  EXPECT_EQ(found.holes[0].from, At(110));
  EXPECT_EQ(found.holes[0].why, "compacted at 20 while the keeper was down");

  inventory.holes.clear();
  found = Only(inventory);
  EXPECT_FALSE(found.holes[0].recorded);
  EXPECT_EQ(found.holes[0].why, "no full or segment covers it");
  // The snapshot at 300 was asked for at 299: until then revision 10 may have been the newest.
  EXPECT_EQ(found.holes[0].from, At(100));
  EXPECT_EQ(found.holes[0].to, At(300));

  inventory.objects.push_back(Segment(12, 15, 120, 150));
  EXPECT_THAT(Only(inventory).holes[0].why, HasSubstr("do not connect"));
  inventory.objects.back().damaged = {"disk"};
  EXPECT_EQ(Only(inventory).holes[0].why, "`segment-12-15` is whole in no store");
  inventory.objects.back().pruned = true;
  EXPECT_EQ(Only(inventory).holes[0].why, "pruned");
}

TEST(Windows, AHoleThatAFullClosedIsNone) {
  Inventory inventory = Of({Full(5, 10, 100), Full(11, 30, 300)});
  inventory.holes.push_back({.timeline = kFirst, .first_revision = 11, .last_revision = 20});
  EXPECT_TRUE(Only(inventory).holes.empty());
}

TEST(Windows, ARecordedHoleIsShownForEver) {
  Inventory inventory = Of({Full(50, 60, 600)});
  inventory.holes.push_back(
      {.timeline = kFirst, .first_revision = 11, .last_revision = 20, .why = "lost"});
  const TimelineWindows found = Only(inventory);
  ASSERT_EQ(found.holes.size(), 1u);
  EXPECT_EQ(found.holes[0].first_revision, 11);
  EXPECT_EQ(found.holes[0].last_revision, 20);
}

TEST(Windows, ObjectsThatCannotServeDoNotCount) {
  Object pruned = Full(1, 10, 100);
  pruned.pruned = true;
  Object nowhere = Full(1, 10, 100);
  nowhere.stores.clear();
  Object damaged = Full(1, 10, 100);
  damaged.damaged = {"disk"};
  Object nonsense = Full(11, 10, 100);
  EXPECT_TRUE(Only(Of({pruned, nowhere, damaged, nonsense})).windows.empty());
  damaged.stores.insert("offsite");
  EXPECT_EQ(Only(Of({damaged})).windows.size(), 1u);
}

TEST(Windows, SuspectFullsCountAndAreMarked) {
  Object suspect = Full(1, 10, 100);
  suspect.suspect = "lost everything";
  const TimelineWindows found = Only(Of({suspect, Full(5, 20, 200)}));
  EXPECT_EQ(found.windows[0].fulls, 2u);
  EXPECT_EQ(found.windows[0].suspect_fulls, 1u);
}

TEST(Windows, TimelinesNeverMix) {
  Object other = Segment(11, 20, 110, 120);
  other.timeline = kSecond;
  Inventory inventory = Of({Full(1, 10, 100), other});
  inventory.timelines.push_back(kSecond);
  const std::vector<TimelineWindows> all = FindWindows(inventory);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].windows[0].last_revision, 10);
  EXPECT_FALSE(all[0].living);
  EXPECT_TRUE(all[1].windows.empty());
  EXPECT_TRUE(all[1].living);
}

TEST(Windows, LastUntilTheArchiveStoppedWatching) {
  Inventory inventory = Of({Full(1, 10, 100)});
  inventory.watched[kFirst] = {10, At(500)};
  EXPECT_EQ(Only(inventory).windows[0].to, At(500));
}

TEST(Windows, AgreeWithTheSetOfRevisions) {
  const uint64_t first = FirstSeed(1);
  for (uint64_t seed = first; seed < first + SeedCount(600); ++seed) {
    SCOPED_TRACE("ENGRAM_SEED=" + std::to_string(seed));
    base::SeededRandom random(seed);
    const History history = RandomHistory(&random);
    const std::set<int64_t> model = ModelRestorable(history.inventory, kFirst);
    const TimelineWindows found = FindWindows(history.inventory, kFirst);
    std::set<int64_t> windows;
    int64_t previous = -1;
    for (const Window& window : found.windows) {
      ASSERT_GT(window.first_revision, previous + 1);
      previous = window.last_revision;
      uint64_t events = 0;
      for (int64_t r = window.first_revision; r <= window.last_revision; ++r) {
        windows.insert(r);
        for (const Object& object : history.inventory.objects) {
          if (object.kind == Kind::kSegment && Usable(object) && object.first_revision <= r &&
              r <= object.last_revision) {
            ++events;
            break;
          }
        }
      }
      ASSERT_EQ(window.events, events);
      ASSERT_LE(window.from, window.to);
    }
    ASSERT_EQ(windows, model);
    for (const Gap& gap : found.holes) {
      ASSERT_LE(gap.first_revision, gap.last_revision);
      ASSERT_FALSE(gap.why.empty());
      for (int64_t r = gap.first_revision; r <= gap.last_revision; ++r) {
        ASSERT_FALSE(model.contains(r));
      }
    }
  }
}

TEST(Timetable, WritesTimes) {
  EXPECT_EQ(TimeText(At(1'786'328'046)), "2026-08-10T02:14:06Z");
  EXPECT_EQ(TimeText(At(1'786'328'046) + std::chrono::milliseconds(50)),
            "2026-08-10T02:14:06.050Z");
  EXPECT_EQ(TimeText(Time(0)), "1970-01-01T00:00:00Z");
}

// The clock is set back by an hour at 10,000 s; 41 to 100 were seen in the hour before, 101 to 200
// in the same hour by the clock.
Inventory SetBack() {
  return Of({Full(1, 40, 6'000), Segment(41, 70, 6'450, 8'200), Segment(71, 100, 8'200, 10'000),
             Segment(101, 150, 6'500, 8'200), Segment(151, 200, 8'300, 9'900)});
}

TEST(Timetable, AMomentThatAClockShowedTwiceIsAnsweredForBothTimes) {
  const Timetable times(SetBack(), kFirst);
  EXPECT_TRUE(times.ShownTwice(At(8'250)));
  EXPECT_EQ(times.SurelyAt(At(8'250)), 71);
  EXPECT_EQ(times.PossiblyAt(At(8'250)), 150);
  EXPECT_FALSE(times.ShownTwice(At(6'300)));
  EXPECT_EQ(times.SurelyAt(At(6'300)), 40);
  EXPECT_EQ(times.end(), At(9'900)) << "by the clock as it is now";
  // A revision bears the time of either clock.
  EXPECT_LE(times.Of(100).from, At(6'500));
  EXPECT_EQ(times.Of(100).to, At(10'000));
  EXPECT_EQ(times.Of(200).to, At(9'900));
  EXPECT_LE(times.Of(200).from, At(9'900));
}

TEST(Timetable, AClockThatWasAheadForAWhileDoesNotBlurWhatCameAfter) {
  // A day ahead for ten minutes.
  Inventory inventory = Of({Full(1, 40, 6'000), Segment(41, 60, 6'000 + 86'400, 6'600 + 86'400),
                            Segment(61, 80, 6'700, 7'000), Segment(81, 90, 7'100, 7'300)});
  inventory.watched[kFirst] = {90, At(7'400)};
  const Timetable times(inventory, kFirst);
  EXPECT_EQ(times.end(), At(7'400));
  EXPECT_FALSE(times.ShownTwice(At(7'050)));
  EXPECT_EQ(times.SurelyAt(At(7'050)), 80);
  EXPECT_EQ(times.PossiblyAt(At(7'050)), 80);
  // While it was ahead nothing tells what was there by the right time.
  EXPECT_EQ(times.SurelyAt(At(6'300)), 40);
  EXPECT_GE(times.PossiblyAt(At(6'300)), 60);
  EXPECT_EQ(times.Of(85).to, At(7'300));
  EXPECT_GE(times.Of(85).from, At(7'098));
  // What it said itself is still understood.
  EXPECT_TRUE(times.ShownTwice(At(6'300 + 86'400)));
  EXPECT_EQ(times.SurelyAt(At(6'300 + 86'400)), 41);
  const std::vector<Window> windows = FindWindows(inventory, kFirst).windows;
  ASSERT_EQ(windows.size(), 1u);
  EXPECT_EQ(windows[0].to, At(7'400));
  EXPECT_LE(windows[0].from, windows[0].to);
}

TEST(Timetable, NeverContradictsWhatHappened) {
  const uint64_t first = FirstSeed(1);
  for (uint64_t seed = first; seed < first + SeedCount(600); ++seed) {
    SCOPED_TRACE("ENGRAM_SEED=" + std::to_string(seed));
    base::SeededRandom random(seed);
    const History history = RandomHistory(&random);
    const Timetable times(history.inventory, kFirst);
    const auto revisions = static_cast<int64_t>(history.times.size()) - 1;
    ASSERT_EQ(times.newest_revision(), revisions);
    ASSERT_EQ(times.end(), At(history.end));
    for (int64_t r = 1; r <= revisions; ++r) {
      const Time came = At(history.times[static_cast<size_t>(r)]);
      const Seen seen = times.Of(r);
      ASSERT_LE(seen.from, came) << r;
      ASSERT_GE(seen.to, came) << r;
    }
    int64_t newest = 0;
    for (int64_t t = history.times[1] - 10; t <= history.end; t += 3) {
      while (newest < revisions && history.times[static_cast<size_t>(newest) + 1] <= t) ++newest;
      ASSERT_LE(times.SurelyAt(At(t)), newest) << t;
      ASSERT_GE(times.PossiblyAt(At(t)), newest) << t;
    }
  }
}

}  // namespace
}  // namespace catalog
