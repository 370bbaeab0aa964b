#include "service/clock_watch.h"

#include "base/testing.h"

namespace service {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

// Two clocks that are turned one by one.
class TwoClocks final : public base::Clock {
 public:
  base::Duration Monotonic() const override { return steady_; }
  base::Duration Wall() const override { return wall_; }
  void Pass(base::Duration time) {
    steady_ += time;
    wall_ += time;
  }
  void Set(base::Duration by) { wall_ += by; }

 private:
  base::Duration steady_ = hours(1);
  base::Duration wall_ = hours(500'000);
};

constexpr base::Duration kWindow = hours(24 * 7);

class ClockWatchTest : public testing::Test {
 protected:
  ClockWatchTest() { watch_.GoOn({}); }
  base::Duration Ahead() {
    watch_.Look();
    return watch_.state().ahead;
  }
  TwoClocks clock_;
  ClockWatch watch_{clock_, "prod", kWindow};
};

TEST_F(ClockWatchTest, TimeThatPassesIsNoStep) {
  for (int i = 0; i < 100; ++i) {
    clock_.Pass(hours(3));
    clock_.Set(seconds(i % 2 == 0 ? 20 : -25));  // steered
    EXPECT_EQ(Ahead(), base::Duration(0));
  }
  EXPECT_EQ(watch_.steps(), 0u);
}

TEST_F(ClockWatchTest, AClockSetAheadIsDoubtedUntilItIsSetBack) {
  clock_.Set(hours(24));
  EXPECT_EQ(Ahead(), hours(24));
  clock_.Pass(hours(5));
  clock_.Set(-hours(1));
  EXPECT_EQ(Ahead(), hours(23));
  clock_.Set(-hours(23));
  EXPECT_EQ(Ahead(), base::Duration(0));
  EXPECT_EQ(watch_.steps(), 3u);
}

TEST_F(ClockWatchTest, NothingIsForgottenByARestart) {
  clock_.Set(hours(9000));
  watch_.Look();
  clock_.Pass(minutes(1));
  watch_.Look();
  ClockWatch next(clock_, "prod", kWindow);
  next.GoOn(watch_.state());
  EXPECT_EQ(next.state().ahead, hours(9000));
  clock_.Set(-hours(9000));
  next.Look();
  EXPECT_EQ(next.state().ahead, base::Duration(0));
}

TEST_F(ClockWatchTest, AKeeperThatStoodStillForAMonthIsNotStuck) {
  watch_.Look();
  const ClockState remembered = watch_.state();
  clock_.Pass(hours(24 * 30));
  ClockWatch next(clock_, "prod", kWindow);
  next.GoOn(remembered);
  EXPECT_EQ(next.state().ahead, hours(24 * 30));
  clock_.Pass(kWindow - seconds(1));
  next.Look();
  EXPECT_EQ(next.state().ahead, hours(24 * 30));
  clock_.Pass(seconds(1));
  next.Look();
  EXPECT_EQ(next.state().ahead, base::Duration(0));
}

TEST_F(ClockWatchTest, AShortRestIsTakenAtTheClocksWord) {
  watch_.Look();
  clock_.Pass(minutes(59));
  ClockWatch next(clock_, "prod", kWindow);
  next.GoOn(watch_.state());
  EXPECT_EQ(next.state().ahead, base::Duration(0));
}

TEST_F(ClockWatchTest, AClockSetBackIsNamedUntilItHasPassedWhatItShowed) {
  clock_.Set(-hours(1));
  EXPECT_EQ(Ahead(), -hours(1));
  EXPECT_THAT(ClockText(watch_.state(), {}), HasSubstr("set back by 3600 s"));
  clock_.Pass(minutes(59));
  EXPECT_EQ(Ahead(), -hours(1));
  clock_.Pass(minutes(1));
  EXPECT_EQ(Ahead(), base::Duration(0));
  EXPECT_EQ(ClockText(watch_.state(), {}), "");
}

TEST_F(ClockWatchTest, AStoresClockConfirmsIt) {
  clock_.Set(hours(24));
  watch_.Look();
  EXPECT_THAT(ClockText(watch_.state(), {.window = kWindow}), HasSubstr("86400 s ahead"));
  watch_.Confirm();
  EXPECT_EQ(Ahead(), base::Duration(0));
}

TEST(StoreClocks, OneThatOursIsAheadOfForbidsToDelete) {
  EXPECT_EQ(ClockObjection({}), "");
  EXPECT_FALSE(StoreClocks().Agree());
  const StoreClocks near{.store = "s3", .ahead = seconds(3), .farthest = seconds(3)};
  EXPECT_TRUE(near.Agree());
  EXPECT_EQ(ClockObjection(near), "");
  const StoreClocks behind{.store = "s3", .ahead = -hours(3), .farthest = hours(3)};
  EXPECT_FALSE(behind.Agree());
  EXPECT_EQ(ClockObjection(behind), "") << "what is younger than it seems stays";
  const StoreClocks ahead{.store = "s3", .ahead = hours(3), .farthest = hours(3)};
  EXPECT_FALSE(ahead.Agree());
  EXPECT_THAT(ClockObjection(ahead), HasSubstr("10800 s ahead of store s3's"));
}

}  // namespace
}  // namespace service
