#include "catalog/schedule.h"

#include "base/testing.h"
#include "catalog/test_inventory.h"

namespace catalog {
namespace {

constexpr int64_t kEvery = 900;

TEST(Schedule, TheFirstFullIsDueAtOnce) {
  EXPECT_EQ(NextDue(At(5000), std::nullopt, At(kEvery)), At(5000));
}

TEST(Schedule, OneIntervalAfterTheLast) {
  EXPECT_EQ(NextDue(At(5000), At(4800), At(kEvery)), At(5700));
  EXPECT_EQ(NextDue(At(5000), At(5000), At(kEvery)), At(5900));
}

TEST(Schedule, AMissedFullIsDueOnceAndAtOnce) {
  EXPECT_EQ(NextDue(At(5000), At(4100), At(kEvery)), At(5000));
  EXPECT_EQ(NextDue(At(50'000), At(4100), At(kEvery)), At(50'000));
}

TEST(Schedule, AClockThatSteppedBackDoesNotPutItOff) {
  for (const int64_t ahead : {1, 10, 900, 86'400}) {
    EXPECT_EQ(NextDue(At(5000), At(5000 + ahead), At(kEvery)), At(5000)) << ahead;
  }
}

TEST(Schedule, IsNeverMoreThanOneIntervalAway) {
  for (int64_t last = 0; last < 10'000; last += 7) {
    const Time next = NextDue(At(5000), At(last), At(kEvery));
    EXPECT_GE(next, At(5000)) << last;
    EXPECT_LE(next, At(5000 + kEvery)) << last;
  }
  EXPECT_EQ(NextDue(Time::max() - At(1), Time::max() - At(1), At(1)), Time::max());
}

}  // namespace
}  // namespace catalog
