#include "drill/server.h"

#include <algorithm>
#include <thread>

#include "base/status.h"
#include "client/methods.h"
#include "proto/rpc.pb.h"

namespace drill {
namespace {

constexpr base::Duration kPoll = std::chrono::milliseconds(50);
constexpr size_t kLineBytesMax = 300;

std::string LastLine(base::Files& files, const std::string& path) {
  const auto log = base::ReadFile(files, path);
  if (!log.ok() || log->empty()) return "it said nothing";
  const size_t end = log->find_last_not_of('\n') + 1;
  const size_t begin = log->substr(0, end).rfind('\n') + 1;  // npos + 1: the only line
  return log->substr(begin, std::min(end - begin, kLineBytesMax));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RestoredServer>> RestoredServer::Start(
    base::Files& files, base::Clock& clock, const std::string& program,
    const restore::Report& restored, const std::string& endpoint, const std::string& log_path,
    base::Duration timeout) {
  std::unique_ptr<RestoredServer> server(new RestoredServer());
  ASSIGN_OR_RETURN(
      server->child_,
      Child::Start(
          program,
          {"--name", restored.name, "--data-dir", restored.data_dir, "--listen-client-urls",
           endpoint, "--advertise-client-urls", endpoint, "--listen-peer-urls", restored.peer_urls,
           "--initial-advertise-peer-urls", restored.peer_urls, "--initial-cluster",
           restored.initial_cluster, "--initial-cluster-token", restored.token,
           "--quota-backend-bytes", "17179869184"},
          log_path));
  ASSIGN_OR_RETURN(server->client_, client::Client::Open({.endpoints = {endpoint}}));
  const base::Duration until = clock.Monotonic() + timeout;
  absl::Status last;
  while (clock.Monotonic() < until) {
    std::string how;
    if (!server->child_->Running(&how)) {
      return base::MakeStatus(absl::StatusCode::kUnavailable, "{} {}: {}", program, how,
                              LastLine(files, log_path));
    }
    const auto status = server->client_->Call(client::kStatus, {}, {.timeout = kPoll * 4});
    if (status.ok() && status->leader() != 0 && status->errors().empty()) {
      server->version_ = status->version();
      return server;
    }
    last = status.status();
    std::this_thread::sleep_for(kPoll);
  }
  return base::MakeStatus(absl::StatusCode::kDeadlineExceeded, "no answer in time: {}",
                          base::Message(last));
}

}  // namespace drill
