// The server: command line, environment, configuration file, signals and exit codes. Everything
// else is in serve.h.

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "base/status.h"
#include "flags.h"
#include "serve.h"

extern char** environ;

namespace engram {
namespace {

constexpr int kExitFailure = 1;

std::string VersionText(const std::string& program) {
  // Scripts read the first line under etcd's name; under our own the first line is ours.
  const std::string etcd = fmt::format(
      "etcd Version: {}\nGit SHA: Not provided\nGo Version: none (Engram {})\nGo OS/Arch: "
      "linux/amd64\n",
      kEtcdVersion, ENGRAM_VERSION);
  if (program == "etcd") return etcd;
  return fmt::format("engram Version: {}\n", ENGRAM_VERSION) + etcd;
}

// Ends the process at once: nothing may be acknowledged after a failed write or sync.
void Die(const absl::Status& status) {
  base::Log(base::LogLevel::kFatal, "", "engram/main.cc:1",
            "the server ends: its files can no longer be trusted to hold what is written",
            {{"error", status}});
  ::_exit(kExitFailure);
}

int Fail(const absl::Status& status) {
  if (status.message().empty()) return kExitFailure;
  base::Log(base::LogLevel::kFatal, "", "engram/main.cc:1", "discovery failed",
            {{"error", status}});
  return kExitFailure;
}

absl::Status ConfigureLogging(const Config& config) {
  base::LogConfig log;
  if (!base::ParseLogLevel(config.log_level, &log.level))
    return absl::OkStatus();  // Validate names it
  log.console = config.log_format == "console";
  log.outputs = config.log_outputs;
  if (config.enable_log_rotation) {
    const auto json = nlohmann::json::parse(config.log_rotation_json, nullptr, false);
    if (json.is_object()) {
      log.rotate_bytes = static_cast<uint64_t>(json.value("maxsize", 100)) << 20;
      log.rotate_backups_max = static_cast<uint64_t>(json.value("maxbackups", 0));
      log.rotate_age_days_max = static_cast<uint64_t>(json.value("maxage", 0));
    }
  }
  return base::ConfigureLog(log);
}

// Touching a page of a mapped file that has been cut short or cannot be read raises SIGBUS: say so
// and end, rather than dump core.
void OnBusError(int, siginfo_t* info, void*) {
  char text[128];
  const int n = std::snprintf(text, sizeof text,
                              "a page of a mapped file at address %p cannot be read: the db file "
                              "was cut short or the disk fails\n",
                              info->si_addr);
  if (n > 0) (void)!::write(STDERR_FILENO, text, static_cast<size_t>(n));
  ::_exit(kExitFailure);
}

int Run(const std::vector<std::string>& args, const std::string& program) {
  Config config;
  if (const ParseOutcome outcome = ParseArguments(args, program, &config); outcome.exit_code >= 0) {
    std::fputs(outcome.out.c_str(), stdout);
    std::fputs(outcome.err.c_str(), stderr);
    return outcome.exit_code;
  }
  if (config.version) {
    std::fputs(VersionText(program).c_str(), stdout);
    return 0;
  }
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  std::string config_file = config.config_file;
  if (const char* path = std::getenv("ETCD_CONFIG_FILE"); config_file.empty() && path != nullptr)
    config_file = path;
  if (!config_file.empty()) {
    auto text = base::ReadFile(base::PosixFiles(), config_file);
    if (!text.ok()) return Fail(text.status());
    const absl::Status loaded = LoadConfigFile(*text, &config);
    if (!loaded.ok() && base::Message(loaded).starts_with("unexpected error setting up")) {
      std::fprintf(stderr, "%s\n", std::string(base::Message(loaded)).c_str());
      return kExitFailure;
    }
    if (!loaded.ok()) {
      base::Log(base::LogLevel::kWarn, "", "engram/main.cc:1", "failed to verify flags",
                {{"error", loaded}});
      return kExitFailure;
    }
  } else if (const absl::Status applied = ApplyEnvironment(environment, &config); !applied.ok()) {
    if (!applied.message().empty())
      base::Log(base::LogLevel::kWarn, "", "engram/main.cc:1", "failed to verify flags",
                {{"error", applied}});
    return kExitFailure;
  }
  absl::Status valid = ConfigureLogging(config);
  std::vector<std::string> command_line = args;
  command_line.insert(command_line.begin(), program);
  if (valid.ok()) {
    LOG_INFO("Running: ", {"args", command_line}, {"engram-version", ENGRAM_VERSION});
    if (!config_file.empty()) {
      LOG_INFO(
          "loaded server configuration, other configuration command line flags and environment "
          "variables will be ignored if provided",
          {"path", config_file});
    }
    if (config.IsGiven("max-snapshots"))
      LOG_WARN("--max-snapshots is deprecated in 3.6 and will be decommissioned in 3.8.");
    if (config.IsGiven("v2-deprecation")) {
      LOG_WARN(
          "--v2-deprecation is deprecated and scheduled for removal in v3.8. The default value is "
          "enforced, ignoring user input.");
    }
    valid = Validate(config);
  }
  if (valid.ok()) valid = DeriveDefaults(&config);
  if (!valid.ok()) {
    base::Log(base::LogLevel::kWarn, "", "engram/main.cc:1", "failed to verify flags",
              {{"error", valid}});
    return kExitFailure;
  }

  // Signals are taken by one thread; all others, which inherit the mask, are left alone.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  struct sigaction bus {};
  bus.sa_sigaction = OnBusError;
  bus.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &bus, nullptr);

  const auto end_by = [&signals](int taken) {
    if (::getpid() == 1) return 0;
    // As etcd: the process dies of the signal it was sent.
    ::signal(taken, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    ::raise(taken);
    return kExitFailure;
  };

  std::atomic<int> taken{0};
  std::atomic<bool> removed{false};
  Server server(config, command_line, Die, [&removed] {
    removed.store(true);
    ::kill(::getpid(), SIGTERM);  // taken by the thread below
  });
  std::thread waiter([&] {
    int signal = 0;
    ::sigwait(&signals, &signal);
    if (taken.exchange(signal) != 0 || signal == 0) return;
    server.Interrupt();
  });
  const absl::Status start = server.Start();
  if (!start.ok() && taken.load() == 0) {
    ::pthread_kill(waiter.native_handle(), SIGTERM);
    waiter.join();
    const int code = Fail(start);
    server.Stop();
    return code;
  }
  waiter.join();
  if (removed.load()) {
    // What is on its way to the others, this member's last answer to its removal, say, still
    // leaves.
    std::this_thread::sleep_for(std::chrono::seconds(1));
    server.Stop();
    return 0;
  }
  LOG_INFO("received signal; shutting down",
           {"signal", taken.load() == SIGINT ? "interrupt" : "terminated"});
  server.Stop();
  return end_by(taken.load());
}

}  // namespace
}  // namespace engram

int main(int argc, char** argv) {
  // Buffers of long answers and batches come and go by the megabyte: given back to the system each
  // time they would cost more page faults than what is put into them.
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  mallopt(M_TRIM_THRESHOLD, 8 << 20);
  const std::string program = base::BaseName(argv[0]);
  return engram::Run({argv + 1, argv + argc}, program);
}
