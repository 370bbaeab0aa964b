// Random histories against a model: nested buckets, cursors both ways, readers pinned over commits,
// reopening, and the consistency check after each.
#include <deque>
#include <memory>

#include "bolt/check.h"
#include "bolt/compact.h"
#include "bolt/db.h"
#include "bolt/model_for_test.h"
#include "support/memory_files.h"

namespace bolt {
namespace {

void ExpectClean(const ReadTx& tx) {
  const CheckReport report = Check(tx);
  EXPECT_TRUE(report.ok()) << report.findings_count
                           << " findings, first: " << report.findings.front();
}

void RunHistory(uint64_t seed, const Options& base_options, uint32_t page_bytes,
                bool store_freelist) {
  SCOPED_TRACE(
      fmt::format("seed {} page_bytes {} store_freelist {}", seed, page_bytes, store_freelist));
  base::SeededRandom random(seed);
  test_support::MemoryFiles files;
  const auto open = [&](bool store) {
    return DB::Open(files, "/db",
                    {.page_bytes = page_bytes,
                     .store_freelist = store,
                     .map_reserve_bytes = base_options.map_reserve_bytes},
                    base::SystemClock());
  };
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<DB> db, open(store_freelist));
  ModelBucket model;
  RandomChanges changes(random);
  std::deque<std::pair<std::unique_ptr<ReadTx>, ModelBucket>> readers;

  for (int round = 0; round < 30 && !testing::Test::HasFailure(); ++round) {
    ModelBucket next = model;
    {
      ASSERT_OK_AND_ASSIGN(const std::unique_ptr<WriteTx> tx, db->BeginWrite());
      const double fill = random.OneIn(3) ? 0.9 : 0.5;
      tx->root().set_fill_percent(fill);
      const uint64_t count = random.Below(random.OneIn(6) ? 200 : 20);
      for (uint64_t i = 0; i < count; ++i) {
        // Top-level values are legal in the format, if not in bbolt's interface: skipped as etcd's
        // tools would choke.
        if (next.buckets.empty() || random.OneIn(10)) {
          const std::string name = "top" + std::to_string(random.Below(5));
          ASSERT_OK(tx->CreateBucketIfMissing(name));
          next.buckets[name];
        }
        auto at = next.buckets.begin();
        std::advance(at, static_cast<ptrdiff_t>(random.Below(next.buckets.size())));
        if (random.OneIn(200)) {
          ASSERT_OK(tx->DeleteBucket(at->first));
          next.buckets.erase(at);
          continue;
        }
        ASSERT_OK_AND_ASSIGN(WriteBucket* const bucket, tx->bucket(at->first));
        bucket->set_fill_percent(fill);
        changes.Change(*bucket, at->second);
      }
      ASSERT_OK_AND_ASSIGN(const ModelBucket seen, ReadBucket(tx->root()));
      ASSERT_EQ(seen, next);
      if (random.OneIn(5)) {
        tx->Rollback();
      } else {
        ASSERT_OK(tx->Commit());
        model = next;
      }
    }
    std::unique_ptr<ReadTx> reader = db->BeginRead();
    ASSERT_OK_AND_ASSIGN(const ModelBucket seen, ReadBucket(reader->root()));
    ASSERT_EQ(seen, model);
    ExpectClean(*reader);
    if (random.OneIn(2)) readers.emplace_back(std::move(reader), model);
    while (readers.size() > 4 || (!readers.empty() && random.OneIn(4))) {
      const auto at = readers.begin() + static_cast<ptrdiff_t>(random.Below(readers.size()));
      ASSERT_OK_AND_ASSIGN(const ModelBucket pinned, ReadBucket(at->first->root()));
      ASSERT_EQ(pinned, at->second) << "a reader's view has changed";
      readers.erase(at);
    }
    if (random.OneIn(8)) {
      readers.clear();
      reader.reset();
      db.reset();
      ASSERT_OK_AND_ASSIGN(db, open(random.OneIn(3) ? !store_freelist : store_freelist));
    }
  }
  // An image of the last state, and a compact copy, hold the same.
  const std::unique_ptr<ReadTx> reader = db->BeginRead();
  std::string image(static_cast<size_t>(reader->ImageSize()), '\0');
  ASSERT_OK(reader->ReadImage(0, image.data(), image.size()));
  files.Put("/image", image);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<DB> copy,
                       DB::Open(files, "/image", {.read_only = true}, base::SystemClock()));
  ASSERT_OK_AND_ASSIGN(const ModelBucket copied, ReadBucket(copy->BeginRead()->root()));
  ASSERT_EQ(copied, model);

  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<DB> compact,
      DB::Open(files, "/compact", {.page_bytes = page_bytes, .map_reserve_bytes = 0},
               base::SystemClock()));
  CompactCopier copier(*reader, *compact);
  for (bool done = false; !done;) {
    ASSERT_OK_AND_ASSIGN(done, copier.Step(random.Below(50'000)));
  }
  const std::unique_ptr<ReadTx> compacted = compact->BeginRead();
  ASSERT_OK_AND_ASSIGN(const ModelBucket read, ReadBucket(compacted->root()));
  ASSERT_EQ(read, model);
  ExpectClean(*compacted);
}

TEST(Model, RandomHistoriesMatch) {
  const uint64_t seed = TestSeed(20260730);
  for (uint64_t i = 0; i < 8 && !HasFailure(); ++i) {
    const uint32_t page_bytes = i % 4 == 3 ? 16384 : i % 4 == 2 ? 512 : i % 4 == 1 ? 1024 : 4096;
    Options options;
    options.map_reserve_bytes = i % 3 == 0 ? 0 : 64 << 20;
    RunHistory(seed + i, options, page_bytes, i % 2 == 1);
  }
}

}  // namespace
}  // namespace bolt
