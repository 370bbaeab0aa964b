#include "mvcc/store.h"

#include "mvcc/fixture_for_test.h"

namespace mvcc {
namespace {

using base::IsOk;
using base::StatusIs;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> Keys(const std::vector<TestKv>& kvs) {
  std::vector<std::string> keys;
  for (const TestKv& kv : kvs) keys.push_back(kv.key);
  return keys;
}

TEST(Store, StartsAtRevisionOne) {
  TestStore t;
  ASSERT_OK(t.Open());
  EXPECT_EQ(t.store->current_revision(), 1);
  EXPECT_EQ(t.store->compact_revision(), -1);
  EXPECT_EQ(t.Put("a", "1"), 2);
}

TEST(Store, KeepsGenerations) {
  TestStore t;
  ASSERT_OK(t.Open());
  t.Put("a", "1");
  t.Put("a", "2", 7);
  EXPECT_THAT(t.Get({.key = "a"}), ElementsAre(TestKv{"a", "2", 2, 3, 2, 7}));
  EXPECT_EQ(t.Delete("a"), 1);
  EXPECT_EQ(t.store->current_revision(), 4);
  EXPECT_THAT(t.Get({.key = "a"}), IsEmpty());
  EXPECT_EQ(t.Delete("a"), 0);
  EXPECT_EQ(t.store->current_revision(), 4);
  t.Put("a", "3");
  EXPECT_THAT(t.Get({.key = "a"}), ElementsAre(TestKv{"a", "3", 5, 5, 1, 0}));
  EXPECT_THAT(t.Get({.key = "a", .revision = 2}), ElementsAre(TestKv{"a", "1", 2, 2, 1, 0}));
  EXPECT_THAT(t.Get({.key = "a", .revision = 4}), IsEmpty());
  EXPECT_THAT(t.GetStatus({.key = "a", .revision = 6}),
              StatusIs(absl::StatusCode::kOutOfRange,
                       "etcdserver: mvcc: required revision is a future revision"));
}

// The observations of client-api.md, 2.3: five keys, k1 put three times.
class RangeTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(t.Open());
    for (const char* key : {"k1", "k2", "k3", "k4", "k5"}) t.Put(key, std::string("v") + key);
    t.Put("k1", "x");
    t.Put("k1", "a");
  }
  TestStore t;
  RangeResult r;
};

TEST_F(RangeTest, Limits) {
  EXPECT_THAT(Keys(t.Get({.key = "k", .range_end = "l", .limit = 2}, &r)), ElementsAre("k1", "k2"));
  EXPECT_TRUE(r.more);
  EXPECT_EQ(r.count, 5);
  EXPECT_EQ(r.revision, 8);
  EXPECT_EQ(t.Get({.key = "k", .range_end = "l", .limit = 5}, &r).size(), 5u);
  EXPECT_FALSE(r.more);
  EXPECT_EQ(r.count, 5);
  EXPECT_EQ(t.Get({.key = "k", .range_end = "l", .limit = -1}, &r).size(), 5u);
}

TEST_F(RangeTest, SortsAfterTheEarlyLimit) {
  // Order none: only the first limit + 1 keys take part.
  EXPECT_THAT(
      Keys(t.Get({.key = "k", .range_end = "l", .limit = 1, .sort_target = SortTarget::kMod}, &r)),
      ElementsAre("k2"));
  EXPECT_TRUE(r.more);
  EXPECT_EQ(r.count, 5);
  EXPECT_THAT(Keys(t.Get({.key = "k",
                          .range_end = "l",
                          .limit = 2,
                          .sort_order = SortOrder::kDescend,
                          .sort_target = SortTarget::kVersion},
                         &r)),
              ElementsAre("k1", "k2"));
  EXPECT_TRUE(r.more);
  EXPECT_THAT(Keys(t.Get({.key = "k",
                          .range_end = "l",
                          .sort_order = SortOrder::kDescend,
                          .sort_target = SortTarget::kKey})),
              ElementsAre("k5", "k4", "k3", "k2", "k1"));
  EXPECT_THAT(Keys(t.Get({.key = "k",
                          .range_end = "l",
                          .limit = 2,
                          .sort_order = SortOrder::kAscend,
                          .sort_target = SortTarget::kValue})),
              ElementsAre("k1", "k2"));
  EXPECT_THAT(Keys(t.Get({.key = "k",
                          .range_end = "l",
                          .sort_order = SortOrder::kAscend,
                          .sort_target = SortTarget::kMod})),
              ElementsAre("k2", "k3", "k4", "k5", "k1"));
}

TEST_F(RangeTest, FiltersAndCounts) {
  EXPECT_THAT(Keys(t.Get({.key = "k", .range_end = "l", .limit = 1, .min_mod_revision = 8}, &r)),
              ElementsAre("k1"));
  EXPECT_FALSE(r.more);
  EXPECT_EQ(r.count, 5);
  EXPECT_THAT(t.Get({.key = "k", .range_end = "l", .max_mod_revision = -1}, &r), IsEmpty());
  EXPECT_EQ(r.count, 5);
  EXPECT_THAT(Keys(t.Get({.key = "k", .range_end = kToEnd, .max_create_revision = 3})),
              ElementsAre("k1", "k2"));
  EXPECT_THAT(t.Get({.key = "k", .range_end = "l", .limit = 1, .count_only = true}, &r), IsEmpty());
  EXPECT_EQ(r.count, 5);
  EXPECT_FALSE(r.more);
  EXPECT_THAT(t.Get({.key = "k5", .range_end = "k1"}, &r), IsEmpty());
  EXPECT_EQ(r.count, 0);
  EXPECT_EQ(t.Get({.key = kToEnd, .range_end = kToEnd}, &r).size(), 5u);
  t.Delete("k2");
  t.Get({.key = "k", .range_end = "l", .limit = 1, .revision = 8}, &r);
  EXPECT_EQ(r.count, 5);
  t.Get({.key = "k", .range_end = "l", .limit = 1}, &r);
  EXPECT_EQ(r.count, 4);
  t.Get({.key = "k", .range_end = "l", .revision = 3, .count_only = true}, &r);
  EXPECT_EQ(r.count, 2);
}

TEST_F(RangeTest, KeysOnlyCarriesNoValueAndNoLease) {
  t.Put("k9", "v", 5);
  EXPECT_THAT(t.Get({.key = "k9", .keys_only = true}), ElementsAre(TestKv{"k9", "", 9, 9, 1, 0}));
  EXPECT_THAT(t.Get({.key = "k9", .range_end = "l", .keys_only = true}),
              ElementsAre(TestKv{"k9", "", 9, 9, 1, 0}));
  EXPECT_THAT(
      t.Get({.key = "k9", .range_end = "l", .sort_target = SortTarget::kValue, .keys_only = true}),
      ElementsAre(TestKv{"k9", "", 9, 9, 1, 5}));
}

TEST_F(RangeTest, CursorEqualsRange) {
  for (const bool plan : {false, true}) {
    for (const int64_t limit : {0, 1, 4, 5, 9}) {
      for (const bool keys_only : {false, true}) {
        const RangeQuery query{
            .key = "k", .range_end = "l", .limit = limit, .keys_only = keys_only};
        std::string want;
        ASSERT_OK_AND_ASSIGN(const RangeResult result, t.store->Range(query, &want, 2));
        ASSERT_OK_AND_ASSIGN(auto cursor, RangeCursor::Open(*t.store, query));
        if (plan) {
          ASSERT_OK_AND_ASSIGN(const RangeCursor::Size size, cursor->Plan());
          EXPECT_EQ(size.bytes, want.size());
          EXPECT_EQ(size.more, result.more);
          EXPECT_EQ(size.count, result.count);
        }
        std::string got;
        RangeCursor::Chunk chunk;
        int64_t returned = 0;
        int chunks = 0;
        while (!chunk.done) {
          ASSERT_LT(++chunks, 10);
          ASSERT_OK_AND_ASSIGN(chunk, cursor->Next(2, 1 << 20, &got));
          returned += chunk.returned;
        }
        EXPECT_EQ(got, want);
        EXPECT_EQ(returned, result.returned);
        EXPECT_EQ(chunk.more, result.more);
        EXPECT_EQ(chunk.count, result.count);
      }
    }
  }
}

TEST_F(RangeTest, PlannedCursorSurvivesCompaction) {
  const RangeQuery query{.key = "k", .range_end = "l"};
  std::string want;
  ASSERT_OK(t.store->Range(query, &want));
  ASSERT_OK_AND_ASSIGN(auto planned, RangeCursor::Open(*t.store, query));
  ASSERT_OK(planned->Plan());
  ASSERT_OK_AND_ASSIGN(auto unplanned, RangeCursor::Open(*t.store, query));
  for (const char* key : {"k1", "k2", "k3", "k4", "k5"}) t.Put(key, "new");
  ASSERT_OK(t.Compact(t.store->current_revision()));
  t.FinishCompactions();
  std::string got;
  ASSERT_OK(planned->Next(100, 1 << 20, &got));
  EXPECT_EQ(got, want);
  got = "kept";
  EXPECT_THAT(unplanned->Next(100, 1 << 20, &got),
              StatusIs(absl::StatusCode::kOutOfRange,
                       "etcdserver: mvcc: required revision has been compacted"));
  EXPECT_EQ(got, "kept");
}

TEST(Txn, SeesItsOwnWritesAndOthersDoNot) {
  TestStore t;
  ASSERT_OK(t.Open());
  t.Put("a", "old");
  t.Txn([&](WriteTxn& txn) {
    EXPECT_EQ(txn.header_revision(), 2);
    std::optional<std::string_view> previous;
    ASSERT_OK(txn.Put("a", "new", 0, &previous));
    ASSERT_TRUE(previous.has_value());
    EXPECT_EQ(ToTestKv(*previous).value, "old");
    ASSERT_OK(txn.Put("b", "1", 0, &previous));
    EXPECT_FALSE(previous.has_value());
    EXPECT_EQ(txn.header_revision(), 3);
    std::string out;
    ASSERT_OK_AND_ASSIGN(RangeResult r, txn.Range({.key = "a", .range_end = "z"}, &out));
    EXPECT_EQ(r.revision, 3);
    EXPECT_EQ(r.count, 2);
    EXPECT_THAT(ParseKvs(out),
                ElementsAre(TestKv{"a", "new", 2, 3, 2, 0}, TestKv{"b", "1", 3, 3, 1, 0}));
    out.clear();
    ASSERT_OK_AND_ASSIGN(r, txn.Range({.key = "a", .range_end = "z", .revision = 2}, &out));
    EXPECT_THAT(ParseKvs(out), ElementsAre(TestKv{"a", "old", 2, 2, 1, 0}));
    EXPECT_EQ(r.count, 1);
    EXPECT_THAT(txn.Range({.key = "a", .revision = 3}, &out),
                StatusIs(absl::StatusCode::kOutOfRange));
    // Outside: nothing of it yet.
    RangeResult outside;
    EXPECT_THAT(t.Get({.key = "a", .range_end = "z"}, &outside),
                ElementsAre(TestKv{"a", "old", 2, 2, 1, 0}));
    EXPECT_EQ(outside.count, 1);
    t.Get({.key = "a", .range_end = "z", .count_only = true}, &outside);
    EXPECT_EQ(outside.count, 1);
    std::string deleted;
    ASSERT_OK_AND_ASSIGN(const int64_t n, txn.DeleteRange("b", "c", &deleted));
    EXPECT_EQ(n, 1);
    EXPECT_THAT(ParseKvs(deleted, 3), ElementsAre(TestKv{"b", "1", 3, 3, 1, 0}));
    EXPECT_FALSE(txn.State("b").has_value());
    EXPECT_TRUE(txn.State("a").has_value());
  });
  EXPECT_EQ(t.store->current_revision(), 3);
  EXPECT_THAT(t.Get({.key = "a", .range_end = "z"}), ElementsAre(TestKv{"a", "new", 2, 3, 2, 0}));
}

TEST(Store, RestartFindsEverything) {
  TestStore t;
  ASSERT_OK(t.Open());
  t.Put("a", "1", 11);
  t.Put("b", "2", 11);
  t.Put("b", "3");
  t.Put("c", "4", 12);
  t.Delete("c");
  t.Put("d", "5", 12);
  ASSERT_OK(t.Reopen());
  EXPECT_EQ(t.store->current_revision(), 7);
  EXPECT_EQ(t.backend->consistent_index(), 6u);
  EXPECT_EQ(t.backend->term(), 1u);
  EXPECT_THAT(t.Get({.key = "a", .range_end = kToEnd}),
              ElementsAre(TestKv{"a", "1", 2, 2, 1, 11}, TestKv{"b", "3", 3, 4, 2, 0},
                          TestKv{"d", "5", 7, 7, 1, 12}));
  EXPECT_THAT(t.Get({.key = "b", .revision = 3}), ElementsAre(TestKv{"b", "2", 3, 3, 1, 11}));
  using Attachment = std::pair<int64_t, std::string>;
  EXPECT_THAT(t.store->TakeAttachments(), ElementsAre(Attachment{11, "a"}, Attachment{12, "d"}));
  EXPECT_EQ(t.Put("b", "6"), 8);
  EXPECT_THAT(t.Get({.key = "b"}), ElementsAre(TestKv{"b", "6", 3, 8, 3, 0}));
}

TEST(Compaction, ChecksTheRevision) {
  TestStore t;
  ASSERT_OK(t.Open());
  t.Put("a", "1");
  EXPECT_THAT(t.Compact(3), StatusIs(absl::StatusCode::kOutOfRange,
                                     "etcdserver: mvcc: required revision is a future revision"));
  EXPECT_OK(t.Compact(0));  // once, for nothing is compacted yet
  EXPECT_THAT(t.Compact(0), StatusIs(absl::StatusCode::kOutOfRange,
                                     "etcdserver: mvcc: required revision has been compacted"));
  EXPECT_OK(t.Compact(2));
  EXPECT_THAT(t.GetStatus({.key = "a", .revision = 1}), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(t.Get({.key = "a", .revision = 2}), ElementsAre(TestKv{"a", "1", 2, 2, 1, 0}));
  t.FinishCompactions();
}

// user-reports R03, R04: tombstones at the newest revision.
TEST(Compaction, RevisionSurvivesCompactedTombstones) {
  TestStore t;
  ASSERT_OK(t.Open());
  for (int i = 0; i < 50; ++i) t.Put("k" + std::to_string(i), "v");
  t.Delete("k", "l");
  const int64_t revision = t.store->current_revision();
  ASSERT_OK(t.Compact(revision));
  ASSERT_OK(t.Reopen());  // scheduled, not finished
  EXPECT_EQ(t.store->current_revision(), revision);
  EXPECT_EQ(t.store->compact_revision(), revision);
  EXPECT_THAT(t.Get({.key = "k", .range_end = "l"}), IsEmpty());
  t.FinishCompactions();
  ASSERT_OK(t.Reopen());
  EXPECT_EQ(t.store->current_revision(), revision);
  EXPECT_EQ(t.store->compact_revision(), revision);
  EXPECT_THAT(t.Get({.key = "k1"}), IsEmpty());
  t.Put("a", "1");
  ASSERT_OK(t.Compact(revision + 1));
  t.FinishCompactions();
  int records = 0;
  ASSERT_OK(t.backend->View()->Scan({}, [&](const Record&) {
    ++records;
    return true;
  }));
  EXPECT_EQ(records, 1);
}

TEST(Compaction, CallsBack) {
  TestStore t;
  ASSERT_OK(t.Open());
  for (int i = 0; i < 10; ++i) t.Put("a", "v");
  std::vector<std::string> calls;
  ASSERT_OK(t.backend->BeginEntry());
  ASSERT_OK(t.store->Compact(5, {.scheduled =
                                     [&](const absl::Status& s) {
                                       EXPECT_OK(s);
                                       calls.push_back("scheduled");
                                     },
                                 .finished =
                                     [&](const absl::Status& s) {
                                       EXPECT_OK(s);
                                       calls.push_back("finished");
                                     }}));
  EXPECT_THAT(calls, IsEmpty());
  t.backend->EndEntry(100, 1);
  t.FinishCompactions();
  EXPECT_THAT(calls, ElementsAre("scheduled", "finished"));
  EXPECT_EQ(t.store->stats().compacted_keys, 3u);
  EXPECT_EQ(t.store->stats().compactions_running, 0u);
}

TEST(Hash, FollowsThePublishedVectors) {
  TestStore t;
  ASSERT_OK(t.Open());
  t.Put("foo", "one");
  t.Put("foo", "two");
  t.Txn([](WriteTxn& txn) {
    ASSERT_OK(txn.Put("a", "1", 0));
    ASSERT_OK(txn.Put("b", "2", 0));
  });
  t.Delete("a");
  const auto hash = [&](int64_t revision) {
    absl::StatusOr<HashKv> h = t.store->HashByRevision(revision);
    EXPECT_OK(h);
    return h.ok() ? h->hash : 0;
  };
  EXPECT_EQ(hash(1), 1084519789u);
  EXPECT_EQ(hash(2), 3844182922u);
  EXPECT_EQ(hash(3), 2832016003u);
  EXPECT_EQ(hash(4), 1348230827u);
  EXPECT_EQ(hash(5), 1975018331u);
  EXPECT_EQ(hash(0), 1975018331u);
  ASSERT_OK(t.Compact(3));
  EXPECT_EQ(hash(4), 1646143616u);  // before and after the physical deletion
  t.FinishCompactions();
  EXPECT_EQ(hash(4), 1646143616u);
  EXPECT_EQ(hash(5), 3376592997u);
  ASSERT_OK_AND_ASSIGN(HashKv stored, t.store->HashByRevision(3));
  EXPECT_EQ(stored.hash, 2832016003u);
  EXPECT_EQ(stored.compact_revision, -1);
  ASSERT_OK(t.Compact(5));
  t.FinishCompactions();
  ASSERT_OK_AND_ASSIGN(stored, t.store->HashByRevision(5));
  EXPECT_EQ(stored.hash, 3376592997u);
  EXPECT_EQ(stored.compact_revision, 3);
  EXPECT_THAT(t.store->HashByRevision(4), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(t.store->HashByRevision(6), StatusIs(absl::StatusCode::kOutOfRange));
  ASSERT_OK(t.Reopen());
  ASSERT_OK_AND_ASSIGN(stored, t.store->HashByRevision(5));
  EXPECT_EQ(stored.hash, 2715934664u);
  EXPECT_EQ(stored.compact_revision, 5);
}

TEST(Defragmentation, KeepsContentsAndShrinks) {
  TestStore::Setup setup;
  setup.defragment_step_bytes = 64 << 10;
  TestStore t(std::move(setup));
  ASSERT_OK(t.Open());
  const std::string value(1000, 'v');
  for (int i = 0; i < 3000; ++i) t.Put("k" + std::to_string(i % 100), value);
  ASSERT_OK(t.Compact(t.store->current_revision()));
  t.FinishCompactions();
  ASSERT_OK_AND_ASSIGN(const uint32_t hash, t.backend->Hash());
  ASSERT_OK_AND_ASSIGN(const HashKv kv_hash, t.store->HashByRevision(0));
  const uint64_t before = t.backend->sizes().file_bytes;
  const ViewPtr pinned = t.backend->View();
  ASSERT_OK(t.backend->Defragment());
  EXPECT_LT(t.backend->sizes().file_bytes, before / 5);
  EXPECT_FALSE(t.backend->sizes().defragmenting);
  ASSERT_OK_AND_ASSIGN(const uint32_t hash_after, t.backend->Hash());
  EXPECT_EQ(hash_after, hash);
  ASSERT_OK_AND_ASSIGN(const HashKv kv_hash_after, t.store->HashByRevision(0));
  EXPECT_EQ(kv_hash_after.hash, kv_hash.hash);
  int records = 0;
  ASSERT_OK(pinned->Scan({}, [&](const Record&) {
    ++records;
    return true;
  }));
  EXPECT_EQ(records, 100);
  t.Put("after", "1");
  ASSERT_OK(t.Reopen());
  EXPECT_THAT(Keys(t.Get({.key = "after"})), ElementsAre("after"));
  ASSERT_OK_AND_ASSIGN(const auto names, base::PosixFiles().List(t.scratch_.path()));
  EXPECT_THAT(names, ElementsAre("db"));
}

TEST(Backend, GenericBucketsSeeWhatIsPending) {
  TestStore t;
  ASSERT_OK(t.Open());
  t.backend->Put(Bucket::kMembers, "b", "1");
  t.backend->Put(Bucket::kMembers, "a", "2");
  ASSERT_OK(t.backend->ForceCommit());
  t.backend->Put(Bucket::kMembers, "b", "3");
  t.backend->Put(Bucket::kMembers, "c", "4");
  t.backend->Delete(Bucket::kMembers, "a");
  const auto all = [&] {
    std::string text;
    EXPECT_OK(t.backend->View()->ForEach(Bucket::kMembers, [&](auto key, auto value) {
      text += std::string(key) + "=" + std::string(value) + " ";
      return true;
    }));
    return text;
  };
  EXPECT_EQ(all(), "b=3 c=4 ");
  ASSERT_OK_AND_ASSIGN(std::optional<std::string> a, t.backend->View()->Get(Bucket::kMembers, "a"));
  EXPECT_FALSE(a.has_value());
  ASSERT_OK(t.Reopen());
  EXPECT_EQ(all(), "b=3 c=4 ");
}

TEST(Backend, ImageHoldsEverythingAcknowledged) {
  TestStore t;
  ASSERT_OK(t.Open());
  t.Put("a", "1");
  ASSERT_OK_AND_ASSIGN(auto image, t.backend->Image());
  t.Put("b", "2");
  EXPECT_EQ(image->consistent_index(), 1u);
  std::string bytes(image->size_bytes(), '\0');
  ASSERT_OK(image->Read(0, bytes.data(), bytes.size()));
  image.reset();
  const std::string path = t.scratch_ / "copy";
  ASSERT_OK(base::WriteFileAtomically(base::PosixFiles(), path, bytes, 0600));
  // The copy also serves as a database received from the leader.
  ASSERT_OK(t.store->Reload(path));
  EXPECT_EQ(t.store->current_revision(), 2);
  EXPECT_EQ(t.backend->consistent_index(), 1u);
  EXPECT_THAT(Keys(t.Get({.key = "a", .range_end = kToEnd})), ElementsAre("a"));
  t.Put("c", "3");
  ASSERT_OK(t.Reopen());
  EXPECT_THAT(Keys(t.Get({.key = "a", .range_end = kToEnd})), ElementsAre("a", "c"));
}

TEST(Backend, WritesWaitAtTheCap) {
  TestStore::Setup setup;
  setup.pending_bytes_max = 100 << 10;
  TestStore t(std::move(setup));
  ASSERT_OK(t.Open());
  const std::string value(10000, 'v');
  for (int i = 0; i < 100; ++i) {
    t.Put("k" + std::to_string(i), value);
    EXPECT_LT(t.backend->sizes().pending_bytes, 120u << 10);
  }
  EXPECT_EQ(t.Get({.key = "k", .range_end = "l"}).size(), 100u);
}

}  // namespace
}  // namespace mvcc
