// HashKV: the checksum of the key bucket up to a revision, which members compare.
#include <algorithm>

#include "base/crc32c.h"
#include "base/status.h"
#include "mvcc/store.h"
#include "mvcc/store_impl.h"

namespace mvcc {

absl::StatusOr<HashKv> Store::HashByRevision(int64_t revision) const {
  while (true) {
    absl::StatusOr<HashKv> hash = HashAt(revision);
    // As for ranges: the current revision is never refused as compacted.
    const bool passed = revision == 0 && hash.status() == CompactedError();
    if (hash.status().code() != absl::StatusCode::kAborted && !passed) return hash;
  }
}

// keep(r), the newest record of each key that is not a tombstone, is gathered from the index first
// (16 bytes a key); then the records are walked in order beside it.
absl::StatusOr<HashKv> Store::HashAt(int64_t revision) const {
  HashKv result;
  ReadPoint point;
  {
    std::shared_lock lock(impl_->lock);
    result.current_revision = current_revision();
    result.compact_revision = compact_revision();
    // A stored result is given as it was.
    if (revision > 0) {
      if (std::optional<HashKv> stored = impl_->compaction->FindHash(revision)) {
        stored->current_revision = result.current_revision;
        return *stored;
      }
    }
    if (revision > 0 && revision < result.compact_revision) return CompactedError();
    if (revision > result.current_revision) return FutureRevisionError();
    result.hash_revision = revision == 0 ? result.current_revision : revision;
    point.view = backend_.View();
    point.epoch = impl_->epoch;
  }
  const int64_t r = result.hash_revision;
  const int64_t compacted = result.compact_revision;

  std::vector<Revision> keep;
  bool keep_any = false;
  std::string from;
  while (true) {
    std::shared_lock lock(impl_->lock);
    if (impl_->epoch != point.epoch) return absl::AbortedError("the database was replaced");
    if (r < compact_revision()) return CompactedError();
    KeyIndex::Slice slice =
        impl_->index.VisitNewest(r, from, kKeysPerLock, [&](const RevisionKey& change) {
          if (change.tombstone) return;
          keep_any = true;
          // Records above the compact revision count whether they are kept or not.
          if (change.revision.main <= compacted) keep.push_back(change.revision);
        });
    if (slice.done) break;
    from = std::move(slice.resume_key);
  }
  std::sort(keep.begin(), keep.end());

  uint32_t hash = base::Crc32c(0, BucketName(Bucket::kKey));
  size_t next = 0;
  RETURN_IF_ERROR(point.view->Scan(Revision{0, 0}, [&](const Record& record) {
    if (record.revision.main > r) return false;
    if (record.revision.main <= compacted && keep_any) {
      while (next < keep.size() && keep[next] < record.revision) ++next;
      if (record.tombstone || next == keep.size() || keep[next] != record.revision) return true;
    }
    if (record.revision.main == compacted && record.tombstone) return true;
    hash =
        base::Crc32c(base::Crc32c(hash, RevisionKeyBytes(record.revision, record.tombstone).view()),
                     record.value);
    return true;
  }));
  result.hash = hash;
  return result;
}

}  // namespace mvcc
