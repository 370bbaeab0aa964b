// Arbitrary bytes as a snapshot file: status, hash, check and restore answer with a status and
// agree with each other, and what a restore makes is sound. The first byte selects: 1 puts the
// right digest behind the bytes, 2 restores without one, 4 raises the revision.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "snapshot/check.h"
#include "snapshot/inspect.h"
#include "snapshot/restore.h"
#include "support/memory_files.h"

namespace {

constexpr char kPath[] = "/s.db";

void AppendDigest(std::string* bytes) {
  const base::Digest digest = base::Sha256(*bytes);
  bytes->append(base::DigestBytes(digest));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const bool digest = (data[0] & 1) != 0;
  const bool skip = (data[0] & 2) != 0;
  const bool bump = (data[0] & 4) != 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (digest) AppendDigest(&bytes);
  test_support::MemoryFiles files;
  files.Put(kPath, bytes);
  base::Clock& clock = base::SystemClock();

  const snapshot::ReadOptions read{.verify_trailer = !skip};
  const auto summary = snapshot::Inspect(files, clock, kPath, read);
  const auto hash = snapshot::HashKvOffline(files, clock, kPath, 0, read);
  const auto checked = snapshot::Check(files, clock, kPath);
  if (checked.ok() && checked->findings.empty()) CHECK(summary.ok() && hash.ok());

  snapshot::RestoreObserver quiet;
  const auto restored = snapshot::Restore(files, clock,
                                          {.snapshot_path = kPath,
                                           .data_dir = "/data",
                                           .skip_hash_check = skip,
                                           .map_reserve_bytes = 4 << 20,
                                           .bump_revision = bump ? uint64_t{1000} : uint64_t{0},
                                           .mark_compacted = bump},
                                          quiet);
  if (!restored.ok()) {
    CHECK_OP(files.AllPaths().size(), ==, 2U);  // nothing but the root and the snapshot
    return 0;
  }
  // Records that make no sense, under a digest that fits, were the cluster's own and stay.
  const auto again = snapshot::Check(files, clock, "/data");
  CHECK(again.ok());
  if (checked.ok() && checked->findings.empty()) CHECK(again->findings.empty());
  if (!bump && hash.ok()) {
    const auto same = snapshot::HashKvOffline(files, clock, "/data/member/snap/db", 0, {});
    CHECK(same.ok() && same->hash == hash->hash && same->hash_revision == hash->hash_revision);
  }
  return 0;
}
