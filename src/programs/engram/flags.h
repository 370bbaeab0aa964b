// The server's flags as a table: name, how to set it, where it stands in a config file, what it
// means. Flags, environment and file all go through it. Used before any thread starts. Grammar and
// texts: reference programs.md 1.1 to 1.4.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "config.h"

namespace engram {

enum class FlagType {
  kString,
  kBool,
  kInt,
  kUint,
  kUint32,
  kDuration,
  kStringList,
  kUrlList,
  kEnum,
  kIgnored
};

struct Flag {
  std::string_view name;
  FlagType type;
  // Sets the value from its text form. Errors have the text that follows `invalid value "x" for
  // flag -name: `.
  std::function<absl::Status(Config&, std::string_view)> set;
  // Of a config file: "" for the flag's name, "-" for none, "a.b" for a key inside a map.
  std::string_view key;
  std::string_view group;
  std::string_view help;
};

const std::vector<Flag>& Flags();
const Flag* FindFlag(std::string_view name);

// What a command line ends in, besides a Config to run with.
struct ParseOutcome {
  int exit_code = -1;  // >= 0: print and exit
  std::string out;     // to stdout
  std::string err;     // to stderr
};

// Flags only. `program` is the name it was started under.
ParseOutcome ParseArguments(const std::vector<std::string>& args, std::string_view program,
                            Config* config);
// ETCD_* variables, which may not be set together with their flag. Logs what it used.
// InvalidArgument with etcd's text; exit code 1.
absl::Status ApplyEnvironment(const std::vector<std::string>& environment, Config* config);
// Replaces everything by what the file says; `text` is YAML or JSON. InvalidArgument; exit code 1.
absl::Status LoadConfigFile(std::string_view text, Config* config);

// The rules that make defaults depend on each other, then the checks, in etcd's order.
// InvalidArgument.
absl::Status DeriveDefaults(Config* config);
absl::Status Validate(const Config& config);
// Retention as the member takes it.
struct Retention {
  base::Duration period{};
  int64_t revisions = 0;
};
absl::StatusOr<Retention> ParseRetention(const Config& config);

std::string HelpText(std::string_view program);
std::string SynopsisText(std::string_view program);

}  // namespace engram
