// What the parts of a restore share. For this layer's own use; functions are safe on any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/files.h"

namespace snapshot {

// The directory in the data directory in which a member is built.
inline constexpr std::string_view kRestoringName = "member.restoring";
// In it: held by flock while the restore runs.
inline constexpr std::string_view kRestoringLockName = "lock";

bool IsFreeForRestore(base::Files& files, const std::string& data_dir);

}  // namespace snapshot
