// Power cuts and failing disks: whatever happens at whichever operation, reopening finds the last
// acknowledged commit or the one that was under way, whole.
#include "bolt/check.h"
#include "bolt/db.h"
#include "bolt/model_for_test.h"
#include "support/memory_files.h"

namespace bolt {
namespace {

using test_support::MemoryFiles;

struct Outcome {
  ModelBucket acknowledged;  // after the last successful commit
  ModelBucket attempted;     // what the failed commit would have led to
  bool failed = false;
};

// A short history of commits, the same for the same seed, up to the first failure.
Outcome RunHistory(MemoryFiles& files, uint64_t seed, const Options& fixed) {
  Outcome outcome;
  base::SeededRandom random(seed);
  RandomChanges changes(random);
  auto db = DB::Open(files, "/db",
                     {.page_bytes = fixed.page_bytes,
                      .store_freelist = fixed.store_freelist,
                      .map_reserve_bytes = fixed.map_reserve_bytes},
                     base::SystemClock());
  if (!db.ok()) {
    outcome.failed = true;
    return outcome;
  }
  std::unique_ptr<ReadTx> reader;
  for (int i = 0; i < 5; ++i) {
    outcome.attempted = outcome.acknowledged;
    auto tx = (*db)->BeginWrite();
    EXPECT_OK(tx);
    for (int change = 0; change < 6; ++change) {
      auto bucket = (*tx)->CreateBucketIfMissing("top");
      EXPECT_OK(bucket);
      changes.Change(**bucket, outcome.attempted.buckets["top"]);
    }
    if (!(*tx)->Commit().ok()) {
      outcome.failed = true;
      EXPECT_FALSE((*db)->BeginWrite().ok()) << "a failed commit is final";
      return outcome;
    }
    outcome.acknowledged = outcome.attempted;
    if (random.OneIn(2)) reader = (*db)->BeginRead();
  }
  return outcome;
}

void ExpectOneOf(MemoryFiles& files, const Outcome& outcome, const Options& fixed) {
  auto db = DB::Open(files, "/db",
                     {.page_bytes = fixed.page_bytes,
                      .store_freelist = fixed.store_freelist,
                      .map_reserve_bytes = fixed.map_reserve_bytes},
                     base::SystemClock());
  ASSERT_OK(db);
  {
    const auto tx = (*db)->BeginRead();
    const CheckReport report = Check(*tx);
    EXPECT_TRUE(report.ok()) << report.findings.front();
    auto found = ReadBucket(tx->root());
    ASSERT_OK(found);
    EXPECT_TRUE(*found == outcome.acknowledged || *found == outcome.attempted);
  }
  // And it can be written on.
  auto tx = (*db)->BeginWrite();
  ASSERT_OK(tx);
  auto bucket = (*tx)->CreateBucketIfMissing("after");
  ASSERT_OK(bucket);
  ASSERT_OK((*bucket)->Put("k", "v"));
  ASSERT_OK((*tx)->Commit());
  EXPECT_TRUE(Check(*(*db)->BeginRead()).ok());
}

void TryEveryOperation(uint64_t seed, const Options& options) {
  for (uint64_t n = 1;; ++n) {
    SCOPED_TRACE(fmt::format("seed {} operation {}", seed, n));
    bool reached = false;
    for (int cut = 0; cut < 4; ++cut) {
      MemoryFiles files;
      files.FailAt(n, absl::InternalError("injected"));
      const Outcome outcome = RunHistory(files, seed, options);
      reached = files.failure_reached();
      EXPECT_EQ(reached, outcome.failed);
      if (cut == 0) {
        files.CrashAll(false);
      } else if (cut == 1) {
        files.CrashAll(true);
      } else {
        base::SeededRandom random(seed * 1000 + n * 10 + static_cast<uint64_t>(cut));
        files.Crash(random);
      }
      ExpectOneOf(files, outcome, options);
      if (testing::Test::HasFailure()) return;
    }
    if (!reached) {
      EXPECT_GT(n, 20u);
      return;
    }
  }
}

TEST(Crash, EveryOperationLeavesACommittedState) {
  const uint64_t seed = TestSeed(4711);
  for (uint64_t i = 0; i < 4 && !HasFailure(); ++i) {
    Options options;
    options.page_bytes = i % 2 == 0 ? 512 : 4096;
    options.store_freelist = i >= 2;
    options.map_reserve_bytes = i == 0 ? 0 : 1 << 20;
    TryEveryOperation(seed + i, options);
  }
}

TEST(Crash, FullDiskIsFinalButLosesNothing) {
  MemoryFiles files;
  files.SetCapacity(200'000);
  Options options;
  options.map_reserve_bytes = 1 << 20;
  auto db = DB::Open(files, "/db", {.map_reserve_bytes = 1 << 20}, base::SystemClock());
  ASSERT_OK(db);
  Outcome outcome;
  for (int i = 0;; ++i) {
    auto tx = (*db)->BeginWrite();
    ASSERT_OK(tx);
    auto bucket = (*tx)->CreateBucketIfMissing("top");
    ASSERT_OK(bucket);
    outcome.attempted = outcome.acknowledged;
    const std::string key = std::to_string(i);
    ASSERT_OK((*bucket)->Put(key, std::string(5000, 'x')));
    outcome.attempted.buckets["top"].values[key] = std::string(5000, 'x');
    const auto stats = (*tx)->Commit();
    if (!stats.ok()) {
      EXPECT_THAT(stats, base::StatusIs(absl::StatusCode::kResourceExhausted));
      break;
    }
    outcome.acknowledged = outcome.attempted;
    ASSERT_LT(i, 100);
  }
  db->reset();
  files.SetCapacity(10 << 20);
  ExpectOneOf(files, outcome, options);
}

}  // namespace
}  // namespace bolt
