// Who asked the keeper for what, and how it ended: append-only JSON lines in the state directory,
// each with the digest of the one before, so that a line that was taken out or changed shows.
// Thread-safe, and safe beside other processes on the state directory.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "config/config.h"
#include "service/setup.h"

namespace service {

struct AuditEntry {
  base::Duration at{0};
  std::string who;      // the user's name and number
  std::string command;  // as it was asked for; secrets are never part of a command line
  std::string outcome;  // empty: asked for; else how it ended
};

// Durable on return.
absl::Status Audit(Environment env, const config::Config& config, const std::string& command,
                   const std::string& outcome);

// All entries, oldest first; none when there is no file. DataLoss names the first line that does
// not follow the one before.
absl::StatusOr<std::vector<AuditEntry>> ReadAudit(Environment env, const config::Config& config);

}  // namespace service
