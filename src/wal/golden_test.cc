// Logs and markers that etcd wrote: they must be read as they were meant, and what 3.7 wrote must
// be written again the same.
#include <string>

#include "base/testing.h"
#include "wal/log.h"
#include "wal/scan.h"
#include "wal/snap_file.h"
#include "wal/test_log.h"
#include "wal/v2_store.h"

namespace wal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr char kSegment[] = "0000000000000000-0000000000000000.wal";

std::string DataPath(const std::string& name) {
  return std::string(ENGRAM_SOURCE_DIR) + "/tests/data/wal/" + name;
}

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  // A log directory to write in, with a copy of the case's segment.
  std::string CopyLog(const std::string& name) {
    const std::string dir = scratch_ / "wal";
    EXPECT_OK(files_.MakeDirectory(dir, 0700));
    EXPECT_OK(base::WriteFileAtomically(
        files_, base::JoinPath(dir, kSegment),
        base::ReadFile(files_, DataPath(name + "/" + kSegment)).value(), 0600));
    return dir;
  }

  base::ScratchDirectory scratch_;
  base::Files& files_ = base::PosixFiles();
};

TEST_P(GoldenTest, KilledAfterSnapshot) {
  const std::string dir = CopyLog(GetParam() + "-killed-after-snapshot");
  ASSERT_OK_AND_ASSIGN(const SnapshotScan scan, ValidSnapshotRecords(files_, dir));
  std::vector<uint64_t> indexes;
  for (const SnapshotRecord& snapshot : scan.snapshots) indexes.push_back(snapshot.index);
  EXPECT_THAT(indexes, ElementsAre(0, 0x65, 0xca, 0x12f, 0x194, 0x1f9, 0x25e, 0x2c3));
  EXPECT_EQ(scan.snapshots.back().conf_state.voters, (std::vector<uint64_t>{9472412722758237164U}));
  EXPECT_EQ(scan.snapshots.back().conf_state.auto_leave, false);
  EXPECT_EQ(scan.state, (HardState{.term = 2, .vote = 9472412722758237164U, .commit = 707}));

  // From the start, and from the last snapshot.
  for (const SnapshotRecord& start : {SnapshotRecord{}, scan.snapshots.back()}) {
    ASSERT_OK_AND_ASSIGN(const auto opened,
                         Log::Open(files_, dir, start, {.segment_bytes = 1 << 20}));
    EXPECT_EQ(opened.recovered.metadata,
              (Metadata{.node_id = 9472412722758237164U, .cluster_id = 18163131126379465156U}));
    EXPECT_TRUE(opened.recovered.snapshot_found);
    EXPECT_THAT(opened.recovered.entries, SizeIs(708 - start.index));
    EXPECT_EQ(opened.recovered.entries.back().index, 708U);
    if (start.index == 0) {
      EXPECT_EQ(opened.recovered.entries[0].type, 1U);
      EXPECT_EQ(opened.recovered.entries[1], MakeEntry(2, 2, "")) << "the new leader's entry";
    }
  }
  ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(files_, dir, {}));
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_EQ(report.last_index, 708U);
}

TEST_P(GoldenTest, Restored) {
  const std::string dir = CopyLog(GetParam() + "-restored");
  ASSERT_OK_AND_ASSIGN(const auto opened, OpenNewest(files_, dir, {.segment_bytes = 1 << 20}));
  EXPECT_EQ(opened.recovered.state.commit, 1U);
  EXPECT_THAT(opened.recovered.entries, IsEmpty());
  EXPECT_EQ(opened.log->last_index(), 1U);
}

TEST_P(GoldenTest, Markers) {
  const std::string running = DataPath(GetParam() + "-killed-after-snapshot");
  ASSERT_OK_AND_ASSIGN(const auto names, ListSnapFiles(files_, running));
  ASSERT_THAT(names, ElementsAre("0000000000000002-00000000000002c3.snap"));
  ASSERT_OK_AND_ASSIGN(const SnapFile snap,
                       ReadSnapFile(files_, base::JoinPath(running, names[0])));
  EXPECT_EQ(snap.record.index, 0x2c3U);
  EXPECT_EQ(snap.record.term, 2U);
  EXPECT_EQ(snap.record.conf_state.voters, (std::vector<uint64_t>{9472412722758237164U}));
  EXPECT_EQ(EncodeSnapFile(snap), *base::ReadFile(files_, base::JoinPath(running, names[0])))
      << "byte for byte";
  ASSERT_OK_AND_ASSIGN(const V2Membership membership, DecodeV2Store(snap.data));
  EXPECT_EQ(membership.members,
            (std::vector<V2Member>{{.id = 9472412722758237164U,
                                    .peer_urls = {"http://127.0.0.1:28101"},
                                    .is_learner = false,
                                    .name = "golden",
                                    .client_urls = {"http://127.0.0.1:28100"}}}));
  EXPECT_THAT(membership.removed_members, IsEmpty());
  EXPECT_EQ(membership.cluster_version, GetParam() + ".0");

  const std::string restored =
      DataPath(GetParam() + "-restored/0000000000000001-0000000000000001.snap");
  ASSERT_OK_AND_ASSIGN(const SnapFile other, ReadSnapFile(files_, restored));
  EXPECT_EQ(EncodeSnapFile(other), *base::ReadFile(files_, restored)) << "without auto_leave";
  ASSERT_OK_AND_ASSIGN(const V2Membership unpublished, DecodeV2Store(other.data));
  ASSERT_THAT(unpublished.members, SizeIs(1));
  EXPECT_EQ(unpublished.members[0].name, "");
  EXPECT_EQ(unpublished.cluster_version, "");
}

INSTANTIATE_TEST_SUITE_P(Versions, GoldenTest, testing::Values("3.6", "3.7"));

// Every record decoded, encoded again and written: the bytes of 3.7, checksums and padding
// included.
TEST(Golden37, IsWrittenAgainByteForByte) {
  base::Files& files = base::PosixFiles();
  base::ScratchDirectory scratch;
  for (const char* name : {"3.7-killed-after-snapshot/", "3.7-restored/"}) {
    const std::string path = DataPath(name + std::string(kSegment));
    ASSERT_OK_AND_ASSIGN(const auto file, files.Open(path, {}));
    ASSERT_OK_AND_ASSIGN(const uint64_t size, file->Size());
    ASSERT_OK_AND_ASSIGN(
        auto copy, files.Open(scratch / "copy", {.write = true, .create = true, .truncate = true}));
    SegmentReader reader(*file, path, {.limit = size, .last_segment = true});
    SegmentWriter writer(std::move(copy), 0, 0);
    RecordView record;
    while (*reader.Next(&record) == ReadOutcome::kRecord) {
      ASSERT_OK(EncodeAgain(record, &writer));
    }
    ASSERT_OK(writer.Finish());
    ASSERT_OK_AND_ASSIGN(const std::string original, base::ReadFile(files, path));
    ASSERT_OK_AND_ASSIGN(const std::string rewritten, base::ReadFile(files, scratch / "copy"));
    EXPECT_EQ(rewritten.size(), reader.offset());
    EXPECT_TRUE(original.starts_with(rewritten)) << name;
  }
}

}  // namespace
}  // namespace wal
