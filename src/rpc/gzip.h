// gzip as gRPC's compressed messages use it. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace rpc {

// ResourceExhausted when the result would be longer than `bytes_max`, Internal for broken input.
absl::StatusOr<std::string> Gunzip(std::string_view compressed, size_t bytes_max);
std::string Gzip(std::string_view plain);

}  // namespace rpc
