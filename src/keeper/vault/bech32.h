// Bech32 (BIP 173) of 32-byte keys, as age prints them. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace vault {

// `prefix` is the human-readable part; the text comes in its case.
std::string EncodeBech32(std::string_view prefix, std::span<const uint8_t, 32> key);

// Takes exactly what EncodeBech32 gives for that prefix, in that case. InvalidArgument says what is
// wrong without quoting the text, which may be a secret.
absl::Status DecodeBech32(std::string_view prefix, std::string_view text,
                          std::span<uint8_t, 32> key);

}  // namespace vault
