// Arbitrary bytes as the metrics page of a member that is watched while it sends a snapshot.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "capture/source_health.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto vitals = capture::ParseVitals({reinterpret_cast<const char*>(data), size});
  if (!vitals.has_value()) return 0;
  for (const double value :
       {vitals->fsync.seconds, vitals->fsync.count, vitals->commit.seconds, vitals->commit.count,
        vitals->leader_changes, vitals->space_left.value_or(0)}) {
    CHECK(std::isfinite(value));
  }
  return 0;
}
