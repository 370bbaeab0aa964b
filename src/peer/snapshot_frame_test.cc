#include "peer/snapshot_frame.h"

#include "base/testing.h"

namespace peer {
namespace {

raft::Message SnapshotMessage() {
  auto snapshot = std::make_shared<raft::Snapshot>();
  snapshot->data = raft::Buffer::Own(std::string(500, 'd'));
  snapshot->metadata = {.conf_state = {.voters = {1, 2}}, .index = 168, .term = 2};
  return {.type = raft::MessageType::kSnap, .to = 1, .from = 2, .term = 2, .snapshot = snapshot};
}

TEST(SnapshotFrameTest, MessageAndDatabaseComeApartHoweverTheyAreCut) {
  const std::string bytes = EncodeSnapshotHead(SnapshotMessage()) + "the database";
  for (const size_t piece : {1ul, 7ul, 8ul, 100ul, bytes.size()}) {
    SnapshotHeadReader reader;
    std::string database;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      EXPECT_OK(reader.Feed(std::string_view(bytes).substr(at, piece),
                            [&](std::string_view more) { database += more; }));
    }
    ASSERT_TRUE(reader.done());
    EXPECT_EQ(reader.message(), SnapshotMessage());
    EXPECT_EQ(database, "the database");
  }
}

TEST(SnapshotFrameTest, ACutHeadIsNeverDone) {
  const std::string bytes = EncodeSnapshotHead(SnapshotMessage());
  for (size_t n = 0; n < bytes.size(); ++n) {
    SnapshotHeadReader reader;
    EXPECT_OK(reader.Feed(std::string_view(bytes).substr(0, n), [](std::string_view) { FAIL(); }));
    EXPECT_FALSE(reader.done());
  }
}

TEST(SnapshotFrameTest, OversizedAndMalformedHeadsAreRefused) {
  SnapshotHeadReader large;
  EXPECT_THAT(large.Feed(std::string_view("\0\0\0\0\4\0\0\1", 8), [](std::string_view) {}),
              base::StatusIs(absl::StatusCode::kInvalidArgument, "rafthttp: error limit exceeded"));
  SnapshotHeadReader malformed;
  EXPECT_FALSE(
      malformed.Feed(std::string_view("\0\0\0\0\0\0\0\2\xff\xff", 10), [](std::string_view) {})
          .ok());
  SnapshotHeadReader empty;
  EXPECT_OK(empty.Feed(std::string_view("\0\0\0\0\0\0\0\0", 8), [](std::string_view) {}));
  EXPECT_TRUE(empty.done());
}

}  // namespace
}  // namespace peer
