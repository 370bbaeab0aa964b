#include "session.h"

#include <fmt/format.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/status.h"
#include "discovery.h"
#include "print.h"
#include "text.h"

extern char** environ;

namespace engramctl {
namespace {

constexpr std::string_view kEnvironmentPrefix = "ETCDCTL_";

constexpr FlagSpec kGlobalFlags[] = {
    {.name = "endpoints",
     .type = FlagType::kStringList,
     .default_value = "127.0.0.1:2379",
     .help = "addresses of the members to talk to"},
    {.name = "debug", .type = FlagType::kBool, .help = "print the settings and client debug logs"},
    {.name = "write-out",
     .default_value = "simple",
     .help = "output format: fields, json, protobuf, simple or table",
     .shorthand = 'w'},
    {.name = "hex", .type = FlagType::kBool, .help = "show byte strings and ids as hex"},
    {.name = "dial-timeout",
     .type = FlagType::kDuration,
     .default_value = "2s",
     .help = "time limit for setting up a connection"},
    {.name = "command-timeout",
     .type = FlagType::kDuration,
     .default_value = "5s",
     .help = "time limit of a short command, dialling excluded"},
    {.name = "keepalive-time",
     .type = FlagType::kDuration,
     .default_value = "2s",
     .help = "idle time before a connection is probed"},
    {.name = "keepalive-timeout",
     .type = FlagType::kDuration,
     .default_value = "6s",
     .help = "how long a probe may stay unanswered"},
    {.name = "max-request-bytes",
     .type = FlagType::kInt,
     .default_value = "0",
     .help = "largest request to send (0: 2 MiB)"},
    {.name = "max-recv-bytes",
     .type = FlagType::kInt,
     .default_value = "0",
     .help = "largest response to accept (0: no limit)"},
    {.name = "insecure-transport",
     .type = FlagType::kBool,
     .default_value = "true",
     .help = "plain connections unless a certificate, a CA or https asks for TLS"},
    {.name = "insecure-discovery",
     .type = FlagType::kBool,
     .default_value = "true",
     .help = "accept SRV records of unencrypted endpoints"},
    {.name = "insecure-skip-tls-verify",
     .type = FlagType::kBool,
     .help = "do not verify the server's certificate (for tests only)"},
    {.name = "cert", .help = "TLS certificate file of this client"},
    {.name = "key", .help = "TLS key file of this client"},
    {.name = "cacert", .help = "CA bundle that server certificates are verified with"},
    {.name = "auth-jwt-token", .help = "JWT to authenticate with (excludes --user and --password)"},
    {.name = "user", .help = "name[:password] to log in with (asks when no password is given)"},
    {.name = "password", .help = "password to log in with (--user must hold none then)"},
    {.name = "discovery-srv",
     .help = "domain whose SRV records name the endpoints",
     .shorthand = 'd'},
    {.name = "discovery-srv-name", .help = "service name in those SRV records"},
};

std::string EnvironmentName(std::string_view flag) {
  std::string name(kEnvironmentPrefix);
  for (const char c : ToUpper(flag)) name += c == '-' ? '_' : c;
  return name;
}

// Applies ETCDCTL_* variables. A variable beside its flag is refused, so that neither silently
// wins.
int ApplyEnvironment(const Invocation& invocation) {
  FlagSet& flags = *invocation.flags;
  std::vector<std::string> known;
  std::vector<std::string_view> names;
  for (const FlagSpec& spec : kGlobalFlags) names.push_back(spec.name);
  // The group's own persistent flags (endpoint --cluster) count as global ones.
  if (flags.Find("cluster") != nullptr && invocation.path.find(" endpoint ") != std::string::npos) {
    names.push_back("cluster");
  }
  std::sort(names.begin(), names.end());
  for (const std::string_view name : names) {
    const std::string variable = EnvironmentName(name);
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr || *value == '\0') continue;  // an empty one is reported as unknown
    known.push_back(variable);
    if (flags.Changed(name)) {
      LogLine("fatal",
              fmt::format("\"caller\":\"flags/flag.go:86\",\"msg\":\"conflicting environment "
                          "variable is shadowed by corresponding command-line flag (either unset "
                          "environment variable or disable flag))\",\"environment-variable\":{}",
                          JsonString(variable)));
      return kExitError;
    }
    if (const absl::Status status = flags.SetFromEnvironment(name, value); !status.ok()) {
      LogLine("warn", fmt::format("\"caller\":\"flags/flag.go:74\",\"msg\":\"ignored environment "
                                  "variable\",\"environment-variable\":{},\"error\":{}",
                                  JsonString(variable), JsonString(base::Message(status))));
    }
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.substr(0, kEnvironmentPrefix.size()) != kEnvironmentPrefix) continue;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    // Watch reads these itself.
    if (name.substr(0, 14) == "ETCDCTL_WATCH_" && invocation.command->name == "watch") continue;
    LogLine("warn",
            fmt::format("\"caller\":\"flags/flag.go:94\",\"msg\":\"unrecognized environment "
                        "variable\",\"environment-variable\":{}",
                        JsonString(text)));
  }
  return 0;
}

int LoadEndpoints(const FlagSet& flags, client::Options* options) {
  options->endpoints.clear();
  if (!flags.String("discovery-srv").empty()) {
    const absl::StatusOr<std::vector<std::string>> found =
        DiscoverEndpoints(flags.String("discovery-srv"), flags.String("discovery-srv-name"),
                          flags.Bool("insecure-discovery"));
    if (!found.ok()) return Fail(kExitError, base::Message(found.status()));
    options->endpoints = *found;
    if (!options->endpoints.empty()) return 0;
  }
  for (const std::string& endpoint : flags.List("endpoints")) {
    options->endpoints.emplace_back(TrimSpace(endpoint));
  }
  return 0;
}

int LoadSecurity(const FlagSet& flags, client::Options* options) {
  for (const std::string_view name : {"cert", "key", "cacert"}) {
    if (flags.Changed(name) && flags.String(name).empty()) {
      return Fail(kExitBadArguments, fmt::format("empty string is passed to --{} option", name));
    }
  }
  options->insecure_transport = flags.Bool("insecure-transport");
  options->tls.cert_file = flags.String("cert");
  options->tls.key_file = flags.String("key");
  options->tls.ca_file = flags.String("cacert");
  options->tls.skip_verify = flags.Bool("insecure-skip-tls-verify");
  if (!flags.String("discovery-srv").empty())
    options->tls.server_name = flags.String("discovery-srv");
  return 0;
}

int LoadLogin(const FlagSet& flags, client::Options* options) {
  options->jwt_token = flags.String("auth-jwt-token");
  const std::string& user = flags.String("user");
  const std::string& password = flags.String("password");
  if (!options->jwt_token.empty() || user.empty()) return 0;
  if (!password.empty()) {
    options->user = user;
    options->password = password;
    return 0;
  }
  const size_t colon = user.find(':');
  options->user = user.substr(0, colon);
  if (colon != std::string::npos) {
    options->password = user.substr(colon + 1);
  } else if (!ReadPassword("Password: ", &options->password)) {
    return Fail(kExitError, "EOF");
  }
  return 0;
}

struct NamedFormat {
  std::string_view name;
  Format format;
};
constexpr NamedFormat kFormats[] = {{"simple", Format::kSimple},
                                    {"json", Format::kJson},
                                    {"fields", Format::kFields},
                                    {"protobuf", Format::kProtobuf},
                                    {"table", Format::kTable}};

int LoadFormat(const FlagSet& flags, Session* session) {
  for (const NamedFormat& named : kFormats) {
    if (named.name != flags.String("write-out")) continue;
    session->format = named.format;
    return 0;
  }
  return Fail(kExitBadFeature, "unsupported output format");
}

void PrintSettings(const FlagSet& flags) {
  std::vector<std::string_view> names;
  for (const FlagSpec& spec : kGlobalFlags) names.push_back(spec.name);
  std::sort(names.begin(), names.end());
  for (const std::string_view name : names) {
    const bool secret = name == "password" || name == "auth-jwt-token" || name == "user";
    std::string value = flags.Printed(name);
    if (secret && !value.empty()) value = "<hidden>";
    std::fprintf(stderr, "%s=%s\n", EnvironmentName(name).c_str(), value.c_str());
  }
}

std::string PeerText(std::string_view peer) {
  if (peer.empty() || peer.substr(0, 4) == "dns:")
    return "Peer{Addr: <nil>, LocalAddr: <nil>, AuthInfo: <nil>}";
  std::string_view address = peer;
  for (const std::string_view prefix : {"ipv4:", "ipv6:", "unix:"}) {
    if (address.substr(0, prefix.size()) == prefix) address.remove_prefix(prefix.size());
  }
  return fmt::format("Peer{{Addr: '{}'}}", address);
}

void LogAttempt(const client::AttemptFailure& failure) {
  LogLine(
      "warn",
      fmt::format("\"logger\":\"etcd-client\",\"caller\":\"client/client.cc\",\"msg\":\"retrying "
                  "of unary invoker failed\",\"target\":{},\"peer\":{},\"method\":{},"
                  "\"attempt\":{},\"error\":{}",
                  JsonString(fmt::format("etcd-endpoints://{}", failure.endpoint)),
                  JsonString(PeerText(failure.peer)), JsonString(failure.method), failure.attempt,
                  JsonString(client::RpcErrorText(failure.status))));
}

}  // namespace

std::span<const FlagSpec> GlobalFlags() { return kGlobalFlags; }

void LogLine(std::string_view level, std::string_view fields) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const std::time_t seconds = micros / 1'000'000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char date[32];
  const size_t length = std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
  std::fflush(stdout);
  const std::string line = fmt::format("{{\"level\":\"{}\",\"ts\":\"{}.{:06}Z\",{}}}\n", level,
                                       std::string_view(date, length), micros % 1'000'000, fields);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

int LoadSession(const Invocation& invocation, unsigned formats, Session* session) {
  const FlagSet& flags = *invocation.flags;
  if (const int code = ApplyEnvironment(invocation); code != 0) return code;
  session->debug = flags.Bool("debug");
  if (session->debug) PrintSettings(flags);
  client::Options& options = session->options;
  if (const int code = LoadEndpoints(flags, &options); code != 0) return code;
  options.dial_timeout = flags.Duration("dial-timeout");
  options.keepalive_time = flags.Duration("keepalive-time");
  options.keepalive_timeout = flags.Duration("keepalive-timeout");
  if (flags.Int("max-request-bytes") > 0) {
    options.request_bytes_max = static_cast<uint64_t>(flags.Int("max-request-bytes"));
  }
  if (flags.Int("max-recv-bytes") > 0) {
    options.response_bytes_max = static_cast<uint64_t>(flags.Int("max-recv-bytes"));
  }
  if (const int code = LoadSecurity(flags, &options); code != 0) return code;
  if (const int code = LoadLogin(flags, &options); code != 0) return code;
  options.on_attempt_failed = LogAttempt;
  options.transport_logs = session->debug;
  session->command_timeout = flags.Duration("command-timeout");
  session->command_timeout_given =
      flags.Changed("command-timeout") || std::getenv("ETCDCTL_COMMAND_TIMEOUT") != nullptr;
  session->hex = flags.Bool("hex");
  if (const int code = LoadFormat(flags, session); code != 0) return code;
  return RequireFormat(*session, formats);
}

int RequireFormat(const Session& session, unsigned formats) {
  if ((formats & static_cast<unsigned>(session.format)) != 0) return 0;
  std::string_view name;
  for (const NamedFormat& named : kFormats) {
    if (named.format == session.format) name = named.name;
  }
  return Fail(kExitBadFeature, fmt::format("{} not supported as output format", name));
}

int Connect(Session* session) {
  absl::StatusOr<std::unique_ptr<client::Client>> opened = client::Client::Open(session->options);
  if (opened.ok()) {
    session->client = *std::move(opened);
    return 0;
  }
  const std::string_view text = base::Message(opened.status());
  const bool material = text.substr(0, 5) == "open " || text.substr(0, 5) == "read " ||
                        text.substr(0, 5) == "tls: " || text.substr(0, 7) == "KeyFile";
  return Fail(material ? kExitBadArguments : kExitBadConnection,
              material ? std::string(text)
              : opened.status().code() == absl::StatusCode::kFailedPrecondition &&
                      text.substr(0, 11) == "etcdclient:"
                  ? std::string(text)
                  : client::ErrorText(opened.status()));
}

int OpenSession(const Invocation& invocation, unsigned formats, Session* session) {
  if (const int code = LoadSession(invocation, formats, session); code != 0) return code;
  return Connect(session);
}

int FailCall(const absl::Status& status, int code) { return Fail(code, client::ErrorText(status)); }

bool ReadPassword(std::string_view prompt, std::string* password) {
  Emit(prompt);
  termios before{};
  const bool terminal = tcgetattr(STDIN_FILENO, &before) == 0;
  if (terminal) {
    termios silent = before;
    silent.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent);
  }
  const bool read = ReadLine(password);
  if (terminal) tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
  if (!password->empty() && password->back() == '\r') password->pop_back();
  Emit("\n");
  return read;
}

absl::Status ReadAllInput(std::string* out) {
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof(buffer));
    if (n == 0) return absl::OkStatus();
    if (n > 0) {
      out->append(buffer, static_cast<size_t>(n));
    } else if (errno != EINTR) {
      return base::MakeStatus(absl::StatusCode::kInternal, "read /dev/stdin: {}",
                              std::strerror(errno));
    }
  }
}

bool ReadLine(std::string* line) {
  line->clear();
  for (int c = std::fgetc(stdin); c != EOF; c = std::fgetc(stdin)) {
    if (c == '\n') return true;
    *line += static_cast<char>(c);
  }
  return false;
}

}  // namespace engramctl
