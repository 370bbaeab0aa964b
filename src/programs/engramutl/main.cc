// engramutl: works on the files of stopped members and on snapshot files. Started under the name
// etcdutl it answers as that.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "commands.h"
#include "print.h"

namespace engramutl {
namespace {

constexpr std::string_view kReferenceVersion = "3.7.3";
constexpr std::string_view kVersion = ENGRAM_VERSION;
constexpr std::string_view kApiVersion = "3.7";

constexpr FlagSpec kGlobalFlags[] = {
    {.name = "timeout",
     .type = FlagType::kDuration,
     .default_value = "10s",
     .help = "how long to wait while another process has the db file locked, 0 to wait forever"},
    {.name = "write-out",
     .type = FlagType::kString,
     .default_value = "simple",
     .help = "output format (fields, json, protobuf, simple, table)",
     .shorthand = 'w'},
};

int RunVersion(const Invocation& invocation) {
  // Scripts that start the program as etcdutl compare this with the server's version.
  if (invocation.program == "etcdutl") {
    Emit(fmt::format("etcdutl version: {}\nAPI version: {}\n", kReferenceVersion, kApiVersion));
  } else {
    Emit(fmt::format("{} version: {}\nAPI version: {}\nCompatible with etcdutl: {}\n",
                     invocation.program, kVersion, kApiVersion, kReferenceVersion));
  }
  return engramctl::kExitOk;
}

int RunOptions(const Invocation&) {
  engramctl::FlagSet flags;
  flags.Add(GlobalFlags());
  Emit("The following options can be passed to any command:\n\n" + engramctl::DescribeFlags(flags));
  return engramctl::kExitOk;
}

Command RootCommand() {
  return {.name = "",
          .usage = "",
          .summary = "Tool for snapshot files and for the data directories of stopped members.",
          .persistent_flags = GlobalFlags(),
          .commands = {
              SnapshotCommand(),
              HashKvCommand(),
              CheckCommand(),
              DefragCommand(),
              MigrateCommand(),
              CompletionCommand(),
              {.name = "version", .usage = "", .summary = "Print the version", .run = RunVersion},
              {.name = "options",
               .usage = "",
               .summary = "List the flags that every command has",
               .run = RunOptions},
              {.name = "help", .usage = "[command]", .summary = "Explain a command"}}};
}

}  // namespace

std::span<const FlagSpec> GlobalFlags() { return kGlobalFlags; }

base::Duration LockTimeout(const Invocation& invocation) {
  return invocation.flags->Duration("timeout");
}

int FailWith(const absl::Status& status) {
  std::string_view text = base::Message(status);
  // The reader named the file on the command line, and scripts know the bare text.
  constexpr std::string_view kNoDatabase = ": invalid database";
  if (text.ends_with(kNoDatabase)) text = text.substr(text.size() - kNoDatabase.size() + 2);
  return engramctl::Fail(engramctl::kExitError, text);
}

int FailUsage(const Invocation& invocation, std::string_view text) {
  const std::string help =
      engramctl::HelpText(*invocation.root, *invocation.command, invocation.path);
  const size_t usage = help.find("Usage:");
  std::fflush(stdout);
  std::fprintf(stderr, "Error: %s\n%s", std::string(text).c_str(),
               help.c_str() + (usage == std::string::npos ? 0 : usage));
  std::fflush(stderr);
  return engramctl::kExitError;
}

}  // namespace engramutl

int main(int argc, char** argv) {
  std::string_view program = argc > 0 ? argv[0] : "engramutl";
  program = program.substr(program.rfind('/') + 1);
  base::LogConfig log;
  log.console = true;
  log.seconds_only = true;
  if (const absl::Status status = base::ConfigureLog(log); !status.ok())
    return engramutl::FailWith(status);
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return engramctl::RunCommandLine(engramutl::RootCommand(), program, arguments);
}
