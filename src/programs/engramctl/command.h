// The command tree: which commands there are, how a command line finds one, what help and usage
// errors look like. The grammar and the error texts are those of etcdctl. Main thread only.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flags.h"

namespace engramctl {

// What etcdctl exits with.
enum ExitCode : int {
  kExitOk = 0,
  kExitError = 1,          // the server said no, or the command line names no command
  kExitBadConnection = 2,  // no client could be built; lease streams
  kExitInvalidInput = 3,   // bad text on standard input
  kExitBadFeature = 4,     // a format or feature that this command does not have
  kExitInterrupted = 5,    // a stream ended early
  kExitBadArguments = 128,
};

struct Invocation;

struct Command {
  std::string_view name;
  std::string_view usage;         // of its words: "[options] <key> [range_end]"
  std::string_view summary;       // one line
  std::string_view group = {};    // heading in the root's help
  std::string_view details = {};  // longer text of its own help; empty: the summary
  std::span<const FlagSpec> flags = {};
  // Flags that subcommands have too.
  std::span<const FlagSpec> persistent_flags = {};
  std::vector<Command> commands = {};
  int (*run)(const Invocation&) = nullptr;  // null: prints help
};

// What a command gets to run with.
struct Invocation {
  std::string program;  // the name it was started under
  const Command* root = nullptr;
  const Command* command = nullptr;
  std::string path;                    // "etcdctl lease grant"
  FlagSet* flags = nullptr;            // the command's own and the global ones
  std::vector<std::string> words;      // without flags
  std::vector<std::string> arguments;  // the whole command line after the program's name, as given
};

// Finds the command, parses its flags, runs it; returns the exit status.
int RunCommandLine(const Command& root, std::string_view program,
                   std::span<const std::string> arguments);

// "Error: <text>\n" on stderr, flushed; returns `code`.
int Fail(int code, std::string_view text);

// The help text of a command as --help prints it.
std::string HelpText(const Command& root, const Command& command, std::string_view path);

// Optimal string alignment without swaps, ignoring case; for suggestions.
size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace engramctl
