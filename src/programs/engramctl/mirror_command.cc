#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "commands.h"
#include "mirror.h"
#include "print.h"
#include "session.h"
#include "text.h"

namespace engramctl {
namespace {

constexpr std::chrono::seconds kReportInterval(30);

constexpr FlagSpec kMirrorFlags[] = {
    {.name = "prefix", .help = "mirror only keys with this prefix"},
    {.name = "rev", .type = FlagType::kInt, .help = "follow from this revision on, without a copy"},
    {.name = "dest-prefix", .help = "prefix of the mirrored keys in the destination"},
    {.name = "no-dest-prefix",
     .type = FlagType::kBool,
     .help = "mirrored keys lose the prefix in the destination"},
    {.name = "max-txn-ops",
     .type = FlagType::kUint,
     .default_value = "128",
     .help = "operations in one transaction at most"},
    {.name = "dest-cert", .help = "TLS certificate file for the destination"},
    {.name = "dest-key", .help = "TLS key file for the destination"},
    {.name = "dest-cacert", .help = "CA bundle of the destination"},
    {.name = "dest-insecure-transport",
     .type = FlagType::kBool,
     .default_value = "true",
     .help = "plain connections to the destination unless TLS is asked for"},
    {.name = "dest-user", .help = "name[:password] for the destination"},
    {.name = "dest-password", .help = "password for the destination"},
};

int LoadDestination(const FlagSet& flags, const Session& source, const std::string& destination,
                    Session* session) {
  client::Options& options = session->options;
  options = source.options;
  options.endpoints = {destination};
  options.insecure_transport = flags.Bool("dest-insecure-transport");
  options.tls = {.cert_file = flags.String("dest-cert"),
                 .key_file = flags.String("dest-key"),
                 .ca_file = flags.String("dest-cacert"),
                 .server_name = {},
                 .skip_verify = source.options.tls.skip_verify};
  options.jwt_token.clear();
  options.user.clear();
  options.password.clear();
  const std::string& user = flags.String("dest-user");
  if (user.empty()) return 0;
  const size_t colon = flags.String("dest-password").empty() ? user.find(':') : std::string::npos;
  options.user = user.substr(0, colon);
  if (!flags.String("dest-password").empty()) {
    options.password = flags.String("dest-password");
  } else if (colon != std::string::npos) {
    options.password = user.substr(colon + 1);
  } else if (!ReadPassword("Destination Password: ", &options.password)) {
    return Fail(kExitError, "EOF");
  }
  return 0;
}

// Prints the count of mirrored keys every 30 seconds.
class Reporter {
 public:
  explicit Reporter(const Mirror& mirror)
      : thread_([this, &mirror] {
          std::unique_lock lock(mutex_);
          while (!changed_.wait_for(lock, kReportInterval, [this] { return stopped_; })) {
            Emit(fmt::format("{}\n", mirror.mirrored()));
          }
        }) {}
  ~Reporter() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;  // guarded by mutex_
  std::thread thread_;
};

int RunMirror(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "make-mirror takes one destination argument");
  }
  const FlagSet& flags = *invocation.flags;
  MirrorOptions options{.prefix = flags.String("prefix"),
                        .destination_prefix = flags.String("dest-prefix"),
                        .start_revision = flags.Int("rev"),
                        .txn_ops_max = flags.Uint("max-txn-ops")};
  if (flags.Bool("no-dest-prefix") && !options.destination_prefix.empty()) {
    return Fail(
        kExitBadArguments,
        "`--dest-prefix` and `--no-dest-prefix` cannot be set at the same time, choose one");
  }
  if (!flags.Bool("no-dest-prefix") && options.destination_prefix.empty()) {
    options.destination_prefix = options.prefix;
  }
  Session source;
  if (const int code = LoadSession(invocation, kAllFormats, &source); code != 0) return code;
  Session destination;
  if (const int code = LoadDestination(flags, source, invocation.words[0], &destination);
      code != 0) {
    return code;
  }
  if (const int code = Connect(&destination); code != 0) return code;
  if (const int code = Connect(&source); code != 0) return code;
  Mirror mirror(*source.client, *destination.client, std::move(options));
  const Reporter reporter(mirror);
  return FailCall(mirror.Run([] {
    LogLine("warn",
            "\"caller\":\"engramctl/mirror_command.cc\",\"msg\":\"the destination does not "
            "permit to keep the mirror's position; a restart will copy everything again\"");
  }));
}

}  // namespace

Command MakeMirrorCommand() {
  return {.name = "make-mirror",
          .usage = "[options] <destination>",
          .summary = "Copy keys into another cluster and keep them up to date",
          .group = kUtilityGroup,
          .details =
              "Copy keys into another cluster and keep them up to date. A restarted mirror "
              "goes on where the\ndestination left off, deletes included.",
          .flags = kMirrorFlags,
          .run = RunMirror};
}

}  // namespace engramctl
