// A digest for each revision's rows, by which two deliveries of the same history are compared: the
// archive's events with the rows of a full, and one full with the next. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "base/sha256.h"

namespace capture {

// The first half of a SHA-256: enough that nobody finds another history with the same.
using RowDigest = std::array<uint8_t, 16>;

// Of the rows of one revision, in the order of their sub-revisions.
class RowDigester {
 public:
  // `value` as it is stored: mvccpb.KeyValue; of a tombstone the key alone.
  void Add(bool tombstone, std::string_view value);
  // Ends the revision; the next Add begins another.
  RowDigest Take();

 private:
  std::string rows_;
};

// What was delivered of a range of revisions without a gap.
class RowDigests {
 public:
  // Drops the oldest beyond this many.
  static constexpr size_t kRevisionsMax = 2'000'000;

  // The next revision. One that does not follow the last begins anew.
  void Append(int64_t revision, const RowDigest& digest);
  void Clear() { digests_.clear(); }
  bool empty() const { return digests_.empty(); }
  int64_t first() const { return first_; }
  int64_t last() const { return first_ + static_cast<int64_t>(digests_.size()) - 1; }
  // Requires first() <= revision <= last().
  const RowDigest& at(int64_t revision) const {
    return digests_[static_cast<size_t>(revision - first_)];
  }

  // How the revisions that both have, above `after`, compare.
  struct Comparison {
    int64_t from = 0;  // exclusive
    int64_t to = 0;    // inclusive; == from: they share nothing
    std::optional<int64_t> first_difference;
  };
  Comparison CompareWith(const RowDigests& other, int64_t after) const;

  // A file of the state directory, whose loss costs a proof and nothing else. `source` says whose
  // rows these are. Load: NotFound, or DataLoss for a file that is damaged.
  absl::Status Save(base::Files& files, const std::string& path, const std::string& source) const;
  static absl::StatusOr<RowDigests> Load(base::Files& files, const std::string& path,
                                         std::string* source);

 private:
  int64_t first_ = 0;
  std::vector<RowDigest> digests_;
};

}  // namespace capture
