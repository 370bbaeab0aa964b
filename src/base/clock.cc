#include "base/clock.h"

namespace base {
namespace {

class RealClock final : public Clock {
 public:
  Duration Monotonic() const override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
  Duration Wall() const override { return std::chrono::system_clock::now().time_since_epoch(); }
};

}  // namespace

Clock& SystemClock() {
  static auto* const clock = new RealClock;
  return *clock;
}

}  // namespace base
