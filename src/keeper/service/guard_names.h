// Names in the state directory of a cluster. Constants; any thread.
#pragma once

#include <string_view>

namespace service {

inline constexpr std::string_view kRowsName = "rows";
inline constexpr std::string_view kScratchName = "scratch";
inline constexpr std::string_view kSpoolName = "spool";
inline constexpr std::string_view kContainerName = "container";
inline constexpr std::string_view kLockName = "lock";
inline constexpr std::string_view kRequestsName = "requests";

}  // namespace service
