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

}  // namespace base
