#include "snapshot/check.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "commands.h"
#include "print.h"
#include "text.h"

namespace engramutl {
namespace {

constexpr FlagSpec kFlags[] = {
    {.name = "wal-dir",
     .type = FlagType::kString,
     .help = "directory of the write-ahead log (default: DIR/member/wal)"}};

std::string JsonList(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts)
    out += (out.empty() ? "" : ",") + engramctl::JsonString(text);
  return "[" + out + "]";
}

int RunCheck(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return FailUsage(invocation,
                     fmt::format("accepts 1 arg(s), received {}", invocation.words.size()));
  }
  const std::string& format = invocation.flags->String("write-out");
  if (format != "simple" && format != "json") {
    return engramctl::Fail(engramctl::kExitBadFeature,
                           "check knows the output formats simple and json");
  }
  const auto result = snapshot::Check(
      base::PosixFiles(), base::SystemClock(), invocation.words[0],
      {.lock_timeout = LockTimeout(invocation), .wal_dir = invocation.flags->String("wal-dir")});
  if (!result.ok()) return FailWith(result.status());
  if (format == "json") {
    Emit(fmt::format("{{\"ok\":{},\"findings\":{},\"facts\":{}}}\n", result->findings.empty(),
                     JsonList(result->findings), JsonList(result->facts)));
  } else {
    std::string out;
    for (const std::string& fact : result->facts) out += fact + "\n";
    for (const std::string& finding : result->findings) out += "FINDING " + finding + "\n";
    if (result->findings.empty()) out += "OK\n";
    Emit(out);
  }
  if (result->findings.empty()) return engramctl::kExitOk;
  const size_t count = result->findings.size();
  return engramctl::Fail(engramctl::kExitError,
                         fmt::format("{} finding{}", count, count == 1 ? "" : "s"));
}

}  // namespace

Command CheckCommand() {
  return {.name = "check",
          .usage = "<data directory or file>",
          .summary = "Look for damage in a snapshot file, a db file or a data directory",
          .flags = kFlags,
          .run = RunCheck};
}

}  // namespace engramutl
