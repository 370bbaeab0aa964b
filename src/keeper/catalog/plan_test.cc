#include "catalog/plan.h"

#include "base/testing.h"
#include "catalog/test_inventory.h"
#include "catalog/timetable.h"

namespace catalog {
namespace {

using absl::StatusCode;
using base::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

RestorePoint PointOf(const Inventory& inventory, const Target& target) {
  const absl::StatusOr<Found> found = Find(inventory, target);
  EXPECT_OK(found);
  if (!found.ok() || !std::holds_alternative<RestorePoint>(*found)) {
    ADD_FAILURE() << "no point";
    return {};
  }
  return std::get<RestorePoint>(*found);
}

InHole HoleOf(const Inventory& inventory, const Target& target) {
  const absl::StatusOr<Found> found = Find(inventory, target);
  EXPECT_OK(found);
  if (!found.ok() || !std::holds_alternative<InHole>(*found)) {
    ADD_FAILURE() << "no hole";
    return {};
  }
  return std::get<InHole>(*found);
}

// Two fulls with segments between and after them, one a second.
Inventory Plain() {
  Inventory inventory = Of({Full(5, 10, 110), Segment(8, 20, 108, 120), Segment(21, 30, 121, 130),
                            Full(25, 30, 131), Segment(31, 40, 132, 140)});
  inventory.watched[kFirst] = {42, At(150)};
  return inventory;
}

TEST(Plan, TakesTheNearestFullBelowAndTheSegmentsFromThere) {
  const Inventory inventory = Plain();
  const RestorePoint point = PointOf(inventory, int64_t{22});
  EXPECT_EQ(point.base, &inventory.objects[0]);
  EXPECT_FALSE(point.base_is_above);
  ASSERT_EQ(point.segments.size(), 2u);
  EXPECT_EQ(point.segments[0].first, 11);
  EXPECT_EQ(point.segments[0].last, 20);
  EXPECT_EQ(point.segments[1].first, 21);
  EXPECT_EQ(point.segments[1].last, 22);
  EXPECT_EQ(point.bytes_to_fetch, 1020u);
  EXPECT_EQ(point.revisions_after, 20);
  EXPECT_EQ(point.possibly, 22);
  EXPECT_EQ(point.proven, nullptr);
}

TEST(Plan, NeedsNoSegmentAtAFullsOwnRevisionAndNoneWhereTheFullAboveHoldsIt) {
  const Inventory inventory = Plain();
  EXPECT_TRUE(PointOf(inventory, int64_t{30}).segments.empty());
  EXPECT_EQ(PointOf(inventory, int64_t{30}).base, &inventory.objects[3]);
  const RestorePoint above = PointOf(inventory, int64_t{7});
  EXPECT_EQ(above.base, &inventory.objects[0]);
  EXPECT_TRUE(above.base_is_above);
  EXPECT_TRUE(above.segments.empty());
}

TEST(Plan, LatestIsTheNewestInAStore) {
  const RestorePoint point = PointOf(Plain(), Latest{});
  EXPECT_EQ(point.revision, 40);
  EXPECT_EQ(point.revisions_after, 2);
  EXPECT_EQ(point.time_after, At(10));
  EXPECT_EQ(point.seen.to, At(140));
}

TEST(Plan, PrefersTheFullThatIsNotSuspectAndTheProvenOne) {
  Inventory inventory = Plain();
  inventory.objects[3].suspect = "lost pods";
  RestorePoint point = PointOf(inventory, int64_t{35});
  EXPECT_EQ(point.base, &inventory.objects[0]);
  EXPECT_EQ(point.segments.size(), 3u);
  // Where no other leads there, a suspect one is better than nothing.
  inventory.objects[1].pruned = true;
  EXPECT_EQ(PointOf(inventory, int64_t{35}).base, &inventory.objects[3]);
  // Of two at one revision the proven one, although it is larger.
  inventory = Plain();
  inventory.objects.push_back(Proven(Full(25, 30, 131)));
  inventory.objects.back().stored_bytes = 5000;
  EXPECT_EQ(PointOf(inventory, int64_t{35}).base, &inventory.objects.back());
}

TEST(Plan, NamesTheNewestProofBelowTheTarget) {
  Inventory inventory = Plain();
  inventory.objects[0] = Proven(inventory.objects[0]);
  inventory.objects[3] = Proven(inventory.objects[3]);
  EXPECT_EQ(PointOf(inventory, int64_t{29}).proven, &inventory.objects[0]);
  EXPECT_EQ(PointOf(inventory, int64_t{29}).proof.to, 10);
  EXPECT_EQ(PointOf(inventory, Latest{}).proof.to, 30);
  EXPECT_EQ(PointOf(inventory, int64_t{7}).proven, nullptr);
  inventory.objects[0].proofs[0].method = Proof::Method::kHashOfFile;
  EXPECT_EQ(PointOf(inventory, int64_t{29}).proven, nullptr);
}

TEST(Plan, ATimeIsTheNewestRevisionSurelyThere) {
  const Inventory inventory = Plain();
  // Exactly at a segment's end.
  RestorePoint point = PointOf(inventory, At(120));
  EXPECT_EQ(point.revision, 20);
  // Within the second segment: only 21 is sure, 22 to 29 may have been there, and the segment
  // knows.
  point = PointOf(inventory, At(125));
  EXPECT_EQ(point.revision, 21);
  EXPECT_EQ(point.possibly, 29);
  ASSERT_TRUE(point.refine);
  EXPECT_EQ(point.refine->segment, &inventory.objects[2]);
  EXPECT_EQ(point.refine->first, 22);
  EXPECT_EQ(point.refine->last, 29);
  EXPECT_EQ(point.bytes_to_fetch, 1020u) << "the segment is fetched anyway";
  // The archive saw that nothing was stored after 42, but 41 and 42 are in no store.
  EXPECT_THAT(Find(inventory, At(150)),
              StatusIs(StatusCode::kOutOfRange, HasSubstr("no store yet")));
}

TEST(Plan, ATimeAfterTheLastEventIsTheNewestWhereTheArchiveSawIt) {
  Inventory inventory = Plain();
  inventory.watched[kFirst] = {40, At(150)};
  EXPECT_EQ(PointOf(inventory, At(150)).revision, 40);
  EXPECT_EQ(PointOf(inventory, At(145)).possibly, 40);
  EXPECT_THAT(Find(inventory, At(151)),
              StatusIs(StatusCode::kOutOfRange,
                       AllOf(HasSubstr("1970-01-01T00:02:31Z is after 1970-01-01T00:02:30Z"))));
}

TEST(Plan, AMomentThatWasShownTwiceIsTheFirstTimeAndTheBarSpansBoth) {
  const Inventory inventory =
      Of({Full(1, 40, 6'000), Segment(41, 70, 6'450, 8'200), Segment(71, 100, 8'200, 10'000),
          Segment(101, 150, 6'500, 8'200), Segment(151, 200, 8'300, 9'900)});
  const RestorePoint point = PointOf(inventory, At(8'250));
  EXPECT_TRUE(point.shown_twice);
  EXPECT_EQ(point.revision, 71);
  EXPECT_EQ(point.possibly, 150);
  ASSERT_TRUE(point.refine);
  EXPECT_EQ(point.refine->first, 72);
  EXPECT_EQ(point.refine->last, 100);
  EXPECT_EQ(PointOf(inventory, int64_t{120}).revision, 120);
  EXPECT_FALSE(PointOf(inventory, int64_t{120}).shown_twice);
}

TEST(Plan, ATimeBeforeTheBackupsIsOutOfRange) {
  EXPECT_THAT(Find(Plain(), At(50)),
              StatusIs(StatusCode::kOutOfRange, HasSubstr("begin at 1970-01-01T00:01:48Z")));
}

TEST(Plan, ATargetInAHoleNamesItAndWhatIsNear) {
  Inventory inventory = Of({Full(5, 10, 110), Full(21, 30, 300)});
  inventory.holes.push_back({.timeline = kFirst,
                             .first_revision = 11,
                             .last_revision = 20,
                             .from = At(111),
                             .to = At(290),
                             .why = "compacted at 20"});
  const InHole in = HoleOf(inventory, int64_t{15});
  EXPECT_EQ(in.revision, 15);
  EXPECT_EQ(in.hole.first_revision, 11);
  EXPECT_EQ(in.hole.why, "compacted at 20");
  ASSERT_TRUE(in.below && in.above);
  EXPECT_EQ(in.below->revision, 10);
  EXPECT_EQ(in.below->time, At(110));
  EXPECT_EQ(in.above->revision, 21);
  // What was there at 200 s may have been any of the lost ones.
  EXPECT_EQ(HoleOf(inventory, At(200)).below->revision, 10);
}

TEST(Plan, OneRevisionTooFarIsNoHole) {
  const Inventory inventory = Plain();
  EXPECT_THAT(
      Find(inventory, int64_t{4}),
      StatusIs(StatusCode::kOutOfRange, HasSubstr("older than the backups, which hold 5 (")));
  EXPECT_THAT(Find(inventory, int64_t{41}),
              StatusIs(StatusCode::kOutOfRange, HasSubstr("no store")));
  EXPECT_THAT(Find(inventory, int64_t{43}),
              StatusIs(StatusCode::kOutOfRange, HasSubstr("newer than all that was seen")));
  EXPECT_THAT(Find(inventory, int64_t{0}), StatusIs(StatusCode::kOutOfRange));
  EXPECT_THAT(Find(inventory, int64_t{-7}), StatusIs(StatusCode::kOutOfRange));
}

TEST(Plan, NothingAtAllIsNotFound) {
  EXPECT_THAT(Find(Inventory{.cluster = "c"}, Latest{}),
              StatusIs(StatusCode::kNotFound, HasSubstr("cluster `c`")));
  for (const Target& target : {Target(Latest{}), Target(int64_t{5}), Target(At(5))}) {
    EXPECT_THAT(Find(Of({Segment(1, 5, 1, 5)}), target), StatusIs(StatusCode::kNotFound));
  }
  EXPECT_THAT(Find(Plain(), Latest{}, kSecond),
              StatusIs(StatusCode::kNotFound, HasSubstr("timeline")));
}

TEST(Plan, ATimeFindsTheTimelineThatWasLivingThen) {
  Inventory inventory = Plain();
  Object full = Full(1, 8, 1000);
  full.timeline = kSecond;
  inventory.objects.push_back(full);
  inventory.timelines.push_back(kSecond);
  EXPECT_EQ(PointOf(inventory, Latest{}).timeline, kSecond);
  EXPECT_EQ(PointOf(inventory, At(120)).timeline, kFirst);
  EXPECT_EQ(PointOf(inventory, At(1000)).timeline, kSecond);
  EXPECT_THAT(Find(inventory, At(500)),
              StatusIs(StatusCode::kOutOfRange, HasSubstr("of timeline 0000000000000abc")));
  EXPECT_OK(Find(inventory, int64_t{35}, kFirst));
}

// The point restores `revision` and nothing else, with objects that are there.
void CheckPoint(const RestorePoint& point, const Inventory& inventory, int64_t revision) {
  ASSERT_EQ(point.revision, revision);
  ASSERT_TRUE(Usable(*point.base));
  ASSERT_EQ(point.base_is_above, point.base->last_revision > revision);
  if (point.base_is_above) {
    ASSERT_LE(point.base->compact_revision, revision);
    ASSERT_TRUE(point.segments.empty());
  } else {
    int64_t next = point.base->last_revision + 1;
    for (const Piece& piece : point.segments) {
      ASSERT_TRUE(Usable(*piece.segment));
      ASSERT_EQ(piece.first, next);
      ASSERT_GE(piece.first, piece.segment->first_revision);
      ASSERT_LE(piece.last, piece.segment->last_revision);
      next = piece.last + 1;
    }
    ASSERT_EQ(next, revision + 1);
  }
  // No full is nearer: any between the base and the target would do with fewer segments.
  for (const Object& full : inventory.objects) {
    if (full.kind != Kind::kFull || !Usable(full) || full.last_revision > revision) continue;
    ASSERT_FALSE(!point.base_is_above && full.last_revision > point.base->last_revision);
  }
}

TEST(Plan, AgreesWithTheSetOfRevisions) {
  size_t points = 0;
  size_t holes = 0;
  const uint64_t first = FirstSeed(1);
  for (uint64_t seed = first; seed < first + SeedCount(500); ++seed) {
    SCOPED_TRACE("ENGRAM_SEED=" + std::to_string(seed));
    base::SeededRandom random(seed);
    const History history = RandomHistory(&random);
    const std::set<int64_t> model = ModelRestorable(history.inventory, kFirst);
    const auto revisions = static_cast<int64_t>(history.times.size()) - 1;
    for (int64_t r = -1; r <= revisions + 2; ++r) {
      const absl::StatusOr<Found> found = Find(history.inventory, r);
      if (model.contains(r)) {
        ASSERT_OK(found);
        ASSERT_TRUE(std::holds_alternative<RestorePoint>(*found));
        CheckPoint(std::get<RestorePoint>(*found), history.inventory, r);
        if (HasFatalFailure()) return;
        ++points;
      } else if (found.ok()) {
        ASSERT_TRUE(std::holds_alternative<InHole>(*found)) << r;
        const InHole& in = std::get<InHole>(*found);
        const auto above = model.upper_bound(r);
        ASSERT_EQ(in.above.has_value(), above != model.end());
        ASSERT_EQ(in.below.has_value(), above != model.begin());
        ASSERT_TRUE(!in.above || in.above->revision == *above);
        ASSERT_TRUE(!in.below || in.below->revision == *std::prev(above));
        ++holes;
      } else {
        ASSERT_EQ(found.status().code(),
                  model.empty() ? StatusCode::kNotFound : StatusCode::kOutOfRange);
        ASSERT_TRUE(model.empty() || r < *model.begin() || r > *model.rbegin()) << r;
      }
    }
  }
  if (std::getenv("ENGRAM_SEED") == nullptr) {
    EXPECT_GT(points, 1000u);
    EXPECT_GT(holes, 1000u);
  }
}

TEST(Plan, ATimeNeverRestoresWhatCameLater) {
  size_t points = 0;
  size_t refined = 0;
  const uint64_t first = FirstSeed(1);
  for (uint64_t seed = first; seed < first + SeedCount(500); ++seed) {
    SCOPED_TRACE("ENGRAM_SEED=" + std::to_string(seed));
    base::SeededRandom random(seed);
    const History history = RandomHistory(&random);
    const std::set<int64_t> model = ModelRestorable(history.inventory, kFirst);
    const int64_t step = std::max<int64_t>(1, (history.end - history.times[1]) / 50);
    for (int64_t t = history.times[1] - 5; t <= history.end + 5; t += step) {
      int64_t newest = 0;
      while (static_cast<size_t>(newest) + 1 < history.times.size() &&
             history.times[static_cast<size_t>(newest) + 1] <= t) {
        ++newest;
      }
      const absl::StatusOr<Found> found = Find(history.inventory, At(t));
      if (!found.ok() || !std::holds_alternative<RestorePoint>(*found)) continue;
      const auto& point = std::get<RestorePoint>(*found);
      CheckPoint(point, history.inventory, point.revision);
      if (HasFatalFailure()) return;
      ASSERT_LE(point.revision, newest);
      ASSERT_GE(point.possibly, newest);
      ASSERT_TRUE(model.contains(point.revision));
      ++points;
      if (!point.refine) continue;
      ++refined;
      ASSERT_EQ(point.refine->first, point.revision + 1);
      ASSERT_LE(point.refine->last, point.possibly);
      ASSERT_LE(point.refine->segment->first_revision, point.revision);
      ASSERT_GE(point.refine->segment->last_revision, point.refine->last);
    }
  }
  if (std::getenv("ENGRAM_SEED") == nullptr) {
    EXPECT_GT(points, 1000u);
    EXPECT_GT(refined, 100u);
  }
}

}  // namespace
}  // namespace catalog
