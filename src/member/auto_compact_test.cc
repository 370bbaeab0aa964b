#include "member/auto_compact.h"

#include "base/testing.h"

namespace member {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

constexpr base::Duration kBegin = hours(100);

// (minute since kBegin, revision to compact to) of `length` in which each minute adds ten
// revisions.
std::vector<std::pair<int64_t, int64_t>> Ask(AutoCompactor& compactor, base::Duration length,
                                             bool leads = true) {
  std::vector<std::pair<int64_t, int64_t>> found;
  for (base::Duration passed{}; passed <= length; passed += minutes(1)) {
    const int64_t minute = passed / minutes(1);
    if (const auto due = compactor.Due(kBegin + passed, minute * 10, leads))
      found.emplace_back(minute, *due);
  }
  return found;
}

TEST(AutoCompact, OffDoesNothing) {
  AutoCompactor periodic(AutoCompactionMode::kPeriodic, {}, 0, kBegin);
  EXPECT_TRUE(Ask(periodic, hours(10)).empty());
  AutoCompactor by_revision(AutoCompactionMode::kRevision, {}, 0, kBegin);
  EXPECT_TRUE(Ask(by_revision, hours(10)).empty());
}

TEST(AutoCompact, APeriodBelowAnHourIsAlsoTheInterval) {
  AutoCompactor compactor(AutoCompactionMode::kPeriodic, minutes(10), 0, kBegin);
  // The first after one period, to what was current at its beginning.
  EXPECT_EQ(Ask(compactor, minutes(35)),
            (std::vector<std::pair<int64_t, int64_t>>{{20, 100}, {30, 200}}));
}

TEST(AutoCompact, ALongPeriodIsCompactedHourly) {
  AutoCompactor compactor(AutoCompactionMode::kPeriodic, hours(3), 0, kBegin);
  const auto found = Ask(compactor, hours(6));
  ASSERT_EQ(found.size(), 3u);
  for (const auto& [minute, revision] : found) EXPECT_EQ(revision, (minute - 180) * 10);
  EXPECT_EQ(found[0].first, 240);
  EXPECT_EQ(found[1].first - found[0].first, 60);
}

TEST(AutoCompact, OnlyALeaderAsksAndOnlyForSomethingNew) {
  AutoCompactor compactor(AutoCompactionMode::kPeriodic, minutes(10), 0, kBegin);
  EXPECT_TRUE(Ask(compactor, minutes(60), /*leads=*/false).empty());
  // Having become the leader it may ask at once, since it has taken samples all the time.
  EXPECT_EQ(compactor.Due(kBegin + minutes(61), 610, true), 510);
  // Nothing is written any more.
  for (int minute = 62; minute < 100; ++minute) {
    const auto due = compactor.Due(kBegin + minutes(minute), 610, true);
    EXPECT_TRUE(!due || *due > 510);
  }
  EXPECT_EQ(compactor.Due(kBegin + minutes(120), 610, true), std::nullopt);
}

TEST(AutoCompact, ByRevisionKeepsSoMany) {
  AutoCompactor compactor(AutoCompactionMode::kRevision, {}, 70, kBegin);
  EXPECT_EQ(Ask(compactor, minutes(17)),
            (std::vector<std::pair<int64_t, int64_t>>{{10, 30}, {15, 80}}));
  // As many as there are: nothing to do.
  EXPECT_EQ(compactor.Due(kBegin + minutes(30), 150, true), std::nullopt);
  EXPECT_EQ(compactor.Due(kBegin + minutes(36), 151, false), std::nullopt);
  EXPECT_EQ(compactor.Due(kBegin + minutes(42), 151, true), 81);
}

}  // namespace
}  // namespace member
