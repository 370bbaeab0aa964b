// The plain form of a segment: every event of a range of revisions without a gap. Format:
// proto/keeper.proto, read and written here as wire format, because replay handles rows as bytes.
// One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"

namespace events {

inline constexpr uint32_t kSegmentFormat = 1;

struct SegmentHeader {
  std::string cluster;
  uint64_t cluster_id = 0;
  int64_t timeline_revision = 0;
  uint64_t writer = 0;
  int64_t first_revision = 0;
  std::string previous_sha256;  // 32 bytes, or empty

  friend bool operator==(const SegmentHeader&, const SegmentHeader&) = default;
};

// One event. The views are valid as long as the bytes they were read from.
struct EventView {
  bool tombstone = false;
  std::string_view key_value;  // mvccpb.KeyValue, as the event carries it
};

// A lease that events hang keys on, as it was granted.
struct LeaseGrant {
  int64_t id = 0;
  int64_t ttl_seconds = 0;  // 0: unknown
};

struct RevisionView {
  int64_t revision = 0;
  base::Duration seen_from{0};
  base::Duration seen_to{0};
  std::vector<EventView> events;  // in the order of sub-revisions, from 0
};

// Builds a segment in memory. Its owner closes it before it grows beyond what memory allows.
class SegmentWriter {
 public:
  explicit SegmentWriter(SegmentHeader header);

  // The next revision: header.first_revision, then one more each. CHECKs that.
  void Add(const RevisionView& revision);

  int64_t next_revision() const { return next_revision_; }
  int64_t revisions() const { return next_revision_ - header_.first_revision; }
  uint64_t events() const { return events_; }
  size_t bytes() const { return bytes_.size(); }
  bool empty() const { return next_revision_ == header_.first_revision; }
  base::Duration first_seen_from() const { return first_seen_from_; }
  base::Duration first_seen_to() const { return first_seen_to_; }
  base::Duration last_seen_from() const { return last_seen_from_; }
  base::Duration last_seen_to() const { return last_seen_to_; }

  // The whole segment, with the leases first met in it. The writer is used up.
  std::string Finish(const std::vector<LeaseGrant>& leases);

 private:
  const SegmentHeader header_;
  std::string bytes_;
  int64_t next_revision_ = 0;
  uint64_t events_ = 0;
  base::Duration first_seen_from_{0}, first_seen_to_{0}, last_seen_from_{0}, last_seen_to_{0};
};

struct SegmentFacts {
  SegmentHeader header;
  std::vector<LeaseGrant> leases;
};

// Reads a whole segment. `each` is called for every revision in order; its first error ends the
// reading and is returned. DataLoss, saying where, for bytes that are no segment, are cut off, have
// a gap, or an event without a key-value; Unimplemented for a newer format.
absl::StatusOr<SegmentFacts> ReadSegment(std::string_view bytes,
                                         absl::FunctionRef<absl::Status(const RevisionView&)> each);

}  // namespace events
