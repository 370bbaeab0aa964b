// Reads a configuration file and writes one back. Pure but for Load's reading; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "config/config.h"

namespace config {

struct Loaded {
  Config config;
  // What is allowed but hardly meant, "FILE:LINE: ...", for `check` and the daemon's log.
  std::vector<std::string> warnings;
};

// Strict: unknown keys, wrong types and impossible combinations are refused. InvalidArgument
// carries every fault found, one a line, "FILE:LINE: ...", in the order of the file. `file` is what
// the lines call it.
absl::StatusOr<Loaded> Parse(std::string_view text, std::string_view file);
// The same from a file of at most 1 MiB.
absl::StatusOr<Loaded> Load(base::Files& files, const std::string& path);

// The configuration in force, as YAML that Parse takes. Arguments of commands are replaced by
// "(hidden)", since people put secrets there; everything else a Config holds is no secret.
std::string Describe(const Config& config);

}  // namespace config
