// How fast a snapshot is read. To send one costs a member: its puts take the longer, the faster it
// goes. A snapshot that stays open costs it too: no page that is freed meanwhile is used again, and
// the db grows. One thread for each Pace.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace capture {

// What Status says of a member, as far as a pace follows it.
struct MemberLoad {
  uint64_t raft_index = 0;
  int64_t db_bytes = 0;
};

// Bytes a second for a member that takes `entries_per_second` of raft and has a db of `db_bytes`;
// 0: as fast as it comes. Where nobody writes, nobody is held up. Else it is as slow as lets puts
// be, but not so slow that the snapshot stays open for longer than `open_max`.
uint64_t YieldingRate(double entries_per_second, int64_t db_bytes, base::Duration open_max);

class Pace {
 public:
  using Wait = std::function<void(base::Duration)>;
  using Look = std::function<absl::StatusOr<MemberLoad>()>;

  // One rate from begin to end; 0: as fast as it comes.
  Pace(base::Clock& clock, Wait wait, uint64_t bytes_per_second);
  // Yields to those who write: looks at once, a moment later, and then each second. While a look
  // has no answer the rate stays what it was, at first as fast as it comes.
  Pace(base::Clock& clock, Wait wait, Look look, base::Duration open_max);

  // Called when so many bytes have come, all together; waits for what is due.
  void At(uint64_t received_bytes);
  // In force now; 0: as fast as it comes.
  uint64_t bytes_per_second() const { return rate_; }

 private:
  void LookAgain();

  base::Clock& clock_;
  const Wait wait_;
  const Look look_;  // none: the rate is fixed
  const base::Duration open_max_{0};
  uint64_t rate_ = 0;
  std::optional<MemberLoad> load_;  // at the last look that had an answer
  base::Duration load_at_{0};
  base::Duration looked_at_{0};
  uint64_t received_bytes_ = 0;
  base::Duration next_{0};  // when the next bytes are due
};

}  // namespace capture
