// The signed log: written, shipped, read back, and everything that can be done to it in a store.
#include "ledger/log.h"

#include <fmt/format.h>

#include "base/random.h"
#include "base/sha256.h"
#include "base/testing.h"
#include "ledger/load.h"
#include "ledger/names.h"
#include "stores/file_store.h"
#include "stores/testing/manual_time.h"
#include "support/memory_files.h"

namespace ledger {
namespace {

using base::IsOk;
using base::StatusIs;
using test_support::MemoryFiles;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const Place kPlace{.cluster = "prod",
                   .timeline = {.cluster_id = 0xabcdef, .first_revision = 17},
                   .writer = "0123456789abcdef"};

catalog::Object Segment(int64_t first, int64_t last) {
  catalog::Object object;
  object.kind = catalog::Kind::kSegment;
  object.name = fmt::format("{}/archive/live/{:016x}-{:016x}.seg", kPlace.Folder(), first, last);
  object.timeline = kPlace.timeline;
  object.writer = kPlace.writer;
  object.plain_sha256 = object.stored_sha256 = std::string(64, 'a');
  object.first_revision = first;
  object.last_revision = last;
  object.stores = {"disk"};
  return object;
}

class LogTest : public testing::Test {
 protected:
  LogTest()
      : random_(7), key_(vault::SigningKey::Generate(random_)), trusted_{key_.verifying_key()} {
    EXPECT_OK(files_.MakeDirectory("/store", 0700));
    auto store = stores::FileStore::Open(files_, base::SystemClock(), random_, {.root = "/store"});
    EXPECT_OK(store.status());
    store_ = *std::move(store);
  }

  std::unique_ptr<LogWriter> Open() {
    auto log = LogWriter::Open(files_, base::SystemClock(), "/state", kPlace, key_);
    EXPECT_OK(log.status());
    return log.ok() ? *std::move(log) : nullptr;
  }
  // A log of `segments` records after its opening, each shipped for itself, with a head.
  void WriteLog(int segments) {
    const auto log = Open();
    ASSERT_OK(log->Append({Opened{.cluster = "prod", .why = "first seen"}}));
    for (int i = 0; i < segments; ++i) {
      ASSERT_OK(log->Append({Stored{Segment(18 + i, 18 + i)}}));
      ASSERT_OK(log->Ship("disk", *store_, deadline()));
    }
    ASSERT_OK(log->SignHead("disk", *store_, {.revision = 17 + segments}, deadline()));
  }

  absl::Status Merge() { return Open()->MergeChunks(*store_, *store_, deadline()); }

  static stores::Deadline deadline() {
    return stores::Deadline::In(base::SystemClock(), std::chrono::seconds(60));
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    EXPECT_OK(stores::ForEachObject(*store_, kPlace.Folder(), deadline(),
                                    [&](const stores::ObjectInfo& object) {
                                      names.push_back(object.name);
                                      return absl::OkStatus();
                                    }));
    return names;
  }
  LogContents Read() { return Read(Names()); }
  LogContents Read(const std::vector<std::string>& names) {
    auto contents = ReadLog(*store_, kPlace, names, trusted_, deadline());
    EXPECT_OK(contents.status());
    return contents.ok() ? *std::move(contents) : LogContents();
  }
  std::string PathOf(const std::string& name) const { return "/store/" + name; }
  std::string ChunkPath(uint64_t first, uint64_t last) const {
    return PathOf(ChunkName(kPlace, {first, last}));
  }
  std::string Bytes(const std::string& path) { return *base::ReadFile(files_, path); }

  MemoryFiles files_;
  base::SeededRandom random_;
  vault::SigningKey key_;
  std::vector<vault::VerifyingKey> trusted_;
  std::unique_ptr<stores::FileStore> store_;
};

TEST_F(LogTest, IsReadAsItWasWritten) {
  WriteLog(3);
  const LogContents contents = Read();
  EXPECT_THAT(contents.findings, IsEmpty());
  ASSERT_EQ(contents.records.size(), 4u);
  InventoryBuilder builder("prod");
  for (const Record& record : contents.records) {
    ASSERT_OK(builder.Apply(record, kPlace.timeline));
  }
  const catalog::Inventory inventory = builder.Take();
  ASSERT_EQ(inventory.objects.size(), 3u);
  EXPECT_EQ(inventory.objects[2].first_revision, 20);
  EXPECT_EQ(inventory.objects[2].timeline, kPlace.timeline);
  EXPECT_EQ(inventory.objects[2].writer, kPlace.writer);
  EXPECT_THAT(inventory.timelines, testing::ElementsAre(kPlace.timeline));
  ASSERT_TRUE(contents.head.has_value());
  EXPECT_EQ(contents.head->seq, 4u);
  EXPECT_EQ(contents.head->watched.revision, 20);
}

TEST_F(LogTest, EveryKindOfFactSurvivesItsLine) {
  catalog::Object full = Segment(5, 9);
  full.kind = catalog::Kind::kFull;
  full.compact_revision = 4;
  full.first_seen = {base::Duration(1), base::Duration(2)};
  full.last_seen = {base::Duration(3), base::Duration(4)};
  full.member_id = 0xffffffffffffffff;
  full.key_count = 12;
  full.prefix_counts = {{"/registry/pods/", 7}, {"", 5}};
  full.recipients = {"age1x"};
  full.suspect = "it lost \"half\"\nof its keys";
  full.proofs = {{.method = catalog::Proof::Method::kRows,
                  .from = 4,
                  .to = 9,
                  .rows = 5,
                  .against = "archive",
                  .at = base::Duration(5)},
                 {.method = catalog::Proof::Method::kHashOfFile,
                  .to = 9,
                  .compact_revision = 4,
                  .hash = 0xffffffff,
                  .at = base::Duration(5)}};
  const std::vector<Fact> facts = {
      Opened{
          .cluster = "prod", .cluster_id = 7, .keeper_version = "1", .public_key = "k", .why = "w"},
      Stored{full},
      Copied{.name = full.name, .store = "s3"},
      Reread{.name = full.name, .store = "s3"},
      Damaged{.name = full.name, .store = "s3", .what = "a bit"},
      Healed{.name = full.name, .store = "s3", .from = "disk"},
      Rewrapped{.name = full.name,
                .as = full.name + "-w1",
                .recipients = {"age1y", "age1z"},
                .stored_bytes = 8,
                .stored_sha256 = std::string(64, 'b'),
                .stores = {"disk", "s3"}},
      Proven{.name = full.name, .proof = full.proofs[0]},
      Suspected{.name = full.name, .why = ""},
      Pinned{.name = full.name, .pinned = true},
      Annotated{.name = full.name, .note = "before the upgrade"},
      Pruned{.name = full.name, .why = "older than a week"},
      HoleFound{{.first_revision = 10,
                 .last_revision = 12,
                 .from = base::Duration(1),
                 .to = base::Duration(2),
                 .why = "compacted"}}};
  InventoryBuilder builder("prod");
  uint64_t seq = 0;
  for (const Fact& fact : facts) {
    const Record record{
        .seq = ++seq, .previous = std::string(kNoPrevious), .at = base::Duration(9), .fact = fact};
    std::string line = EncodeLine(record);
    ASSERT_EQ(line.back(), '\n');
    line.pop_back();
    EXPECT_EQ(line.find('\n'), std::string::npos);
    ASSERT_OK_AND_ASSIGN(const Record read, DecodeLine(line, kPlace.Folder()));
    EXPECT_EQ(EncodeLine(read), EncodeLine(record));
    EXPECT_EQ(read.fact.index(), fact.index());
    ASSERT_OK(builder.Apply(read, kPlace.timeline));
  }
  const catalog::Inventory inventory = builder.Take();
  ASSERT_EQ(inventory.objects.size(), 1u);
  const catalog::Object& o = inventory.objects[0];
  EXPECT_EQ(o.stores, (std::set<std::string>{"disk", "s3"}));
  EXPECT_THAT(o.damaged, IsEmpty());
  EXPECT_EQ(o.prefix_counts, full.prefix_counts);
  EXPECT_EQ(o.member_id, full.member_id);
  EXPECT_EQ(o.proofs.size(), 3u);
  EXPECT_EQ(o.proofs[1].hash, 0xffffffffu);
  EXPECT_EQ(o.recipients.size(), 2u);
  EXPECT_TRUE(o.pinned && o.pruned && o.suspect.empty());
  EXPECT_EQ(o.note, "before the upgrade");
  EXPECT_EQ(inventory.holes.size(), 1u);
}

TEST_F(LogTest, GoesOnAfterARestart) {
  WriteLog(2);
  {
    const auto log = Open();
    EXPECT_EQ(log->last_seq(), 3u);
    ASSERT_OK(log->Append({Stored{Segment(20, 21)}, Pinned{.name = Segment(20, 21).name}}));
    ASSERT_OK(log->SignHead("disk", *store_, {}, deadline()));
  }
  const LogContents contents = Read();
  EXPECT_THAT(contents.findings, IsEmpty());
  EXPECT_EQ(contents.records.size(), 5u);
}

TEST_F(LogTest, TwoWritersOnOneStateDirectoryShareTheChain) {
  const auto a = Open();
  ASSERT_OK(a->Append({Opened{.cluster = "prod"}}));
  const auto b = Open();
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(a->Append({Stored{Segment(2 * i + 1, 2 * i + 1)}}));
    ASSERT_OK(b->Append({Stored{Segment(2 * i + 2, 2 * i + 2)}}));
    ASSERT_OK(a->Ship("disk", *store_, deadline()));
    ASSERT_OK(b->Ship("disk", *store_, deadline()));
  }
  ASSERT_OK(a->SignHead("disk", *store_, {}, deadline()));
  const LogContents contents = Read();
  EXPECT_THAT(contents.findings, IsEmpty());
  EXPECT_EQ(contents.records.size(), 11u);
}

TEST_F(LogTest, KnowsOfWhichTimelinesItHasFiles) {
  WriteLog(2);
  const auto timelines = [&](const std::string& cluster, const std::string& writer) {
    return LogWriter::TimelinesIn(files_, "/state", cluster, writer);
  };
  EXPECT_THAT(timelines("prod", kPlace.writer),
              base::IsOkAndHolds(testing::ElementsAre(kPlace.timeline)));
  EXPECT_THAT(timelines("prod", "0000000000000000"), base::IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(timelines("pro", kPlace.writer), base::IsOkAndHolds(IsEmpty()));
}

TEST_F(LogTest, ATornLastLineIsCut) {
  WriteLog(2);
  const std::string path = "/state/prod." + kPlace.timeline.Name() + "." + kPlace.writer + ".jsonl";
  const std::string whole = Bytes(path);
  files_.Put(path, whole + R"({"seq":4,"previous":"...)");
  const auto log = Open();
  ASSERT_NE(log, nullptr);
  EXPECT_EQ(log->last_seq(), 3u);
  EXPECT_EQ(Bytes(path), whole);
}

TEST_F(LogTest, AnEditedStateFileIsRefused) {
  WriteLog(2);
  const std::string path = "/state/prod." + kPlace.timeline.Name() + "." + kPlace.writer + ".jsonl";
  std::string bytes = Bytes(path);
  bytes.replace(bytes.find("first seen"), 10, "first SEEN");
  files_.Put(path, bytes);
  EXPECT_THAT(LogWriter::Open(files_, base::SystemClock(), "/state", kPlace, key_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("does not follow")));
}

TEST_F(LogTest, ARemovedChunkIsFound) {
  WriteLog(4);
  ASSERT_OK(files_.Remove(ChunkPath(3, 3)));
  const LogContents contents = Read();
  EXPECT_EQ(contents.records.size(), 2u);
  EXPECT_THAT(contents.findings, Contains(HasSubstr("record 3 is missing")));
}

TEST_F(LogTest, ACutTailIsFound) {
  WriteLog(4);
  ASSERT_OK(files_.Remove(ChunkPath(5, 5)));
  EXPECT_THAT(Read().findings, Contains(HasSubstr("the log's tail is missing")));
}

TEST_F(LogTest, AMissingHeadIsFound) {
  WriteLog(1);
  ASSERT_OK(files_.Remove(PathOf(HeadName(kPlace))));
  EXPECT_THAT(Read().findings, Contains(HasSubstr("head.json")));
}

TEST_F(LogTest, EveryFlippedByteIsFound) {
  WriteLog(2);
  for (const std::string& name : Names()) {
    const std::string whole = Bytes(PathOf(name));
    for (size_t at = 0; at < whole.size(); at += 5) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ 1);
      files_.Put(PathOf(name), flipped);
      EXPECT_THAT(Read().findings, Not(IsEmpty())) << name << " at " << at;
    }
    for (size_t n = 0; n < whole.size(); n += 3) {
      files_.Put(PathOf(name), whole.substr(0, n));
      EXPECT_THAT(Read().findings, Not(IsEmpty())) << name << " cut to " << n;
    }
    files_.Put(PathOf(name), whole);
  }
  EXPECT_THAT(Read().findings, IsEmpty());
}

TEST_F(LogTest, ExchangedChunksAreFound) {
  WriteLog(3);
  const std::string two = Bytes(ChunkPath(3, 3)), three = Bytes(ChunkPath(4, 4));
  files_.Put(ChunkPath(3, 3), three);
  files_.Put(ChunkPath(4, 4), two);
  EXPECT_THAT(Read().findings, Contains(HasSubstr("record 4 stands where 3 should")));
}

TEST_F(LogTest, AForgerWithoutTheKeyIsFound) {
  WriteLog(1);
  const vault::SigningKey forged = vault::SigningKey::Generate(random_);
  {
    const auto log = LogWriter::Open(files_, base::SystemClock(), "/forger", kPlace, forged);
    ASSERT_OK((*log)->Append({Opened{.cluster = "prod"}}));
    ASSERT_OK((*log)->Append({Stored{Segment(1000, 2000)}}));
    ASSERT_OK(files_.MakeDirectory("/forged", 0700));
    const auto store =
        stores::FileStore::Open(files_, base::SystemClock(), random_, {.root = "/forged"});
    ASSERT_OK((*log)->SignHead("disk", **store, {}, deadline()));
  }
  for (const std::string& name : Names()) ASSERT_OK(files_.Remove(PathOf(name)));
  for (const std::string& name : {ChunkName(kPlace, {1, 2}), HeadName(kPlace)}) {
    files_.Put(PathOf(name), Bytes("/forged/" + name));
  }
  const LogContents contents = Read();
  EXPECT_THAT(contents.records, IsEmpty());
  EXPECT_THAT(contents.findings, Contains(HasSubstr("not among the trusted ones")));
}

TEST_F(LogTest, AnothersLogUnderThisNameIsFound) {
  WriteLog(2);
  const Place other{.cluster = "other", .timeline = kPlace.timeline, .writer = kPlace.writer};
  for (const std::string& name : Names()) {
    std::string moved = name;
    moved.replace(0, 4, "other");
    const std::string path = PathOf(moved);
    ASSERT_OK(base::MakeDirectories(files_, base::DirName(path), 0700));
    files_.Put(path, Bytes(PathOf(name)));
  }
  ASSERT_OK_AND_ASSIGN(const LogContents contents,
                       ReadLog(*store_, other, {ChunkName(other, {1, 2}), ChunkName(other, {3, 3})},
                               trusted_, deadline()));
  EXPECT_THAT(contents.findings, Not(IsEmpty()));
  EXPECT_THAT(contents.records, IsEmpty());
}

TEST_F(LogTest, AListingThatLagsHidesNothingTheHeadSpeaksOf) {
  WriteLog(3);
  std::vector<std::string> names = Names();
  std::erase(names, ChunkName(kPlace, {4, 4}));
  const LogContents contents = Read(names);
  EXPECT_THAT(contents.findings, IsEmpty());
  EXPECT_EQ(contents.records.size(), 4u);
}

TEST_F(LogTest, OverlappingChunksAreOneLog) {
  WriteLog(3);
  // As a process that knew nothing of the others' chunks ships it.
  ASSERT_OK(files_.MakeDirectory("/store2", 0700));
  ASSERT_OK_AND_ASSIGN(const auto second, stores::FileStore::Open(files_, base::SystemClock(),
                                                                  random_, {.root = "/store2"}));
  ASSERT_OK(Open()->Ship("disk", *second, deadline()));
  files_.Put(ChunkPath(1, 4), Bytes("/store2/" + ChunkName(kPlace, {1, 4})));
  EXPECT_THAT(Read().findings, IsEmpty());
  ASSERT_OK(files_.Remove(ChunkPath(3, 3)));
  const LogContents contents = Read();
  EXPECT_THAT(contents.findings, IsEmpty());
  EXPECT_EQ(contents.records.size(), 4u);
}

// A clock that was ahead when a timeline began does not make it the living one for ever.
TEST_F(LogTest, TimelinesFollowEachOtherWhateverTheClockSaid) {
  stores::ManualClock ahead, right;
  ahead.Advance(std::chrono::hours(24 * 365));
  const auto write = [&](base::Clock& clock, int64_t first_revision, const std::string& follows) {
    Place place = kPlace;
    place.timeline.first_revision = first_revision;
    ASSERT_OK_AND_ASSIGN(const auto log, LogWriter::Open(files_, clock, "/state", place, key_));
    ASSERT_OK(log->Append({Opened{.cluster = "prod", .follows = follows}}));
    ASSERT_OK(log->Ship("disk", *store_, deadline()));
  };
  const auto name = [](int64_t first_revision) {
    return catalog::Timeline{kPlace.timeline.cluster_id, first_revision}.Name();
  };
  write(ahead, 900, "");
  write(right, 5, name(900));
  write(right, 3, name(5));
  const std::shared_ptr<stores::Store> shared(std::shared_ptr<void>(), store_.get());
  ASSERT_OK_AND_ASSIGN(const Catalog known, LoadCatalog(base::SystemClock(), {{"disk", shared}},
                                                        "prod", {.trusted = trusted_}));
  std::vector<int64_t> order;
  for (const catalog::Timeline& timeline : known.inventory.timelines) {
    order.push_back(timeline.first_revision);
  }
  EXPECT_EQ(order, (std::vector<int64_t>{900, 5, 3}));
}

// --- merged chunks ---

TEST_F(LogTest, ManyChunksBecomeFewWithTheSameRecords) {
  WriteLog(100);
  const LogContents before = Read();
  ASSERT_GT(Names().size(), 90u);
  size_t steps = 0;
  for (size_t had = 0; had != Names().size() && steps < 20; ++steps) {
    had = Names().size();
    ASSERT_OK(Merge());
    // In every state on the way it is the same log.
    const LogContents now = Read();
    EXPECT_THAT(now.findings, IsEmpty());
    ASSERT_EQ(now.records.size(), before.records.size());
    for (size_t i = 0; i < now.records.size(); ++i) {
      ASSERT_EQ(EncodeLine(now.records[i]), EncodeLine(before.records[i]));
    }
  }
  EXPECT_LT(Names().size(), 40u);
  // It goes on to be shipped and merged.
  ASSERT_OK(Open()->Append({Stored{Segment(500, 501)}}));
  ASSERT_OK(Open()->SignHead("disk", *store_, {}, deadline()));
  EXPECT_EQ(Read().records.size(), before.records.size() + 1);
  EXPECT_THAT(Read().findings, IsEmpty());
}

TEST_F(LogTest, WhoListedBeforeAMergeReadsTheMergedOnes) {
  WriteLog(100);
  const std::vector<std::string> before = Names();
  for (int i = 0; i < 4; ++i) ASSERT_OK(Merge());
  const LogContents contents = Read(before);
  EXPECT_THAT(contents.findings, IsEmpty());
  EXPECT_EQ(contents.records.size(), 101u);
}

TEST_F(LogTest, AChunkBesideAMergedOneMustBeEqual) {
  WriteLog(100);
  const std::string part = Bytes(ChunkPath(5, 5));
  ASSERT_OK(Merge());  // now both are there
  EXPECT_THAT(Read().findings, IsEmpty());
  files_.Put(ChunkPath(5, 5), Bytes(ChunkPath(6, 6)));
  EXPECT_THAT(Read().findings,
              testing::ElementsAre(HasSubstr(ChunkName(kPlace, {5, 5}) + ": record 6 stands")));
  // Of the same key, at the same place, and not the same.
  auto record = DecodeLine(part.substr(0, part.find('\n')), kPlace.Folder());
  record->at += std::chrono::seconds(1);
  const std::string line = EncodeLine(*record);
  files_.Put(ChunkPath(5, 5),
             EncodeChunk(kPlace, 5, 5, line, base::DigestToHex(base::Sha256(line)), key_));
  EXPECT_THAT(Read().findings, testing::ElementsAre(HasSubstr("it differs from the chunks")));
  EXPECT_EQ(Read().records.size(), 101u);
}

TEST_F(LogTest, TamperingWithMergedChunksIsFound) {
  WriteLog(40);
  for (int i = 0; i < 4; ++i) ASSERT_OK(Merge());
  std::string merged;
  for (const std::string& name : Names()) {
    const auto range = ChunkRange(name);
    if (range.has_value() && range->last - range->first > 8) merged = name;
  }
  ASSERT_NE(merged, "");
  const std::string whole = Bytes(PathOf(merged));
  for (size_t at = 0; at < whole.size(); at += 53) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    files_.Put(PathOf(merged), flipped);
    ASSERT_THAT(Read().findings, Not(IsEmpty())) << "at " << at;
  }
  for (size_t n = 0; n < whole.size(); n += 101) {
    files_.Put(PathOf(merged), whole.substr(0, n));
    ASSERT_THAT(Read().findings, Not(IsEmpty())) << "cut to " << n;
  }
  files_.Put(PathOf(merged), whole + "x");
  EXPECT_THAT(Read().findings, Not(IsEmpty()));
  files_.Put(PathOf(merged), whole + whole);
  EXPECT_THAT(Read().findings, Not(IsEmpty()));
  ASSERT_OK(files_.Remove(PathOf(merged)));
  EXPECT_THAT(Read().findings, Contains(HasSubstr("is missing")));
  files_.Put(PathOf(merged), whole);
  EXPECT_THAT(Read().findings, IsEmpty());
}

TEST_F(LogTest, NoChunkGoesForOneThatIsNotWhole) {
  WriteLog(40);
  ASSERT_OK(Merge());
  const std::vector<std::string> both = Names();
  std::string merged;
  for (const std::string& name : both) {
    const auto range = ChunkRange(name);
    if (range.has_value() && range->last - range->first > 8) merged = name;
  }
  std::string damaged = Bytes(PathOf(merged));
  damaged[100] ^= 1;
  files_.Put(PathOf(merged), damaged);
  EXPECT_THAT(Merge(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(merged)));
  EXPECT_EQ(Names(), both);
  EXPECT_EQ(Read().records.size(), 41u) << "the small ones still serve";
}

TEST_F(LogTest, NothingIsMergedWhileAChunkIsMissing) {
  WriteLog(40);
  ASSERT_OK(files_.Remove(ChunkPath(7, 7)));
  const std::vector<std::string> before = Names();
  EXPECT_THAT(Merge(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("record 7")));
  EXPECT_EQ(Names(), before);
}

TEST_F(LogTest, ItsOwnRecordsAreReadFromAnyNumberOn) {
  WriteLog(20);
  const auto log = Open();
  ASSERT_OK(Open()->Append({Stored{Segment(500, 501)}}));  // by another process
  for (const uint64_t first : {1u, 2u, 15u, 22u, 23u}) {
    uint64_t next = first;
    ASSERT_OK(log->ForEachRecord(first, [&](const Record& record) {
      EXPECT_EQ(record.seq, next++);
      return absl::OkStatus();
    }));
    EXPECT_EQ(next, 23u);
  }
  EXPECT_THAT(log->ForEachRecord(1, [](const Record&) { return absl::AbortedError("enough"); }),
              StatusIs(absl::StatusCode::kAborted, "enough"));
}

TEST_F(LogTest, AnothersChunksAreLeftAlone) {
  WriteLog(40);
  Place other = kPlace;
  other.writer = "fedcba9876543210";
  ASSERT_OK_AND_ASSIGN(const auto theirs,
                       LogWriter::Open(files_, base::SystemClock(), "/other", other, key_));
  ASSERT_OK(theirs->Append({Opened{.cluster = "prod"}}));
  for (int i = 0; i < 40; ++i) {
    ASSERT_OK(theirs->Append({HoleFound{}}));
    ASSERT_OK(theirs->Ship("disk", *store_, deadline()));
  }
  const auto count = [&] {
    size_t names = 0;
    EXPECT_OK(
        stores::ForEachObject(*store_, other.Folder(), deadline(), [&](const stores::ObjectInfo&) {
          ++names;
          return absl::OkStatus();
        }));
    return names;
  };
  const size_t before = count();
  for (int i = 0; i < 4; ++i) ASSERT_OK(Merge());
  EXPECT_EQ(count(), before);
  ASSERT_OK(theirs->MergeChunks(*store_, *store_, deadline()));
  ASSERT_OK(theirs->MergeChunks(*store_, *store_, deadline()));
  EXPECT_LT(count(), before);
  EXPECT_THAT(Read().findings, IsEmpty());
}

// --- roll-ups ---

catalog::Object RollUp(uint32_t level, const std::vector<catalog::Object>& parts) {
  catalog::Object container;
  container.kind = catalog::Kind::kRollUp;
  container.level = level;
  container.name = fmt::format("{}/archive/{}/x.seg", kPlace.Folder(), level);
  container.plain_sha256 = container.stored_sha256 = std::string(64, 'b');
  container.stores = {"disk"};
  for (const catalog::Object& part : parts) {
    container.parts.push_back({part.name, container.stored_bytes, part.stored_bytes});
    container.stored_bytes += part.stored_bytes;
  }
  container.plain_bytes = container.stored_bytes;
  return container;
}

class RollUpFacts : public testing::Test {
 protected:
  RollUpFacts() {
    for (int64_t n = 1; n <= 3; ++n) {
      segments_.push_back(Segment(n, n));
      segments_.back().stored_bytes = static_cast<uint64_t>(10 * n);
      segments_.back().stores = {"disk", "offsite"};
      EXPECT_OK(Apply(Stored{segments_.back()}));
    }
    inner_ = RollUp(1, {segments_[0], segments_[1]});
    outer_ = RollUp(2, {segments_[2], inner_});
  }
  absl::Status Apply(const Fact& fact) {
    return builder_.Apply({.seq = ++seq_, .at = base::Duration(seq_), .fact = fact},
                          kPlace.timeline);
  }
  const catalog::Object& Of(const std::string& name) {
    for (const catalog::Object& object : builder_.inventory().objects) {
      if (object.name == name) return object;
    }
    ADD_FAILURE() << name;
    return builder_.inventory().objects[0];
  }
  const catalog::Object& Number(size_t n) { return Of(segments_[n - 1].name); }

  InventoryBuilder builder_{"prod"};
  uint64_t seq_ = 0;
  std::vector<catalog::Object> segments_;
  catalog::Object inner_, outer_;
};

TEST_F(RollUpFacts, PartsAreReadInTheirContainerOnceItWasReadBack) {
  ASSERT_OK(Apply(Stored{inner_}));
  EXPECT_EQ(Number(2).container, inner_.name);
  EXPECT_EQ(Number(2).In("disk").name, Number(2).name) << "not read back yet";
  ASSERT_OK(Apply(Reread{inner_.name, "disk"}));
  EXPECT_EQ(Number(2).In("disk"), (catalog::Extent{inner_.name, 10}));
  EXPECT_EQ(Number(2).In("offsite").name, Number(2).name);
  EXPECT_TRUE(Number(2).reread.has_value());
  ASSERT_OK(Apply(Stored{outer_}));
  ASSERT_OK(Apply(Reread{outer_.name, "disk"}));
  EXPECT_EQ(Number(2).In("disk"), (catalog::Extent{outer_.name, 40}));
  EXPECT_EQ(Number(3).In("disk"), (catalog::Extent{outer_.name, 0}));
  EXPECT_EQ(Of(inner_.name).In("disk"), (catalog::Extent{outer_.name, 30}));
  // What is superseded is not gone back to.
  ASSERT_OK(Apply(Reread{inner_.name, "disk"}));
  EXPECT_EQ(Number(2).In("disk").name, outer_.name);
  ASSERT_OK(Apply(Reread{inner_.name, "offsite"}));
  EXPECT_EQ(Number(2).In("offsite"), (catalog::Extent{inner_.name, 10}));
}

TEST_F(RollUpFacts, WhatBefallsAContainerBefallsWhatItHolds) {
  ASSERT_OK(Apply(Stored{inner_}));
  ASSERT_OK(Apply(Damaged{inner_.name, "disk", "bits"}));
  EXPECT_TRUE(Number(1).stores.contains("disk")) << "it is there for itself";
  ASSERT_OK(Apply(Healed{inner_.name, "disk", "offsite"}));
  ASSERT_OK(Apply(Reread{inner_.name, "disk"}));
  ASSERT_OK(Apply(Damaged{inner_.name, "disk", "bits"}));
  EXPECT_FALSE(Number(1).stores.contains("disk"));
  EXPECT_TRUE(Number(1).damaged.contains("disk"));
  EXPECT_TRUE(Number(3).stores.contains("disk"));
  ASSERT_OK(Apply(Healed{inner_.name, "disk", "offsite"}));
  EXPECT_TRUE(Number(1).stores.contains("disk"));
  ASSERT_OK(Apply(Stored{outer_}));
  ASSERT_OK(Apply(Pruned{outer_.name, "old"}));
  for (size_t n = 1; n <= 3; ++n) EXPECT_TRUE(Number(n).pruned);
  EXPECT_TRUE(Of(inner_.name).pruned);
}

TEST_F(RollUpFacts, ARewrappedPartIsNoLongerHeld) {
  ASSERT_OK(Apply(Stored{inner_}));
  ASSERT_OK(Apply(Reread{inner_.name, "disk"}));
  const std::string as = segments_[0].name + "-w1";
  ASSERT_OK(Apply(Rewrapped{.name = segments_[0].name,
                            .as = as,
                            .recipients = {"age1y"},
                            .stored_bytes = 12,
                            .stored_sha256 = std::string(64, 'c'),
                            .stores = {"disk"}}));
  EXPECT_EQ(Of(as).container, "");
  EXPECT_EQ(Of(as).In("disk").name, as);
  // What is made of its old bytes does not hold it either, though they be as many.
  catalog::Object old = segments_[0];
  old.stored_bytes = 12;
  catalog::Object late = RollUp(1, {old});
  late.name += "2";
  ASSERT_OK(Apply(Stored{late}));
  ASSERT_OK(Apply(Reread{late.name, "disk"}));
  EXPECT_EQ(Of(as).In("disk").name, as);
  ASSERT_OK(Apply(Pruned{inner_.name, "old"}));
  EXPECT_FALSE(Of(as).pruned);
  EXPECT_TRUE(Number(2).pruned);
}

TEST_F(RollUpFacts, WhatIsNotAsAContainerSaysIsNotReadThere) {
  catalog::Object unknown = Segment(9, 9);
  unknown.stored_bytes = 5;
  catalog::Object longer = segments_[1];
  longer.stored_bytes = 21;
  ASSERT_OK(Apply(Stored{RollUp(1, {segments_[0], unknown, longer})}));
  ASSERT_OK(Apply(Reread{inner_.name, "disk"}));
  EXPECT_EQ(Number(1).In("disk").name, inner_.name);
  EXPECT_EQ(Number(2).In("disk").name, Number(2).name) << "re-wrapped while it was made";
  // The first container of a segment is the one that holds it where it was read back.
  catalog::Object again = RollUp(1, {segments_[0], segments_[2]});
  again.name += "2";
  ASSERT_OK(Apply(Stored{again}));
  ASSERT_OK(Apply(Reread{again.name, "disk"}));
  EXPECT_EQ(Number(1).In("disk").name, inner_.name);
  EXPECT_EQ(Number(3).In("disk"), (catalog::Extent{again.name, 10}));
  EXPECT_EQ(Number(1).In("offsite").name, Number(1).name);
  // Elsewhere it is held by the one that was: two keepers were at it at once.
  ASSERT_OK(Apply(Reread{again.name, "offsite"}));
  EXPECT_EQ(Number(1).In("offsite"), (catalog::Extent{again.name, 0}));
  EXPECT_EQ(Number(1).container, inner_.name);
  ASSERT_OK(Apply(Reread{inner_.name, "offsite"}));
  EXPECT_EQ(Number(1).In("offsite").name, again.name) << "it may be gone for itself";
  // Containers do not hold each other in a ring.
  catalog::Object level = RollUp(1, {inner_});
  level.name += "3";
  ASSERT_OK(Apply(Stored{level}));
  EXPECT_EQ(Of(inner_.name).container, "");
}

TEST_F(RollUpFacts, TheLoserOfTwoContainersTakesNothingWithIt) {
  catalog::Object again = RollUp(1, {segments_[0], segments_[1]});
  again.name += "2";
  ASSERT_OK(Apply(Stored{inner_}));
  ASSERT_OK(Apply(Stored{again}));
  for (const char* store : {"disk", "offsite"}) {
    ASSERT_OK(Apply(Reread{inner_.name, store}));
    ASSERT_OK(Apply(Reread{again.name, store}));
  }
  ASSERT_OK(Apply(Pruned{again.name, "holds nothing that is needed"}));
  EXPECT_FALSE(Number(1).pruned);
  EXPECT_TRUE(Of(again.name).pruned);
  // What holds it is put into a larger one, and only that one takes it along.
  ASSERT_OK(Apply(Stored{outer_}));
  ASSERT_OK(Apply(Reread{outer_.name, "disk"}));
  EXPECT_EQ(Number(1).In("disk"), (catalog::Extent{outer_.name, 30}));
  ASSERT_OK(Apply(Pruned{outer_.name, "old"}));
  EXPECT_TRUE(Number(1).pruned);
}

// The new container of segments 1 and 2, called -w.
RewrappedRollUp Rewrap(const std::vector<catalog::Object>& segments) {
  std::vector<catalog::Object> parts(segments.begin(), segments.begin() + 2);
  RewrappedRollUp fact;
  for (catalog::Object& part : parts) {
    fact.parts.push_back({.name = part.name, .stored_sha256 = std::string(64, 'd')});
    part.name += "-w1";
    part.stored_bytes += 7;
  }
  fact.container = RollUp(1, parts);
  fact.container.name += "-w";
  fact.container.stores = {"disk", "offsite"};
  fact.recipients = {"age1y"};
  return fact;
}

TEST_F(RollUpFacts, SegmentsMoveIntoARewrappedRollUpAtOnce) {
  ASSERT_OK(Apply(Stored{inner_}));
  ASSERT_OK(Apply(Reread{inner_.name, "disk"}));
  ASSERT_OK(Apply(Stored{outer_}));
  ASSERT_OK(Apply(Reread{outer_.name, "disk"}));
  const RewrappedRollUp fact = Rewrap(segments_);
  ASSERT_OK(Apply(fact));
  const catalog::Object& second = Of(segments_[1].name + "-w1");
  for (const char* store : {"disk", "offsite"}) {
    EXPECT_EQ(second.In(store), (catalog::Extent{fact.container.name, 17}));
    EXPECT_TRUE(second.stores.contains(store));
  }
  EXPECT_EQ(second.stored_sha256, std::string(64, 'd'));
  EXPECT_EQ(second.stored_bytes, 27u);
  EXPECT_EQ(second.recipients, fact.recipients);
  EXPECT_EQ(second.container, fact.container.name);
  // The old containers have the bytes from before, also where one is read back only now.
  ASSERT_OK(Apply(Reread{outer_.name, "offsite"}));
  EXPECT_EQ(second.In("offsite").name, fact.container.name);
  ASSERT_OK(Apply(Pruned{outer_.name, "all that it held was wrapped for other keys"}));
  EXPECT_FALSE(second.pruned);
  EXPECT_TRUE(Of(inner_.name).pruned);
  EXPECT_TRUE(Number(3).pruned);
  // Stated twice by a keeper that was killed between, it is one.
  ASSERT_OK(Apply(fact));
  EXPECT_EQ(second.In("disk").name, fact.container.name);
  ASSERT_OK(Apply(Pruned{fact.container.name, "old"}));
  EXPECT_TRUE(second.pruned);
}

TEST_F(RollUpFacts, ARewrappedRollUpIsTakenForWhatIsKnownOfIt) {
  InventoryBuilder other("prod");
  const RewrappedRollUp fact = Rewrap(segments_);
  ASSERT_OK(other.Apply({.fact = Stored{segments_[1]}}, kPlace.timeline));
  EXPECT_THAT(other.Apply({.fact = fact}, kPlace.timeline),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(segments_[0].name)));
  ASSERT_EQ(other.inventory().objects.size(), 2u);
  EXPECT_EQ(other.inventory().objects[0].In("disk"), (catalog::Extent{fact.container.name, 17}));
}

TEST_F(RollUpFacts, LinesThatAreNoRewrappedRollUpsAreRefused) {
  std::string line =
      EncodeLine({.seq = 1, .previous = std::string(kNoPrevious), .fact = Rewrap(segments_)});
  line.pop_back();
  const auto decoded = DecodeLine(line, kPlace.Folder());
  ASSERT_OK(decoded.status());
  EXPECT_EQ(EncodeLine(*decoded), line + "\n");
  EXPECT_EQ(std::get<RewrappedRollUp>(decoded->fact).container.writer, kPlace.writer);
  EXPECT_EQ(std::get<RewrappedRollUp>(decoded->fact).container.timeline, kPlace.timeline);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"kind\":\"roll-up\"", "\"kind\":\"bundle\""},
           {"\"level\":1", "\"level\":0"},
           {",{\"name\":", ",{\"naem\":"},
           {"-w1\"", "\""},
           {"dddd\"", "dddg\""},
           {"\"recipients\":[\"age1y\"]", "\"recipients\":7"},
           {"0123456789abcdef/archive/1", "fedcba9876543210/archive/1"}}) {
    std::string edited = line;
    ASSERT_NE(edited.find(from), std::string::npos) << from;
    edited.replace(edited.find(from), from.size(), to);
    EXPECT_THAT(DecodeLine(edited, kPlace.Folder()), Not(IsOk())) << edited;
  }
}

TEST_F(RollUpFacts, LinesThatAreNoContainersAreRefused) {
  std::string line =
      EncodeLine({.seq = 1, .previous = std::string(kNoPrevious), .fact = Stored{inner_}});
  line.pop_back();
  const auto decoded = DecodeLine(line, kPlace.Folder());
  ASSERT_OK(decoded.status());
  EXPECT_EQ(std::get<Stored>(decoded->fact).object.parts, inner_.parts);
  EXPECT_EQ(std::get<Stored>(decoded->fact).object.level, 1u);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"level\":1", "\"level\":0"},
           {"\"level\":1", "\"level\":9"},
           {"\"level\":1", "\"level\":4294967297"},
           {"\"kind\":\"roll-up\"", "\"kind\":\"segment\""},
           {"\"offset\":10", "\"offset\":9"},
           {"\"offset\":10", "\"offset\":18446744073709551615"},
           {"\"bytes\":20", "\"bytes\":21"},
           {"\"bytes\":20", "\"bytes\":19"},
           {"\"bytes\":20", "\"bytes\":18446744073709551615"},
           {"\"stored_bytes\":30", "\"stored_bytes\":31"},
           {"\"name\":\"prod/0000000000abcdef-0000000000000011/0123456789abcdef/archive/live",
            "\"name\":\"prod/0000000000abcdef-0000000000000012/0123456789abcdef/archive/live"},
           {"0123456789abcdef/archive/1", "fedcba9876543210/archive/1"},
           {"\"parts\":[", "\"parts\":[[],"}}) {
    std::string edited = line;
    ASSERT_NE(edited.find(from), std::string::npos) << from;
    edited.replace(edited.find(from), from.size(), to);
    EXPECT_THAT(DecodeLine(edited, kPlace.Folder()), Not(IsOk())) << edited;
  }
}

TEST_F(LogTest, AStoreThatHasMoreThanTheStateDirectoryIsRefused) {
  WriteLog(3);
  ASSERT_OK(base::RemoveTree(files_, "/state"));
  const auto log = Open();
  ASSERT_OK(log->Append({Opened{.cluster = "prod"}}));
  EXPECT_THAT(log->Ship("disk", *store_, deadline()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("a new writer begins")));
}

TEST_F(LogTest, FactsOfUnknownObjectsAreRefused) {
  InventoryBuilder builder("prod");
  EXPECT_THAT(builder.Apply({.seq = 2, .fact = Pinned{.name = "x"}}, kPlace.timeline),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no record before it states")));
}

TEST_F(LogTest, ARewrappedObjectIsOneObjectUnderANewName) {
  const catalog::Object old = Segment(5, 9);
  const std::string first = old.name, second = first + "-w1", third = first + "-w2";
  const auto rewrapped = [&](const std::string& as) {
    return Rewrapped{.name = first,
                     .as = as,
                     .recipients = {"age1" + as.substr(as.size() - 1)},
                     .stored_bytes = 8,
                     .stored_sha256 = std::string(64, 'b'),
                     .stores = {"disk"}};
  };
  // Two keepers did it, and the later one's log is read first.
  InventoryBuilder builder("prod");
  const auto apply = [&](int at, Fact fact) {
    return builder.Apply({.at = base::Duration(at), .fact = std::move(fact)}, kPlace.timeline);
  };
  ASSERT_OK(apply(1, Stored{old}));
  ASSERT_OK(apply(7, rewrapped(third)));
  ASSERT_OK(apply(5, rewrapped(second)));
  // Of the old bytes, also where it was said before.
  ASSERT_OK(apply(2, Copied{.name = first, .store = "s3"}));
  ASSERT_OK(apply(6, Damaged{.name = second, .store = "disk", .what = "gone"}));
  ASSERT_OK(apply(8, Copied{.name = third, .store = "tape"}));
  // Of the object, by any of its names.
  ASSERT_OK(apply(2, Pinned{.name = first}));
  ASSERT_OK(apply(9, Annotated{.name = second, .note = "kept for the audit"}));
  const catalog::Inventory inventory = builder.Take();
  ASSERT_EQ(inventory.objects.size(), 1u);
  const catalog::Object& o = inventory.objects[0];
  EXPECT_EQ(o.name, third);
  EXPECT_EQ(o.FirstName(), first);
  EXPECT_THAT(o.former_names, testing::UnorderedElementsAre(first, second));
  EXPECT_EQ(o.recipients, std::vector<std::string>{"age12"});
  EXPECT_EQ(o.stores, (std::set<std::string>{"disk", "tape"}));
  EXPECT_THAT(o.damaged, IsEmpty());
  EXPECT_TRUE(o.pinned);
  EXPECT_EQ(o.note, "kept for the audit");
}

TEST_F(LogTest, ARewrappedObjectOfAnotherFolderIsRefused) {
  const std::string name = Segment(1, 2).name;
  for (const std::string& as : {"prox" + name.substr(4), name, std::string()}) {
    std::string line = EncodeLine({.seq = 2,
                                   .previous = std::string(kNoPrevious),
                                   .fact = Rewrapped{.name = name,
                                                     .as = as,
                                                     .recipients = {"age1y"},
                                                     .stored_bytes = 8,
                                                     .stored_sha256 = std::string(64, 'b'),
                                                     .stores = {"disk"}}});
    line.pop_back();
    EXPECT_THAT(DecodeLine(line, kPlace.Folder()),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("does not lie beside")));
  }
}

TEST_F(LogTest, AnObjectOfAnotherFolderIsRefused) {
  catalog::Object object = Segment(1, 2);
  object.name.replace(0, 4, "prox");
  std::string line =
      EncodeLine({.seq = 1, .previous = std::string(kNoPrevious), .fact = Stored{object}});
  line.pop_back();
  EXPECT_THAT(DecodeLine(line, kPlace.Folder()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("does not lie beside its log")));
}

TEST_F(LogTest, LinesThatAreNoRecordsAreRefused) {
  std::string line =
      EncodeLine({.seq = 1, .previous = std::string(kNoPrevious), .fact = Stored{Segment(1, 2)}});
  line.pop_back();
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"seq\":1", "\"seq\":-1"},
           {"\"seq\":1", "\"seq\":\"1\""},
           {"\"kind\":\"segment\"", "\"kind\":\"segments\""},
           {"\"last_revision\":2", "\"last_revision\":0"},
           {"\"first_revision\":1", "\"first_revision\":99999999999999999999"},
           {"\"stores\":[\"disk\"]", "\"stores\":[1]"},
           {"\"stores\":[\"disk\"]", "\"stores\":{}"},
           {"\"kind\":\"stored\"", "\"kind\":\"lost\""},
           {"{", "["}}) {
    std::string edited = line;
    ASSERT_NE(edited.find(from), std::string::npos) << from;
    edited.replace(edited.find(from), from.size(), to);
    EXPECT_THAT(DecodeLine(edited, kPlace.Folder()), Not(IsOk())) << edited;
  }
  for (size_t n = 0; n < line.size(); ++n) {
    EXPECT_THAT(DecodeLine(line.substr(0, n), kPlace.Folder()), Not(IsOk()));
  }
}

}  // namespace
}  // namespace ledger
