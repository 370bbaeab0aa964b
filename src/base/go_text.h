// Text forms that etcd's programs take from Go: durations, integers, booleans, quoted strings. Pure
// functions, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace base {

// "300ms", "1m30s", "-1.5h", "0"; units ns us µs ms s m h. nullopt for anything else or an
// overflow.
std::optional<Duration> ParseGoDuration(std::string_view text);
// As strconv.ParseInt(text, 0, 64): sign, 0x 0o 0b 0 prefixes, '_' between digits.
std::optional<int64_t> ParseGoInt(std::string_view text);
std::optional<uint64_t> ParseGoUint(std::string_view text);
// 1 t T TRUE true True 0 f F FALSE false False.
std::optional<bool> ParseGoBool(std::string_view text);
// As %q: a double-quoted literal; non-printable and invalid bytes as escapes.
std::string GoQuote(std::string_view text);

}  // namespace base
