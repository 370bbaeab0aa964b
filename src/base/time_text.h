// Moments as texts: RFC 3339. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace base {

// "2026-08-10T02:14:06.123456789Z" with `fraction_digits` 0 to 9; `t` counts from 1970, UTC.
std::string Rfc3339(Duration t, int fraction_digits = 9);
// Also takes a blank for the T, any number of fraction digits and an offset such as +02:00. Nothing
// for anything else, and for years outside 1970 to 2261.
std::optional<Duration> ParseRfc3339(std::string_view text);
// "20260810T021406Z": for names.
std::string CompactUtc(Duration t);

}  // namespace base
