// The commands of engramutl and what they share. Main thread only.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "base/clock.h"
#include "command.h"
#include "flags.h"

namespace engramutl {

using engramctl::Command;
using engramctl::FlagSpec;
using engramctl::FlagType;
using engramctl::Invocation;

// --timeout and --write-out.
std::span<const FlagSpec> GlobalFlags();

Command SnapshotCommand();
Command HashKvCommand();
Command DefragCommand();
Command MigrateCommand();
Command CheckCommand();
Command CompletionCommand();

// How long to wait for a file's lock.
base::Duration LockTimeout(const Invocation& invocation);
// "Error: <text>" and exit status 1.
int FailWith(const absl::Status& status);
// The same with the command's usage, for a wrong number of words or a missing flag.
int FailUsage(const Invocation& invocation, std::string_view text);

}  // namespace engramutl
