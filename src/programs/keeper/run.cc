// run: the daemon. Guards every cluster of the configuration until SIGTERM or SIGINT.
#include <fmt/format.h>
#include <signal.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "commands.h"
#include "drill/child.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/server.h"
#include "service/guard.h"
#include "service/metrics.h"

namespace keeper {
namespace {

// /metrics and /healthz.
class Endpoints final : public net::HttpHandler {
 public:
  explicit Endpoints(base::Metrics& metrics) : metrics_(metrics) {}
  void OnRequest(std::shared_ptr<net::HttpExchange> exchange) override {
    if (exchange->path() == "/metrics") {
      exchange->Respond(200, "text/plain; version=0.0.4; charset=utf-8", metrics_.Scrape());
    } else if (exchange->path() == "/healthz") {
      exchange->Respond(200, "text/plain; charset=utf-8", "ok\n");
    } else {
      exchange->Respond(404, "text/plain; charset=utf-8", "404 page not found\n");
    }
  }

 private:
  base::Metrics& metrics_;
};

// Runs the drills that are due, one after the other, each as a process of its own: a drill that
// goes wrong must not take the daemon along.
class DrillSchedule {
 public:
  DrillSchedule(const Session& session, std::string config_path, base::Metrics& metrics)
      : session_(session), config_path_(std::move(config_path)), metrics_(metrics) {
    for (const config::Cluster& cluster : session.config.clusters) {
      if (cluster.drill.every > base::Duration(0)) {
        due_[cluster.name] = session.env.clock.Monotonic() + cluster.drill.every;
      }
    }
    if (!due_.empty()) thread_ = std::thread([this] { Work(); });
  }
  ~DrillSchedule() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Work() {
    while (!Pause(std::chrono::seconds(1))) {
      for (auto& [cluster, due] : due_) {
        if (session_.env.clock.Monotonic() < due) continue;
        due = session_.env.clock.Monotonic() + session_.config.FindCluster(cluster)->drill.every;
        Run(cluster);
      }
    }
  }

  bool Pause(base::Duration time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return stopping_; });
  }

  void Run(const std::string& cluster) {
    const std::string log = base::JoinPath(session_.config.state_dir, "drill-" + cluster + ".log");
    const base::Duration began = session_.env.clock.Monotonic();
    auto child = drill::Child::Start("/proc/self/exe",
                                     {"--config", config_path_, "drill", "run", cluster}, log);
    if (!child.ok()) {
      LOG_WARN("a drill cannot be started", {"cluster", cluster}, {"error", child.status()});
      return;
    }
    std::string how;
    while ((*child)->Running(&how)) {
      if (Pause(std::chrono::milliseconds(200))) return;
    }
    const bool passed = how == "exited with 0";
    const base::MetricLabels labels = {{"cluster", cluster}};
    metrics_.Gauge("engram_keeper_drill_success", "1 when the last drill passed.", labels)
        .Set(passed ? 1 : 0);
    metrics_.Gauge("engram_keeper_drill_rto_seconds", "How long the last drill took.", labels)
        .Set(std::chrono::duration<double>(session_.env.clock.Monotonic() - began).count());
    if (passed) {
      LOG_INFO("a drill passed", {"cluster", cluster});
    } else {
      LOG_ERROR("a drill failed", {"cluster", cluster}, {"how", how}, {"log", log});
    }
  }

  const Session& session_;
  const std::string config_path_;
  base::Metrics& metrics_;
  std::map<std::string, base::Duration> due_;  // the thread's
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

absl::StatusOr<net::ListenAddress> ParseListen(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "listen {}: no port", listen);
  }
  std::string host = listen.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return net::ListenAddress::Tcp(host, static_cast<uint16_t>(std::stoul(listen.substr(colon + 1))));
}

int Run(const Invocation& invocation) {
  Session session;
  const int opened = Open(invocation, &session);
  if (opened != kOk) return opened;
  base::LogLevel level = base::LogLevel::kInfo;
  base::ParseLogLevel(session.config.log_level, &level);
  base::SetLogLevel(level);

  // Blocked before any thread is made, so that only sigwait below gets them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  // One daemon for a state directory: two would write one log.
  const absl::Status made =
      base::MakeDirectories(session.env.files, session.config.state_dir, 0700);
  if (!made.ok()) return Fail(kUsage, base::Message(made));
  const std::string lock_path = base::JoinPath(session.config.state_dir, "daemon.lock");
  const auto lock = session.env.files.Open(lock_path, {.write = true, .create = true});
  if (!lock.ok()) return Fail(kUsage, base::Message(lock.status()));
  const auto locked = (*lock)->TryLock(base::LockKind::kFlockExclusive);
  if (!locked.ok()) return Fail(kUsage, base::Message(locked.status()));
  if (!*locked) {
    return Fail(kUnsafe, fmt::format("another daemon uses {}", session.config.state_dir));
  }

  std::vector<std::unique_ptr<service::Guard>> guards;
  for (const config::Cluster& cluster : session.config.clusters) {
    auto guard = service::Guard::Create(session.env, session.config, cluster);
    if (!guard.ok()) {
      return Fail(kKey, fmt::format("{}: {}", cluster.name, base::Message(guard.status())));
    }
    guards.push_back(*std::move(guard));
  }

  base::Metrics metrics;
  service::ExportMetrics(guards, metrics);
  const auto address = ParseListen(session.config.listen);
  if (!address.ok()) return Fail(kUsage, base::Message(address.status()));
  net::LoopPool loops(1, "http");
  Endpoints endpoints(metrics);
  net::Server server(loops);
  const auto listener = server.Listen({.address = *address, .http = &endpoints});
  if (!listener.ok()) return Fail(kUsage, base::Message(listener.status()));
  LOG_INFO("guarding", {"clusters", static_cast<uint64_t>(guards.size())},
           {"metrics", (*listener)->address()});

  std::vector<std::thread> threads;
  for (const auto& guard : guards) threads.emplace_back([&guard] { guard->Run(); });
  auto drills =
      std::make_unique<DrillSchedule>(session, invocation.flags->String("config"), metrics);
  int taken = 0;
  sigwait(&signals, &taken);
  drills.reset();
  LOG_INFO("stopping", {"signal", taken});
  for (const auto& guard : guards) guard->Stop();
  for (std::thread& thread : threads) thread.join();
  server.Shutdown(std::chrono::seconds(1));
  return kOk;
}

}  // namespace

Command RunCommand() {
  return {.name = "run",
          .usage = "",
          .summary = "Guard all clusters of the configuration, until SIGTERM",
          .run = Run};
}

}  // namespace keeper
