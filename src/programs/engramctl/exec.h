// Runs another program in the foreground with this one's standard streams. Main thread or a printer
// thread.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace engramctl {

struct ProgramResult {
  int exit_status = 0;  // 128 + signal when it was killed
  std::string
      failure;  // empty when it ended with status 0: "exit status 3", "signal: killed", "exec: ..."
};

// Waits for the end of `command`, found through PATH, run with `environment` (NAME=value) on top of
// ours.
ProgramResult RunProgram(const std::vector<std::string>& command,
                         std::span<const std::string> environment);

}  // namespace engramctl
