// What objects may be called, checked in this one place. Pure functions, thread-safe.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace stores {

inline constexpr size_t kNameBytesMax = 700;  // S3 allows 1024 with the prefix
inline constexpr size_t kPartBytesMax = 200;  // of a file name

// A relative path of [A-Za-z0-9._=-] and '/': no part is empty, begins with '.' or is too long.
// What begins with '.' is left to the stores themselves. InvalidArgument says what is wrong.
absl::Status CheckName(std::string_view name);
// The start of a name, of any length, also within a part; "" is before every name.
absl::Status CheckPrefix(std::string_view prefix);

}  // namespace stores
