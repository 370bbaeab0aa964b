// A member's requests, from proposal to answer: writes, leases, alarms, compaction, membership,
// and what it does when nothing can be committed.
#include "member/errors.h"
#include "member/fixture_for_test.h"
#include "mvcc/store.h"

namespace member {
namespace {

using base::StatusIs;
using testing::ElementsAre;

class MemberTest : public testing::Test {
 protected:
  TestMember t;
};

TEST_F(MemberTest, BecomesReadyAndPublishesItself) {
  ASSERT_OK(t.Start());
  EXPECT_FALSE(t.member->ready());
  EXPECT_FALSE(t.member->ReadNow());
  bool told = false;
  t.member->WhenReady([&] { told = true; });
  ASSERT_OK(t.Until([&] { return told; }));
  EXPECT_TRUE(t.member->is_leader());
  EXPECT_TRUE(t.member->ReadNow());
  EXPECT_EQ(t.member->leader(), t.member->id());
  ASSERT_OK(t.Until([&] { return !t.member->membership()->cluster_version.empty(); }));
  EXPECT_EQ(t.member->membership()->cluster_version, "3.7.0");
  EXPECT_EQ(t.member->storage_version(), "3.7.0");
  const cluster::Member* self = t.member->membership()->Find(t.member->id());
  ASSERT_NE(self, nullptr);
  EXPECT_EQ(self->name, "one");
  EXPECT_EQ(self->client_urls, t.options.client_urls);
}

TEST_F(MemberTest, AnswersWithTheRevisionOfTheWrite) {
  ASSERT_OK(t.StartReady());
  EXPECT_EQ(t.Put("a", "1").revision, 2);
  EXPECT_EQ(t.Put("a", "2").revision, 3);
  EXPECT_EQ(t.Delete("nothing").revision, 3);
  const ApplyResult deleted = t.Delete("a", "b");
  EXPECT_EQ(deleted.revision, 4);
  pb::DeleteRangeResponse response;
  ASSERT_TRUE(response.ParseFromString(deleted.body));
  EXPECT_EQ(response.deleted(), 1);
  EXPECT_TRUE(t.Keys().empty());
  EXPECT_THAT(t.Keys(3), ElementsAre("a=2 c2 m3 v2 l0"));
}

TEST_F(MemberTest, ReadsWaitForTheFirstEntryOfTheTerm) {
  ASSERT_OK(t.StartReady());
  t.Put("a", "1");
  t.Kill();
  ASSERT_OK(t.Start());
  EXPECT_FALSE(t.member->ReadNow());
  int64_t seen = 0;
  t.member->Read([&](const absl::Status& status) {
    EXPECT_OK(status);
    seen = t.revision();
  });
  EXPECT_EQ(seen, 0);
  ASSERT_OK(t.Until([&] { return seen != 0; }));
  EXPECT_EQ(seen, 2);
}

TEST_F(MemberTest, RefusesWhatIsTooLargeAndWhatComesAfterTheEnd) {
  t.options.max_request_bytes = 1000;
  ASSERT_OK(t.StartReady());
  EXPECT_EQ(t.Put("a", std::string(1000, 'x')).status, RequestTooLargeError());
  EXPECT_OK(t.Put("a", std::string(900, 'x')).status);
  ASSERT_OK(t.member->Stop());
  const auto late = t.Propose(RequestKind::kPut, "");
  ASSERT_TRUE(late->has_value());
  EXPECT_EQ((*late)->status, StoppedError());
  absl::Status read;
  t.member->Read([&](const absl::Status& status) { read = status; });
  EXPECT_EQ(read, StoppedError());
}

TEST_F(MemberTest, ProposalsAndReadsTimeOutWithoutAQuorum) {
  t.options.initial_cluster = {{"one", t.options.peer_urls},
                               {"two", {"http://127.0.0.2:2380"}},
                               {"three", {"http://127.0.0.3:2380"}}};
  ASSERT_OK(t.Start());
  const auto put = t.Propose(RequestKind::kPut, "");
  std::optional<absl::Status> read;
  t.member->Read([&](const absl::Status& status) { read = status; });
  const base::Duration begun = t.clock.now;
  ASSERT_OK(t.Until([&] { return put->has_value() && read.has_value(); }));
  EXPECT_EQ((*put)->status, TimeoutError());
  EXPECT_EQ(*read, TimeoutError());
  EXPECT_GE(t.clock.now - begun, t.member->request_timeout());
  EXPECT_LT(t.clock.now - begun, t.member->request_timeout() + std::chrono::seconds(1));
  EXPECT_FALSE(t.member->is_leader());
  EXPECT_EQ(t.member->pending_proposals(), 0u);
}

TEST_F(MemberTest, LeasesHoldKeys) {
  ASSERT_OK(t.StartReady());
  EXPECT_EQ(t.Put("a", "1", 7).status, lease::LeaseNotFoundError());
  EXPECT_EQ(t.revision(), 1);
  const ApplyResult granted = t.Grant(7, 1);
  pb::LeaseGrantResponse response;
  ASSERT_TRUE(response.ParseFromString(granted.body));
  EXPECT_EQ(response.id(), 7);
  EXPECT_EQ(response.ttl(), 2);  // raised to 1.5 election timeouts
  EXPECT_EQ(t.Grant(7, 10).status, lease::LeaseExistsError());
  t.Grant(8, 1000);
  t.Put("a", "1", 7);
  t.Put("b", "1", 7);
  t.Put("c", "1", 8);
  EXPECT_THAT(*t.member->lessor().AttachedKeys(7), ElementsAre("a", "b"));
  t.Put("b", "2", 8);
  EXPECT_THAT(*t.member->lessor().AttachedKeys(8), ElementsAre("b", "c"));

  pb::LeaseRevokeRequest revoke;
  revoke.set_id(8);
  EXPECT_EQ(t.Do(RequestKind::kLeaseRevoke, revoke).revision, 6);
  EXPECT_THAT(t.Keys(), ElementsAre("a=1 c2 m2 v1 l7"));
  EXPECT_EQ(t.Do(RequestKind::kLeaseRevoke, revoke).status, lease::LeaseNotFoundError());
  // The other one runs out by itself.
  ASSERT_OK(t.Until([&] { return t.Keys().empty(); }));
  EXPECT_EQ(t.revision(), 7);
  EXPECT_FALSE(t.member->lessor().Exists(7));
}

TEST_F(MemberTest, LeasesAndTheirKeysSurvive) {
  ASSERT_OK(t.StartReady());
  t.Grant(7, 500);
  t.Grant(9, 400);
  t.Put("a", "1", 7);
  t.Put("b", "1", 9);
  t.Put("b", "1");
  ASSERT_OK(t.Restart());
  const auto leases = t.member->lessor().Leases();
  ASSERT_EQ(leases.size(), 2u);
  EXPECT_EQ(t.member->lessor().Find(7)->granted_ttl_seconds, 500);
  EXPECT_THAT(*t.member->lessor().AttachedKeys(7), ElementsAre("a"));
  EXPECT_TRUE(t.member->lessor().AttachedKeys(9)->empty());
}

TEST_F(MemberTest, ANoSpaceAlarmRefusesWhatNeedsRoom) {
  t.options.quota_bytes = 1 << 20;
  ASSERT_OK(t.StartReady());
  EXPECT_TRUE(t.member->HasRoom(1000));
  EXPECT_FALSE(t.member->HasRoom(2 << 20));
  EXPECT_TRUE(t.member->HasRoom(0));
  t.Put("a", "1");
  t.Grant(7, 500);
  bool raised = false;
  t.member->RaiseNoSpace([&](const absl::Status& status) { raised = status.ok(); });
  ASSERT_OK(t.Until([&] { return raised; }));
  ASSERT_OK(t.Restart());
  EXPECT_TRUE(t.member->alarms().HasNoSpace());
  EXPECT_EQ(t.Put("b", "1").status, NoSpaceError());
  EXPECT_EQ(t.Grant(8, 500).status, NoSpaceError());
  EXPECT_OK(t.Delete("a").status);
  pb::LeaseRevokeRequest revoke;
  revoke.set_id(7);
  EXPECT_OK(t.Do(RequestKind::kLeaseRevoke, revoke).status);
  EXPECT_THAT(t.member->alarms().List(0),
              ElementsAre(Alarm{.member_id = t.member->id(), .type = 1}));
  EXPECT_OK(t.SetAlarm(pb::AlarmRequest::DEACTIVATE, pb::NOSPACE).status);
  EXPECT_OK(t.Put("b", "1").status);
  ASSERT_OK(t.Restart());
  EXPECT_TRUE(t.member->alarms().List(0).empty());
}

TEST_F(MemberTest, ACorruptAlarmRefusesEveryWrite) {
  ASSERT_OK(t.StartReady());
  t.Put("a", "1");
  pb::AlarmResponse response;
  ASSERT_TRUE(response.ParseFromString(t.SetAlarm(pb::AlarmRequest::ACTIVATE, pb::CORRUPT).body));
  ASSERT_EQ(response.alarms_size(), 1);
  EXPECT_EQ(response.alarms(0).alarm(), pb::CORRUPT);
  EXPECT_EQ(t.Put("a", "2").status, CorruptError());
  EXPECT_EQ(t.Delete("a").status, CorruptError());
  pb::CompactionRequest compact;
  compact.set_revision(2);
  EXPECT_EQ(t.Do(RequestKind::kCompaction, compact).status, CorruptError());
  EXPECT_EQ(t.revision(), 2);
}

TEST_F(MemberTest, CompactionErrorsComeAtOnce) {
  ASSERT_OK(t.StartReady());
  for (int i = 0; i < 5; ++i) t.Put("a", std::to_string(i));
  pb::CompactionRequest compact;
  compact.set_revision(7);
  EXPECT_EQ(t.Do(RequestKind::kCompaction, compact).status, mvcc::FutureRevisionError());
  compact.set_revision(4);
  EXPECT_OK(t.Do(RequestKind::kCompaction, compact).status);
  EXPECT_EQ(t.Do(RequestKind::kCompaction, compact).status, mvcc::CompactedError());
  compact.set_revision(3);
  EXPECT_EQ(t.Do(RequestKind::kCompaction, compact).status, mvcc::CompactedError());
  EXPECT_EQ(t.member->store().compact_revision(), 4);
}

TEST_F(MemberTest, APhysicalCompactionIsAnsweredWhenItIsDone) {
  t.options.compaction_batch_limit = 1;
  ASSERT_OK(t.StartReady());
  for (int i = 0; i < 9; ++i) t.Put("a", std::to_string(i));
  pb::CompactionRequest compact;
  compact.set_revision(10);
  const auto logical = t.Propose(RequestKind::kCompaction, compact.SerializeAsString());
  compact.set_physical(true);
  // Asked for again it is refused, and still waits.
  const auto physical = t.Propose(RequestKind::kCompaction, compact.SerializeAsString());
  ASSERT_OK(t.Until([&] { return logical->has_value(); }));
  EXPECT_OK((*logical)->status);
  EXPECT_EQ(t.observer.compactions_finished, 0);
  EXPECT_FALSE(physical->has_value());
  ASSERT_OK(t.Until([&] { return physical->has_value(); }));
  EXPECT_EQ((*physical)->status, mvcc::CompactedError());
  EXPECT_EQ(t.observer.compactions_finished, 1);
  t.Put("a", "last");
  compact.set_revision(11);
  EXPECT_OK(t.Do(RequestKind::kCompaction, compact).status);
  EXPECT_EQ(t.observer.compactions_finished, 2);
}

TEST_F(MemberTest, AutoCompactionKeepsSoManyRevisions) {
  t.options.auto_compaction_mode = AutoCompactionMode::kRevision;
  t.options.auto_compaction_revisions = 3;
  ASSERT_OK(t.StartReady());
  for (int i = 0; i < 9; ++i) t.Put("a", std::to_string(i));
  EXPECT_EQ(t.member->store().compact_revision(), -1);
  t.clock.now += std::chrono::minutes(5);
  ASSERT_OK(t.Until([&] { return t.member->store().compact_revision() == 7; }));
}

TEST_F(MemberTest, ALearnerIsAddedUpdatedAndRemoved) {
  ASSERT_OK(t.StartReady());
  std::optional<ApplyResult> result;
  const auto done = [&] {
    result.reset();
    return std::make_unique<CallbackProposal>([&](ApplyResult r) { result = std::move(r); });
  };
  const uint64_t id = t.member->AddMember({"http://127.0.0.9:2380"}, /*learner=*/true, done());
  ASSERT_OK(t.Until([&] { return result.has_value(); }));
  EXPECT_OK(result->status);
  ASSERT_NE(t.member->membership()->Find(id), nullptr);
  EXPECT_TRUE(t.member->membership()->Find(id)->is_learner);
  t.member->UpdateMember(id, {"http://127.0.0.8:2380"}, done());
  ASSERT_OK(t.Until([&] { return result.has_value(); }));
  ASSERT_OK(t.Restart());
  EXPECT_THAT(t.member->membership()->Find(id)->peer_urls, ElementsAre("http://127.0.0.8:2380"));
  EXPECT_OK(t.Put("a", "1").status);  // a learner is no part of the quorum
  t.member->RemoveMember(t.member->id(), done());
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->status, NotEnoughStartedError());
  t.member->RemoveMember(id, done());
  ASSERT_OK(t.Until([&] { return result.has_value(); }));
  EXPECT_OK(result->status);
  EXPECT_EQ(t.member->membership()->Find(id), nullptr);
  t.member->RemoveMember(id, done());
  ASSERT_TRUE(result.has_value());
  EXPECT_FALSE(result->status.ok());
}

TEST_F(MemberTest, AFailingDiskEndsItWithoutAnAnswer) {
  ASSERT_OK(t.StartReady());
  t.disk.FailAt(1, absl::InternalError("input/output error"));
  pb::PutRequest put;
  put.set_key("a");
  const auto result = t.Propose(RequestKind::kPut, put.SerializeAsString());
  for (int i = 0; i < 10; ++i) t.Step();
  EXPECT_THAT(t.observer.fatal, StatusIs(absl::StatusCode::kInternal));
  EXPECT_FALSE(result->has_value());
  EXPECT_FALSE(t.member->ReadNow());
}

}  // namespace
}  // namespace member
