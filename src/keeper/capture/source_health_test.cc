// A member whose metrics are told to the watch one look after the other.
#include "capture/source_health.h"

#include <fmt/format.h>

#include "base/status.h"
#include "base/testing.h"

namespace capture {
namespace {

using base::StatusIs;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class TurnedClock final : public base::Clock {
 public:
  base::Duration Monotonic() const override { return now; }
  base::Duration Wall() const override { return now; }
  base::Duration now{0};
};

class SourceWatchTest : public testing::Test {
 protected:
  // So many fsyncs and commits of this length each came since the last look.
  void Passes(double count, double fsync_ms, double commit_ms = 1) {
    vitals_.fsync.count += count;
    vitals_.fsync.seconds += count * fsync_ms / 1e3;
    vitals_.commit.count += count;
    vitals_.commit.seconds += count * commit_ms / 1e3;
  }
  SourceWatch Watch(std::optional<Vitals> before) {
    return SourceWatch(
        clock_, {.pause_max = seconds(10)},
        [this]() -> absl::StatusOr<Vitals> {
          RETURN_IF_ERROR(unreachable_);
          return vitals_;
        },
        [this](base::Duration time) {
          clock_.now += time;
          if (!pauses_.empty()) {
            const double fsync_ms = pauses_.front();
            pauses_.erase(pauses_.begin());
            Passes(50, fsync_ms);
          }
          return stopping_;
        },
        [this](bool paused, const std::string& why) {
          told_.push_back((paused ? "pause: " : "go: ") + why);
        },
        std::move(before));
  }
  absl::Status Next(SourceWatch& watch) {
    clock_.now += seconds(1);
    return watch.AtPiece();
  }

  TurnedClock clock_;
  Vitals vitals_;
  absl::Status unreachable_;
  std::vector<double> pauses_;  // how long an fsync takes in each wait
  std::vector<std::string> told_;
  bool stopping_ = false;
};

TEST(ParseVitals, ReadsTheMembersPage) {
  const auto vitals = ParseVitals(
      "# HELP etcd_disk_wal_fsync_duration_seconds x\n"
      "etcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.001\"} 7\n"
      "etcd_disk_wal_fsync_duration_seconds_sum 1.5e-1\n"
      "etcd_disk_wal_fsync_duration_seconds_count 30\n"
      "etcd_disk_backend_commit_duration_seconds_sum 0.5\n"
      "etcd_disk_backend_commit_duration_seconds_count 10\n"
      "etcd_server_leader_changes_seen_total 2\n"
      "etcd_server_quota_backend_bytes 2.147483648e+09\n"
      "etcd_mvcc_db_total_size_in_bytes 147483648\n");
  ASSERT_TRUE(vitals.has_value());
  EXPECT_EQ(vitals->fsync.seconds, 0.15);
  EXPECT_EQ(vitals->fsync.count, 30);
  EXPECT_EQ(vitals->commit.count, 10);
  EXPECT_EQ(vitals->leader_changes, 2);
  EXPECT_EQ(vitals->space_left, 2e9);
  EXPECT_FALSE(ParseVitals("").has_value());
  EXPECT_FALSE(ParseVitals("etcd_disk_wal_fsync_duration_seconds_sum x\n").has_value());
  EXPECT_FALSE(ParseVitals("<html>not found</html>").has_value());
}

TEST_F(SourceWatchTest, AWellMemberIsNotWaitedFor) {
  Passes(1000, 8);
  SourceWatch watch = Watch(std::nullopt);
  for (int i = 0; i < 5; ++i) {
    Passes(50, 12);
    ASSERT_OK(Next(watch));
  }
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_EQ(watch.paused(), base::Duration(0));
  EXPECT_EQ(watch.Summary(), "");
}

TEST_F(SourceWatchTest, PausesWhileItSuffersAndGoesOnWhenItRecovered) {
  Passes(1000, 8);
  SourceWatch watch = Watch(std::nullopt);
  Passes(50, 40);
  pauses_ = {30, 14, 9};  // 14 ms are no suffering, but no recovery either
  ASSERT_OK(Next(watch));
  EXPECT_THAT(told_, ElementsAre("pause: fsync 40.0 ms, 8.0 ms before", "go: it recovered"));
  EXPECT_EQ(watch.paused(), seconds(3));
  EXPECT_EQ(watch.Summary(), "paused 3 s: fsync 40.0 ms, 8.0 ms before");
  EXPECT_THAT(pauses_, IsEmpty());
}

TEST_F(SourceWatchTest, IsMeasuredByTheTimeBeforeAndNotByItsWholeLife) {
  Passes(1'000'000, 1);
  const Vitals before = vitals_;
  Passes(500, 20);  // a slow day, and no fault of the backup
  SourceWatch watch = Watch(before);
  Passes(50, 30);
  ASSERT_OK(Next(watch));
  EXPECT_THAT(told_, IsEmpty());
  // A member that was started anew is measured by the life it has.
  vitals_ = {};
  Passes(100, 8);
  SourceWatch anew = Watch(before);
  Passes(50, 20);
  pauses_ = {8};
  ASSERT_OK(Next(anew));
  EXPECT_THAT(told_, SizeIs(2));
}

TEST_F(SourceWatchTest, AFastDiskMayBecomeTwiceAsSlow) {
  Passes(1000, 0.5, 0.5);
  SourceWatch watch = Watch(std::nullopt);
  Passes(50, 4, 4);
  ASSERT_OK(Next(watch));
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(SourceWatchTest, IsGivenUpWhenItDoesNotRecover) {
  Passes(1000, 8);
  SourceWatch watch = Watch(std::nullopt);
  Passes(50, 40);
  pauses_ = std::vector<double>(100, 40);
  EXPECT_THAT(Next(watch),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("did not recover in 10 s of waiting: fsync 40.0 ms")));
}

TEST_F(SourceWatchTest, CommitsAndLeadersCountAsWell) {
  Passes(1000, 1, 10);
  SourceWatch watch = Watch(std::nullopt);
  Passes(50, 1, 25);
  vitals_.leader_changes += 1;
  pauses_ = {1};
  ASSERT_OK(Next(watch));
  EXPECT_THAT(told_, ElementsAre("pause: commit 25.0 ms, 10.0 ms before; the leader changed",
                                 "go: it recovered"));
}

TEST_F(SourceWatchTest, SpaceThatRunsOutEndsIt) {
  Passes(1000, 1);
  vitals_.space_left = 1e9;
  SourceWatch watch = Watch(std::nullopt);
  vitals_.space_left = 4e8;
  EXPECT_THAT(Next(watch), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("halved")));
}

TEST_F(SourceWatchTest, AFewSlowOnesAreJudgedTogether) {
  Passes(1000, 8);
  SourceWatch watch = Watch(std::nullopt);
  Passes(1, 100);
  ASSERT_OK(Next(watch));
  EXPECT_THAT(told_, IsEmpty());
  Passes(2, 100);
  pauses_ = {8};
  ASSERT_OK(Next(watch));
  EXPECT_THAT(told_, SizeIs(2));
}

TEST_F(SourceWatchTest, WithoutItsMetricsNothingWaits) {
  unreachable_ = absl::UnavailableError("no route");
  SourceWatch watch = Watch(std::nullopt);
  EXPECT_THAT(watch.unwatched(), StatusIs(absl::StatusCode::kUnavailable, "no route"));
  ASSERT_OK(Next(watch));
  // Lost in the middle of a pause.
  unreachable_ = absl::OkStatus();
  Passes(1000, 8);
  SourceWatch lost = Watch(std::nullopt);
  Passes(50, 40);
  pauses_ = {40, 40};
  const auto before = told_.size();
  ASSERT_OK(Next(lost));
  EXPECT_EQ(told_.size(), before + 2);
}

TEST_F(SourceWatchTest, StopsWhenEverythingStops) {
  Passes(1000, 8);
  SourceWatch watch = Watch(std::nullopt);
  Passes(50, 40);
  stopping_ = true;
  EXPECT_THAT(Next(watch), StatusIs(absl::StatusCode::kCancelled, "stopped"));
}

}  // namespace
}  // namespace capture
