// Looks for everything that can be found wrong with a snapshot file, a db file or a member's data
// directory, without changing it. Blocking, any thread. The files must not be in use: a shared lock
// is taken on the database.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"

namespace snapshot {

struct CheckOptions {
  // How long to wait for the database's lock; 0 = forever. Then DeadlineExceeded.
  base::Duration lock_timeout{0};
  std::string wal_dir;  // of a data directory; empty: <dir>/member/wal
};

struct CheckResult {
  std::vector<std::string>
      findings;  // one line each, naming file and place; empty: nothing wrong was found
  std::vector<std::string>
      facts;  // what was looked at, for the reader: "db: 12 pages, revision 180, ..."
};

// `path` is a file or a directory. An error status only when something cannot be read at all;
// damage is a finding.
absl::StatusOr<CheckResult> Check(base::Files& files, base::Clock& clock, const std::string& path,
                                  const CheckOptions& options = {});

}  // namespace snapshot
