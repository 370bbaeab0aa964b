// What a start makes of damaged logs: one test for each row of the table in docs/internals/wal.md.
// The verdicts are etcd's.
#include <algorithm>

#include "base/testing.h"
#include "wal/segment_writer.h"
#include "wal/test_log.h"

namespace wal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr LogOptions kOptions{.segment_bytes = 16384};

class DamageTest : public testing::Test {
 protected:
  // One segment with `count` entries in saves of their own.
  void Build(uint64_t count, size_t data_bytes) {
    ASSERT_OK_AND_ASSIGN(auto log, Log::Create(files_, dir_, kTestMetadata, kOptions));
    for (uint64_t i = 1; i <= count; ++i) {
      const Entry entry = MakeEntry(i, 1, std::string(data_bytes, 'x'));
      const EntryView view = entry.view();
      ASSERT_OK(log->Save({&view, 1}, std::nullopt, true));
    }
    ASSERT_OK(log->Close());
    path_ = SegmentPath(files_, dir_, 0);
    offsets_ = RecordOffsets(files_, path_);
  }
  // `segments` full segments and one with two entries; returns the index of the last entry.
  uint64_t BuildSegments(size_t segments) {
    auto log = Log::Create(files_, dir_, kTestMetadata, kOptions).value();
    uint64_t index = 0;
    while (log->cuts() < segments) {
      ++index;
      EXPECT_OK(SaveRange(log.get(), index, index, 1, 3000));
    }
    EXPECT_OK(SaveRange(log.get(), index + 1, index + 2, 1, 3000));
    EXPECT_OK(log->Close());
    return index + 2;
  }

  std::string Read(const std::string& path) { return base::ReadFile(files_, path).value(); }
  void Write(const std::string& path, std::string_view bytes) {
    ASSERT_OK(base::WriteFileAtomically(files_, path, bytes, 0600));
  }
  void Overwrite(uint64_t offset, std::string_view bytes) {
    std::string all = Read(path_);
    all.replace(offset, bytes.size(), bytes);
    Write(path_, all);
  }
  // Puts records behind the last one.
  void Append(RecordType type, std::string_view data, uint32_t crc_change = 0) {
    auto file = files_.Open(path_, {.write = true}).value();
    SegmentReader reader(*file, path_, {.limit = file->Size().value(), .last_segment = true});
    RecordView record;
    while (*reader.Next(&record) == ReadOutcome::kRecord) {
    }
    SegmentWriter writer(std::move(file), reader.offset(), reader.crc() ^ crc_change);
    writer.Append(type, data);
    ASSERT_OK(writer.Write());
  }

  void ExpectStarts(uint64_t entries) {
    ASSERT_OK_AND_ASSIGN(auto opened, OpenNewest(files_, dir_, kOptions));
    EXPECT_THAT(opened.recovered.entries, SizeIs(entries));
    EXPECT_FALSE(opened.recovered.torn_tail.has_value());
    ExpectGoesOn(std::move(opened));
  }
  void ExpectRepaired(uint64_t entries, uint64_t offset) {
    const std::string before = Read(path_);
    ASSERT_OK_AND_ASSIGN(auto opened, OpenNewest(files_, dir_, kOptions));
    EXPECT_THAT(opened.recovered.entries, SizeIs(entries));
    ASSERT_TRUE(opened.recovered.torn_tail.has_value());
    const TornTail torn = *opened.recovered.torn_tail;
    EXPECT_EQ(torn.path, path_);
    EXPECT_EQ(torn.offset, offset);
    EXPECT_EQ(torn.cut_bytes, before.size() - offset);
    EXPECT_EQ(torn.broken_path, path_ + ".broken");
    EXPECT_EQ(Read(torn.broken_path), before);
    EXPECT_EQ(Read(path_).find_first_not_of('\0', offset), std::string::npos);
    ExpectGoesOn(std::move(opened));
  }
  void ExpectRefused(const std::string& what) {
    const auto before = files_.List(dir_).value();
    EXPECT_THAT(OpenNewest(files_, dir_, kOptions),
                base::StatusIs(absl::StatusCode::kDataLoss, HasSubstr(what)));
    EXPECT_EQ(files_.List(dir_).value(), before) << "nothing is touched";
  }
  // The log can be written and read again.
  void ExpectGoesOn(Log::Opened opened) {
    const uint64_t next = opened.log->last_index() + 1;
    ASSERT_OK(SaveRange(opened.log.get(), next, next + 1, 3, 700));
    ASSERT_OK(opened.log->Close());
    opened.log.reset();
    ASSERT_OK_AND_ASSIGN(const auto again, OpenNewest(files_, dir_, kOptions));
    EXPECT_EQ(again.log->last_index(), next + 1);
    EXPECT_FALSE(again.recovered.torn_tail.has_value());
    ASSERT_OK_AND_ASSIGN(const SnapshotScan scan, ValidSnapshotRecords(files_, dir_));
    ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(files_, dir_, scan.snapshots.back()));
    EXPECT_THAT(report.findings, IsEmpty());
  }

  base::ScratchDirectory scratch_;
  base::Files& files_ = base::PosixFiles();
  const std::string dir_ = scratch_ / "wal";
  std::string path_;
  std::vector<uint64_t> offsets_;  // crc, metadata, snapshot, the entries, the end
};

TEST_F(DamageTest, CutExactlyAfterARecordStarts) {
  Build(4, 50);
  Write(path_, Read(path_).substr(0, offsets_[offsets_.size() - 2]));
  ExpectStarts(3);
}

TEST_F(DamageTest, NotPreallocatedStarts) {
  Build(4, 50);
  Write(path_, Read(path_).substr(0, offsets_.back()));
  ExpectStarts(4);
}

TEST_F(DamageTest, CutInsideTheLastRecordIsRepaired) {
  Build(4, 50);
  Write(path_, Read(path_).substr(0, offsets_.back() - 20));
  ExpectRepaired(3, offsets_[offsets_.size() - 2]);
}

TEST_F(DamageTest, CutInsideTheLastLengthFieldIsRepaired) {
  Build(4, 50);
  Write(path_, Read(path_).substr(0, offsets_[offsets_.size() - 2] + 3));
  ExpectRepaired(3, offsets_[offsets_.size() - 2]);
}

TEST_F(DamageTest, CutInsideTheFirstRecordHasNoMetadata) {
  Build(1, 50);
  Write(path_, Read(path_).substr(0, 5));
  EXPECT_THAT(Log::Open(files_, dir_, {}, kOptions),
              base::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no metadata")));
}

TEST_F(DamageTest, JunkBehindTheEndIsZeroed) {
  Build(4, 50);
  Overwrite(offsets_.back() + 8, std::string(600, '\x5a'));
  ExpectStarts(4);
  EXPECT_EQ(Read(path_).find('\x5a'), std::string::npos);
}

TEST_F(DamageTest, HugeLengthInTheTailIsRepaired) {
  for (const uint64_t length : {uint64_t{0x7fffffff}, ~uint64_t{0}}) {
    ASSERT_OK(base::RemoveTree(files_, dir_));
    Build(4, 50);
    char bytes[8];
    base::StoreLe(bytes, length);
    Overwrite(offsets_.back(), {bytes, sizeof bytes});
    ExpectRepaired(4, offsets_.back());
  }
}

TEST_F(DamageTest, ZeroSectorInTheTailRecordIsRepaired) {
  Build(4, 3000);
  const uint64_t last = offsets_[offsets_.size() - 2];
  Overwrite((last / 512 + 2) * 512, std::string(512, '\0'));
  ExpectRepaired(3, last);
}

TEST_F(DamageTest, WrongByteInTheTailRecordIsFatal) {
  Build(4, 3000);
  const uint64_t last = offsets_[offsets_.size() - 2];
  Overwrite(last + 1500, "y");
  ExpectRefused(fmt::format("in file '{}' at position: {}", path_, last));
}

TEST_F(DamageTest, FlippedBitInAMiddleRecordIsFatal) {
  Build(4, 50);
  Overwrite(offsets_[4] + 30, "y");
  ExpectRefused("wal: crc mismatch: expected: ");
}

TEST_F(DamageTest, SecondMetadataThatDiffersIsFatal) {
  Build(2, 50);
  std::string other;
  EncodeMetadata({.node_id = 1, .cluster_id = 2}, &other);
  Append(RecordType::kMetadata, other);
  ExpectRefused("conflicting metadata found");
}

TEST_F(DamageTest, SecondMetadataThatIsEqualStarts) {
  Build(2, 50);
  std::string same;
  EncodeMetadata(kTestMetadata, &same);
  Append(RecordType::kMetadata, same);
  ExpectStarts(2);
}

TEST_F(DamageTest, UnknownTypeIsFatal) {
  Build(2, 50);
  Append(static_cast<RecordType>(9), "data");
  ExpectRefused("unexpected block type 9");
}

TEST_F(DamageTest, GapInTheEntriesIsFatal) {
  Build(2, 50);
  char head[kEntryHeadBytesMax];
  Append(RecordType::kEntry, {head, EncodeEntryHead({.term = 1, .index = 4}, head)});
  ExpectRefused("slice bounds out of range");
}

TEST_F(DamageTest, CrcRecordWithAWrongValueIsFatal) {
  Build(2, 50);
  Append(RecordType::kCrc, "", 1);
  ExpectRefused("crc mismatch");
}

TEST_F(DamageTest, MalformedPayloadIsFatal) {
  Build(2, 50);
  Append(RecordType::kEntry, "\x10");
  ExpectRefused("malformed entry record");
}

TEST_F(DamageTest, SnapshotAboveTheCommitIsIgnored) {
  Build(2, 50);
  std::string snapshot;
  EncodeSnapshot(MakeSnapshot(77, 1), &snapshot);
  Append(RecordType::kSnapshot, snapshot);
  ExpectStarts(2);
}

TEST_F(DamageTest, LogWithoutASnapshotRecordIsRefused) {
  Build(2, 50);
  // A first segment that holds only its CRC and metadata records.
  const std::string bytes = Read(path_);
  Write(path_, bytes.substr(0, offsets_[2]));
  ExpectRefused("no snapshot record");
}

TEST_F(DamageTest, MiddleSegmentWithTrailingZerosStarts) {
  const uint64_t last = BuildSegments(2);
  const std::string middle = SegmentPath(files_, dir_, 1);
  Write(middle, Read(middle) + std::string(5000, '\0'));
  ExpectStarts(last);
}

TEST_F(DamageTest, MiddleSegmentCutInsideARecordIsFatal) {
  BuildSegments(2);
  const std::string middle = SegmentPath(files_, dir_, 1);
  const std::string bytes = Read(middle);
  Write(middle, bytes.substr(0, bytes.size() - 20));
  ExpectRefused("unexpected end of a segment that is not the last");
}

TEST_F(DamageTest, ZeroSectorInAMiddleSegmentIsFatal) {
  BuildSegments(2);
  const std::string middle = SegmentPath(files_, dir_, 1);
  std::string bytes = Read(middle);
  std::fill_n(bytes.begin() + 1024, 512, '\0');
  Write(middle, bytes);
  ExpectRefused("crc mismatch");
}

TEST_F(DamageTest, MiddleSegmentMissingIsFatal) {
  BuildSegments(2);
  ASSERT_OK(files_.Remove(SegmentPath(files_, dir_, 1)));
  ExpectRefused("do not increase continuously");
}

// A gap that the names hide is found by the chain.
TEST_F(DamageTest, MiddleSegmentMissingBehindRightNamesIsFatal) {
  BuildSegments(2);
  const std::string middle = SegmentPath(files_, dir_, 1);
  ASSERT_OK(files_.Rename(SegmentPath(files_, dir_, 2), middle));
  ExpectRefused("crc mismatch");
}

TEST_F(DamageTest, FirstSegmentMissingWithASnapshotBehindItStarts) {
  auto log = Log::Create(files_, dir_, kTestMetadata, kOptions).value();
  ASSERT_OK(SaveRange(log.get(), 1, 6, 1, 3000));
  ASSERT_OK(SaveRange(log.get(), 7, 8, 1, 3000));
  ASSERT_OK(log->SaveSnapshotRecord(MakeSnapshot(8, 1)));
  ASSERT_OK(SaveRange(log.get(), 9, 13, 1, 3000));
  ASSERT_EQ(log->cuts(), 2U);
  ASSERT_OK(log->Close());
  ASSERT_OK(files_.Remove(SegmentPath(files_, dir_, 0)));
  ExpectStarts(5);
}

TEST_F(DamageTest, LastSegmentMissingEmptyOrZeroStartsWithLess) {
  for (const int kind : {0, 1, 2}) {
    ASSERT_OK(base::RemoveTree(files_, dir_));
    const uint64_t last = BuildSegments(2);
    const std::string path = SegmentPath(files_, dir_, 2);
    const size_t size = Read(path).size();
    if (kind == 0) {
      ASSERT_OK(files_.Remove(path));
    } else {
      Write(path, std::string(kind == 1 ? 0 : size, '\0'));
    }
    ExpectStarts(last - 2);
  }
}

TEST_F(DamageTest, WrongIndexInANameStarts) {
  const uint64_t last = BuildSegments(2);
  const auto names = ListSegments(files_, dir_).value();
  SegmentName wrong = names[2];
  wrong.index += 3;
  ASSERT_OK(
      files_.Rename(SegmentPath(files_, dir_, 2), base::JoinPath(dir_, FormatSegmentName(wrong))));
  ExpectStarts(last);
}

TEST_F(DamageTest, ForeignNamesArePassedOver) {
  Build(3, 50);
  Write(dir_ + "/junk", "junk");
  Write(dir_ + "/junk.wal", "junk");
  Write(path_ + ".broken", "junk");
  ExpectStarts(3);
}

// A repair that a crash interrupted is done again.
TEST_F(DamageTest, RepairReplacesAnEarlierBrokenCopy) {
  Build(4, 50);
  Write(path_ + ".broken", "part of a copy");
  Write(path_, Read(path_).substr(0, offsets_.back() - 20));
  ExpectRepaired(3, offsets_[offsets_.size() - 2]);
}

TEST_F(DamageTest, VerifyNamesEachFindingAndGoesOn) {
  BuildSegments(3);
  const std::string first = SegmentPath(files_, dir_, 0);
  const std::string third = SegmentPath(files_, dir_, 2);
  for (const std::string& path : {first, third}) {
    std::string bytes = Read(path);
    bytes[1000] = '!';
    Write(path, bytes);
  }
  const std::string last = SegmentPath(files_, dir_, 3);
  Write(last, Read(last).substr(0, RecordOffsets(files_, last).back() - 5));
  ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(files_, dir_, {}));
  std::vector<std::string> paths;
  for (const Finding& finding : report.findings) {
    if (!finding.what.starts_with("slice bounds")) paths.push_back(finding.path);
  }
  EXPECT_THAT(paths, ElementsAre(first, third, last));
  EXPECT_EQ(report.segments, 4U);
}

}  // namespace
}  // namespace wal
