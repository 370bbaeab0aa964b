// Time that only tests move. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "stores/deadline.h"

namespace stores {

class ManualClock final : public base::Clock {
 public:
  base::Duration Monotonic() const override { return base::Duration(now_.load()); }
  base::Duration Wall() const override { return kEpoch + Monotonic(); }
  void Advance(base::Duration duration) { now_.fetch_add(duration.count()); }

 private:
  static constexpr base::Duration kEpoch = std::chrono::seconds(1'790'000'000);
  std::atomic<int64_t> now_{0};
};

// Sleeping moves the clock, at once.
class ManualSleeper final : public Sleeper {
 public:
  explicit ManualSleeper(ManualClock& clock) : clock_(clock) {}
  void Sleep(base::Duration duration, const Deadline& deadline) override {
    if (deadline.Cancelled()) return;
    clock_.Advance(std::min(duration, deadline.Left(clock_)));
    slept_.fetch_add(1);
  }
  int slept() const { return slept_.load(); }

 private:
  ManualClock& clock_;
  std::atomic<int> slept_{0};
};

}  // namespace stores
