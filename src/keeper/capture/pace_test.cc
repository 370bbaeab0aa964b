// A clock that waiting turns, and a member whose Status is told.
#include "capture/pace.h"

#include "base/status.h"
#include "base/testing.h"

namespace capture {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(YieldingRateTest, OnlyWritersAreYieldedTo) {
  EXPECT_EQ(YieldingRate(0, int64_t{400} << 20, minutes(2)), 0u);
  EXPECT_EQ(YieldingRate(19, int64_t{400} << 20, minutes(2)), 0u);
  EXPECT_EQ(YieldingRate(20, int64_t{400} << 20, minutes(2)), 4 * kMiB);
  EXPECT_EQ(YieldingRate(1e6, 0, minutes(2)), 4 * kMiB);
  EXPECT_EQ(YieldingRate(1e6, -1, minutes(2)), 4 * kMiB);
}

TEST(YieldingRateTest, NoSnapshotStaysOpenLong) {
  EXPECT_EQ(YieldingRate(500, int64_t{480} << 20, minutes(2)), 4 * kMiB);
  EXPECT_EQ(YieldingRate(500, int64_t{4800} << 20, minutes(2)), 40 * kMiB);
  EXPECT_EQ(YieldingRate(500, int64_t{480} << 20, seconds(5)), 96 * kMiB);
}

class PaceTest : public testing::Test, public base::Clock {
 public:
  base::Duration Monotonic() const override { return now_; }
  base::Duration Wall() const override { return now_; }

 protected:
  Pace::Wait Waits() {
    return [this](base::Duration time) { Pass(time); };
  }
  Pace::Look Looks() {
    return [this]() -> absl::StatusOr<MemberLoad> {
      ++looks_;
      RETURN_IF_ERROR(unreachable_);
      return MemberLoad{.raft_index = static_cast<uint64_t>(index_), .db_bytes = 1};
    };
  }
  void Pass(base::Duration time) {
    now_ += time;
    index_ += entries_per_second_ * std::chrono::duration<double>(time).count();
  }
  // How long a MiB takes that comes in pieces of 32 KiB without waiting.
  base::Duration Mebibyte(Pace& pace) {
    const base::Duration began = now_;
    for (int i = 0; i < 32; ++i) pace.At(received_ += kMiB / 32);
    return now_ - began;
  }

  base::Duration now_ = std::chrono::hours(1);
  double index_ = 1000;
  double entries_per_second_ = 0;
  absl::Status unreachable_;
  int looks_ = 0;
  uint64_t received_ = 0;
};

TEST_F(PaceTest, AFixedRateIsKept) {
  Pace pace(*this, Waits(), 8 * kMiB);
  EXPECT_EQ(Mebibyte(pace), milliseconds(125));
  EXPECT_EQ(Mebibyte(pace), milliseconds(125));
  Pace unlimited(*this, Waits(), 0);
  EXPECT_EQ(Mebibyte(unlimited), seconds(0));
}

TEST_F(PaceTest, WhatAPauseHeldUpDoesNotComeInABurst) {
  Pace pace(*this, Waits(), 8 * kMiB);
  Mebibyte(pace);
  Pass(seconds(30));
  EXPECT_EQ(Mebibyte(pace), milliseconds(75));
  EXPECT_EQ(Mebibyte(pace), milliseconds(125));
}

TEST_F(PaceTest, NobodyWritesAndNobodyIsWaitedFor) {
  Pace pace(*this, Waits(), Looks(), minutes(2));
  EXPECT_EQ(pace.bytes_per_second(), 0u);
  EXPECT_EQ(Mebibyte(pace), seconds(0));
}

TEST_F(PaceTest, YieldsFromTheBeginningToWhoWrites) {
  entries_per_second_ = 500;
  Pace pace(*this, Waits(), Looks(), minutes(2));
  EXPECT_EQ(pace.bytes_per_second(), 4 * kMiB);
  EXPECT_EQ(Mebibyte(pace), milliseconds(250));
}

TEST_F(PaceTest, FollowsWritersThatComeAndGo) {
  Pace pace(*this, Waits(), Looks(), minutes(2));
  entries_per_second_ = 500;
  Pass(seconds(1));
  Mebibyte(pace);
  EXPECT_EQ(pace.bytes_per_second(), 4 * kMiB);
  entries_per_second_ = 0;
  Pass(seconds(1));
  Mebibyte(pace);  // the second before had half of them
  Pass(seconds(1));
  EXPECT_EQ(Mebibyte(pace), seconds(0));
  EXPECT_EQ(pace.bytes_per_second(), 0u);
  EXPECT_LE(looks_, 6);
}

TEST_F(PaceTest, AMemberThatDoesNotAnswerKeepsItsPace) {
  entries_per_second_ = 500;
  Pace pace(*this, Waits(), Looks(), minutes(2));
  unreachable_ = absl::UnavailableError("no answer");
  Pass(seconds(1));
  Mebibyte(pace);
  EXPECT_EQ(pace.bytes_per_second(), 4 * kMiB);
  unreachable_ = absl::OkStatus();
  index_ = 3;  // another member, or this one restored
  Pass(seconds(1));
  Mebibyte(pace);
  EXPECT_EQ(pace.bytes_per_second(), 4 * kMiB);
}

}  // namespace
}  // namespace capture
