#include "snapshot/migrate.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/status.h"
#include "commands.h"
#include "text.h"

namespace engramutl {
namespace {

constexpr FlagSpec kFlags[] = {
    {.name = "data-dir",
     .type = FlagType::kString,
     .help = "data directory of a stopped member (required)"},
    {.name = "target-version",
     .type = FlagType::kString,
     .help = "version whose servers shall open the directory, as \"X.Y\", 3.5 at least (required)"},
    {.name = "force",
     .type = FlagType::kBool,
     .help = "write the version even where the migration is refused; not recommended"},
};

std::string Text(const cluster::Version& version) {
  return fmt::format("{}.{}", version.major, version.minor);
}

class Logger final : public snapshot::MigrateObserver {
 public:
  void UpToDate(const cluster::Version& version) override {
    LOG_INFO("storage version up-to-date", {"storage-version", Text(version)});
  }
  void Updated(const cluster::Version& version) override {
    LOG_INFO("updated storage version", {"new-storage-version", Text(version) + ".0"});
  }
  void Forcing(const absl::Status& why) override {
    LOG_INFO("normal migrate failed, trying with force", {"error", why});
  }
  void Forced(const cluster::Version& version) override {
    if (Text(version) == "3.5") {
      LOG_WARN("forcefully cleared storage version");
    } else {
      LOG_WARN("forcefully set storage version", {"storage-version", Text(version)});
    }
  }
};

// "3.6"; on error false, with the text in `error`.
bool ParseTarget(const std::string& text, cluster::Version* version, std::string* error) {
  const std::vector<std::string> parts = engramctl::Split(text, '.');
  if (parts.size() != 2) {
    *error = fmt::format("wrong target version format, expected \"X.Y\", got {}",
                         engramctl::Quote(text));
    return false;
  }
  int64_t numbers[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    const auto number = engramctl::ParseInt(parts[i], 10);
    if (!number.ok()) {
      *error = fmt::format("failed to parse target version: {}", base::Message(number.status()));
      return false;
    }
    numbers[i] = *number;
  }
  constexpr int64_t kPartMax = 1 << 20;
  if (numbers[0] < 3 || (numbers[0] == 3 && numbers[1] < 5) || numbers[0] > kPartMax ||
      numbers[1] > kPartMax || numbers[1] < 0) {
    *error =
        fmt::format("target version {} not supported. Minimal \"3.5\"", engramctl::Quote(text));
    return false;
  }
  *version = {static_cast<int>(numbers[0]), static_cast<int>(numbers[1]), 0};
  return true;
}

int RunMigrate(const Invocation& invocation) {
  std::string missing;
  for (const char* name : {"data-dir", "target-version"}) {
    if (!invocation.flags->Changed(name))
      missing += fmt::format("{}\"{}\"", missing.empty() ? "" : ", ", name);
  }
  if (!missing.empty())
    return FailUsage(invocation, fmt::format("required flag(s) {} not set", missing));
  snapshot::MigrateOptions options{.data_dir = invocation.flags->String("data-dir"),
                                   .target = {},
                                   .force = invocation.flags->Bool("force"),
                                   .lock_timeout = LockTimeout(invocation)};
  std::string error;
  if (!ParseTarget(invocation.flags->String("target-version"), &options.target, &error)) {
    return engramctl::Fail(engramctl::kExitBadArguments, error);
  }
  Logger logger;
  const absl::Status status =
      snapshot::Migrate(base::PosixFiles(), base::SystemClock(), options, logger);
  return status.ok() ? engramctl::kExitOk : FailWith(status);
}

}  // namespace

Command MigrateCommand() {
  return {.name = "migrate",
          .usage = "",
          .summary = "Make the files of a stopped member fit servers of another version",
          .flags = kFlags,
          .run = RunMigrate};
}

}  // namespace engramutl
