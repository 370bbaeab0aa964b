// Many histories, spread over child processes: one that dies takes nothing with it but itself, and
// its death is a finding. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "sim/history.h"

namespace sim {

// What one task came to. `text` is empty when all is well.
struct Outcome {
  Counters counters;
  uint64_t digest = 0;
  std::string text;
};

// Runs task(first), task(first + 1), ... task(first + count - 1) on `jobs` children, and calls
// `each` in this process for every outcome, as they come. Ends early once `each` returns false.
void RunTasks(uint64_t first, uint64_t count, int jobs,
              const std::function<Outcome(uint64_t)>& task,
              const std::function<bool(uint64_t, const Outcome&)>& each);

}  // namespace sim
