#include "capture/pace.h"

#include <algorithm>
#include <utility>

namespace capture {
namespace {

// Fewer entries a second than this: leases of a few nodes, nobody who waits for puts in a row.
constexpr double kBusyEntriesPerSecond = 20;
// With this the 99th percentile of puts stays within twice that at rest; see
// docs/internals/performance.md.
constexpr uint64_t kYieldingBytesPerSecond = uint64_t{4} << 20;

constexpr base::Duration kFirstLookAfter = std::chrono::milliseconds(250);
constexpr base::Duration kLookEvery = std::chrono::seconds(1);
// Time that went by unused is made up for by no more than this: bursts are what a pace is against.
constexpr base::Duration kBehindMax = std::chrono::milliseconds(50);

}  // namespace

uint64_t YieldingRate(double entries_per_second, int64_t db_bytes, base::Duration open_max) {
  if (entries_per_second < kBusyEntriesPerSecond) return 0;
  const double seconds = std::chrono::duration<double>(open_max).count();
  const double bytes = static_cast<double>(std::max(int64_t{0}, db_bytes));
  return std::max(kYieldingBytesPerSecond, static_cast<uint64_t>(bytes / seconds));
}

Pace::Pace(base::Clock& clock, Wait wait, uint64_t bytes_per_second)
    : clock_(clock), wait_(std::move(wait)), rate_(bytes_per_second), next_(clock.Monotonic()) {}

Pace::Pace(base::Clock& clock, Wait wait, Look look, base::Duration open_max)
    : clock_(clock), wait_(std::move(wait)), look_(std::move(look)), open_max_(open_max) {
  LookAgain();
  wait_(kFirstLookAfter);
  LookAgain();
  next_ = clock_.Monotonic();
}

void Pace::LookAgain() {
  const absl::StatusOr<MemberLoad> load = look_();
  looked_at_ = clock_.Monotonic();
  if (!load.ok()) return;
  // A member that was restored or exchanged begins anew.
  if (load_.has_value() && load->raft_index >= load_->raft_index && looked_at_ > load_at_) {
    const double seconds = std::chrono::duration<double>(looked_at_ - load_at_).count();
    rate_ = YieldingRate(static_cast<double>(load->raft_index - load_->raft_index) / seconds,
                         load->db_bytes, open_max_);
  }
  load_ = *load;
  load_at_ = looked_at_;
}

void Pace::At(uint64_t received_bytes) {
  if (look_ && clock_.Monotonic() - looked_at_ >= kLookEvery) LookAgain();
  const uint64_t came = received_bytes - std::exchange(received_bytes_, received_bytes);
  if (rate_ == 0) return;
  const base::Duration now = clock_.Monotonic();
  next_ = std::max(next_, now - kBehindMax) +
          base::Duration(
              static_cast<int64_t>(static_cast<double>(came) * 1e9 / static_cast<double>(rate_)));
  if (next_ > now) wait_(next_ - now);
}

}  // namespace capture
