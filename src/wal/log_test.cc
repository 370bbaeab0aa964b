// What a Log promises while nothing is broken: recovery, rotation, purge, read-back, locks.
#include "wal/log.h"

#include <thread>

#include "base/testing.h"
#include "wal/test_log.h"

namespace wal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr LogOptions kSmall{.segment_bytes = 4096};

class LogTest : public testing::Test {
 protected:
  std::unique_ptr<Log> Create(const LogOptions& options = kSmall) {
    auto log = Log::Create(files_, dir_, kTestMetadata, options);
    EXPECT_OK(log);
    return std::move(*log);
  }
  absl::StatusOr<Log::Opened> Open(const SnapshotRecord& start = {}) {
    return Log::Open(files_, dir_, start, kSmall);
  }
  size_t SegmentCount() { return ListSegments(files_, dir_).value().size(); }

  base::ScratchDirectory scratch_;
  base::Files& files_ = base::PosixFiles();
  const std::string dir_ = scratch_ / "wal";
};

TEST_F(LogTest, NewLogHoldsMetadataAndTheFirstSnapshot) {
  EXPECT_THAT(HasLog(files_, dir_), base::IsOkAndHolds(false));
  files_.MakeDirectory(scratch_ / "wal.tmp", 0700).IgnoreError();
  ASSERT_OK(base::WriteFileAtomically(files_, scratch_ / "wal.tmp/leftover", "x", 0600));
  Create().reset();
  EXPECT_THAT(HasLog(files_, dir_), base::IsOkAndHolds(true));
  EXPECT_FALSE(base::Exists(files_, scratch_ / "wal.tmp"));
  EXPECT_THAT(*files_.List(dir_), ElementsAre("0000000000000000-0000000000000000.wal"));
  ASSERT_OK_AND_ASSIGN(const SnapshotScan scan, ValidSnapshotRecords(files_, dir_));
  EXPECT_THAT(scan.snapshots, ElementsAre(SnapshotRecord{}));
  ASSERT_OK_AND_ASSIGN(const auto opened, Open());
  EXPECT_EQ(opened.recovered.metadata, kTestMetadata);
  EXPECT_TRUE(opened.recovered.state.empty());
  EXPECT_TRUE(opened.recovered.snapshot_found);
  EXPECT_FALSE(opened.recovered.torn_tail.has_value());
  EXPECT_THAT(opened.recovered.entries, IsEmpty());
}

TEST_F(LogTest, CreateRefusesAnExistingLog) {
  Create().reset();
  EXPECT_THAT(Log::Create(files_, dir_, kTestMetadata, kSmall),
              base::StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(LogTest, PreallocatesTheFullSegment) {
  Create({}).reset();
  EXPECT_EQ(files_.Stat(SegmentPath(files_, dir_, 0))->size_bytes, 64'000'000U);
}

TEST_F(LogTest, RecoversWhatWasSaved) {
  auto log = Create();
  ASSERT_OK(SaveRange(log.get(), 1, 5, 1, 10));
  ASSERT_OK(SaveRange(log.get(), 6, 6, 2, 0));
  log.reset();
  ASSERT_OK_AND_ASSIGN(auto opened, Open());
  EXPECT_THAT(opened.recovered.entries, SizeIs(6));
  EXPECT_EQ(opened.recovered.entries[4], MakeEntry(5, 1, "ffffffffff"));
  EXPECT_EQ(opened.recovered.entries[5], MakeEntry(6, 2, ""));
  EXPECT_EQ(opened.recovered.state, (HardState{.term = 2, .vote = 1, .commit = 6}));
  EXPECT_EQ(opened.log->last_index(), 6U);
  // And goes on where it was.
  ASSERT_OK(SaveRange(opened.log.get(), 7, 7, 2, 3));
  opened.log.reset();
  ASSERT_OK_AND_ASSIGN(const auto again, Open());
  EXPECT_THAT(again.recovered.entries, SizeIs(7));
}

TEST_F(LogTest, LaterEntriesSupersedeEarlierOnes) {
  auto log = Create();
  ASSERT_OK(SaveRange(log.get(), 1, 5, 1, 4));
  ASSERT_OK(SaveRange(log.get(), 3, 4, 2, 4));
  EXPECT_EQ(log->last_index(), 4U);
  log.reset();
  ASSERT_OK_AND_ASSIGN(const auto opened, Open());
  ASSERT_THAT(opened.recovered.entries, SizeIs(4));
  EXPECT_EQ(opened.recovered.entries[1].term, 1U);
  EXPECT_EQ(opened.recovered.entries[2].term, 2U);
  EXPECT_EQ(opened.recovered.entries[3].term, 2U);
}

// A snapshot at an index that was rewritten: what the old leader had written above it stays
// superseded, although the entries that replaced it lie below the snapshot and are not read.
TEST_F(LogTest, RewritesBelowTheSnapshotCountToo) {
  auto log = Create();
  ASSERT_OK(SaveRange(log.get(), 1, 5, 1, 4));
  ASSERT_OK(SaveRange(log.get(), 3, 4, 2, 4));
  ASSERT_OK(log->SaveSnapshotRecord(MakeSnapshot(4, 2)));
  log.reset();
  ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(files_, dir_, MakeSnapshot(4, 2)));
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_EQ(report.last_index, 4U);
  ASSERT_OK_AND_ASSIGN(auto opened, OpenNewest(files_, dir_, kSmall));
  EXPECT_THAT(opened.recovered.entries, IsEmpty());
  EXPECT_EQ(opened.log->last_index(), 4U);
  EXPECT_THAT(opened.log->ReadEntries(5, 6, 1), base::StatusIs(absl::StatusCode::kOutOfRange));
  ASSERT_OK(SaveRange(opened.log.get(), 5, 5, 2, 4));
  EXPECT_THAT(opened.log->ReadEntries(5, 6, 1), base::IsOkAndHolds(SizeIs(1)));
}

TEST_F(LogTest, CommitOnlyStateWaitsForTheNextWrite) {
  auto log = Create();
  ASSERT_OK(SaveRange(log.get(), 1, 2, 1, 4));
  const uint64_t before = log->tail_bytes();
  for (int i = 0; i < 100; ++i)
    ASSERT_OK(log->Save({}, HardState{.term = 1, .vote = 1, .commit = 2}, false));
  EXPECT_EQ(log->tail_bytes(), before) << "nothing written, nothing piled up";
  ASSERT_OK(log->Close());
  ASSERT_OK_AND_ASSIGN(const auto opened, Open());
  EXPECT_EQ(opened.recovered.state.commit, 2U);
  EXPECT_THAT(log->Save({}, HardState{}, true),
              base::StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(LogTest, SnapshotRecordBringsTheWaitingCommitWithIt) {
  auto log = Create();
  const std::vector<Entry> entries = {MakeEntry(1, 1, "a"), MakeEntry(2, 1, "b")};
  ASSERT_OK(log->Save(Views(entries), HardState{.term = 1, .vote = 1, .commit = 0}, true));
  ASSERT_OK(log->Save({}, HardState{.term = 1, .vote = 1, .commit = 2}, false));
  ASSERT_OK(log->SaveSnapshotRecord(MakeSnapshot(2, 1)));
  log.reset();  // as in a kill
  ASSERT_OK_AND_ASSIGN(const SnapshotScan scan, ValidSnapshotRecords(files_, dir_));
  EXPECT_THAT(scan.snapshots, ElementsAre(SnapshotRecord{}, MakeSnapshot(2, 1)));
}

TEST_F(LogTest, SnapshotAboveTheCommitIsIgnored) {
  auto log = Create();
  ASSERT_OK(SaveRange(log.get(), 1, 2, 1, 4));
  ASSERT_OK(log->SaveSnapshotRecord(MakeSnapshot(50, 2)));
  log.reset();
  ASSERT_OK_AND_ASSIGN(const SnapshotScan scan, ValidSnapshotRecords(files_, dir_));
  EXPECT_THAT(scan.snapshots, ElementsAre(SnapshotRecord{}));
  ASSERT_OK_AND_ASSIGN(const auto opened, Open());
  EXPECT_THAT(opened.recovered.entries, SizeIs(2));
}

TEST_F(LogTest, ReceivedSnapshotJumpsAhead) {
  auto log = Create();
  ASSERT_OK(SaveRange(log.get(), 1, 2, 1, 4));
  ASSERT_OK(log->SaveSnapshotRecord(MakeSnapshot(50, 2)));
  EXPECT_EQ(log->last_index(), 50U);
  EXPECT_THAT(log->ReadEntries(1, 2, 100), base::StatusIs(absl::StatusCode::kOutOfRange));
  ASSERT_OK(SaveRange(log.get(), 51, 52, 2, 4));
  log.reset();
  ASSERT_OK_AND_ASSIGN(const auto opened, OpenNewest(files_, dir_, kSmall));
  EXPECT_THAT(opened.recovered.entries, SizeIs(2));
  EXPECT_EQ(opened.recovered.entries[0].index, 51U);
  EXPECT_TRUE(opened.recovered.snapshot_found);
}

// The write of the entries and the state behind a received snapshot may be cut anywhere: the log
// must still open.
TEST_F(LogTest, ReceivedSnapshotSurvivesATornSave) {
  auto log = Create();
  ASSERT_OK(SaveRange(log.get(), 1, 2, 1, 4));
  ASSERT_OK(log->SaveSnapshotRecord(MakeSnapshot(50, 2)));
  const uint64_t from = log->tail_bytes();
  ASSERT_OK(SaveRange(log.get(), 51, 52, 2, 4));
  const uint64_t to = log->tail_bytes();
  log.reset();
  const std::string path = SegmentPath(files_, dir_, 0);
  ASSERT_OK_AND_ASSIGN(const std::string bytes, base::ReadFile(files_, path));
  for (uint64_t cut = from; cut <= to; ++cut) {
    ASSERT_OK(base::WriteFileAtomically(files_, path, bytes.substr(0, cut), 0600));
    const auto opened = OpenNewest(files_, dir_, kSmall);
    ASSERT_OK(opened) << cut;
    const HardState& state = opened->recovered.state;
    EXPECT_LE(state.commit, opened->log->last_index()) << cut;
  }
}

TEST_F(LogTest, RefusesASnapshotRecordWithoutVoters) {
  auto log = Create();
  EXPECT_THAT(log->SaveSnapshotRecord({.index = 3, .term = 1, .conf_state = {}}),
              base::StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(SaveRange(log.get(), 1, 1, 1, 1));
}

TEST_F(LogTest, CutsFullSegments) {
  auto log = Create();
  uint64_t index = 0;
  while (log->cuts() < 3) {
    ++index;
    ASSERT_OK(SaveRange(log.get(), index, index, 1, 1000));
  }
  ASSERT_EQ(SegmentCount(), 4U);
  const auto names = *ListSegments(files_, dir_);
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    const std::string path = SegmentPath(files_, dir_, i);
    EXPECT_EQ(names[i].sequence, i);
    EXPECT_EQ(files_.Stat(path)->size_bytes, RecordOffsets(files_, path).back())
        << "ends at its last record";
    EXPECT_GE(files_.Stat(path)->size_bytes, kSmall.segment_bytes);
  }
  EXPECT_EQ(names[3].index, index + 1) << "the index its first entry will have";
  EXPECT_EQ(files_.Stat(SegmentPath(files_, dir_, 3))->size_bytes, kSmall.segment_bytes);
  ASSERT_OK(SaveRange(log.get(), index + 1, index + 2, 1, 10));
  log.reset();
  EXPECT_EQ(files_.List(dir_)->size(), 4U) << "no scratch file is left";
  ASSERT_OK_AND_ASSIGN(const auto opened, Open());
  EXPECT_THAT(opened.recovered.entries, SizeIs(index + 2));
}

TEST_F(LogTest, CutTakesThePreparedSegment) {
  auto log = Create();
  ASSERT_OK(log->PreallocateNext());
  ASSERT_OK(log->PreallocateNext());
  EXPECT_TRUE(base::Exists(files_, dir_ + "/0.tmp"));
  EXPECT_FALSE(base::Exists(files_, dir_ + "/1.tmp"));
  ASSERT_OK(SaveRange(log.get(), 1, 1, 1, 5000));
  EXPECT_EQ(log->cuts(), 1U);
  EXPECT_FALSE(base::Exists(files_, dir_ + "/0.tmp"));
  ASSERT_OK(log->PreallocateNext());
  ASSERT_OK(log->Close());
  EXPECT_THAT(*files_.List(dir_), SizeIs(2)) << "a clean stop removes what was prepared";
  ASSERT_OK(Open());
}

TEST_F(LogTest, OpenRemovesWhatAKilledProcessPrepared) {
  auto log = Create();
  ASSERT_OK(log->PreallocateNext());
  log.reset();
  EXPECT_TRUE(base::Exists(files_, dir_ + "/0.tmp"));
  ASSERT_OK(Open());
  EXPECT_FALSE(base::Exists(files_, dir_ + "/0.tmp"));
}

TEST_F(LogTest, SegmentsAreNamedAfterASnapshotThatIsAhead) {
  auto log = Create();
  ASSERT_OK(SaveRange(log.get(), 1, 1, 1, 10));
  ASSERT_OK(log->SaveSnapshotRecord(MakeSnapshot(0x80, 2)));
  ASSERT_OK(SaveRange(log.get(), 0x81, 0x81, 2, 5000));
  EXPECT_EQ(ListSegments(files_, dir_)->back(), (SegmentName{.sequence = 1, .index = 0x82}));
}

// The segments 0, 46, 86, c6, 106, 146 (hex) and a snapshot at 136: the first four are released.
TEST_F(LogTest, ReleaseFollowsTheIndexAndPurgeFollowsTheLocks) {
  auto log = Create();
  for (uint64_t first = 1, last = 0x45; last <= 0x145; first = last + 1, last += 0x40) {
    ASSERT_OK(SaveRange(log.get(), first, last, 1, 100));
  }
  ASSERT_EQ(SegmentCount(), 6U);
  EXPECT_THAT(log->Purge(1), base::IsOkAndHolds(IsEmpty())) << "all are locked";
  ASSERT_OK(log->SaveSnapshotRecord(MakeSnapshot(0x136, 1)));
  log->ReleaseTo(0x136);
  EXPECT_THAT(log->Purge(0), base::IsOkAndHolds(IsEmpty())) << "no limit";
  EXPECT_THAT(log->Purge(5),
              base::IsOkAndHolds(ElementsAre("0000000000000000-0000000000000000.wal")));
  EXPECT_THAT(log->ReadEntries(1, 2, 1), base::StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_OK(log->ReadEntries(0x46, 0x47, 1));
  EXPECT_THAT(log->Purge(1), base::IsOkAndHolds(SizeIs(3)));
  EXPECT_EQ(SegmentCount(), 2U);
  log.reset();
  ASSERT_OK_AND_ASSIGN(const auto opened, OpenNewest(files_, dir_, kSmall));
  EXPECT_EQ(opened.recovered.entries.front().index, 0x137U);
  EXPECT_EQ(opened.recovered.entries.size(), 0x145U - 0x136U);
  EXPECT_TRUE(opened.recovered.snapshot_found);
}

TEST_F(LogTest, OneProcessAtATime) {
  auto log = Create();
  EXPECT_THAT(Open(),
              base::StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another process")));
  EXPECT_OK(SaveRange(log.get(), 1, 1, 1, 1)) << "the owner is not disturbed";
  log.reset();
  EXPECT_OK(Open());
}

TEST_F(LogTest, OpenNeedsAFittingSegment) {
  EXPECT_THAT(Open(), base::StatusIs(absl::StatusCode::kNotFound));
  auto log = Create();
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_OK(SaveRange(log.get(), i, i, 1, 5000));
  log.reset();
  ASSERT_OK(files_.Remove(SegmentPath(files_, dir_, 0)));
  EXPECT_THAT(Open(), base::StatusIs(absl::StatusCode::kNotFound,
                                     HasSubstr("matches the snapshot index '0'")));
}

TEST_F(LogTest, OpenTellsWhetherTheSnapshotIsThere) {
  auto log = Create();
  ASSERT_OK(SaveRange(log.get(), 1, 9, 1, 5));
  log.reset();
  {
    ASSERT_OK_AND_ASSIGN(const auto opened, Open(MakeSnapshot(4, 1)));
    EXPECT_FALSE(opened.recovered.snapshot_found);
    EXPECT_EQ(opened.recovered.entries.front().index, 5U);
  }
  EXPECT_THAT(Open({.index = 0, .term = 3, .conf_state = {}}),
              base::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("snapshot mismatch")));
}

TEST_F(LogTest, ReadEntriesAcrossSegmentsAndRewrites) {
  auto log = Create();
  for (uint64_t i = 1; i <= 30; ++i) ASSERT_OK(SaveRange(log.get(), i, i, 1, 500));
  ASSERT_OK(SaveRange(log.get(), 12, 14, 2, 500));
  ASSERT_OK(SaveRange(log.get(), 14, 40, 3, 500));
  ASSERT_GT(SegmentCount(), 4U);
  for (int reopened = 0; reopened < 2; ++reopened) {
    for (uint64_t from = 1; from <= 40; ++from) {
      ASSERT_OK_AND_ASSIGN(const auto entries, log->ReadEntries(from, 41, 1 << 20));
      ASSERT_EQ(entries.size(), 41 - from);
      for (const Entry& entry : entries) {
        EXPECT_EQ(entry.index, from + static_cast<uint64_t>(&entry - entries.data()));
        EXPECT_EQ(entry.term, entry.index < 12 ? 1U : entry.index < 14 ? 2U : 3U);
        EXPECT_EQ(entry.data, std::string(500, static_cast<char>('a' + entry.index % 26)));
      }
    }
    EXPECT_THAT(log->ReadEntries(3, 40, 1600), base::IsOkAndHolds(SizeIs(3)));
    EXPECT_THAT(log->ReadEntries(3, 40, 1), base::IsOkAndHolds(SizeIs(1))) << "at least one";
    EXPECT_THAT(log->ReadEntries(39, 100, 1 << 20), base::IsOkAndHolds(SizeIs(2)));
    EXPECT_THAT(log->ReadEntries(41, 42, 1), base::StatusIs(absl::StatusCode::kOutOfRange));
    EXPECT_THAT(log->ReadEntries(0, 4, 1), base::StatusIs(absl::StatusCode::kOutOfRange));
    EXPECT_THAT(log->ReadEntries(4, 4, 1), base::StatusIs(absl::StatusCode::kInvalidArgument));
    log.reset();
    log = std::move(Open()->log);
  }
}

TEST_F(LogTest, HelpersWorkWhileTheLogIsWritten) {
  auto log = Create();
  ASSERT_OK(SaveRange(log.get(), 1, 1, 1, 100));
  std::thread helper([&log] {
    for (int i = 0; i < 200; ++i) {
      EXPECT_OK(log->PreallocateNext());
      const auto entries = log->ReadEntries(1, 50, 1 << 16);
      EXPECT_OK(entries);
      EXPECT_OK(log->Purge(1));
    }
  });
  for (uint64_t i = 2; i <= 300; ++i) EXPECT_OK(SaveRange(log.get(), i, i, 1, 100));
  helper.join();
  ASSERT_OK(log->Close());
  log.reset();
  ASSERT_OK_AND_ASSIGN(const auto opened, Open());
  EXPECT_THAT(opened.recovered.entries, SizeIs(300));
}

TEST_F(LogTest, EmptyLastSegmentGetsItsHead) {
  auto log = Create();
  for (uint64_t i = 1; i <= 2; ++i) ASSERT_OK(SaveRange(log.get(), i, i, 1, 5000));
  log.reset();
  const std::string last = SegmentPath(files_, dir_, 2);
  ASSERT_OK_AND_ASSIGN(const auto file, files_.Open(last, {.write = true}));
  ASSERT_OK(file->Truncate(0));
  ASSERT_OK(Open());
  EXPECT_EQ(RecordOffsets(files_, last).size(), 4U) << "crc, metadata, state";
  ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(files_, dir_, {}));
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_EQ(report.last_index, 2U);
}

TEST_F(LogTest, VerifyReportsTheWholeLog) {
  auto log = Create();
  ASSERT_OK(SaveRange(log.get(), 1, 20, 1, 500));
  ASSERT_OK(SaveRange(log.get(), 21, 30, 2, 500));
  ASSERT_OK(log->SaveSnapshotRecord(MakeSnapshot(25, 2)));
  ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(files_, dir_, {}));
  EXPECT_THAT(report.findings, IsEmpty()) << "also while the log is in use";
  EXPECT_EQ(report.metadata, kTestMetadata);
  EXPECT_EQ(report.state, (HardState{.term = 2, .vote = 1, .commit = 30}));
  EXPECT_EQ(report.first_index, 1U);
  EXPECT_EQ(report.last_index, 30U);
  EXPECT_EQ(report.last_term, 2U);
  EXPECT_THAT(report.snapshots, ElementsAre(SnapshotRecord{}, MakeSnapshot(25, 2)));
  EXPECT_EQ(report.segments, 3U);
  EXPECT_TRUE(report.snapshot_found);
  ASSERT_OK_AND_ASSIGN(const VerifyReport other, Verify(files_, dir_, MakeSnapshot(24, 2)));
  EXPECT_THAT(other.findings, SizeIs(1));
}

}  // namespace
}  // namespace wal
