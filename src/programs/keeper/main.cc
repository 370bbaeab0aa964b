// engram-keeper: backups of etcd-compatible clusters that are proven, and restores to any moment.
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "commands.h"

namespace keeper {
namespace {

constexpr std::string_view kVersion = ENGRAM_VERSION;

constexpr FlagSpec kGlobalFlags[] = {
    {.name = "config",
     .type = FlagType::kString,
     .default_value = "/etc/engram-keeper/keeper.yaml",
     .help = "the configuration file",
     .shorthand = 'c'},
    {.name = "output",
     .type = FlagType::kString,
     .default_value = "table",
     .help = "output format (table, json, yaml)",
     .shorthand = 'o'},
};

int RunVersion(const Invocation& invocation) {
  Emit(std::string(invocation.program) + " " + std::string(kVersion) + "\n");
  return kOk;
}

int RunOptions(const Invocation&) {
  engramctl::FlagSet flags;
  flags.Add(kGlobalFlags);
  Emit("The following options can be passed to any command:\n\n" + engramctl::DescribeFlags(flags));
  return kOk;
}

Command RootCommand() {
  return {
      .name = "",
      .usage = "",
      .summary = "Backups of etcd and Engram clusters that are proven, and restores to any moment.",
      .persistent_flags = kGlobalFlags,
      .commands = {
          RunCommand(),
          BackupCommand(),
          ListCommand(),
          DescribeCommand(),
          WindowsCommand(),
          StatusCommand(),
          VerifyCommand(),
          CheckCommand(),
          RestoreCommand(),
          DrillCommand(),
          BundleCommand(),
          PlanCommand(),
          ApplyCommand(),
          SandboxCommand(),
          CopyCommand(),
          AuditCommand(),
          HistoryCommand(),
          GetCommand(),
          DiffCommand(),
          ExportCommand(),
          KeepCommand(),
          AnnotateCommand(),
          PruneCommand(),
          KeysCommand(),
          {.name = "version", .usage = "", .summary = "Print the version", .run = RunVersion},
          {.name = "options",
           .usage = "",
           .summary = "List the flags that every command has",
           .run = RunOptions},
          {.name = "help", .usage = "[command]", .summary = "Explain a command"}}};
}

}  // namespace
}  // namespace keeper

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  // Commands speak for themselves; the daemon sets its own level.
  base::SetLogLevel(base::LogLevel::kError);
  const int code = engramctl::RunCommandLine(keeper::RootCommand(), "engram-keeper", arguments);
  const int status = code == engramctl::kExitBadArguments ? keeper::kUsage : code;
  keeper::AuditEnd(status);
  return status;
}
