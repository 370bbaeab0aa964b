// Text as Go programs read and write it: numbers, durations, quoted strings, sizes. etcdctl is
// written in Go, and scripts rely on these forms. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace engramctl {

// strconv.ParseInt and ParseUint. base 0 reads 0x, 0o, 0b and _ separators. The error is the whole
// text of Go's: `strconv.ParseInt: parsing "zz": invalid syntax`, or `...: value out of range`.
absl::StatusOr<int64_t> ParseInt(std::string_view text, int base);
absl::StatusOr<uint64_t> ParseUint(std::string_view text, int base);
// strconv.ParseBool: 1 t T true TRUE True and their opposites.
absl::StatusOr<bool> ParseBool(std::string_view text);

// "1h2m3.5s"; `time: invalid duration "abc"`.
absl::StatusOr<base::Duration> ParseDuration(std::string_view text);
// time.Duration's String: "0s", "2.103696ms", "1m0s".
std::string FormatDuration(base::Duration duration);

// strconv.Quote: UTF-8 kept when printable, the rest escaped.
std::string Quote(std::string_view bytes);
// strconv.Unquote of a text in double quotes or backquotes; false when it is none.
bool Unquote(std::string_view text, std::string* out);
// fmt's %q of one byte taken as a character: 'z'.
std::string QuoteChar(char c);

// "\x66\x6f" for "fo".
std::string HexEscape(std::string_view bytes);
std::string Base64(std::string_view bytes);
// A JSON string with encoding/json's escapes (< > & and line separators included).
std::string JsonString(std::string_view text);

// Decimal sizes: "7 B", "2.1 GB", "25 kB".
std::string HumanSize(uint64_t bytes);

// The number of characters; malformed bytes count one each.
size_t CharacterCount(std::string_view text);

std::string_view TrimSpace(std::string_view text);
std::vector<std::string> Split(std::string_view text, char separator);
std::string Join(const std::vector<std::string>& parts, std::string_view separator);
std::string ToLower(std::string_view text);
std::string ToUpper(std::string_view text);

}  // namespace engramctl
