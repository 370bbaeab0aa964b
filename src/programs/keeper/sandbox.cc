// sandbox: a server on loopback that holds one moment of the past, until it is interrupted.
#include <fmt/format.h>
#include <signal.h>

#include <memory>
#include <thread>

#include "base/status.h"
#include "client/client.h"
#include "client/methods.h"
#include "commands.h"
#include "drill/child.h"
#include "proto/rpc.pb.h"
#include "restore/restore.h"

namespace keeper {
namespace {

constexpr FlagSpec kFlags[] = {
    {.name = "at",
     .type = FlagType::kString,
     .default_value = "latest",
     .help = "latest, a revision, or a moment (RFC 3339 or \"10m ago\")"},
    {.name = "server", .help = "the server to start (default: the configuration's)"},
    {.name = "port",
     .type = FlagType::kInt,
     .default_value = "0",
     .help = "to listen on; 0: a free one"},
};

// Waits until the server answers; what it said when it does not.
absl::Status WaitReady(drill::Child& child, const std::string& endpoint) {
  ASSIGN_OR_RETURN(const auto client, client::Client::Open({.endpoints = {endpoint}}));
  for (int i = 0; i < 1200; ++i) {
    std::string how;
    if (!child.Running(&how)) {
      return base::MakeStatus(absl::StatusCode::kUnavailable, "the server {}; see {}", how,
                              child.log_path());
    }
    const auto status =
        client->Call(client::kStatus, {}, {.timeout = std::chrono::milliseconds(200)});
    if (status.ok() && status->leader() != 0) return absl::OkStatus();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return absl::DeadlineExceededError("the server does not answer");
}

int Run(const Invocation& invocation) {
  Session session{.env = {base::PosixFiles(), base::SystemClock(), base::SystemRandom()}};
  const int opened = OpenForCluster(invocation, &session);
  if (opened != kOk) return opened;
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  Known known;
  const int loaded = LoadKnown(session, false, &known);
  if (loaded != kOk) return loaded;
  const engramctl::FlagSet& flags = *invocation.flags;
  const auto target = ParseTarget(flags.String("at"), session.env.clock.Wall());
  if (!target.ok()) return Fail(kUsage, "--at " + std::string(base::Message(target.status())));
  catalog::RestorePoint point;
  const int found = FindPoint(known.catalog.inventory, *target, std::nullopt, &point);
  if (found != kOk) return found;
  const auto peer_port = drill::FreePort();
  const auto free_port = drill::FreePort();
  if (!peer_port.ok() || !free_port.ok()) return Fail(kUnreachable, "no free port");
  const int64_t port = flags.Int("port") > 0 ? flags.Int("port") : *free_port;
  const std::string dir = base::JoinPath(session.config.state_dir,
                                         fmt::format("sandbox-{}-{}", session.cluster->name, port));
  const std::string data_dir = base::JoinPath(dir, "data");
  const absl::Status cleared = base::RemoveTree(session.env.files, dir);
  const absl::Status made =
      cleared.ok() ? base::MakeDirectories(session.env.files, dir, 0700) : cleared;
  if (!made.ok()) return Fail(kUsage, base::Message(made));
  restore::Fetcher fetcher(session.env.clock, known.readable, known.keys.identities);
  const restore::Plan plan = restore::MakePlan(
      known.catalog.inventory, point, session.cluster->lease_ttl_default, session.env.clock.Wall());
  const std::string peer_url = fmt::format("http://127.0.0.1:{}", *peer_port);
  // The revision stays: it is the past that is looked at.
  const auto report = restore::Run(
      session.env.files, session.env.clock, session.env.random, fetcher, plan,
      {.data_dir = data_dir, .name = "sandbox", .peer_urls = peer_url, .bump = false}, {});
  if (!report.ok()) return FailRestore(report.status());
  const std::string endpoint = fmt::format("http://127.0.0.1:{}", port);
  const std::string server =
      flags.Changed("server") ? flags.String("server") : session.cluster->drill.server;
  auto child =
      drill::Child::Start(server,
                          {"--name", "sandbox", "--data-dir", data_dir, "--listen-client-urls",
                           endpoint, "--advertise-client-urls", endpoint, "--listen-peer-urls",
                           peer_url, "--initial-advertise-peer-urls", peer_url, "--initial-cluster",
                           report->initial_cluster, "--initial-cluster-token", report->token},
                          base::JoinPath(dir, "server.log"));
  if (!child.ok()) return Fail(kUsage, base::Message(child.status()));
  const absl::Status ready = WaitReady(**child, endpoint);
  if (!ready.ok()) return Fail(ready);
  Print(session, {{"endpoint", endpoint}, {"revision", point.revision}}, [&] {
    return fmt::format(
        "sandbox    {} holds revision {} (seen {})\n           Ctrl-C ends it and "
        "removes it. Nothing written here reaches the cluster.\n",
        endpoint, point.revision, MomentText(point.seen.to));
  });
  std::fflush(stdout);
  int taken = 0;
  sigwait(&signals, &taken);
  child->reset();
  const absl::Status removed = base::RemoveTree(session.env.files, dir);
  return removed.ok() ? kOk : Fail(kUsage, base::Message(removed));
}

}  // namespace

Command SandboxCommand() {
  return {.name = "sandbox",
          .usage = "[cluster] [--at T]",
          .summary = "Serve one moment of the past on loopback",
          .flags = kFlags,
          .run = Run};
}

}  // namespace keeper
