// Snapshot files that etcd wrote, taken back to each of their revisions and forward again by their
// own rows.
#include "snapshot/replay.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/testing.h"
#include "bolt/db.h"
#include "snapshot/inspect.h"
#include "snapshot/records.h"
#include "support/memory_files.h"

namespace snapshot {
namespace {

using base::StatusIs;
using test_support::MemoryFiles;

constexpr char kPath[] = "/s.db";
constexpr char kCopy[] = "/copy.db";

struct StoredRow {
  mvcc::RevisionKey revision;
  std::string value;
};

class ReplayTest : public testing::TestWithParam<std::string> {
 protected:
  ReplayTest() {
    auto golden =
        base::ReadFile(base::PosixFiles(), std::string(ENGRAM_SOURCE_DIR "/tests/data/bolt/etcd-") +
                                               GetParam() + "-snapshot.db");
    EXPECT_OK(golden.status());
    golden_ = *golden;
    files_.Put(kPath, golden_);
    const OpenedDb opened = Open(kPath);
    bounds_ = *BoundsOf(*opened.tx);
    rows_ = RowsOf(opened);
  }

  OpenedDb Open(const std::string& path) {
    auto opened = OpenChecked(files_, base::SystemClock(), path, {});
    EXPECT_OK(opened.status());
    return opened.ok() ? std::move(*opened) : OpenedDb();
  }

  static std::vector<StoredRow> RowsOf(const OpenedDb& opened) {
    std::vector<StoredRow> rows;
    EXPECT_OK(ForEachRecord(*opened.tx, [&](const KeyRecord& record) {
      rows.push_back({record.revision, std::string(record.value)});
      return absl::OkStatus();
    }));
    return rows;
  }

  int64_t oldest() const { return std::max(int64_t{1}, bounds_.compact_revision); }

  std::unique_ptr<Replay> OpenCopy() {
    files_.Put(kCopy, golden_);
    auto replay = Replay::Open(files_, base::SystemClock(), kCopy);
    EXPECT_OK(replay.status());
    return std::move(*replay);
  }

  MemoryFiles files_;
  std::string golden_;
  Bounds bounds_;
  std::vector<StoredRow> rows_;
};

INSTANTIATE_TEST_SUITE_P(Versions, ReplayTest, testing::Values("3.6", "3.7"));

TEST_P(ReplayTest, GoesBackToEachRevisionItHolds) {
  for (int64_t r = oldest(); r <= bounds_.revision; ++r) {
    SCOPED_TRACE(r);
    const auto replay = OpenCopy();
    ASSERT_OK(replay->LeaveOutAfter(r));
    ASSERT_OK(replay->Finish());
    const OpenedDb copy = Open(kCopy);
    ASSERT_OK_AND_ASSIGN(const HashKv is, HashKvOf(*copy.tx, 0));
    ASSERT_OK_AND_ASSIGN(const HashKv was, HashKvOf(*Open(kPath).tx, r));
    EXPECT_EQ(is.hash, was.hash);
    EXPECT_EQ(is.hash_revision, r);
    EXPECT_EQ(is.compact_revision, was.compact_revision);
  }
}

TEST_P(ReplayTest, GoesForwardAgainByItsOwnRowsByteForByte) {
  for (int64_t r = oldest(); r < bounds_.revision; r += 7) {
    SCOPED_TRACE(r);
    const auto replay = OpenCopy();
    ASSERT_OK(replay->LeaveOutAfter(r));
    for (const StoredRow& row : rows_) {
      if (row.revision.revision.main <= r) continue;
      ASSERT_OK(replay->Append({.revision = row.revision.revision,
                                .tombstone = row.revision.tombstone,
                                .value = row.value}));
    }
    ASSERT_OK(replay->Finish());
    EXPECT_EQ(replay->stats().rows_added, replay->stats().rows_left_out);
    const OpenedDb copy = Open(kCopy);
    const std::vector<StoredRow> rows = RowsOf(copy);
    ASSERT_EQ(rows.size(), rows_.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].revision, rows_[i].revision);
      EXPECT_EQ(rows[i].value, rows_[i].value);
    }
  }
}

TEST_P(ReplayTest, RefusesRevisionsThatAreNotInTheFile) {
  const auto replay = OpenCopy();
  EXPECT_THAT(replay->LeaveOutAfter(oldest() - 1),
              StatusIs(absl::StatusCode::kOutOfRange, testing::HasSubstr("is not in it")));
  EXPECT_THAT(replay->LeaveOutAfter(bounds_.revision + 1),
              StatusIs(absl::StatusCode::kOutOfRange, testing::HasSubstr("is not in it")));
}

TEST_P(ReplayTest, RefusesRowsThatDoNotFollow) {
  const int64_t last = bounds_.revision;
  const auto replay = OpenCopy();
  const auto append = [&](int64_t main, int64_t sub) {
    return replay->Append({.revision = {main, sub}, .value = ""});
  };
  const auto is_refused = StatusIs(absl::StatusCode::kDataLoss, testing::HasSubstr("not follow"));
  EXPECT_THAT(append(last, 1), is_refused);  // more of a revision that the file holds whole
  EXPECT_THAT(append(last + 2, 0), is_refused);
  EXPECT_THAT(append(last + 1, 1), is_refused);
  ASSERT_OK(append(last + 1, 0));
  EXPECT_THAT(append(last + 1, 0), is_refused);
  EXPECT_THAT(append(last + 1, 2), is_refused);
  ASSERT_OK(append(last + 1, 1));
  ASSERT_OK(append(last + 2, 0));
  EXPECT_EQ(replay->bounds().revision, last + 2);
}

TEST_P(ReplayTest, AddsLeasesThatAreMissingOnly) {
  std::string known;
  {
    const OpenedDb opened = Open(kPath);
    ASSERT_OK_AND_ASSIGN(const auto leases, FindBucket(*opened.tx, "lease"));
    ASSERT_OK(ForEach(*leases, [&](std::string_view key, std::string_view) {
      known = key;
      return absl::OkStatus();
    }));
  }
  ASSERT_EQ(known.size(), 8u);
  int64_t known_id = 0;
  for (const char c : known) known_id = known_id << 8 | static_cast<uint8_t>(c);
  const auto replay = OpenCopy();
  ASSERT_OK(replay->EnsureLease(known_id, 5));
  ASSERT_OK(replay->EnsureLease(0x1234, 60));
  ASSERT_OK(replay->Finish());
  EXPECT_EQ(replay->stats().leases_added, 1u);
  const OpenedDb copy = Open(kCopy);
  ASSERT_OK_AND_ASSIGN(const auto leases, FindBucket(*copy.tx, "lease"));
  ASSERT_OK_AND_ASSIGN(const auto added, leases->Get(std::string("\0\0\0\0\0\0\x12\x34", 8)));
  ASSERT_TRUE(added.has_value());
  EXPECT_EQ(*added, std::string("\x08\xb4\x24\x10\x3c", 5));
}

TEST_P(ReplayTest, FindsDamageBeforeItTouchesAnything) {
  std::string damaged = golden_;
  damaged[4096 * 3 + 9] = static_cast<char>(damaged[4096 * 3 + 9] ^ 0x7f);
  damaged[4096 * 4 + 9] = static_cast<char>(damaged[4096 * 4 + 9] ^ 0x7f);
  files_.Put(kCopy, damaged);
  EXPECT_THAT(Replay::Open(files_, base::SystemClock(), kCopy),
              StatusIs(absl::StatusCode::kDataLoss, testing::_));
}

}  // namespace
}  // namespace snapshot
