// Time as a seam: production uses SystemClock(), tests a clock they turn. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

namespace base {

using Duration = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  // Never goes back; only differences mean anything.
  virtual Duration Monotonic() const = 0;
  // Since 1970-01-01T00:00:00Z; may jump.
  virtual Duration Wall() const = 0;
};

Clock& SystemClock();

// One moment by both clocks.
struct Instant {
  Duration wall{0};
  Duration steady{0};  // Monotonic()
};
inline Instant Now(const Clock& clock) {
  return {.wall = clock.Wall(), .steady = clock.Monotonic()};
}
// How far the wall clock was set ahead between two moments of one process; negative: set back. A
// machine that was suspended meanwhile finds its clock ahead.
inline Duration StepBetween(const Instant& before, const Instant& after) {
  return (after.wall - before.wall) - (after.steady - before.steady);
}

}  // namespace base
