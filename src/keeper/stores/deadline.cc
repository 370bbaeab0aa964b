#include "stores/deadline.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace stores {
namespace {

// How late a cancellation may be noticed.
constexpr base::Duration kSlice = std::chrono::milliseconds(50);

class ThreadSleeper final : public Sleeper {
 public:
  void Sleep(base::Duration duration, const Deadline& deadline) override {
    const base::Clock& clock = base::SystemClock();
    const base::Duration until = std::min(clock.Monotonic() + duration, deadline.at);
    while (!deadline.Cancelled()) {
      const base::Duration left = until - clock.Monotonic();
      if (left <= base::Duration::zero()) return;
      std::this_thread::sleep_for(std::min(left, kSlice));
    }
  }
};

}  // namespace

base::Duration Deadline::Left(const base::Clock& clock) const {
  return std::max(at - clock.Monotonic(), base::Duration::zero());
}

absl::Status Deadline::Check(const base::Clock& clock) const {
  if (Cancelled()) return absl::CancelledError("cancelled");
  if (Left(clock) == base::Duration::zero()) {
    return absl::DeadlineExceededError("the time for this call is over");
  }
  return absl::OkStatus();
}

Sleeper& RealSleeper() {
  static auto* const sleeper = new ThreadSleeper;
  return *sleeper;
}

}  // namespace stores
