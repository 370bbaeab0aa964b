// The format of records: bytes known from etcd, and what the reader makes of damaged ones.
#include <algorithm>
#include <memory>
#include <string>

#include "base/random.h"
#include "base/testing.h"
#include "support/memory_files.h"
#include "wal/records.h"
#include "wal/segment_reader.h"
#include "wal/segment_writer.h"
#include "wal/test_log.h"

namespace wal {
namespace {

using testing::HasSubstr;

// The first segment of a one-member cluster, as etcd 3.7 wrote it.
const char kWorkedExample[] =
    "0400000000000084 0804 1000 00000000"
    "1f00000000000081 0801 108e83a6ad0b 1a15 08c0f2baa79c9cf6aca701 10c4eabffbfc80d8d565 00"
    "0e00000000000082 0805 10d7c1ee9104 1a04 0800 1000 0000"
    "7300000000000085 0802 10e7e09f9201 1a69 0801 1001 1801 2261 1000 18c0f2baa79c9cf6aca701 2252";
const char kWorkedExampleJson[] =
    R"({"id":12058907941444434240,"peerURLs":["http://127.0.0.1:21001"],"name":"default"})";
const char kWorkedExampleRest[] =
    "0000000000"
    "1000000000000000 0803 10a9b2a0da0f 1a06 0801 1000 1801"
    "1900000000000087 0803 1093b696d303 1a0f 0802 10c0f2baa79c9cf6aca701 1801 00000000000000"
    "0e00000000000082 0802 10e6b6becc08 1a04 1002 1802 0000";

TEST(SegmentName, RoundTripsAndRefusesOthers) {
  EXPECT_EQ(FormatSegmentName({.sequence = 1, .index = 0x46}),
            "0000000000000001-0000000000000046.wal");
  EXPECT_EQ(ParseSegmentName("0000000000000001-0000000000000046.wal"),
            (SegmentName{.sequence = 1, .index = 0x46}));
  for (const char* other :
       {"", "0.tmp", "0000000000000001-0000000000000046.wal.broken", "1-46.wal",
        "000000000000000g-0000000000000046.wal", "0000000000000001_0000000000000046.wal"}) {
    EXPECT_FALSE(ParseSegmentName(other).has_value()) << other;
  }
}

TEST(Log, WritesTheBytesOfEtcd) {
  base::ScratchDirectory scratch;
  base::Files& files = base::PosixFiles();
  ASSERT_OK_AND_ASSIGN(
      auto log, Log::Create(files, scratch / "wal", kTestMetadata, {.segment_bytes = 1 << 20}));
  const uint64_t node = kTestMetadata.node_id;
  const std::string change = FromHex("1000 18c0f2baa79c9cf6aca701 2252") + kWorkedExampleJson;
  const EntryView first{.term = 1, .index = 1, .type = 1, .data = change};
  ASSERT_OK(log->Save({&first, 1}, HardState{.term = 1, .vote = 0, .commit = 1}, true));
  ASSERT_OK(log->Save({}, HardState{.term = 2, .vote = node, .commit = 1}, true));
  const EntryView second{.term = 2, .index = 2};
  ASSERT_OK(log->Save({&second, 1}, std::nullopt, true));

  const std::string expected =
      FromHex(kWorkedExample) + kWorkedExampleJson + FromHex(kWorkedExampleRest);
  ASSERT_EQ(expected.size(), 0x128U);
  ASSERT_OK_AND_ASSIGN(const std::string written,
                       base::ReadFile(files, SegmentPath(files, scratch / "wal", 0)));
  EXPECT_EQ(base::ToHex(written.substr(0, expected.size())), base::ToHex(expected));
  EXPECT_EQ(written.size(), 1U << 20);
  EXPECT_EQ(written.find_first_not_of('\0', expected.size()), std::string::npos);
}

TEST(Records, DecodeTheStyleOf36) {
  EntryView entry;
  ASSERT_TRUE(DecodeEntry(FromHex("0800 1002 1802"), &entry));
  EXPECT_EQ(entry.term, 2U);
  EXPECT_EQ(entry.index, 2U);
  EXPECT_EQ(entry.type, 0U);
  EXPECT_TRUE(entry.data.empty());
  SnapshotRecord snapshot;
  ASSERT_TRUE(DecodeSnapshot(FromHex("0865 1002 1a06 0801 0802 2800"), &snapshot));
  EXPECT_EQ(snapshot.index, 0x65U);
  EXPECT_EQ(snapshot.conf_state.voters, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(snapshot.conf_state.auto_leave, false);
  ASSERT_TRUE(DecodeSnapshot(FromHex("0865 1002 1a04 0a02 0102"), &snapshot)) << "packed";
  EXPECT_EQ(snapshot.conf_state.voters, (std::vector<uint64_t>{1, 2}));
}

TEST(Records, EncodeAllOfAConfState) {
  const SnapshotRecord snapshot{.index = 7,
                                .term = 3,
                                .conf_state = {.voters = {1, 2},
                                               .learners = {3},
                                               .voters_outgoing = {4},
                                               .learners_next = {5},
                                               .auto_leave = true}};
  std::string bytes;
  EncodeSnapshot(snapshot, &bytes);
  EXPECT_EQ(base::ToHex(bytes),
            "080710031a0c08010802100318042005"
            "2801");
  SnapshotRecord decoded;
  ASSERT_TRUE(DecodeSnapshot(bytes, &decoded));
  EXPECT_EQ(decoded, snapshot);
  bytes.clear();
  EncodeSnapshot({.index = 1, .term = 1, .conf_state = {}}, &bytes);
  EXPECT_EQ(base::ToHex(bytes), "080110011a00") << "etcd refuses a record without the field";
}

TEST(Records, RefuseMalformedBytes) {
  EntryView entry;
  HardState state;
  Metadata metadata;
  SnapshotRecord snapshot;
  EXPECT_FALSE(DecodeEntry(FromHex("10"), &entry));
  EXPECT_FALSE(DecodeEntry(FromHex("22 05 00"), &entry)) << "longer than the message";
  EXPECT_FALSE(DecodeEntry(FromHex("1200"), &entry)) << "term of type bytes";
  EXPECT_FALSE(DecodeState(FromHex("0a00"), &state));
  EXPECT_FALSE(DecodeMetadata(FromHex("08ffffffffffffffffffff01"), &metadata))
      << "varint of 11 bytes";
  EXPECT_FALSE(DecodeSnapshot(FromHex("1a0108"), &snapshot));
}

class SegmentReaderTest : public testing::Test {
 protected:
  // Writes `count` entries of `data_bytes` into a segment and returns its bytes.
  std::string Build(int count, size_t data_bytes) {
    std::unique_ptr<base::File> file = OpenFile(true).value();
    SegmentWriter writer(std::move(file), 0, 0);
    writer.AppendCrc();
    for (int i = 1; i <= count; ++i) {
      char head[kEntryHeadBytesMax];
      const std::string data(data_bytes, static_cast<char>('a' + i));
      const size_t n = EncodeEntryHead(
          {.term = 1, .index = static_cast<uint64_t>(i), .type = 0, .data = data}, head);
      offsets_.push_back(writer.appended_bytes());
      writer.Append(RecordType::kEntry, {head, n}, data);
    }
    offsets_.push_back(writer.appended_bytes());
    EXPECT_OK(writer.Finish());
    return disk_.Contents("/segment").value();
  }

  absl::StatusOr<std::unique_ptr<base::File>> OpenFile(bool truncate) {
    return disk_.Open("/segment", {.write = true, .create = true, .truncate = truncate});
  }

  // How reading `bytes` ends; counts the records.
  absl::StatusOr<ReadOutcome> ReadAll(const std::string& bytes, bool last, int* records) {
    auto file = OpenFile(true).value();
    EXPECT_OK(file->WriteAt(0, bytes));
    SegmentReader reader(*file, "seg", {.limit = bytes.size(), .last_segment = last});
    *records = 0;
    data_.clear();
    while (true) {
      RecordView record;
      auto outcome = reader.Next(&record);
      if (!outcome.ok() || *outcome != ReadOutcome::kRecord) return outcome;
      data_.emplace_back(record.data);
      ++*records;
    }
  }

  test_support::MemoryFiles disk_;
  std::vector<uint64_t> offsets_;  // of the entries, and where the last one ends
  std::vector<std::string> data_;  // of the records ReadAll read
};

TEST_F(SegmentReaderTest, CutAnywhereIsAnEndOrTorn) {
  const std::string bytes = Build(3, 600);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    int records = 0;
    const auto outcome = ReadAll(bytes.substr(0, cut), true, &records);
    const auto whole =
        std::count_if(offsets_.begin(), offsets_.end(), [cut](uint64_t end) { return end <= cut; });
    ASSERT_OK(outcome) << cut;
    EXPECT_EQ(records, whole) << cut;
    const bool border =
        cut == 0 || std::find(offsets_.begin(), offsets_.end(), cut) != offsets_.end();
    EXPECT_EQ(*outcome, border ? ReadOutcome::kEnd : ReadOutcome::kTorn) << cut;
  }
}

// The data that was read is the data that was written, whichever bit is flipped: what the checksum
// does not cover (types, padding) never changes it.
TEST_F(SegmentReaderTest, NoFlippedBitChangesData) {
  const std::string bytes = Build(2, 40);
  int records = 0;
  ASSERT_THAT(ReadAll(bytes, true, &records), base::IsOkAndHolds(ReadOutcome::kEnd));
  ASSERT_EQ(records, 3);
  const std::vector<std::string> original = data_;
  for (size_t bit = offsets_[0] * 8; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] =
        static_cast<char>(static_cast<unsigned char>(damaged[bit / 8]) ^ (1U << bit % 8));
    const auto outcome = ReadAll(damaged, true, &records);
    if (outcome.ok()) {
      EXPECT_TRUE(std::equal(data_.begin(), data_.end(), original.begin())) << bit;
    } else {
      EXPECT_THAT(outcome, base::StatusIs(absl::StatusCode::kDataLoss,
                                          HasSubstr("in file 'seg' at position: ")));
    }
  }
}

TEST_F(SegmentReaderTest, ZeroSectorIsTornOnlyInTheLastSegment) {
  std::string bytes = Build(1, 3000);
  std::fill_n(bytes.begin() + 1024, kSectorBytes, '\0');
  int records = 0;
  EXPECT_THAT(ReadAll(bytes, true, &records), base::IsOkAndHolds(ReadOutcome::kTorn));
  EXPECT_THAT(
      ReadAll(bytes, false, &records),
      base::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("wal: crc mismatch: expected: ")));
  bytes[1024] = 1;
  EXPECT_THAT(ReadAll(bytes, true, &records), base::StatusIs(absl::StatusCode::kDataLoss))
      << "no sector is all zero";
}

TEST_F(SegmentReaderTest, HugeLengthsAreTorn) {
  std::string bytes = Build(1, 10);
  for (const uint64_t length : {uint64_t{0x7fffffff}, ~uint64_t{0}, kLengthMask, bytes.size()}) {
    std::string damaged = bytes;
    base::StoreLe(damaged.data() + offsets_[0], length);
    int records = 0;
    const auto outcome = ReadAll(damaged, true, &records);
    EXPECT_EQ(records, 1) << length;
    EXPECT_THAT(outcome, base::IsOkAndHolds(ReadOutcome::kTorn)) << length;
  }
}

// A wrong number of padding bytes leaves the record whole, but what follows would not be aligned.
TEST_F(SegmentReaderTest, RecordThatIsNotPaddedIsDamage) {
  std::string bytes = Build(1, 10);
  const auto length = base::LoadLe<uint64_t>(bytes.data() + offsets_[0]);
  base::StoreLe(bytes.data() + offsets_[0], length & kLengthMask);
  ASSERT_NE(length, length & kLengthMask) << "padded";
  int records = 0;
  EXPECT_THAT(ReadAll(bytes, true, &records),
              base::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not to a multiple of 8")));
}

TEST_F(SegmentReaderTest, RandomBytesNeverCrash) {
  const char* given = std::getenv("ENGRAM_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : base::SystemRandom().Next();
  SCOPED_TRACE(testing::Message() << "ENGRAM_TEST_SEED=" << seed);
  base::SeededRandom random(seed);
  const std::string bytes = Build(4, 700);
  for (int round = 0; round < 500; ++round) {
    std::string damaged = bytes;
    for (uint64_t n = random.Below(4) + 1; n > 0; --n) {
      const size_t at = random.Below(damaged.size());
      const size_t length = std::min<size_t>(random.Below(600) + 1, damaged.size() - at);
      const char fill = random.OneIn(2) ? '\0' : static_cast<char>(random.Next());
      std::fill_n(damaged.begin() + static_cast<ptrdiff_t>(at), length, fill);
    }
    int records = 0;
    const auto outcome = ReadAll(damaged, random.OneIn(2), &records);
    EXPECT_LE(records, 5);
    EXPECT_TRUE(outcome.ok() || absl::IsDataLoss(outcome.status())) << outcome.status();
  }
}

// A file whose operations fail once told so.
class FailingFile final : public base::File {
 public:
  const std::string& path() const override { return path_; }
  absl::StatusOr<size_t> ReadAt(uint64_t, char*, size_t) const override { return 0; }
  absl::Status WriteAt(uint64_t, std::string_view) override {
    return ++writes, fail_write ? Error() : absl::OkStatus();
  }
  absl::Status Append(std::string_view) override { return Error(); }
  absl::StatusOr<uint64_t> Size() const override { return 0; }
  absl::Status Truncate(uint64_t) override { return absl::OkStatus(); }
  absl::Status Allocate(uint64_t) override { return absl::OkStatus(); }
  absl::Status Sync() override { return ++syncs, fail_sync ? Error() : absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<base::Mapping>> Map(uint64_t) override { return Error(); }
  absl::StatusOr<bool> TryLock(base::LockKind) override { return true; }

  bool fail_write = false;
  bool fail_sync = false;
  int writes = 0;
  int syncs = 0;

 private:
  static absl::Status Error() { return absl::InternalError("disk on fire"); }
  const std::string path_ = "f";
};

TEST(SegmentWriter, IsPoisonedByTheFirstFailure) {
  for (const bool fail_write : {true, false}) {
    auto owned = std::make_unique<FailingFile>();
    FailingFile* file = owned.get();
    SegmentWriter writer(std::move(owned), 0, 0);
    writer.AppendCrc();
    ASSERT_OK(writer.Write());
    ASSERT_OK(writer.Sync());
    EXPECT_EQ(writer.synced_bytes(), 16U);
    (fail_write ? file->fail_write : file->fail_sync) = true;
    writer.AppendCrc();
    absl::Status first = writer.Write();
    if (first.ok()) first = writer.Sync();
    EXPECT_THAT(first, base::StatusIs(absl::StatusCode::kInternal));
    file->fail_write = file->fail_sync = false;
    const int calls = file->writes + file->syncs;
    EXPECT_EQ(writer.Write(), first);
    EXPECT_EQ(writer.Sync(), first);
    EXPECT_EQ(writer.Finish(), first);
    EXPECT_EQ(file->writes + file->syncs, calls) << "the file is left alone";
    EXPECT_EQ(writer.synced_bytes(), 16U);
  }
}

}  // namespace
}  // namespace wal
