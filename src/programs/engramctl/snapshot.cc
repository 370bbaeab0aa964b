#include "client/snapshot.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/files.h"
#include "base/status.h"
#include "commands.h"
#include "print.h"
#include "session.h"
#include "text.h"

namespace engramctl {
namespace {

// A chunk that takes longer than this means a dead server or link.
constexpr base::Duration kStallTimeout = std::chrono::seconds(30);
constexpr int kBarCells = 40;

// A bar on a terminal's standard error; silent otherwise, so that logs stay clean.
class ProgressBar {
 public:
  void Update(const client::SnapshotProgress& progress) {
    if (isatty(STDERR_FILENO) != 1) return;
    const uint64_t total = progress.received_bytes + progress.remaining_bytes;
    const uint64_t percent = total == 0 ? 0 : progress.received_bytes * 100 / total;
    if (shown_ && percent == last_percent_) return;
    shown_ = true;
    last_percent_ = percent;
    const auto cells = static_cast<size_t>(percent * kBarCells / 100);
    const std::string bar = std::string(cells, '#') + std::string(kBarCells - cells, ' ');
    std::fprintf(stderr, "\r[%s] %3llu%% %s", bar.c_str(), static_cast<unsigned long long>(percent),
                 HumanSize(progress.received_bytes).c_str());
  }

  void End() {
    if (shown_) std::fputc('\n', stderr);
    shown_ = false;
  }

 private:
  bool shown_ = false;
  uint64_t last_percent_ = 0;
};

void Info(std::string_view message, std::string_view fields = {}) {
  LogLine("info", fmt::format("\"caller\":\"engramctl/snapshot.cc\",\"msg\":{}{}{}",
                              JsonString(message), fields.empty() ? "" : ",", fields));
}

int RunSave(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "snapshot save expects one argument <filename>");
  }
  Session session;
  if (const int code = LoadSession(invocation, kAllFormats, &session); code != 0) return code;
  const std::vector<std::string>& endpoints = session.options.endpoints;
  if (endpoints.size() > 1) {
    return Fail(kExitInterrupted,
                fmt::format("snapshot must be requested to one selected node, not multiple [{}]",
                            Join(endpoints, " ")));
  }
  if (const int code = Connect(&session); code != 0) return code;
  const std::string& path = invocation.words[0];
  const base::Duration start = base::SystemClock().Monotonic();
  const std::string endpoint_field =
      endpoints.empty() ? "" : fmt::format("\"endpoint\":{}", JsonString(endpoints[0]));
  ProgressBar bar;
  client::SnapshotOptions options;
  if (session.command_timeout_given) options.timeout = session.command_timeout;
  options.stall_timeout = kStallTimeout;
  options.on_progress = [&bar](const client::SnapshotProgress& progress) { bar.Update(progress); };
  options.on_file_created = [&path] {
    Info("created temporary db file", fmt::format("\"path\":{}", JsonString(path + ".part")));
  };
  options.on_stream_opened = [&endpoint_field] {
    Info("opened snapshot stream; downloading");
    Info("fetching snapshot", endpoint_field);
  };
  options.on_read_done = [&bar] {
    bar.End();
    Info("completed snapshot read; closing");
  };
  const absl::StatusOr<client::SnapshotResult> result =
      client::SaveSnapshot(*session.client, base::PosixFiles(), path, options);
  bar.End();
  if (!result.ok()) {
    // What the server refused carries its code here, unlike everywhere else.
    const absl::StatusCode code = result.status().code();
    const bool from_server =
        code == absl::StatusCode::kPermissionDenied || code == absl::StatusCode::kInvalidArgument ||
        code == absl::StatusCode::kUnauthenticated || code == absl::StatusCode::kUnavailable ||
        code == absl::StatusCode::kUnknown;
    return Fail(kExitInterrupted, from_server ? client::RpcErrorText(result.status())
                                              : std::string(base::Message(result.status())));
  }
  Info("fetched snapshot",
       fmt::format("{},\"size\":{},\"took\":{},\"etcd-version\":{}", endpoint_field,
                   JsonString(HumanSize(result->bytes)),
                   JsonString(FormatDuration(base::SystemClock().Monotonic() - start)),
                   JsonString(result->version)));
  Info("saved", fmt::format("\"path\":{}", JsonString(path)));
  std::string out = fmt::format("Snapshot saved at {}\n", path);
  if (!result->version.empty()) out += fmt::format("Server version {}\n", result->version);
  Emit(out);
  return kExitOk;
}

}  // namespace

Command SnapshotCommand() {
  return {
      .name = "snapshot",
      .usage = "",
      .summary = "Save a member's store to a file",
      .group = kMaintenanceGroup,
      .commands = {{.name = "save",
                    .usage = "<filename>",
                    .summary = "Stream a snapshot of one member into a file, verified at its end",
                    .run = RunSave}}};
}

}  // namespace engramctl
