#include <fmt/format.h>

#include "commands.h"
#include "print.h"
#include "session.h"

namespace engramctl {
namespace {

constexpr std::string_view kReferenceVersion = "3.7.3";
constexpr std::string_view kVersion = ENGRAM_VERSION;
constexpr std::string_view kApiVersion = "3.7";

int RunVersion(const Invocation& invocation) {
  // Scripts that start the program as etcdctl compare this with the server's version.
  if (invocation.program == "etcdctl") {
    Emit(fmt::format("etcdctl version: {}\nAPI version: {}\n", kReferenceVersion, kApiVersion));
  } else {
    Emit(fmt::format("{} version: {}\nAPI version: {}\nCompatible with etcdctl: {}\n",
                     invocation.program, kVersion, kApiVersion, kReferenceVersion));
  }
  return kExitOk;
}

int RunOptions(const Invocation&) {
  FlagSet flags;
  flags.Add(GlobalFlags());
  Emit("The following options can be passed to any command:\n\n" + DescribeFlags(flags));
  return kExitOk;
}

}  // namespace

Command VersionCommand() {
  return {.name = "version",
          .usage = "",
          .summary = "Print the version",
          .group = kUtilityGroup,
          .run = RunVersion};
}

Command OptionsCommand() {
  return {.name = "options",
          .usage = "",
          .summary = "List the flags that every command has",
          .group = kUtilityGroup,
          .run = RunOptions};
}

Command HelpCommandEntry() {
  return {
      .name = "help", .usage = "[command]", .summary = "Explain a command", .group = kUtilityGroup};
}

Command RootCommand(std::string_view) {
  return {
      .name = "",
      .usage = "",
      .summary = "Command line client of an Engram or etcd cluster.",
      .persistent_flags = GlobalFlags(),
      .commands = {GetCommand(),        PutCommand(),        DelCommand(),        TxnCommand(),
                   CompactionCommand(), AlarmCommand(),      DefragCommand(),     EndpointCommand(),
                   MoveLeaderCommand(), WatchCommand(),      VersionCommand(),    LeaseCommand(),
                   MemberCommand(),     SnapshotCommand(),   MakeMirrorCommand(), LockCommand(),
                   ElectCommand(),      AuthCommand(),       UserCommand(),       RoleCommand(),
                   CheckCommand(),      CompletionCommand(), DowngradeCommand(),  OptionsCommand(),
                   HelpCommandEntry()}};
}

}  // namespace engramctl
