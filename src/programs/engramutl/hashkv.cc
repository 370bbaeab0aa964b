#include <fmt/format.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "commands.h"
#include "print.h"
#include "snapshot/inspect.h"

namespace engramutl {
namespace {

constexpr FlagSpec kFlags[] = {{.name = "rev",
                                .type = FlagType::kInt,
                                .default_value = "0",
                                .help = "revision up to which to hash (default: the newest one)"}};

int RunHashKv(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return FailUsage(invocation,
                     fmt::format("accepts 1 arg(s), received {}", invocation.words.size()));
  }
  const auto hash = snapshot::HashKvOffline(base::PosixFiles(), base::SystemClock(),
                                            invocation.words[0], invocation.flags->Int("rev"),
                                            {.lock_timeout = LockTimeout(invocation)});
  if (!hash.ok()) return FailWith(hash.status());
  const std::string value = std::to_string(hash->hash);
  const std::string revision = std::to_string(hash->hash_revision);
  const std::string compacted = std::to_string(hash->compact_revision);
  return PrintResult(
      invocation,
      {{"Hash", "hash", "HASH", value, value},
       {"Hash revision", "hashRevision", "HASH REVISION", revision, revision},
       {"Compact revision", "compactRevision", "COMPACT REVISION", compacted, compacted}});
}

}  // namespace

Command HashKvCommand() {
  return {.name = "hashkv",
          .usage = "<filename>",
          .summary = "Print the hash of a file's key-value history, as members compare it",
          .flags = kFlags,
          .run = RunHashKv};
}

}  // namespace engramutl
