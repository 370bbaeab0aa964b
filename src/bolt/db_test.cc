#include "bolt/db.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "base/testing.h"
#include "bolt/check.h"
#include "bolt/compact.h"
#include "bolt/model_for_test.h"
#include "support/memory_files.h"

namespace bolt {
namespace {

using base::IsOkAndHolds;
using base::StatusIs;
using test_support::MemoryFiles;
using testing::HasSubstr;
using testing::Optional;

// A fixture that reads like a script. The disk is simulated.
class DbTest : public testing::Test {
 protected:
  void Open(Options options = {}) {
    db_.reset();
    options.lock_timeout =
        std::chrono::seconds(5);  // a reader left open fails the test instead of stopping it
    ASSERT_OK_AND_ASSIGN(db_, DB::Open(files_, "/db", std::move(options), base::SystemClock()));
  }
  absl::Status OpenStatus(Options options = {}) {
    db_.reset();
    options.lock_timeout = std::chrono::seconds(5);
    return DB::Open(files_, "/db", std::move(options), base::SystemClock()).status();
  }
  // Commits what `change` does to the bucket "b".
  template <typename Change>
  CommitStats Write(const Change& change) {
    auto tx = db_->BeginWrite();
    EXPECT_OK(tx);
    auto bucket = (*tx)->CreateBucketIfMissing("b");
    EXPECT_OK(bucket);
    change(**bucket);
    auto stats = (*tx)->Commit();
    EXPECT_OK(stats);
    return stats.ok() ? *stats : CommitStats{};
  }
  void Put(std::string_view key, std::string_view value) {
    Write([&](WriteBucket& bucket) { EXPECT_OK(bucket.Put(key, value)); });
  }
  std::optional<std::string> Get(const ReadTx& tx, std::string_view key) {
    const auto bucket = tx.bucket("b");
    EXPECT_OK(bucket);
    const auto value = bucket->Get(key);
    EXPECT_OK(value);
    if (!value->has_value()) return std::nullopt;
    return std::string(**value);
  }
  void ExpectClean() {
    const CheckReport report = Check(*db_->BeginRead());
    EXPECT_TRUE(report.ok()) << report.findings.front();
  }
  void Edit(uint64_t offset, std::string_view bytes) {
    ASSERT_OK_AND_ASSIGN(const auto file, files_.Open("/db", {.write = true}));
    ASSERT_OK(file->WriteAt(offset, bytes));
  }

  MemoryFiles files_;
  std::unique_ptr<DB> db_;
};

TEST_F(DbTest, KeepsWhatWasCommitted) {
  Open();
  Put("key", "value");
  EXPECT_THAT(Get(*db_->BeginRead(), "key"), Optional(std::string("value")));
  EXPECT_EQ(Get(*db_->BeginRead(), "other"), std::nullopt);
  Open();
  EXPECT_THAT(Get(*db_->BeginRead(), "key"), Optional(std::string("value")));
  EXPECT_THAT(db_->BeginRead()->bucket("none").status(), StatusIs(absl::StatusCode::kNotFound));
  ExpectClean();
}

TEST_F(DbTest, ReaderKeepsItsView) {
  Open();
  Put("key", "one");
  const auto old = db_->BeginRead();
  for (int i = 0; i < 50; ++i) Put("key", "two" + std::to_string(i));
  EXPECT_THAT(Get(*old, "key"), Optional(std::string("one")));
  EXPECT_THAT(Get(*db_->BeginRead(), "key"), Optional(std::string("two49")));
  EXPECT_EQ(db_->stats().open_readers, 1u);
}

TEST_F(DbTest, LongReaderDoesNotMakeTheFileGrow) {
  Open();
  Put("key", "one");
  const auto old = db_->BeginRead();
  for (int i = 0; i < 20; ++i) Put("key", std::to_string(i));
  const uint64_t size = db_->size_bytes();
  for (int i = 0; i < 200; ++i) Put("key", std::to_string(i));
  EXPECT_EQ(db_->size_bytes(), size);
}

TEST_F(DbTest, ReaderOutlivesTheDb) {
  Open();
  Put("key", "one");
  const auto old = db_->BeginRead();
  db_.reset();
  EXPECT_THAT(Get(*old, "key"), Optional(std::string("one")));
}

TEST_F(DbTest, RollbackLeavesNothing) {
  Open();
  Put("key", "one");
  {
    ASSERT_OK_AND_ASSIGN(const auto tx, db_->BeginWrite());
    ASSERT_OK_AND_ASSIGN(WriteBucket* const bucket, tx->bucket("b"));
    ASSERT_OK(bucket->Put("key", "two"));
    ASSERT_OK(tx->CreateBucket("c"));
  }
  EXPECT_THAT(Get(*db_->BeginRead(), "key"), Optional(std::string("one")));
  EXPECT_THAT(db_->BeginRead()->bucket("c").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(db_->stats().txid, 2u);
}

TEST_F(DbTest, RefusesBadKeysAndValues) {
  Open();
  Write([](WriteBucket& bucket) {
    EXPECT_THAT(bucket.Put("", "x"), StatusIs(absl::StatusCode::kInvalidArgument, "key required"));
    EXPECT_THAT(bucket.Put(std::string(32769, 'k'), "x"),
                StatusIs(absl::StatusCode::kInvalidArgument, "key too large"));
    EXPECT_OK(bucket.Put(std::string(32768, 'k'), ""));
    EXPECT_OK(bucket.CreateBucket("nested"));
    EXPECT_THAT(bucket.Put("nested", "x"),
                StatusIs(absl::StatusCode::kInvalidArgument, "incompatible value"));
    EXPECT_THAT(bucket.Delete("nested"),
                StatusIs(absl::StatusCode::kInvalidArgument, "incompatible value"));
    EXPECT_THAT(bucket.DeleteRange("a", std::nullopt),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(bucket.DeleteBucket("k"), StatusIs(absl::StatusCode::kNotFound));
    EXPECT_THAT(bucket.CreateBucket(""), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(bucket.CreateBucket("nested"), StatusIs(absl::StatusCode::kAlreadyExists));
  });
  ExpectClean();
}

TEST_F(DbTest, CursorSurvivesChangesBelowIt) {
  Open();
  Write([](WriteBucket& bucket) {
    for (int i = 100; i < 200; ++i) EXPECT_OK(bucket.Put(std::to_string(i), "v"));
    Cursor cursor = bucket.cursor();
    EXPECT_THAT(cursor.First(), IsOkAndHolds(true));
    int count = 0;
    while (cursor.valid()) {  // each one is deleted when stood on
      EXPECT_THAT(bucket.Delete(cursor.key()), IsOkAndHolds(true));
      ++count;
      EXPECT_OK(cursor.Next());
    }
    EXPECT_EQ(count, 100);
    EXPECT_THAT(bucket.cursor().First(), IsOkAndHolds(false));
  });
  ExpectClean();
}

TEST_F(DbTest, InlinesUpToAQuarterPage) {
  Open();
  // 16 + 16 + 1 + value bytes of page image; a quarter of 4096 is 1024.
  for (const size_t bytes : {991, 992}) {
    Write([&](WriteBucket& bucket) { EXPECT_OK(bucket.Put("k", std::string(bytes, 'v'))); });
    const auto tx = db_->BeginRead();
    ASSERT_OK_AND_ASSIGN(const Bucket bucket, tx->bucket("b"));
    EXPECT_EQ(bucket.root_page() == kInlineRoot, bytes == 991);
    EXPECT_THAT(Get(*tx, "k"), Optional(std::string(bytes, 'v')));
  }
  ExpectClean();
}

TEST_F(DbTest, ShrinksToAnInlineBucketAgain) {
  Open();
  Write([](WriteBucket& bucket) {
    for (int i = 10'000; i < 30'000; ++i) EXPECT_OK(bucket.Put(std::to_string(i), "value"));
  });
  ExpectClean();
  Write([](WriteBucket& bucket) {
    EXPECT_THAT(bucket.DeleteRange("10001", std::nullopt), IsOkAndHolds(19'999u));
  });
  ExpectClean();
  {
    const auto tx = db_->BeginRead();
    ASSERT_OK_AND_ASSIGN(const Bucket bucket, tx->bucket("b"));
    EXPECT_EQ(bucket.root_page(), kInlineRoot);
  }
  Put("x", "y");
  const DbStats stats = db_->stats();
  EXPECT_LT(stats.in_use_bytes, 10 * 4096u);
  EXPECT_GT(stats.size_bytes, 100 * 4096u);
}

TEST_F(DbTest, LargeValuesTakeOverflowPages) {
  Open();
  const std::string large(3'000'000, 'z');
  Put("big", large);
  Put("small", "s");
  EXPECT_TRUE(Get(*db_->BeginRead(), "big") == large);
  Open();
  EXPECT_TRUE(Get(*db_->BeginRead(), "big") == large);
  ExpectClean();
}

TEST_F(DbTest, FreshEtcdFileGrowsToTheKnownSize) {
  Open();
  Put("k", "v");
  EXPECT_THAT(files_.Stat("/db")->size_bytes, 16801792u);
  EXPECT_EQ(db_->size_bytes() % 4096, 0u);
}

TEST_F(DbTest, SmallMappingsGrowInPowersOfTwo) {
  Open({.map_reserve_bytes = 0});
  Write([](WriteBucket& bucket) { EXPECT_OK(bucket.Put("k", std::string(100'000, 'v'))); });
  auto reader = db_->BeginRead();
  EXPECT_EQ(files_.Stat("/db")->size_bytes, 128u << 10);
  for (int i = 0; i < 40; ++i) Put("k" + std::to_string(i), std::string(100'000, 'w'));
  EXPECT_TRUE(Get(*reader, "k") == std::string(100'000, 'v'));
  EXPECT_EQ(files_.Stat("/db")->size_bytes, 8u << 20);
  reader.reset();
  Open();
  ExpectClean();
}

TEST_F(DbTest, KeepsThePageSizeOfTheFile) {
  for (const uint32_t page_bytes : {512u, 1024u, 4096u, 16384u, 65536u}) {
    SCOPED_TRACE(page_bytes);
    files_.Remove("/db").IgnoreError();
    Open({.page_bytes = page_bytes});
    for (int i = 0; i < 20; ++i) Put("key" + std::to_string(i), std::string(300, 'v'));
    Open();
    EXPECT_EQ(db_->page_bytes(), page_bytes);
    EXPECT_THAT(Get(*db_->BeginRead(), "key7"), Optional(std::string(300, 'v')));
    ExpectClean();
    if (page_bytes == 512) continue;  // the second meta page is looked for from 1024 on
    db_.reset();
    Edit(16, "xxxx");
    Open();
    EXPECT_EQ(db_->page_bytes(), page_bytes);
    ExpectClean();
  }
  EXPECT_THAT(OpenStatus({.page_bytes = 1000}), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(DbTest, FallsBackToTheOtherMetaPage) {
  Open();
  Put("key", "one");  // txid 2, page 0
  Put("key", "two");  // txid 3, page 1
  db_.reset();
  ASSERT_OK_AND_ASSIGN(const std::string whole, files_.Contents("/db"));
  Edit(4096 + 64, "\xff");
  Open();
  EXPECT_THAT(Get(*db_->BeginRead(), "key"), Optional(std::string("one")));
  db_.reset();
  files_.Put("/db", whole);
  Edit(64, "\xff");
  Open();
  EXPECT_THAT(Get(*db_->BeginRead(), "key"), Optional(std::string("two")));
  db_.reset();
  Edit(4096 + 16, "\xff");
  EXPECT_THAT(OpenStatus(), StatusIs(absl::StatusCode::kDataLoss, "db file /db: checksum error"));
  Edit(16, "\xff");
  EXPECT_THAT(OpenStatus(), StatusIs(absl::StatusCode::kDataLoss, "db file /db: invalid database"));
}

TEST_F(DbTest, RefusesAFileShorterThanItsMetaPageSays) {
  Open();
  Put("key", std::string(100'000, 'v'));
  db_.reset();
  ASSERT_OK_AND_ASSIGN(const std::string whole, files_.Contents("/db"));
  files_.Put("/db", whole.substr(0, 80'000));
  EXPECT_THAT(OpenStatus(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("found a file of 80000 bytes")));
  files_.Put("/db", whole.substr(0, 5000));
  EXPECT_THAT(OpenStatus(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("file size too small 5000")));
  EXPECT_THAT(OpenStatus({.read_only = true}), StatusIs(absl::StatusCode::kDataLoss));
  files_.Put("/db", std::string(20'000, 'x'));
  EXPECT_THAT(OpenStatus(), StatusIs(absl::StatusCode::kDataLoss, "db file /db: invalid database"));
}

TEST_F(DbTest, MakesAFileAgainThatACrashLeftHalfMade) {
  const std::string fresh = FreshImage(4096);
  for (const size_t zeroed : {0, 512, 4096, 8192, 12288}) {
    std::string half = fresh;
    std::fill_n(half.begin() + static_cast<ptrdiff_t>(zeroed), 4096, '\0');
    files_.Put("/db", half);
    Open();
    EXPECT_EQ(db_->stats().txid, 1u);
    Put("k", "v");
    db_.reset();
  }
  files_.Put("/db", fresh.substr(0, 8000));
  Open();
  EXPECT_THAT(files_.Contents("/db"), IsOkAndHolds(fresh));
}

TEST_F(DbTest, OpensOnlyWhatThereIs) {
  EXPECT_THAT(OpenStatus({.existing_only = true}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(OpenStatus({.read_only = true}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(base::Exists(files_, "/db"));
  files_.Put("/db", "");
  EXPECT_THAT(OpenStatus({.existing_only = true}), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(DbTest, LockExcludesWritersAndAdmitsReaders) {
  Open();
  Put("k", "v");
  int waits = 0;
  base::Duration slept{0};
  class FakeClock final : public base::Clock {
   public:
    base::Duration now{0};
    base::Duration Monotonic() const override { return now; }
    base::Duration Wall() const override { return now; }
  } clock;
  const auto locked_options = [&](bool read_only) {
    return Options{.read_only = read_only,
                   .lock_timeout = std::chrono::seconds(1),
                   .on_lock_wait = [&](base::Duration) { ++waits; },
                   .sleep =
                       [&](base::Duration duration) {
                         clock.now += duration;
                         slept += duration;
                       }};
  };
  EXPECT_THAT(DB::Open(files_, "/db", locked_options(false), clock),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "db file /db: timeout"));
  EXPECT_EQ(waits, 20);
  EXPECT_EQ(slept, std::chrono::seconds(1));
  EXPECT_THAT(DB::Open(files_, "/db", locked_options(true), clock),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  db_.reset();
  ASSERT_OK_AND_ASSIGN(const auto one, DB::Open(files_, "/db", {.read_only = true}, clock));
  ASSERT_OK_AND_ASSIGN(const auto two, DB::Open(files_, "/db", {.read_only = true}, clock));
  EXPECT_THAT(Get(*one->BeginRead(), "k"), Optional(std::string("v")));
  EXPECT_THAT(one->BeginWrite(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(DB::Open(files_, "/db", locked_options(false), clock),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(DbTest, ReadOnlyOpenChangesNothing) {
  Open();
  Put("k", "v");
  db_.reset();
  ASSERT_OK_AND_ASSIGN(const std::string before, files_.Contents("/db"));
  Open({.read_only = true, .store_freelist = true});
  ExpectClean();
  EXPECT_THAT(files_.Contents("/db"), IsOkAndHolds(before));
}

TEST_F(DbTest, StoresAndDropsTheFreelist) {
  Open({.store_freelist = true});
  Write([](WriteBucket& bucket) {
    for (int i = 10'000; i < 20'000; ++i) EXPECT_OK(bucket.Put(std::to_string(i), "some value"));
  });
  Write([](WriteBucket& bucket) { EXPECT_OK(bucket.DeleteRange("10000", "19000")); });
  Put("a", "b");
  ExpectClean();
  const DbStats stats = db_->stats();
  EXPECT_GT(stats.free_pages, 50u);
  Open({.store_freelist = true});
  EXPECT_EQ(db_->stats().free_pages, stats.free_pages + stats.pending_pages);
  Open();  // a stored list is read; the first commit drops it
  EXPECT_NE(db_->BeginRead()->meta().freelist, kNoFreelist);
  Put("a", "c");
  EXPECT_EQ(db_->BeginRead()->meta().freelist, kNoFreelist);
  const uint64_t free = db_->stats().free_pages + db_->stats().pending_pages;
  ExpectClean();
  Open();  // found by scanning
  EXPECT_EQ(db_->stats().free_pages, free);
  Open({.store_freelist = true});  // stored at once
  EXPECT_NE(db_->BeginRead()->meta().freelist, kNoFreelist);
  ExpectClean();
}

TEST_F(DbTest, StoresFreelistsBeyondTheCountOfTheirPage) {
  Open({.page_bytes = 512, .store_freelist = true});
  // One value over so many pages that its page run alone, when freed, passes 65,535 ids.
  Write([](WriteBucket& bucket) { EXPECT_OK(bucket.Put("big", std::string(70'000 * 512, 'x'))); });
  Write([](WriteBucket& bucket) { EXPECT_THAT(bucket.Delete("big"), IsOkAndHolds(true)); });
  ExpectClean();
  Open({.store_freelist = true});
  EXPECT_GT(db_->stats().free_pages, 70'000u);
  ExpectClean();
  Put("k", "v");
  ExpectClean();
}

TEST_F(DbTest, FirstFailedWriteIsFinal) {
  Open();
  Put("key", "one");
  files_.FailAt(1, absl::InternalError("disk on fire"), true);
  {
    ASSERT_OK_AND_ASSIGN(const auto tx, db_->BeginWrite());
    ASSERT_OK_AND_ASSIGN(WriteBucket* const bucket, tx->bucket("b"));
    ASSERT_OK(bucket->Put("key", "two"));
    EXPECT_THAT(tx->Commit(), StatusIs(absl::StatusCode::kInternal, HasSubstr("disk on fire")));
  }
  EXPECT_THAT(db_->BeginWrite(), StatusIs(absl::StatusCode::kInternal, HasSubstr("disk on fire")));
  EXPECT_THAT(db_->failure(), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(Get(*db_->BeginRead(), "key"), Optional(std::string("one")));
}

TEST_F(DbTest, CommitCoalescesAdjacentPages) {
  Open();
  const CommitStats stats = Write([](WriteBucket& bucket) {
    for (int i = 100'000; i < 110'000; ++i)
      EXPECT_OK(bucket.Put(std::to_string(i), std::string(300, 'v')));
  });
  EXPECT_GT(stats.pages_written, 700u);
  EXPECT_LT(stats.writes, 15u);
}

TEST_F(DbTest, AppendsPackPagesAndRewriteOnlyTheEdge) {
  Open();
  std::string value(300, 'v');
  std::deque<std::string> keys;  // borrowed until the commit
  for (int batch = 0; batch < 20; ++batch) {
    Write([&](WriteBucket& bucket) {
      bucket.set_fill_percent(0.9);
      for (int i = 0; i < 1000; ++i)
        EXPECT_OK(bucket.PutBorrowed(
            keys.emplace_back(std::to_string(1'000'000 + batch * 1000 + i)), value));
    });
  }
  const CommitStats stats = Write([&](WriteBucket& bucket) {
    bucket.set_fill_percent(0.9);
    EXPECT_OK(bucket.Put("2000000", value));
  });
  EXPECT_LE(stats.pages_written, 6u);
  // 3686 bytes of a page hold 11 elements of 323 bytes.
  EXPECT_LT(db_->in_use_bytes(), 20'000 / 10 * 4096u);
  ExpectClean();
}

TEST_F(DbTest, DamagedFileWithADoubleReferenceIsRefused) {
  Open({.page_bytes = 1024});
  Write([](WriteBucket& bucket) {
    for (int i = 1000; i < 2000; ++i) EXPECT_OK(bucket.Put(std::to_string(i), "value"));
  });
  PageId root;
  {
    const auto tx = db_->BeginRead();
    ASSERT_OK_AND_ASSIGN(const Bucket bucket, tx->bucket("b"));
    root = bucket.root_page();
  }
  db_.reset();
  // The second child of the root branch becomes a second reference to the first.
  ASSERT_OK_AND_ASSIGN(const std::string whole, files_.Contents("/db"));
  Edit(root * 1024 + 16 + 16 + 8, whole.substr(static_cast<size_t>(root) * 1024 + 16 + 8, 8));
  EXPECT_THAT(OpenStatus(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("multiple references")));
  Open({.read_only = true});
  EXPECT_FALSE(Check(*db_->BeginRead()).ok());
  EXPECT_THAT(ReadBucket(db_->BeginRead()->root()), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(DbTest, ImageIsTheSameInAnyChunks) {
  Open();
  for (int i = 0; i < 30; ++i) Put("key" + std::to_string(i), std::string(900, 'v'));
  const auto tx = db_->BeginRead();
  std::string image(static_cast<size_t>(tx->ImageSize()), '\0');
  ASSERT_OK(tx->ReadImage(0, image.data(), image.size()));
  std::string again;
  while (again.size() < image.size()) {
    const std::string_view part = tx->ImageView(again.size(), 777);
    ASSERT_FALSE(part.empty());
    again.append(part);
  }
  EXPECT_EQ(again, image);
  EXPECT_TRUE(tx->ImageView(image.size(), 1).empty());
  EXPECT_THAT(tx->ReadImage(image.size() - 1, again.data(), 2),
              StatusIs(absl::StatusCode::kOutOfRange));
  ASSERT_OK_AND_ASSIGN(const Meta first, DecodeMetaPage(image));
  ASSERT_OK_AND_ASSIGN(const Meta second, DecodeMetaPage(std::string_view(image).substr(4096)));
  EXPECT_EQ(first.txid, second.txid + 1);
  EXPECT_EQ(first.root, second.root);

  // Later commits may use pages that are free in this view, and no others.
  for (int i = 0; i < 30; ++i) Put("key" + std::to_string(i), "changed");
  ASSERT_OK(tx->ReadImage(0, image.data(), image.size()));
  files_.Put("/image", image);
  ASSERT_OK_AND_ASSIGN(const auto copy, DB::Open(files_, "/image", {}, base::SystemClock()));
  EXPECT_THAT(Get(*copy->BeginRead(), "key29"), Optional(std::string(900, 'v')));
  EXPECT_TRUE(Check(*copy->BeginRead()).ok());
}

TEST_F(DbTest, CompactCopyIsDenseAndPaced) {
  Open();
  std::string value(1000, 'v');
  for (int batch = 0; batch < 10; ++batch) {
    Write([&](WriteBucket& bucket) {
      for (int i = 0; i < 500; ++i)
        EXPECT_OK(bucket.Put(std::to_string(100'000 + i * 10 + batch), value));
    });
  }
  Write([&](WriteBucket& bucket) { EXPECT_OK(bucket.DeleteRange("102000", "104000")); });
  const auto source = db_->BeginRead();
  ASSERT_OK_AND_ASSIGN(const auto copy,
                       DB::Open(files_, "/copy", {.map_reserve_bytes = 0}, base::SystemClock()));
  CompactCopier copier(*source, *copy);
  int steps = 0;
  uint64_t before = 0;
  for (bool done = false; !done; ++steps) {
    ASSERT_OK_AND_ASSIGN(done, copier.Step(100'000));
    EXPECT_LE(copier.copied_bytes() - before, 102'000u);
    before = copier.copied_bytes();
  }
  EXPECT_GE(steps, 30);
  ASSERT_OK_AND_ASSIGN(const ModelBucket a, ReadBucket(source->root()));
  ASSERT_OK_AND_ASSIGN(const ModelBucket b, ReadBucket(copy->BeginRead()->root()));
  EXPECT_EQ(a, b);
  EXPECT_LT(copy->size_bytes(), source->size_bytes() * 3 / 4);
}

TEST_F(DbTest, CutKeysDivideABucketEvenly) {
  Open();
  Write([&](WriteBucket& bucket) {
    EXPECT_OK(bucket.Put("1", "small"));
    for (int i = 100'000; i < 120'000; ++i)
      EXPECT_OK(bucket.Put(std::to_string(i), std::string(100, 'v')));
  });
  const auto tx = db_->BeginRead();
  ASSERT_OK_AND_ASSIGN(const Bucket bucket, tx->bucket("b"));
  ASSERT_OK_AND_ASSIGN(std::vector<std::string_view> cuts, bucket.CutKeys(4));
  ASSERT_EQ(cuts.size(), 3u);
  for (int i = 0; i < 3; ++i)
    EXPECT_NEAR(std::stoi(std::string(cuts[static_cast<size_t>(i)])), 105'000 + i * 5'000, 500);
  ASSERT_OK_AND_ASSIGN(cuts, tx->root().CutKeys(4));
  EXPECT_TRUE(cuts.empty());
}

TEST_F(DbTest, ReadersRunBesideTheWriter) {
  Open({.map_reserve_bytes = 0});
  Put("key", "0");
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::atomic<uint64_t> reads{0};
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop || reads < 10) {
        const auto tx = db_->BeginRead();
        auto model = ReadBucket(tx->root());
        if (!model.ok()) ADD_FAILURE() << model.status();
        ++reads;
      }
    });
  }
  for (int i = 0; i < 200; ++i)
    Put("key" + std::to_string(i % 60), std::string(static_cast<size_t>(i) * 20, 'v'));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  ExpectClean();
}

TEST_F(DbTest, WorksOnTheRealFileSystem) {
  const base::ScratchDirectory scratch;
  ASSERT_OK_AND_ASSIGN(auto db,
                       DB::Open(base::PosixFiles(), scratch / "db", {}, base::SystemClock()));
  {
    ASSERT_OK_AND_ASSIGN(const auto tx, db->BeginWrite());
    ASSERT_OK_AND_ASSIGN(WriteBucket* const bucket, tx->CreateBucket("b"));
    for (int i = 0; i < 5000; ++i) ASSERT_OK(bucket->Put(std::to_string(i), std::string(100, 'v')));
    ASSERT_OK(tx->Commit());
  }
  EXPECT_THAT(
      DB::Open(base::PosixFiles(), scratch / "db",
               {.lock_timeout = std::chrono::milliseconds(1), .sleep = [](base::Duration) {}},
               base::SystemClock()),
      StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(Check(*db->BeginRead()).ok());
  db.reset();
  ASSERT_OK_AND_ASSIGN(db, DB::Open(base::PosixFiles(), scratch / "db", {}, base::SystemClock()));
  const auto tx = db->BeginRead();
  ASSERT_OK_AND_ASSIGN(const Bucket bucket, tx->bucket("b"));
  EXPECT_THAT(bucket.Get("4999"), IsOkAndHolds(Optional(std::string_view(std::string(100, 'v')))));
}

}  // namespace
}  // namespace bolt
