// sandbox: a server on loopback that holds one moment of the past, until it is interrupted.
#include <fmt/format.h>
#include <signal.h>

#include "base/status.h"
#include "commands.h"
#include "drill/server.h"
#include "restore/restore.h"

namespace keeper {
namespace {

constexpr base::Duration kStartTimeout = std::chrono::minutes(1);

constexpr FlagSpec kFlags[] = {
    {.name = "at", .type = FlagType::kString, .default_value = "latest", .help = kMomentHelp},
    {.name = "server", .help = "the server to start (default: the configuration's)"},
    {.name = "port",
     .type = FlagType::kInt,
     .default_value = "0",
     .help = "to listen on; 0: a free one"},
};

int Run(const Invocation& invocation) {
  Session session;
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
  catalog::RestorePoint point;
  const int found = FindPoint(session, known, "--at", flags.String("at"), &point);
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
  restore::Fetcher fetcher = FetcherOf(session, known);
  const restore::Plan plan = PlanFor(session, known, point);
  const std::string peer_url = fmt::format("http://127.0.0.1:{}", *peer_port);
  // The revision stays: it is the past that is looked at.
  const auto report = restore::Run(
      session.env.files, session.env.clock, session.env.random, fetcher, plan,
      {.data_dir = data_dir, .name = "sandbox", .peer_urls = peer_url, .bump = false}, {});
  if (!report.ok()) return FailRestore(report.status());
  const std::string endpoint = fmt::format("http://127.0.0.1:{}", port);
  const std::string server =
      flags.Changed("server") ? flags.String("server") : session.cluster->drill.server;
  auto running =
      drill::RestoredServer::Start(session.env.files, session.env.clock, server, *report, endpoint,
                                   base::JoinPath(dir, "server.log"), kStartTimeout);
  if (!running.ok()) return Fail(running.status());
  Print(session, {{"endpoint", endpoint}, {"revision", point.revision}}, [&] {
    return fmt::format(
        "sandbox    {} holds revision {} (seen {})\n           Ctrl-C ends it and "
        "removes it. Nothing written here reaches the cluster.\n",
        endpoint, point.revision, MomentText(point.seen.to));
  });
  std::fflush(stdout);
  int taken = 0;
  sigwait(&signals, &taken);
  running->reset();
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
