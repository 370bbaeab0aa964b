// Files that etcd wrote, and damaged copies of them.
#include <zstd.h>

#include <cstdlib>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "bolt/check.h"
#include "bolt/compact.h"
#include "bolt/db.h"
#include "bolt/model_for_test.h"
#include "support/memory_files.h"

namespace bolt {
namespace {

using base::StatusIs;
using test_support::MemoryFiles;

std::string Golden(const std::string& name) {
  auto contents =
      base::ReadFile(base::PosixFiles(), std::string(ENGRAM_SOURCE_DIR "/tests/data/bolt/") + name);
  EXPECT_OK(contents);
  if (!name.ends_with(".zst")) return *contents;
  std::string plain(32 << 20, '\0');
  const size_t n = ZSTD_decompress(plain.data(), plain.size(), contents->data(), contents->size());
  EXPECT_FALSE(ZSTD_isError(n));
  plain.resize(n);
  return plain;
}

// The hash that `etcdutl snapshot status` prints.
absl::StatusOr<uint32_t> StatusHash(const ReadTx& tx) {
  uint32_t crc = 0;
  Cursor buckets = tx.root().cursor();
  ASSIGN_OR_RETURN(bool more, buckets.First());
  while (more) {
    crc = base::Crc32c(crc, buckets.key());
    ASSIGN_OR_RETURN(const Bucket bucket, tx.bucket(buckets.key()));
    Cursor cursor = bucket.cursor();
    ASSIGN_OR_RETURN(bool valid, cursor.First());
    while (valid) {
      crc = base::Crc32c(base::Crc32c(crc, cursor.key()), cursor.value());
      ASSIGN_OR_RETURN(valid, cursor.Next());
    }
    ASSIGN_OR_RETURN(more, buckets.Next());
  }
  return crc;
}

uint64_t LastRevision(const ReadTx& tx) {
  const auto bucket = tx.bucket("key");
  EXPECT_OK(bucket);
  Cursor cursor = bucket->cursor();
  EXPECT_THAT(cursor.Last(), base::IsOkAndHolds(true));
  return base::LoadBe64(cursor.key().data());
}

TEST(Golden, SnapshotsHashAsEtcdutlSays) {
  struct Case {
    const char* name;
    uint32_t hash;
  };
  for (const Case& c :
       {Case{"etcd-3.6-snapshot.db", 476909081}, Case{"etcd-3.7-snapshot.db", 1412145700}}) {
    SCOPED_TRACE(c.name);
    MemoryFiles files;
    files.Put("/db", Golden(c.name));
    ASSERT_OK_AND_ASSIGN(auto db, DB::Open(files, "/db", {.read_only = true}, base::SystemClock()));
    {
      const auto tx = db->BeginRead();
      EXPECT_EQ(tx->size_bytes(), 49152u);
      EXPECT_THAT(StatusHash(*tx), base::IsOkAndHolds(c.hash));
      EXPECT_EQ(LastRevision(*tx), 180u);
      const CheckReport report = Check(*tx);
      EXPECT_TRUE(report.ok()) << report.findings.front();
    }
    // Compacting changes pages, not contents.
    db.reset();
    ASSERT_OK_AND_ASSIGN(db, DB::Open(files, "/db", {}, base::SystemClock()));
    ASSERT_OK_AND_ASSIGN(const auto copy, DB::Open(files, "/copy", {}, base::SystemClock()));
    const auto tx = db->BeginRead();
    CompactCopier copier(*tx, *copy);
    for (bool done = false; !done;) {
      ASSERT_OK_AND_ASSIGN(done, copier.Step(1000));
    }
    EXPECT_THAT(StatusHash(*copy->BeginRead()), base::IsOkAndHolds(c.hash));
  }
}

TEST(Golden, MemberFilesAreReadAndWrittenOn) {
  struct Case {
    const char* name;
    uint64_t revision;
  };
  for (const Case& c :
       {Case{"etcd-3.7-stopped.db.zst", 0}, Case{"etcd-3.7-compacted.db.zst", 0},
        Case{"etcd-3.7-auth.db.zst", 0}, Case{"etcd-3.7-many-free-pages.db.zst", 38002}}) {
    SCOPED_TRACE(c.name);
    MemoryFiles files;
    files.Put("/db", Golden(c.name));
    ASSERT_OK_AND_ASSIGN(auto db, DB::Open(files, "/db", {}, base::SystemClock()));
    ASSERT_OK_AND_ASSIGN(const uint32_t hash, StatusHash(*db->BeginRead()));
    EXPECT_TRUE(Check(*db->BeginRead()).ok());
    if (c.revision != 0) {
      EXPECT_EQ(LastRevision(*db->BeginRead()), c.revision);
      EXPECT_GT(db->stats().free_pages, 1000u);
    }
    ASSERT_OK_AND_ASSIGN(ModelBucket model, ReadBucket(db->BeginRead()->root()));
    // Rewrite all of it in random order, through free pages.
    base::SeededRandom random(5);
    for (int round = 0; round < 3; ++round) {
      ASSERT_OK_AND_ASSIGN(const auto tx, db->BeginWrite());
      for (const auto& [name, bucket] : model.buckets) {
        ASSERT_OK_AND_ASSIGN(WriteBucket* const to, tx->bucket(name));
        for (const auto& [key, value] : bucket.values) {
          if (!random.OneIn(3)) continue;
          ASSERT_OK(to->Put(key, value));
        }
      }
      ASSERT_OK(tx->Commit());
      EXPECT_TRUE(Check(*db->BeginRead()).ok());
    }
    db.reset();
    ASSERT_OK_AND_ASSIGN(db, DB::Open(files, "/db", {.store_freelist = true}, base::SystemClock()));
    EXPECT_THAT(StatusHash(*db->BeginRead()), base::IsOkAndHolds(hash));
    EXPECT_TRUE(Check(*db->BeginRead()).ok());
  }
}

// Whatever the bytes: an error or an answer, never a crash or a hang; and what a writer then
// commits passes its own check.
void Exercise(const std::string& image, bool write) {
  MemoryFiles files;
  files.Put("/db", image);
  {
    auto db = DB::Open(files, "/db", {.read_only = true, .map_reserve_bytes = 1 << 20},
                       base::SystemClock());
    if (db.ok()) {
      const auto tx = (*db)->BeginRead();
      uint64_t elements_max = 20'000;
      ReadBucket(tx->root(), &elements_max).status().IgnoreError();
      Check(*tx, 10);
    }
  }
  if (!write) return;
  auto db = DB::Open(files, "/db", {.map_reserve_bytes = 1 << 20}, base::SystemClock());
  if (!db.ok()) {
    EXPECT_THAT(db, StatusIs(absl::StatusCode::kDataLoss));
    return;
  }
  // A scan has accepted it, so the tree is sound and must stay so.
  const bool scanned = (*db)->BeginRead()->meta().freelist == kNoFreelist;
  auto tx = (*db)->BeginWrite();
  ASSERT_OK(tx);
  absl::Status status;
  for (const char* name : {"key", "lease", "meta"}) {
    auto bucket = (*tx)->CreateBucketIfMissing(name);
    if (!bucket.ok()) continue;
    (*bucket)->DeleteRange("\0\0\0\0\0\0\0\x20", std::nullopt).status().IgnoreError();
    (*bucket)->Put("zzz", "value").IgnoreError();
  }
  (*tx)->DeleteBucket("members").IgnoreError();
  const auto stats = (*tx)->Commit();
  if (stats.ok() && scanned) {
    const CheckReport report = Check(*(*db)->BeginRead());
    EXPECT_TRUE(report.ok()) << report.findings.front();
  }
}

TEST(Damage, FlippedBitsAreNeverFatal) {
  const uint64_t seed = TestSeed(31337);
  base::SeededRandom random(seed);
  const std::string golden = Golden("etcd-3.7-snapshot.db");
  for (int i = 0; i < 400 && !HasFailure(); ++i) {
    std::string image = golden;
    const uint64_t flips = 1 + random.Below(4);
    for (uint64_t flip = 0; flip < flips; ++flip) {
      // Where structure is: the front of a page, or its meta.
      const uint64_t page = random.Below(image.size() / 4096);
      const uint64_t at = page * 4096 + (random.OneIn(4) ? random.Below(4096) : random.Below(200));
      image[at] = static_cast<char>(image[at] ^ (1 << random.Below(8)));
    }
    if (random.OneIn(2)) {  // past the checksum
      Meta meta{.page_bytes = 4096,
                .root = random.Below(14),
                .freelist = random.OneIn(2) ? kNoFreelist : random.Below(14),
                .page_count = 13,
                .txid = random.OneIn(2) ? 1'000'000 : random.Next()};
      meta.root = std::min<PageId>(meta.root, 12);
      if (meta.freelist != kNoFreelist) meta.freelist = std::min<PageId>(meta.freelist, 12);
      EncodeMetaPage(meta, 0, image.data());
    }
    SCOPED_TRACE(fmt::format("seed {} case {}", seed, i));
    Exercise(image, true);
  }
}

TEST(Damage, PagesThatPointAnywhereAreNeverFatal) {
  const uint64_t seed = TestSeed(777);
  base::SeededRandom random(seed);
  // A tree of three levels with nested buckets, in small pages.
  MemoryFiles files;
  {
    ASSERT_OK_AND_ASSIGN(
        const auto db,
        DB::Open(files, "/db", {.page_bytes = 512, .store_freelist = true, .map_reserve_bytes = 0},
                 base::SystemClock()));
    ASSERT_OK_AND_ASSIGN(const auto tx, db->BeginWrite());
    for (const char* name : {"key", "lease", "meta", "members"}) {
      ASSERT_OK_AND_ASSIGN(WriteBucket* const bucket, tx->CreateBucket(name));
      for (int i = 0; i < 600; ++i)
        ASSERT_OK(bucket->Put(std::string("\0\0\0\0\0\0\0", 7) + std::to_string(i), "v"));
      ASSERT_OK_AND_ASSIGN(WriteBucket* const nested, bucket->CreateBucket("zz-nested"));
      for (int i = 0; i < 100; ++i) ASSERT_OK(nested->Put(std::to_string(i), "v"));
    }
    ASSERT_OK(tx->Commit());
  }
  ASSERT_OK_AND_ASSIGN(const std::string golden, files.Contents("/db"));
  for (int i = 0; i < 400 && !HasFailure(); ++i) {
    std::string image = golden;
    for (uint64_t change = 1 + random.Below(3); change > 0; --change) {
      // Copy one page's contents, or a piece of them, over another, with the id put right.
      const uint64_t pages = image.size() / 512;
      const uint64_t from = 2 + random.Below(pages - 2);
      const uint64_t to = 2 + random.Below(pages - 2);
      const uint64_t at = random.OneIn(2) ? 0 : random.Below(500);
      image.replace(to * 512 + at, 512 - at, image, from * 512 + at, 512 - at);
      base::StoreLe(image.data() + to * 512, to);
      // And let a branch point elsewhere.
      if (image[from * 512 + 8] == 1)
        base::StoreLe(image.data() + from * 512 + 16 + 8, random.Below(pages + 3));
    }
    SCOPED_TRACE(fmt::format("seed {} case {}", seed, i));
    Exercise(image, true);
  }
}

TEST(Damage, TruncationsAreRefused) {
  const std::string golden = Golden("etcd-3.7-snapshot.db");
  for (size_t bytes = 0; bytes < 49152; bytes += 509) Exercise(golden.substr(0, bytes), true);
}

}  // namespace
}  // namespace bolt
