// Puts the answers of a watch on the whole keyspace together to whole revisions, in the form that
// segments hold. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "capture/row_digests.h"
#include "events/segment.h"

namespace etcdserverpb {
class WatchResponse;
}

namespace capture {

// A revision that is complete. The views are valid during the call that hands it out.
struct WholeRevision {
  events::RevisionView view;
  RowDigest digest;
};

class Assembler {
 public:
  // The first revision to come; earlier ones of a resumed watch are passed over.
  explicit Assembler(int64_t next_revision) : next_revision_(next_revision) {}

  // Takes one answer and calls `each` for every revision that is complete with it. `seen_from` is a
  // moment at which the first of its events was not delivered yet, `seen_to` that of the delivery.
  // `lease_met` is called for the lease of each put that has one.
  // A revision is complete only with its last fragment. DataLoss when revisions are missing or come
  // out of order; the first error of `each`.
  absl::Status Take(const etcdserverpb::WatchResponse& response, base::Duration seen_from,
                    base::Duration seen_to, absl::FunctionRef<void(int64_t id)> lease_met,
                    absl::FunctionRef<absl::Status(const WholeRevision&)> each);

  int64_t next_revision() const { return next_revision_; }
  // Events of a revision of which more fragments must come.
  bool pending() const { return !events_.empty(); }
  size_t pending_bytes() const { return pending_bytes_; }

 private:
  struct PendingEvent {
    bool tombstone = false;
    std::string key_value;
  };
  absl::Status Complete(absl::FunctionRef<absl::Status(const WholeRevision&)> each);

  int64_t next_revision_;
  std::vector<PendingEvent> events_;  // of next_revision_
  size_t pending_bytes_ = 0;
  base::Duration seen_from_{0}, seen_to_{0};
  RowDigester digester_;
};

// What a row of the key bucket holds for an event: of a put the key-value as it is, of a deletion
// the key alone, which is put into `scratch`. DataLoss when the bytes are no key-value.
absl::StatusOr<std::string_view> StoredValue(const events::EventView& event, std::string* scratch);

}  // namespace capture
