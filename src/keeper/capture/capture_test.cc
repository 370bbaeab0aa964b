// From answers of a watch to whole revisions, and what a full's bytes say of themselves.
#include <fmt/format.h>

#include "base/testing.h"
#include "capture/assembler.h"
#include "capture/examine.h"
#include "capture/row_digests.h"
#include "capture/timeline.h"
#include "proto/rpc.pb.h"
#include "support/memory_files.h"

namespace capture {
namespace {

using base::StatusIs;
using test_support::MemoryFiles;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// --- the assembler ---

struct Event {
  int64_t revision = 0;
  std::string key;
  bool deleted = false;
  int64_t lease = 0;
};

etcdserverpb::WatchResponse Answer(const std::vector<Event>& events, bool fragment = false) {
  etcdserverpb::WatchResponse answer;
  answer.set_fragment(fragment);
  for (const Event& e : events) {
    mvccpb::Event& event = *answer.add_events();
    if (e.deleted) event.set_type(mvccpb::Event::DELETE);
    event.mutable_kv()->set_key(e.key);
    event.mutable_kv()->set_mod_revision(e.revision);
    event.mutable_kv()->set_lease(e.lease);
  }
  return answer;
}

class AssemblerTest : public testing::Test {
 protected:
  absl::Status Take(const etcdserverpb::WatchResponse& answer, int64_t from = 1, int64_t to = 2) {
    return assembler_.Take(
        answer, base::Duration(from), base::Duration(to),
        [&](int64_t id) { leases_.push_back(id); },
        [&](const WholeRevision& revision) {
          std::string line =
              fmt::format("{}@{}-{}", revision.view.revision, revision.view.seen_from.count(),
                          revision.view.seen_to.count());
          for (const events::EventView& e : revision.view.events) {
            std::string scratch;
            mvccpb::KeyValue kv;
            EXPECT_TRUE(kv.ParseFromString(std::string(e.key_value)));
            line += (e.tombstone ? " -" : " +") + kv.key();
          }
          whole_.push_back(line);
          return absl::OkStatus();
        });
  }
  Assembler assembler_{10};
  std::vector<std::string> whole_;
  std::vector<int64_t> leases_;
};

TEST_F(AssemblerTest, HandsOutWholeRevisionsInOrder) {
  ASSERT_OK(Take(Answer({{10, "a"}, {10, "b", true}, {11, "c"}})));
  EXPECT_THAT(whole_, ElementsAre("10@1-2 +a -b", "11@1-2 +c"));
  EXPECT_EQ(assembler_.next_revision(), 12);
}

TEST_F(AssemblerTest, ARevisionIsWholeOnlyWithItsLastFragment) {
  ASSERT_OK(Take(Answer({{10, "a"}}, true), 1, 2));
  EXPECT_THAT(whole_, IsEmpty());
  EXPECT_TRUE(assembler_.pending());
  ASSERT_OK(Take(Answer({{10, "b"}}, true), 2, 3));
  EXPECT_THAT(whole_, IsEmpty());
  ASSERT_OK(Take(Answer({{10, "c"}, {11, "d"}}, true), 3, 4));
  EXPECT_THAT(whole_, ElementsAre("10@1-4 +a +b +c"));
  ASSERT_OK(Take(Answer({{12, "e"}}), 4, 5));
  EXPECT_THAT(whole_, ElementsAre("10@1-4 +a +b +c", "11@3-4 +d", "12@4-5 +e"));
}

TEST_F(AssemblerTest, WhatIsKnownIsPassedOver) {
  ASSERT_OK(Take(Answer({{8, "x"}, {9, "y"}, {10, "a"}})));
  EXPECT_THAT(whole_, ElementsAre("10@1-2 +a"));
}

TEST_F(AssemblerTest, MissingAndMisplacedRevisionsAreDamage) {
  EXPECT_THAT(Take(Answer({{11, "a"}})),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("where 10 should come")));
  ASSERT_OK(Take(Answer({{10, "a"}}, true)));
  EXPECT_THAT(Take(Answer({{9, "a"}})), StatusIs(absl::StatusCode::kDataLoss, testing::_));
}

TEST_F(AssemblerTest, LeasesOfPutsAreMet) {
  ASSERT_OK(Take(Answer({{10, "a", false, 7}, {11, "b"}, {12, "c", false, 9}})));
  EXPECT_THAT(leases_, ElementsAre(7, 9));
}

TEST_F(AssemblerTest, TheSameRowsHaveTheSameDigestHoweverTheyCame) {
  std::vector<RowDigest> digests;
  for (const bool fragments : {false, true}) {
    Assembler assembler(10);
    const auto take = [&](const etcdserverpb::WatchResponse& answer) {
      ASSERT_OK(assembler.Take(
          answer, base::Duration(0), base::Duration(0), [](int64_t) {},
          [&](const WholeRevision& revision) {
            digests.push_back(revision.digest);
            return absl::OkStatus();
          }));
    };
    if (fragments) {
      take(Answer({{10, "a"}}, true));
      take(Answer({{10, "b", true}}));
    } else {
      take(Answer({{10, "a"}, {10, "b", true}}));
    }
  }
  ASSERT_EQ(digests.size(), 2u);
  EXPECT_EQ(digests[0], digests[1]);
}

// --- row digests ---

RowDigest DigestOf(const std::string& row) {
  RowDigester digester;
  digester.Add(false, row);
  return digester.Take();
}

RowDigests Rows(int64_t first, const std::vector<std::string>& rows) {
  RowDigests digests;
  for (const std::string& row : rows) digests.Append(first++, DigestOf(row));
  return digests;
}

TEST(RowDigests, ComparesWhatBothHave) {
  const auto compared = Rows(5, {"a", "b", "c", "d"}).CompareWith(Rows(6, {"b", "c", "d", "e"}), 6);
  EXPECT_EQ(compared.from, 6);
  EXPECT_EQ(compared.to, 8);
  EXPECT_FALSE(compared.first_difference.has_value());
}

TEST(RowDigests, NamesTheFirstDifference) {
  const auto compared = Rows(5, {"a", "b", "X", "d"}).CompareWith(Rows(5, {"a", "b", "c", "D"}), 0);
  EXPECT_EQ(compared.first_difference, 7);
}

TEST(RowDigests, ThatShareNothingProveNothing) {
  const auto compared = Rows(5, {"a"}).CompareWith(Rows(9, {"a"}), 0);
  EXPECT_EQ(compared.from, compared.to);
}

TEST(RowDigests, AGapBeginsAnew) {
  RowDigests digests = Rows(5, {"a", "b"});
  digests.Append(9, DigestOf("z"));
  EXPECT_EQ(digests.first(), 9);
  EXPECT_EQ(digests.last(), 9);
}

TEST(RowDigests, OfAnEmptyClusterAreLoadedToo) {
  MemoryFiles files;
  ASSERT_OK(RowDigests().Save(files, "/rows", "of an empty cluster"));
  std::string source;
  EXPECT_OK(RowDigests::Load(files, "/rows", &source).status());
  EXPECT_EQ(source, "of an empty cluster");
}

TEST(RowDigests, AreLoadedAsTheyWereSavedAndDamageIsFound) {
  MemoryFiles files;
  const RowDigests saved = Rows(5, {"a", "b", "c"});
  ASSERT_OK(saved.Save(files, "/rows", "full 7"));
  std::string source;
  ASSERT_OK_AND_ASSIGN(const RowDigests loaded, RowDigests::Load(files, "/rows", &source));
  EXPECT_EQ(source, "full 7");
  EXPECT_EQ(loaded.first(), 5);
  EXPECT_EQ(loaded.last(), 7);
  EXPECT_EQ(loaded.at(6), saved.at(6));
  const std::string whole = *files.Contents("/rows");
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    files.Put("/rows", flipped);
    EXPECT_THAT(RowDigests::Load(files, "/rows", &source),
                StatusIs(absl::StatusCode::kDataLoss, testing::_));
    files.Put("/rows", whole.substr(0, at));
    EXPECT_THAT(RowDigests::Load(files, "/rows", &source),
                StatusIs(absl::StatusCode::kDataLoss, testing::_));
  }
}

// --- a full's bytes ---

TEST(Examine, SaysWhatAnEtcdSnapshotHolds) {
  ASSERT_OK_AND_ASSIGN(const Examination full,
                       Examine(base::PosixFiles(), base::SystemClock(),
                               ENGRAM_SOURCE_DIR "/tests/data/bolt/etcd-3.7-snapshot.db"));
  ASSERT_OK_AND_ASSIGN(
      const snapshot::Summary summary,
      snapshot::Inspect(base::PosixFiles(), base::SystemClock(),
                        ENGRAM_SOURCE_DIR "/tests/data/bolt/etcd-3.7-snapshot.db"));
  EXPECT_EQ(full.bounds.revision, summary.revision);
  EXPECT_EQ(full.key_count, summary.total_keys);
  EXPECT_EQ(full.storage_version, "3.7.0");
  EXPECT_EQ(full.rows.first(), 2);
  EXPECT_EQ(full.rows.last(), summary.revision);
  uint64_t counted = 0;
  for (const auto& [prefix, count] : full.prefix_counts) counted += count;
  EXPECT_EQ(counted, full.key_count);
}

TEST(Examine, RefusesDamagedAndBareFiles) {
  MemoryFiles files;
  const std::string whole = *base::ReadFile(
      base::PosixFiles(), ENGRAM_SOURCE_DIR "/tests/data/bolt/etcd-3.7-snapshot.db");
  files.Put("/flipped", whole.substr(0, 5000) + "x" + whole.substr(5001));
  EXPECT_THAT(Examine(files, base::SystemClock(), "/flipped"),
              StatusIs(absl::StatusCode::kDataLoss, testing::_));
  files.Put("/bare", whole.substr(0, whole.size() - 32));
  EXPECT_THAT(Examine(files, base::SystemClock(), "/bare"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("is missing")));
}

TEST(TopPrefix, IsTheFirstFolderOrTheFirstTwoBehindASlash) {
  EXPECT_EQ(TopPrefix("/registry/pods/shop/web-1"), "/registry/pods/");
  EXPECT_EQ(TopPrefix("/registry/pods"), "/registry/");
  EXPECT_EQ(TopPrefix("jobs/7"), "jobs/");
  EXPECT_EQ(TopPrefix("x"), "");
  EXPECT_EQ(TopPrefix("/x"), "");
  EXPECT_EQ(TopPrefix(""), "");
}

TEST(EncryptionOf, IsProviderVersionAndKey) {
  EXPECT_EQ(EncryptionOf("k8s:enc:aescbc:v1:key1:\x01\x02"), "k8s:enc:aescbc:v1:key1:");
  EXPECT_EQ(EncryptionOf("k8s:enc:kms:v2:plugin:bytes"), "k8s:enc:kms:v2:plugin:");
  EXPECT_EQ(EncryptionOf("k8s:enc:aescbc:v1"), "");
  EXPECT_EQ(EncryptionOf("k8s\0plain"), "");
}

// --- histories ---

TEST(WhyAnotherHistory, IsEmptyWhileNothingFell) {
  const HistoryMark was{.cluster_id = 7, .revision = 100, .raft_index = 200};
  EXPECT_EQ(WhyAnotherHistory(was, was), "");
  EXPECT_EQ(WhyAnotherHistory(was, {.cluster_id = 7, .revision = 101, .raft_index = 0}), "");
  EXPECT_THAT(WhyAnotherHistory(was, {.cluster_id = 8, .revision = 101, .raft_index = 201}),
              HasSubstr("cluster id"));
  EXPECT_THAT(WhyAnotherHistory(was, {.cluster_id = 7, .revision = 99, .raft_index = 201}),
              HasSubstr("fell from 100 to 99"));
  EXPECT_THAT(WhyAnotherHistory(was, {.cluster_id = 7, .revision = 101, .raft_index = 5}),
              HasSubstr("raft log began anew"));
}

}  // namespace
}  // namespace capture
