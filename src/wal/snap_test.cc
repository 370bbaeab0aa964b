// Markers, their JSON, and the housekeeping of the snap directory.
#include <string>

#include "base/testing.h"
#include "wal/snap_file.h"
#include "wal/v2_store.h"

namespace wal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

SnapFile MakeSnap(uint64_t term, uint64_t index) {
  return {.record = {.index = index,
                     .term = term,
                     .conf_state = {.voters = {1, 2}, .auto_leave = false}},
          .data = EncodeV2Store({})};
}

class SnapFileTest : public testing::Test {
 protected:
  void Put(const std::string& name, std::string_view bytes) {
    ASSERT_OK(base::WriteFileAtomically(files_, scratch_ / name, bytes, 0644));
  }

  base::ScratchDirectory scratch_;
  base::Files& files_ = base::PosixFiles();
  const std::string& dir_ = scratch_.path();
};

TEST_F(SnapFileTest, Names) {
  EXPECT_EQ(SnapFileName(2, 0x99), "0000000000000002-0000000000000099.snap");
  EXPECT_EQ(SnapDbFileName(0x99), "0000000000000099.snap.db");
  const auto parsed = ParseSnapFileName("0000000000000002-0000000000000099.snap");
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->term, 2U);
  EXPECT_EQ(parsed->index, 0x99U);
  EXPECT_EQ(ParseSnapDbFileName("0000000000000099.snap.db"), 0x99U);
  EXPECT_FALSE(ParseSnapFileName("0000000000000002-0000000000000099.snap.broken").has_value());
  EXPECT_FALSE(ParseSnapFileName("db").has_value());
  EXPECT_FALSE(ParseSnapDbFileName("db").has_value());
  EXPECT_FALSE(ParseSnapDbFileName("0000000000000002-0000000000000099.snap").has_value());
}

TEST_F(SnapFileTest, RoundTrips) {
  const SnapFile snap = MakeSnap(2, 153);
  ASSERT_OK(WriteSnapFile(files_, dir_, snap));
  EXPECT_THAT(*files_.List(dir_), ElementsAre(SnapFileName(2, 153)));
  EXPECT_THAT(ReadSnapFile(files_, scratch_ / SnapFileName(2, 153)), base::IsOkAndHolds(snap));
  ASSERT_OK(WriteSnapFile(files_, dir_, snap)) << "again";
  EXPECT_THAT(WriteSnapFile(files_, dir_, {.record = snap.record, .data = ""}),
              base::StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(SnapFileTest, DamageIsNamed) {
  const std::string bytes = EncodeSnapFile(MakeSnap(2, 153));
  EXPECT_THAT(DecodeSnapFile("", "p"),
              base::StatusIs(absl::StatusCode::kDataLoss, "snap: empty snapshot: in file 'p'"));
  for (size_t cut = 1; cut < bytes.size(); ++cut) {
    EXPECT_THAT(DecodeSnapFile(bytes.substr(0, cut), "p"),
                base::StatusIs(absl::StatusCode::kDataLoss))
        << cut;
  }
  std::string flipped = bytes;
  flipped.back() ^= 1;
  EXPECT_THAT(DecodeSnapFile(flipped, "p"),
              base::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("crc mismatch")));
}

TEST_F(SnapFileTest, NewestMatchingIsLoaded) {
  for (const uint64_t index : {5, 6, 7, 8})
    ASSERT_OK(WriteSnapFile(files_, dir_, MakeSnap(2, index)));
  ASSERT_OK(WriteSnapFile(files_, dir_, MakeSnap(3, 1)));
  EXPECT_THAT(*ListSnapFiles(files_, dir_),
              ElementsAre(SnapFileName(3, 1), SnapFileName(2, 8), SnapFileName(2, 7),
                          SnapFileName(2, 6), SnapFileName(2, 5)));
  Put(SnapFileName(2, 7), "damaged");
  const std::vector<SnapshotRecord> records = {MakeSnap(2, 5).record, MakeSnap(2, 6).record,
                                               MakeSnap(2, 7).record};
  ASSERT_OK_AND_ASSIGN(LoadedSnap loaded, LoadNewestSnap(files_, dir_, records, false));
  EXPECT_EQ(loaded.snap->record.index, 6U);
  EXPECT_THAT(loaded.broken_paths, ElementsAre(scratch_ / SnapFileName(2, 7)));
  ASSERT_OK_AND_ASSIGN(loaded, LoadNewestSnap(files_, dir_, records, true));
  EXPECT_EQ(loaded.snap->record.index, 6U);
  EXPECT_THAT(loaded.broken_paths, ElementsAre(scratch_ / (SnapFileName(2, 7) + ".broken")));
  EXPECT_TRUE(base::Exists(files_, loaded.broken_paths[0]));
  ASSERT_OK_AND_ASSIGN(loaded, LoadNewestSnap(files_, dir_, {}, true));
  EXPECT_FALSE(loaded.snap.has_value());
}

TEST_F(SnapFileTest, PurgeKeepsTheNewest) {
  for (const uint64_t index : {5, 6, 7}) {
    ASSERT_OK(WriteSnapFile(files_, dir_, MakeSnap(2, index)));
    Put(SnapDbFileName(index), "x");
  }
  Put("db", "x");
  EXPECT_THAT(PurgeSnapFiles(files_, dir_, 0), base::IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(PurgeSnapFiles(files_, dir_, 2),
              base::IsOkAndHolds(ElementsAre(SnapFileName(2, 5), SnapDbFileName(5))));
  ASSERT_OK_AND_ASSIGN(const auto held,
                       files_.Open(scratch_ / SnapFileName(2, 6), {.write = true}));
  ASSERT_THAT(held->TryLock(base::LockKind::kOfdWrite), base::IsOkAndHolds(true));
  EXPECT_THAT(PurgeSnapFiles(files_, dir_, 1), base::IsOkAndHolds(ElementsAre(SnapDbFileName(6))));
  EXPECT_THAT(RemoveSnapDbsBelow(files_, dir_, 7), base::IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(RemoveSnapDbsBelow(files_, dir_, 8),
              base::IsOkAndHolds(ElementsAre(SnapDbFileName(7))));
  EXPECT_TRUE(base::Exists(files_, scratch_ / "db"));
}

TEST_F(SnapFileTest, ScratchFilesAreRemoved) {
  for (const char* name :
       {"tmp123", "db.tmp.456", "db", "tmp-0000000000000002-0000000000000099.snap"})
    Put(name, "x");
  EXPECT_THAT(RemoveScratchFiles(files_, dir_),
              base::IsOkAndHolds(ElementsAre(
                  "db.tmp.456", "tmp-0000000000000002-0000000000000099.snap", "tmp123")));
  EXPECT_THAT(*files_.List(dir_), ElementsAre("db"));
}

TEST(V2Store, RoundTrips) {
  const V2Membership membership{.members = {{.id = 0xab,
                                             .peer_urls = {"http://a:2380", "http://b:2380"},
                                             .is_learner = false,
                                             .name = "one",
                                             .client_urls = {"http://a:2379"}},
                                            {.id = 0x8374c52f31e53bec,
                                             .peer_urls = {"http://c:2380"},
                                             .is_learner = true,
                                             .name = "",
                                             .client_urls = {}},
                                            {.id = 0xffffffffffffffff,
                                             .peer_urls = {},
                                             .is_learner = false,
                                             .name = "q\"\\\n<&>",
                                             .client_urls = {}}},
                                .removed_members = {3, 0x10},
                                .cluster_version = "3.7.0"};
  const std::string json = EncodeV2Store(membership);
  EXPECT_THAT(DecodeV2Store(json), base::IsOkAndHolds(membership));
}

TEST(V2Store, LooksLikeTheDumpOfEtcd) {
  const std::string json = EncodeV2Store({.members = {{.id = 0xab,
                                                       .peer_urls = {"http://a:2380"},
                                                       .is_learner = false,
                                                       .name = "one",
                                                       .client_urls = {"http://a:2379"}}},
                                          .removed_members = {3},
                                          .cluster_version = "3.7.0"});
  const std::string time = R"("ExpireTime":"0001-01-01T00:00:00Z")";
  EXPECT_EQ(
      json,
      R"({"Root":{"Path":"/","CreatedIndex":0,"ModifiedIndex":0,)" + time +
          R"(,"Value":"","Children":{"0":{"Path":"/0",)"
          R"("CreatedIndex":0,"ModifiedIndex":0,)" +
          time +
          R"(,"Value":"","Children":{"members":{"Path":"/0/members",)"
          R"("CreatedIndex":0,"ModifiedIndex":0,)" +
          time +
          R"(,"Value":"","Children":{"ab":{"Path":"/0/members/ab",)"
          R"("CreatedIndex":0,"ModifiedIndex":0,)" +
          time +
          R"(,"Value":"","Children":{"attributes":{"Path":"/0/members/ab/attributes",)"
          R"("CreatedIndex":1,"ModifiedIndex":1,)" +
          time +
          R"(,"Value":"{\"name\":\"one\",\"clientURLs\":[\"http://a:2379\"]}",)"
          R"("Children":null},"raftAttributes":{"Path":"/0/members/ab/raftAttributes","CreatedIndex":2,"ModifiedIndex":2,)" +
          time +
          R"(,"Value":"{\"peerURLs\":[\"http://a:2380\"]}","Children":null}}}}},"removed_members":{"Path":"/0/removed_members",)"
          R"("CreatedIndex":0,"ModifiedIndex":0,)" +
          time +
          R"(,"Value":"","Children":{"3":{"Path":"/0/removed_members/3",)"
          R"("CreatedIndex":3,"ModifiedIndex":3,)" +
          time +
          R"(,"Value":"","Children":null}}},"version":{"Path":"/0/version",)"
          R"("CreatedIndex":4,"ModifiedIndex":4,)" +
          time +
          R"(,"Value":"3.7.0","Children":null}}},"1":{"Path":"/1",)"
          R"("CreatedIndex":0,"ModifiedIndex":0,)" +
          time + R"(,"Value":"","Children":{}}}},"CurrentIndex":4,"CurrentVersion":2})");
}

TEST(V2Store, RefusesWhatIsNone) {
  EXPECT_THAT(DecodeV2Store("{}"), base::IsOkAndHolds(V2Membership{}));
  for (
      const char* json :
      {"", "[]", "{", "null",
       R"({"Root":{"Children":{"0":{"Children":{"members":{"Children":{"zz":{}}}}}}}})",
       R"({"Root":{"Children":{"0":{"Children":{"members":{"Children":{"1":{}}}}}}}})",
       R"({"Root":{"Children":{"0":{"Children":{"members":{"Children":{"1":{"Children":{"raftAttributes":{"Value":"[1]"}}}}}}}}}})",
       R"({"Root":{"Children":{"0":{"Children":{"version":{"Value":7}}}}}})"}) {
    EXPECT_THAT(DecodeV2Store(json), base::StatusIs(absl::StatusCode::kInvalidArgument)) << json;
  }
}

TEST(V2Store, BytesThatAreNotUtf8BecomeReplacementCharacters) {
  ASSERT_OK_AND_ASSIGN(const V2Membership decoded,
                       DecodeV2Store(EncodeV2Store({.members = {{.id = 1,
                                                                 .peer_urls = {},
                                                                 .is_learner = false,
                                                                 .name = "a\xff",
                                                                 .client_urls = {}}},
                                                    .removed_members = {},
                                                    .cluster_version = ""})));
  EXPECT_EQ(decoded.members[0].name, "a\xef\xbf\xbd");
}

}  // namespace
}  // namespace wal
