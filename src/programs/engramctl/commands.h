// One function per command family; each returns its part of the command tree. Main thread only.
#pragma once

#include "command.h"

namespace engramctl {

inline constexpr std::string_view kKeyValueGroup = "Key-value commands";
inline constexpr std::string_view kMaintenanceGroup = "Cluster maintenance commands";
inline constexpr std::string_view kConcurrencyGroup = "Concurrency commands";
inline constexpr std::string_view kAuthGroup = "Authentication commands";
inline constexpr std::string_view kUtilityGroup = "Utility commands";

Command GetCommand();
Command PutCommand();
Command DelCommand();
Command CompactionCommand();
Command TxnCommand();
Command WatchCommand();
Command LeaseCommand();

Command AlarmCommand();
Command DefragCommand();
Command DowngradeCommand();
Command EndpointCommand();
Command MemberCommand();
Command MoveLeaderCommand();
Command SnapshotCommand();

Command ElectCommand();
Command LockCommand();

Command AuthCommand();
Command RoleCommand();
Command UserCommand();

Command CheckCommand();
Command CompletionCommand();
Command HelpCommandEntry();
Command MakeMirrorCommand();
Command OptionsCommand();
Command VersionCommand();

// The whole tree; `program` appears in texts.
Command RootCommand(std::string_view program);

}  // namespace engramctl
