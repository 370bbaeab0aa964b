// Durations, sizes and rates as people write them. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace config {

// "500ms", "1h30m", "7d", "2w"; days and weeks of 24 and 168 hours, a unit after each number, the
// larger units first. nullopt for anything else, a sign, or more than 100 years.
std::optional<base::Duration> ParseDuration(std::string_view text);
// The shortest form that ParseDuration reads back: "7d", "1h30m", "0s".
std::string DurationText(base::Duration d);

// "64MiB", "1.5GiB", "1000000", "10MB": B KiB MiB GiB TiB, kB MB GB TB; a plain number is bytes.
std::optional<uint64_t> ParseSize(std::string_view text);
// The largest binary unit that divides it: "64MiB", "1000B", "0B".
std::string SizeText(uint64_t bytes);

// A size a second: "20MiB/s".
std::optional<uint64_t> ParseRate(std::string_view text);
std::string RateText(uint64_t bytes_per_second);

}  // namespace config
