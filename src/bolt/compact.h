// Copies what a transaction sees into another db file, densely and in paced steps: defragmentation,
// and compact copies by tools. One thread, which also is the only writer of the destination
// meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bolt/db.h"

namespace bolt {

class CompactCopier {
 public:
  // Copies all of `source` into `destination`, which should be empty. Both must outlive the copier.
  // Buckets, nesting and sequences are kept; pages are filled to `fill_percent` (etcd defragments
  // with 0.9, `bbolt compact` with 1.0).
  CompactCopier(const ReadTx& source, DB& destination, double fill_percent = 0.9);
  ~CompactCopier();
  CompactCopier(const CompactCopier&) = delete;
  CompactCopier& operator=(const CompactCopier&) = delete;

  // Copies about `max_bytes` of keys and values (at least one element) and commits them with a sync
  // of their own, so that the writes of one step are what can be in flight at most. True once
  // everything is copied. Holds nothing in memory between steps but its place. After an error the
  // destination is to be thrown away.
  absl::StatusOr<bool> Step(uint64_t max_bytes);

  uint64_t copied_bytes() const { return copied_bytes_; }  // keys and values so far
  bool done() const { return done_; }

 private:
  struct Level {
    std::string name;  // of the bucket, "" for the root
    Bucket from;
    Cursor cursor;
  };
  absl::Status Enter(std::string name, const Bucket& from);

  const ReadTx& source_;
  DB& destination_;
  const double fill_percent_;
  std::vector<Level>
      path_;  // from the root to the bucket being copied; each cursor stands on what comes next
  uint64_t copied_bytes_ = 0;
  bool started_ = false;
  bool done_ = false;
};

}  // namespace bolt
