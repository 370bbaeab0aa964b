// Rewrites the db file of a stopped member without its free pages. Blocking; any thread. The file
// is locked against servers and other tools meanwhile.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"

namespace snapshot {

struct DefragmentSizes {
  uint64_t size_bytes = 0;    // by the database's own account
  uint64_t in_use_bytes = 0;  // without free pages
};

struct DefragmentResult {
  DefragmentSizes before;
  DefragmentSizes after;
  base::Duration took{0};
};

// `started` is called once the file is locked and open. The copy is made beside, as
// "<db_path>.tmp.defrag", and takes the file's place by a rename: killed anywhere, the old file is
// whole. NotFound "stat <db_path>: ..."; DeadlineExceeded when the lock is held for longer than
// `lock_timeout` (0: waits forever); ResourceExhausted when the copy would not fit; DataLoss for
// damage.
absl::StatusOr<DefragmentResult> Defragment(
    base::Files& files, base::Clock& clock, const std::string& db_path, base::Duration lock_timeout,
    absl::FunctionRef<void(const DefragmentSizes&)> started);

}  // namespace snapshot
