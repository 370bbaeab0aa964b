#include <fmt/format.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/status.h"
#include "commands.h"
#include "snapshot/defragment.h"
#include "text.h"

namespace engramutl {
namespace {

constexpr FlagSpec kFlags[] = {{.name = "data-dir",
                                .type = FlagType::kString,
                                .help = "data directory of a stopped member (required)"}};

int64_t Difference(uint64_t after, uint64_t before) {
  return static_cast<int64_t>(after) - static_cast<int64_t>(before);
}

int RunDefrag(const Invocation& invocation) {
  if (!invocation.flags->Changed("data-dir"))
    return FailUsage(invocation, "required flag(s) \"data-dir\" not set");
  const std::string& data_dir = invocation.flags->String("data-dir");
  const std::string path = base::JoinPath(data_dir, "member/snap/db");
  const auto result = snapshot::Defragment(
      base::PosixFiles(), base::SystemClock(), path, LockTimeout(invocation),
      [&](const snapshot::DefragmentSizes& sizes) {
        LOG_INFO("defragmenting", {"path", path}, {"current-db-size-bytes", sizes.size_bytes},
                 {"current-db-size", engramctl::HumanSize(sizes.size_bytes)},
                 {"current-db-size-in-use-bytes", sizes.in_use_bytes},
                 {"current-db-size-in-use", engramctl::HumanSize(sizes.in_use_bytes)});
      });
  if (!result.ok()) {
    return engramctl::Fail(engramctl::kExitError,
                           fmt::format("Failed to defragment etcd data[{}] ({})", data_dir,
                                       base::Message(result.status())));
  }
  LOG_INFO("finished defragmenting directory", {"path", path},
           {"current-db-size-bytes-diff",
            Difference(result->after.size_bytes, result->before.size_bytes)},
           {"current-db-size-bytes", result->after.size_bytes},
           {"current-db-size", engramctl::HumanSize(result->after.size_bytes)},
           {"current-db-size-in-use-bytes-diff",
            Difference(result->after.in_use_bytes, result->before.in_use_bytes)},
           {"current-db-size-in-use-bytes", result->after.in_use_bytes},
           {"current-db-size-in-use", engramctl::HumanSize(result->after.in_use_bytes)},
           {"took", base::DurationText(result->took)});
  return engramctl::kExitOk;
}

}  // namespace

Command DefragCommand() {
  return {.name = "defrag",
          .usage = "",
          .summary = "Rewrite the database of a stopped member without its free pages",
          .flags = kFlags,
          .run = RunDefrag};
}

}  // namespace engramutl
