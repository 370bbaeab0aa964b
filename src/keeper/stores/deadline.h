// Until when a blocking call may take, and how it waits in between. Thread-safe.
#pragma once

#include <atomic>

#include "absl/status/status.h"
#include "base/clock.h"

namespace stores {

struct Deadline {
  base::Duration at{};  // on the monotonic clock
  // Set by whoever wants the call to end early; outlives the call. Null: nobody does.
  const std::atomic<bool>* cancelled = nullptr;

  static Deadline In(const base::Clock& clock, base::Duration duration,
                     const std::atomic<bool>* cancelled = nullptr) {
    return {.at = clock.Monotonic() + duration, .cancelled = cancelled};
  }
  bool Cancelled() const { return cancelled != nullptr && cancelled->load(); }
  // At least zero.
  base::Duration Left(const base::Clock& clock) const;
  // Cancelled or DeadlineExceeded when there is no time left.
  absl::Status Check(const base::Clock& clock) const;
};

// Waiting as a seam beside base::Clock: production uses RealSleeper(), tests one that turns their
// clock.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  // Returns early when the deadline passes or is cancelled.
  virtual void Sleep(base::Duration duration, const Deadline& deadline) = 0;
};

Sleeper& RealSleeper();

}  // namespace stores
