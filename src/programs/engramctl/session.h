// What a command has once its own arguments are known to be good: the output format, the time
// limit, the client. Opening it reads the global flags and ETCDCTL_* variables in etcdctl's order
// of checks. Main thread only, except `client`.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "client/client.h"
#include "command.h"

namespace engramctl {

enum class Format : unsigned { kSimple = 1, kJson = 2, kFields = 4, kProtobuf = 8, kTable = 16 };

// Sets of formats that a command supports.
constexpr unsigned kAllFormats = 31;
constexpr unsigned kNoTable = 15;
constexpr unsigned kNoFieldsNoTable = 11;
constexpr unsigned kNoProtobuf = 23;

struct Session {
  Format format = Format::kSimple;
  bool hex = false;
  bool debug = false;
  base::Duration command_timeout{};
  bool command_timeout_given = false;
  client::Options options;  // to build further clients, one per endpoint for instance
  std::unique_ptr<client::Client> client;  // after Connect()

  client::CallOptions call_options() const { return {.timeout = command_timeout}; }
  bool json() const { return format == Format::kJson; }
};

// The flags every command has.
std::span<const FlagSpec> GlobalFlags();

// Reads flags and environment into `session`. Returns 0, or the exit status after the error is
// printed. `formats`: what the command can print; another valid one is refused here, before
// anything is done.
int LoadSession(const Invocation& invocation, unsigned formats, Session* session);
// Refuses a format that is not among `formats`, as LoadSession() does.
int RequireFormat(const Session& session, unsigned formats);
// Builds session->client.
int Connect(Session* session);
// Both.
int OpenSession(const Invocation& invocation, unsigned formats, Session* session);

// "Error: ..." with the text etcdctl prints for a failed call.
int FailCall(const absl::Status& status, int code = kExitError);

// One JSON line on stderr as etcd's client library logs: {"level":...,"ts":...,<fields>}. `fields`
// is JSON without braces.
void LogLine(std::string_view level, std::string_view fields);

// Prompts and reads one line, without echo on a terminal. False at end of input.
bool ReadPassword(std::string_view prompt, std::string* password);

// All of standard input.
absl::Status ReadAllInput(std::string* out);
// One line without its end; false at end of input (a last line without a newline counts as end of
// input).
bool ReadLine(std::string* line);

}  // namespace engramctl
