// Opens any bytes as a db file, reads all of it, checks it, and writes into it: an error or an
// answer, never a fault or a hang.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/clock.h"
#include "bolt/check.h"
#include "bolt/db.h"
#include "support/memory_files.h"

namespace {

// In a damaged file buckets may hold each other, which only the consistency check sees:
// `elements_max` bounds the walk.
absl::Status Walk(const bolt::Bucket& bucket, uint64_t* elements_max) {
  bolt::Cursor cursor = bucket.cursor();
  absl::StatusOr<bool> valid = cursor.First();
  while (valid.ok() && *valid) {
    if ((*elements_max)-- == 0) return absl::ResourceExhaustedError("too many elements");
    const absl::StatusOr<std::optional<std::string_view>> value = bucket.Get(cursor.key());
    if (!value.ok()) return value.status();
    if (cursor.is_bucket()) {
      const absl::StatusOr<bolt::Bucket> nested = bucket.bucket(cursor.key());
      if (!nested.ok()) return nested.status();
      if (absl::Status status = Walk(*nested, elements_max); !status.ok()) return status;
    }
    valid = cursor.Next();
  }
  if (!valid.ok()) return valid.status();
  valid = cursor.Last();
  while (valid.ok() && *valid) valid = cursor.Prev();
  return valid.status();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  test_support::MemoryFiles files;
  files.Put("/db", {reinterpret_cast<const char*>(data), size});
  {
    const auto db = bolt::DB::Open(files, "/db", {.read_only = true, .map_reserve_bytes = 1 << 20},
                                   base::SystemClock());
    if (!db.ok()) return 0;
    const auto tx = (*db)->BeginRead();
    uint64_t elements_max = 10'000;
    Walk(tx->root(), &elements_max).IgnoreError();
    bolt::Check(*tx, 10);
  }
  const auto db = bolt::DB::Open(files, "/db", {.map_reserve_bytes = 1 << 20}, base::SystemClock());
  if (!db.ok()) return 0;
  // What a scan has accepted is sound and must stay so.
  const bool scanned = (*db)->BeginRead()->meta().freelist == bolt::kNoFreelist;
  const auto tx = (*db)->BeginWrite();
  CHECK(tx.ok());
  if (const auto bucket = (*tx)->CreateBucketIfMissing("key"); bucket.ok()) {
    (*bucket)->DeleteRange("b", "y").status().IgnoreError();
    (*bucket)->Put("m", "value").IgnoreError();
  }
  (*tx)->DeleteBucket("lease").IgnoreError();
  if ((*tx)->Commit().ok() && scanned) CHECK(bolt::Check(*(*db)->BeginRead()).ok());
  return 0;
}
