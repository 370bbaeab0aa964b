// Small pieces of HTTP text shared by both versions. Thread-safe, except HttpDate's result, which
// is valid until the thread's next call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace net {

// The Date header's value for now, formatted at most once a second per thread.
std::string_view HttpDate();
// Whether `name` is a header name (RFC 9110 token).
bool IsToken(std::string_view name);
// Whether `value` is free of control characters other than a tab.
bool IsHeaderValue(std::string_view value);
// Decimal digits only, no sign, no overflow.
std::optional<uint64_t> ParseDecimal(std::string_view text);
// Whether the comma-separated list holds `token`, any case.
bool ListContains(std::string_view list, std::string_view token);
std::string_view TrimBlanks(std::string_view text);
std::string ToLowerAscii(std::string_view text);
// Whether a response of this status to this method has no body on the wire.
bool HasNoBody(std::string_view method, int status);

}  // namespace net
