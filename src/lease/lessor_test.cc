#include "lease/lessor.h"

#include <map>

#include "base/random.h"
#include "base/testing.h"

namespace lease {
namespace {

using base::IsOk;
using base::IsOkAndHolds;
using base::StatusIs;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class ManualClock final : public base::Clock {
 public:
  base::Duration Monotonic() const override { return now; }
  base::Duration Wall() const override { return now; }
  base::Duration now = seconds(5000);
};

class FakeStorage final : public LeaseStorage {
 public:
  void Put(int64_t id, std::string_view record) override { records[id] = record; }
  void Delete(int64_t id) override { records.erase(id); }
  std::map<int64_t, std::string> records;
};

class LessorTest : public testing::Test {
 protected:
  ManualClock clock;
  FakeStorage storage;
  Lessor lessor{&storage, clock, {}};
};

TEST_F(LessorTest, GrantChecksAndRaises) {
  EXPECT_THAT(lessor.Grant(7, 9'000'000'001),
              StatusIs(absl::StatusCode::kOutOfRange, "etcdserver: too large lease TTL"));
  EXPECT_THAT(lessor.Grant(7, 100), IsOkAndHolds(100));
  EXPECT_THAT(lessor.Grant(7, 100),
              StatusIs(absl::StatusCode::kFailedPrecondition, "etcdserver: lease already exists"));
  EXPECT_THAT(lessor.Grant(7, 9'000'000'001), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(lessor.Grant(-8, -5), IsOkAndHolds(2));
  EXPECT_THAT(lessor.Grant(9, 9'000'000'000), IsOkAndHolds(9'000'000'000));
  // on-disk.md, 2.4: TTL 600.
  EXPECT_THAT(lessor.Grant(0x3940a22d35caf709, 600), IsOkAndHolds(600));
  EXPECT_EQ(base::ToHex(storage.records[0x3940a22d35caf709]), "0889eeabaed3c5a8a03910d804");
  EXPECT_THAT(storage.records, SizeIs(4));
}

TEST_F(LessorTest, AttachesEachKeyToOneLease) {
  ASSERT_OK(lessor.Grant(1, 10));
  ASSERT_OK(lessor.Grant(2, 10));
  lessor.OnKeyPut("b", 1);
  lessor.OnKeyPut("a", 1);
  EXPECT_THAT(lessor.AttachedKeys(1), IsOkAndHolds(ElementsAre("a", "b")));
  lessor.OnKeyPut("a", 2);
  lessor.OnKeyPut("b", 0);
  EXPECT_THAT(lessor.AttachedKeys(1), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(lessor.AttachedKeys(2), IsOkAndHolds(ElementsAre("a")));
  EXPECT_EQ(lessor.LeaseOf("a"), 2);
  lessor.OnKeyDeleted("a");
  EXPECT_EQ(lessor.LeaseOf("a"), 0);
  EXPECT_THAT(lessor.AttachedKeys(3),
              StatusIs(absl::StatusCode::kNotFound, "etcdserver: requested lease not found"));
  EXPECT_EQ(lessor.stats().attachments, 0u);
}

TEST_F(LessorTest, RevokeForgetsEverything) {
  ASSERT_OK(lessor.Grant(1, 10));
  lessor.OnKeyPut("a", 1);
  ASSERT_OK(lessor.Revoke(1));
  EXPECT_THAT(lessor.Revoke(1), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(lessor.Exists(1));
  EXPECT_EQ(lessor.LeaseOf("a"), 0);
  EXPECT_THAT(storage.records, IsEmpty());
}

TEST_F(LessorTest, OnlyThePrimaryExpires) {
  ASSERT_OK(lessor.Grant(1, 10));
  clock.now += seconds(100);
  EXPECT_THAT(lessor.TakeExpired(500), IsEmpty());
  EXPECT_EQ(lessor.Renew(1).outcome, Lessor::RenewOutcome::kNotPrimary);
  lessor.Promote(seconds(1));
  clock.now += milliseconds(10999);
  EXPECT_THAT(lessor.TakeExpired(500), IsEmpty());
  EXPECT_EQ(lessor.Find(1)->remaining_seconds, 0);
  clock.now += milliseconds(1);
  EXPECT_TRUE(lessor.Find(1)->expired);
  EXPECT_THAT(lessor.TakeExpired(500), ElementsAre(1));
  EXPECT_THAT(lessor.TakeExpired(500), IsEmpty());
  clock.now += seconds(7);
  EXPECT_THAT(lessor.TakeExpired(500), ElementsAre(1));  // the revocation failed: again
  EXPECT_EQ(lessor.Find(1)->remaining_seconds, -7);
  ASSERT_OK(lessor.Revoke(1));
  clock.now += seconds(70);
  EXPECT_THAT(lessor.TakeExpired(500), IsEmpty());
}

TEST_F(LessorTest, RenewalRestartsTheTtl) {
  lessor.Promote({});
  ASSERT_OK(lessor.Grant(1, 10));
  clock.now += seconds(9);
  const Lessor::Renewal renewal = lessor.Renew(1);
  EXPECT_EQ(renewal.outcome, Lessor::RenewOutcome::kRenewed);
  EXPECT_EQ(renewal.ttl_seconds, 10);
  clock.now += seconds(9);
  EXPECT_THAT(lessor.TakeExpired(500), IsEmpty());
  clock.now += seconds(1);
  // Decided: it does not come back to life.
  EXPECT_EQ(lessor.Renew(1).outcome, Lessor::RenewOutcome::kExpired);
  EXPECT_EQ(lessor.Renew(2).outcome, Lessor::RenewOutcome::kNotFound);
  EXPECT_THAT(lessor.TakeExpired(500), ElementsAre(1));
}

TEST_F(LessorTest, TellsWhenAnExpiredLeaseIsGone) {
  lessor.Promote({});
  ASSERT_OK(lessor.Grant(1, 10));
  ASSERT_OK(lessor.Grant(2, 10));
  clock.now += seconds(11);
  std::vector<std::string> calls;
  lessor.OnceRevoked(1, [&](bool gone) { calls.push_back(gone ? "1 gone" : "1 not"); });
  lessor.OnceRevoked(2, [&](bool gone) { calls.push_back(gone ? "2 gone" : "2 not"); });
  lessor.OnceRevoked(3, [&](bool gone) { calls.push_back(gone ? "3 gone" : "3 not"); });
  EXPECT_THAT(calls, ElementsAre("3 gone"));
  ASSERT_OK(lessor.Revoke(1));
  EXPECT_THAT(calls, ElementsAre("3 gone", "1 gone"));
  lessor.Demote();
  EXPECT_THAT(calls, ElementsAre("3 gone", "1 gone", "2 not"));
  EXPECT_THAT(lessor.TakeExpired(500), IsEmpty());
}

TEST_F(LessorTest, NewPrimarySpreadsManyEnds) {
  for (int64_t id = 1; id <= 3000; ++id) ASSERT_OK(lessor.Grant(id, 60));
  lessor.Promote({});
  clock.now += seconds(60);
  EXPECT_THAT(lessor.TakeExpired(5000), SizeIs(750));
  clock.now += seconds(1);
  EXPECT_THAT(lessor.TakeExpired(5000), SizeIs(750));
  clock.now += seconds(2);
  EXPECT_THAT(lessor.TakeExpired(100), SizeIs(100));
  EXPECT_THAT(lessor.TakeExpired(5000), SizeIs(1400));
}

TEST(Lessor, CheckpointsAreTakenStoredAndCleared) {
  ManualClock clock;
  FakeStorage storage;
  Lessor lessor(&storage, clock, {.checkpoints = true, .persist_checkpoints = true});
  lessor.Promote({});
  ASSERT_OK(lessor.Grant(1, 3600));
  ASSERT_OK(lessor.Grant(2, 60));  // too short to matter
  clock.now += seconds(300);
  const std::vector<Lessor::CheckpointItem> due = lessor.TakeCheckpoints(1000);
  ASSERT_THAT(due, SizeIs(1));
  EXPECT_EQ(due[0].id, 1);
  EXPECT_EQ(due[0].remaining_ttl_seconds, 3300);
  ASSERT_OK(lessor.Checkpoint(1, 3300));
  EXPECT_EQ(base::ToHex(storage.records[1]), "080110901c18e419");
  lessor.Demote();
  lessor.Promote({});
  EXPECT_EQ(lessor.Find(1)->remaining_seconds, 3300);
  EXPECT_TRUE(lessor.Renew(1).clear_checkpoint);
  EXPECT_FALSE(lessor.Renew(1).clear_checkpoint);
  EXPECT_EQ(lessor.Find(1)->remaining_seconds, 3600);
  EXPECT_THAT(lessor.Checkpoint(5, 1), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(LessorTest, ListsByRemainingTime) {
  lessor.Promote({});
  ASSERT_OK(lessor.Grant(1, 30));
  ASSERT_OK(lessor.Grant(2, 10));
  ASSERT_OK(lessor.Grant(3, 20));
  std::vector<int64_t> ids;
  for (const LeaseInfo& info : lessor.Leases()) ids.push_back(info.id);
  EXPECT_THAT(ids, ElementsAre(2, 3, 1));
}

TEST(Lessor, LoadsFromTheBackend) {
  base::ScratchDirectory scratch;
  ManualClock clock;
  for (const bool again : {false, true}) {
    mvcc::BackendOptions options;
    options.files = &base::PosixFiles();
    options.clock = &clock;
    options.random = &base::SystemRandom();
    options.path = scratch / "db";
    options.map_reserve_bytes = 1 << 20;
    ASSERT_OK_AND_ASSIGN(auto backend, mvcc::Backend::Open(std::move(options)));
    const auto storage = NewBackendLeaseStorage(*backend);
    Lessor lessor(storage.get(), clock, {});
    ASSERT_OK(lessor.Load(*backend->View()));
    if (!again) {
      ASSERT_OK(lessor.Grant(5, 50));
      ASSERT_OK(lessor.Grant(6, 60));
      ASSERT_OK(lessor.Revoke(5));
      ASSERT_OK(backend->Stop());
      continue;
    }
    EXPECT_FALSE(lessor.Exists(5));
    lessor.LoadAttachments({{6, "a"}, {5, "b"}});
    EXPECT_THAT(lessor.AttachedKeys(6), IsOkAndHolds(ElementsAre("a")));
    EXPECT_EQ(lessor.LeaseOf("b"), 0);
    lessor.Promote({});
    EXPECT_EQ(lessor.Find(6)->remaining_seconds, 60);
    backend->Put(mvcc::Bucket::kLease, "12345678", "\x08");
    EXPECT_THAT(lessor.Load(*backend->View()), StatusIs(absl::StatusCode::kDataLoss));
  }
}

}  // namespace
}  // namespace lease
