// Texts of the gRPC wire: timeouts, status codes, percent-encoded messages. Pure functions,
// thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/clock.h"

namespace rpc {

// "100m" -> 100 ms; nullopt when malformed. Units H M S m u n, at most 8 digits.
std::optional<base::Duration> ParseTimeout(std::string_view text);
// "0" to "16", static.
std::string_view StatusDigits(absl::StatusCode code);
// grpc-message: bytes outside of printable ASCII, and '%', as %XX.
std::string EncodeMessage(std::string_view text);
// Whether a content type is gRPC's: "application/grpc", alone or followed by "+..." or ";...".
bool IsGrpcContentType(std::string_view content_type);

}  // namespace rpc
