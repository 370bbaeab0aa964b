// Starts: new ones, on what an earlier life left, and those that must be refused.
#include "base/files.h"
#include "member/fixture_for_test.h"
#include "mvcc/backend.h"
#include "wal/scan.h"

namespace member {
namespace {

using base::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kDb[] = "/data/member/snap/db";
constexpr char kWal[] = "/data/member/wal";

class RestartTest : public testing::Test {
 protected:
  std::map<std::string, std::string> Files(const std::string& prefix) {
    std::map<std::string, std::string> files;
    for (const std::string& path : t.disk.AllPaths()) {
      const auto contents = t.disk.Contents(path);
      if (path.starts_with(prefix) && contents.ok()) files[path] = *contents;
    }
    return files;
  }
  void Replace(const std::string& prefix, const std::map<std::string, std::string>& files) {
    for (const auto& [path, contents] : Files(prefix)) ASSERT_OK(t.disk.Remove(path));
    for (const auto& [path, contents] : files) t.disk.Put(path, contents);
  }
  TestMember t;
};

TEST_F(RestartTest, ReplaysWhatTheFileLacksAndNothingTwice) {
  t.options.backend_batch_interval = std::chrono::hours(1);  // nothing is committed by itself
  ASSERT_OK(t.StartReady());
  t.Put("a", "1");
  t.Put("a", "2");
  ASSERT_OK(t.member->backend().ForceCommit());
  t.Put("a", "3");
  t.Put("b", "1");
  t.Delete("b");
  const auto keys = t.Keys();
  const auto before = t.Keys(5);
  const uint64_t applied = t.member->applied_index();
  EXPECT_LT(t.member->backend().durable_index(), applied);
  t.Kill(/*power=*/true);
  ASSERT_OK(t.Start());
  EXPECT_THAT(t.Keys(), ElementsAre("a=2 c2 m3 v2 l0"));  // what the file holds
  ASSERT_OK(t.Until([&] { return t.member->ready(); }));
  EXPECT_EQ(t.revision(), 6);
  EXPECT_EQ(t.Keys(), keys);
  EXPECT_EQ(t.Keys(5), before);
  // The file is ahead of nothing now: another start applies nothing.
  ASSERT_OK(t.member->Stop());
  ASSERT_OK(t.Start());
  EXPECT_EQ(t.Keys(), keys);
  ASSERT_OK(t.Until([&] { return t.member->ready(); }));
  EXPECT_EQ(t.Keys(), keys);
  EXPECT_EQ(t.Put("a", "4").revision, 7);
}

TEST_F(RestartTest, AnAcknowledgedWriteSurvivesThePowerCutAfterTheFirstStart) {
  ASSERT_OK(t.StartReady());
  ASSERT_OK(t.Put("a", "1").status);
  t.Kill(/*power=*/true);
  ASSERT_TRUE(base::Exists(t.disk, kWal)) << "the directories were not made durable";
  ASSERT_OK(t.StartReady());
  EXPECT_THAT(t.Keys(), ElementsAre("a=1 c2 m2 v1 l0"));
}

TEST_F(RestartTest, AFirstStartThatDidNotGetFarIsDoneAgain) {
  ASSERT_OK(t.Start());  // the log is there, and nothing in it
  const uint64_t id = t.member->id();
  t.Kill(/*power=*/true);
  ASSERT_TRUE(base::Exists(t.disk, kWal));
  ASSERT_OK(t.StartReady());
  EXPECT_EQ(t.member->id(), id);
  EXPECT_OK(t.Put("a", "1").status);
  ASSERT_OK(t.Restart());
  EXPECT_THAT(t.Keys(), ElementsAre("a=1 c2 m2 v1 l0"));
}

TEST_F(RestartTest, AFirstStartIsNotDoneAgainAsSomebodyElse) {
  ASSERT_OK(t.Start());
  t.Kill();
  t.options.initial_cluster = {{"one", {"http://127.0.0.7:2380"}}};
  EXPECT_THAT(t.Start(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("was made for member")));
}

TEST_F(RestartTest, TheOptionsOfANewClusterMustNameTheMember) {
  t.options.name = "two";
  EXPECT_THAT(t.Start(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("couldn't find local name \"two\"")));
}

TEST_F(RestartTest, SnapshotsReleaseTheLog) {
  t.options.snapshot_count = 10;
  t.options.snapshot_catchup_entries = 3;
  t.options.wal_segment_bytes = 4096;
  t.options.max_wals = 2;
  t.options.max_snapshots = 2;
  ASSERT_OK(t.StartReady());
  for (int i = 0; i < 100; ++i) t.Put("k" + std::to_string(i % 5), std::string(500, 'x'));
  EXPECT_GE(t.observer.snapshots.size(), 8u);
  ASSERT_OK_AND_ASSIGN(const auto segments, wal::ListSegments(t.disk, kWal));
  EXPECT_LE(segments.size(), 3u);
  EXPECT_GT(segments.front().sequence, 5u);
  size_t markers = 0;
  for (const std::string& path : t.disk.AllPaths()) markers += path.ends_with(".snap") ? 1 : 0;
  EXPECT_EQ(markers, 2u);
  const auto keys = t.Keys();
  t.Kill(/*power=*/true);
  ASSERT_OK(t.StartReady());
  EXPECT_EQ(t.Keys(), keys);
  EXPECT_EQ(t.revision(), 101);
}

TEST_F(RestartTest, ADbBehindTheSnapshotIsRefused) {
  t.options.snapshot_count = 5;
  ASSERT_OK(t.StartReady());
  t.Put("a", "1");
  ASSERT_OK(t.member->backend().ForceCommit());
  ASSERT_OK_AND_ASSIGN(const std::string old_db, t.disk.Contents(kDb));
  for (int i = 0; i < 20; ++i) t.Put("a", "2");
  ASSERT_FALSE(t.observer.snapshots.empty());
  t.Kill();
  t.disk.Put(kDb, old_db);
  EXPECT_THAT(t.Start(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("failed to recover v3 backend from snapshot")));
}

TEST_F(RestartTest, ADbAheadOfTheLogIsRefused) {
  ASSERT_OK(t.StartReady());
  t.Put("a", "1");
  const auto old_log = Files(kWal);
  for (int i = 0; i < 5; ++i) t.Put("a", "2");
  ASSERT_OK(t.member->backend().ForceCommit());
  t.Kill();
  Replace(kWal, old_log);
  EXPECT_THAT(t.Start(), StatusIs(absl::StatusCode::kDataLoss,
                                  AllOf(HasSubstr("but the log in /data/member/wal ends at"),
                                        HasSubstr("not of the same time"))));
}

TEST_F(RestartTest, ADbWithoutItsLogIsRefused) {
  ASSERT_OK(t.StartReady());
  t.Put("a", "1");
  ASSERT_OK(t.member->Stop());
  t.member.reset();
  Replace(kWal, {});
  EXPECT_THAT(t.Start(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("but there is no log in /data/member/wal")));
}

TEST_F(RestartTest, EnabledAuthIsRefused) {
  ASSERT_OK(t.StartReady());
  ASSERT_OK(t.member->Stop());
  t.member.reset();
  for (const std::string_view enabled : {std::string_view("\0", 1), std::string_view("\1", 1)}) {
    {
      ASSERT_OK_AND_ASSIGN(
          const auto backend,
          mvcc::Backend::Open(
              {.files = &t.disk, .clock = &t.clock, .random = &t.random, .path = kDb}));
      backend->Put(mvcc::Bucket::kAuth, "authEnabled", enabled);
      ASSERT_OK(backend->Stop());
    }
    if (enabled[0] == 0) {
      ASSERT_OK(t.Start());
      t.Kill();
    } else {
      EXPECT_THAT(t.Start(),
                  StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("auth is enabled in")));
    }
  }
}

TEST_F(RestartTest, ANewerSchemaIsRefused) {
  ASSERT_OK(t.StartReady());
  ASSERT_OK(t.Until([&] { return t.member->storage_version() == "3.7.0"; }));
  ASSERT_OK(t.member->Stop());
  t.member.reset();
  t.options.version = "3.6.1";
  EXPECT_FALSE(t.Start().ok());
  t.options.version = "3.7.4";
  EXPECT_OK(t.Start());
}

TEST_F(RestartTest, ForceNewClusterLeavesThisMemberAlone) {
  t.options.initial_cluster = {{"one", t.options.peer_urls},
                               {"two", {"http://127.0.0.2:2380"}},
                               {"three", {"http://127.0.0.3:2380"}}};
  ASSERT_OK(t.Start());
  for (int i = 0; i < 20; ++i) t.Step();
  EXPECT_EQ(t.member->membership()->members.size(), 3u);
  const uint64_t id = t.member->id();
  t.Kill();
  ASSERT_OK(t.Start());
  for (int i = 0; i < 100; ++i) t.Step();
  EXPECT_FALSE(t.member->is_leader());
  t.Kill();
  t.options.force_new_cluster = true;
  ASSERT_OK(t.StartReady());
  EXPECT_EQ(t.member->id(), id);
  EXPECT_EQ(t.member->membership()->members.size(), 1u);
  EXPECT_EQ(t.member->membership()->removed.size(), 2u);
  EXPECT_OK(t.Put("a", "1").status);
  t.options.force_new_cluster = false;
  t.Kill(/*power=*/true);
  ASSERT_OK(t.StartReady());
  EXPECT_EQ(t.member->membership()->members.size(), 1u);
  EXPECT_THAT(t.Keys(), ElementsAre("a=1 c2 m2 v1 l0"));
}

TEST_F(RestartTest, ASnapshotThatCannotBeSavedEndsItBeforeAnyAnswer) {
  t.options.snapshot_count = 5;
  ASSERT_OK(t.StartReady());
  // The marker's file fails wherever it comes, among writes that are under way.
  for (uint64_t n = 1; n <= 60; ++n) {
    SCOPED_TRACE("operation " + std::to_string(n));
    t.disk.FailAt(n, absl::InternalError("input/output error"), /*only_once=*/true);
    int late = 0;
    for (int i = 0; i < 12 && t.observer.fatal.ok(); ++i) {
      pb::PutRequest put;
      put.set_key("a");
      t.member->Propose(RequestKind::kPut, put.SerializeAsString(),
                        std::make_unique<CallbackProposal>([&](const ApplyResult& result) {
                          late += result.status.ok() && !t.observer.fatal.ok() ? 1 : 0;
                        }));
      t.Step();
    }
    EXPECT_EQ(late, 0);
    ASSERT_OK(t.Restart());
  }
}

}  // namespace
}  // namespace member
