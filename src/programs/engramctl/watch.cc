#include "client/watch.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/status.h"
#include "commands.h"
#include "exec.h"
#include "kv_requests.h"
#include "print.h"
#include "proto/kv.pb.h"
#include "proto/rpc.pb.h"
#include "session.h"
#include "text.h"
#include "txn_parse.h"

namespace engramctl {
namespace {

constexpr FlagSpec kWatchFlags[] = {
    {.name = "interactive",
     .type = FlagType::kBool,
     .help = "read watch and progress lines from standard input",
     .shorthand = 'i'},
    {.name = "prefix", .type = FlagType::kBool, .help = "all keys with this prefix"},
    {.name = "rev", .type = FlagType::kInt, .help = "revision to start from"},
    {.name = "prev-kv", .type = FlagType::kBool, .help = "show what the key held before"},
    {.name = "progress-notify",
     .type = FlagType::kBool,
     .help = "let the server report progress from time to time"},
};

constexpr std::string_view kBadNumber = "bad number of arguments";
constexpr std::string_view kBadSeparator =
    "bad number of arguments (found separator --, but no commands)";
constexpr std::string_view kRangeAndPrefix = "`range_end` and `--prefix` are mutually exclusive";
constexpr std::string_view kBadEnvironment =
    "bad number of arguments (found conflicting environment key)";

// The keys of one watch and the command to run for its events.
struct Watch {
  client::WatchSpec spec;
  std::vector<std::string> exec;
};

struct EnvironmentKeys {
  std::string key, range_end;
};

EnvironmentKeys ReadEnvironment() {
  const auto get = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  return {get("ETCDCTL_WATCH_KEY"), get("ETCDCTL_WATCH_RANGE_END")};
}

// Turns the words of a watch command line into a watch; the error text is empty when they are good.
std::string ParseWatch(const FlagSet& flags, const EnvironmentKeys& environment, Watch* watch) {
  std::vector<std::string> words = flags.words();
  const bool has_separator = flags.words_before_dash() >= 0;
  if (has_separator) {
    const auto split = words.begin() + flags.words_before_dash();
    watch->exec.assign(split, words.end());
    words.erase(split, words.end());
    if (watch->exec.empty()) return std::string(kBadSeparator);
  }
  if (!environment.key.empty()) {
    if (!words.empty()) return std::string(kBadEnvironment);
    words.push_back(environment.key);
    if (!environment.range_end.empty()) words.push_back(environment.range_end);
  }
  if (words.empty()) return std::string(kBadNumber);
  client::WatchSpec& spec = watch->spec;
  spec.start_revision = flags.Int("rev");
  spec.prev_kv = flags.Bool("prev-kv");
  spec.progress_notify = flags.Bool("progress-notify");
  spec.key = words[0];
  if (words.size() == 2) {
    if (flags.Bool("prefix")) return std::string(kRangeAndPrefix);
    spec.range_end = words[1];
  } else if (flags.Bool("prefix")) {
    KeyRange range = PrefixRange(words[0]);
    spec.key = std::move(range.key);
    spec.range_end = std::move(range.end);
  }
  return {};
}

std::string_view TypeName(const mvccpb::Event& event) {
  return event.type() == mvccpb::Event::PUT ? "PUT" : "DELETE";
}

std::string Json(const pb::WatchResponse& response) {
  std::string events = "null";
  if (response.events_size() > 0) {
    events = "[";
    for (const mvccpb::Event& event : response.events()) {
      if (events.size() > 1) events += ',';
      events += ToJson(event);
    }
    events += ']';
  }
  return fmt::format(
      "{{\"Header\":{},\"Events\":{},\"CompactRevision\":{},\"Canceled\":{},\"Created\":{},"
      "\"CancelReason\":{}}}\n",
      ToJson(response.header()), events, response.compact_revision(), response.canceled(),
      response.created(), JsonString(response.cancel_reason()));
}

std::string Fields(const pb::WatchResponse& response, bool hex) {
  std::string out = HeaderFields(response.header(), hex);
  for (const mvccpb::Event& event : response.events()) {
    out += Field("Type", TypeName(event));
    if (event.has_prev_kv()) out += KeyValueFields("Prev", event.prev_kv(), hex);
    out += KeyValueFields("", event.kv(), hex);
  }
  return out;
}

std::string Lines(const pb::WatchResponse& response, bool hex) {
  std::string out;
  for (const mvccpb::Event& event : response.events()) {
    out += fmt::format("{}\n", TypeName(event));
    if (event.has_prev_kv()) out += KeyValueLines(event.prev_kv(), hex);
    out += KeyValueLines(event.kv(), hex);
  }
  return out;
}

void Print(const Session& session, const pb::WatchResponse& response) {
  switch (session.format) {
    case Format::kJson:
      return Emit(Json(response));
    case Format::kFields:
      return Emit(Fields(response, session.hex));
    case Format::kProtobuf:
      return Emit(response.SerializeAsString());
    default:
      return Emit(Lines(response, session.hex));
  }
}

// Why the server ended a watch, as etcd's client words it.
std::string EndReason(const pb::WatchResponse& response) {
  if (response.compact_revision() != 0) {
    return "etcdserver: mvcc: required revision has been compacted";
  }
  if (response.cancel_reason().empty())
    return "etcdserver: mvcc: required revision is a future revision";
  return client::ErrorText(absl::FailedPreconditionError(response.cancel_reason()));
}

// Prints one answer, or the end that `status` stands for. A watch that was refused at its creation,
// or whose stream failed, ends with an answer that says no more than that; the reason goes to
// standard error.
void Report(const Session& session, const absl::Status& status, pb::WatchResponse* response) {
  std::string reason;
  if (!status.ok()) {
    reason = client::ErrorText(status);
  } else if (response->canceled()) {
    reason = response->created() ? response->cancel_reason() : EndReason(*response);
  }
  if (!status.ok() || response->created()) {
    response->Clear();
    response->set_canceled(true);
  }
  if (response->canceled()) {
    std::fprintf(stderr, "watch was canceled (%s)\n", reason.c_str());
  } else if (response->events_size() == 0) {
    Emit(fmt::format("progress notify: {}\n", response->header().revision()));
  }
  Print(session, *response);
}

// Runs the command of a watch for each event. Returns 0, or 1 when one failed.
int RunForEvents(const std::vector<std::string>& command, const pb::WatchResponse& response) {
  for (const mvccpb::Event& event : response.events()) {
    const std::vector<std::string> environment = {
        fmt::format("ETCD_WATCH_REVISION={}", response.header().revision()),
        fmt::format("ETCD_WATCH_EVENT_TYPE={}", Quote(TypeName(event))),
        fmt::format("ETCD_WATCH_KEY={}", Quote(event.kv().key())),
        fmt::format("ETCD_WATCH_VALUE={}", Quote(event.kv().value())),
    };
    const std::string failure = RunProgram(command, environment).failure;
    if (failure.empty()) continue;
    std::string quoted;
    for (const std::string& word : command) quoted += (quoted.empty() ? "" : " ") + Quote(word);
    std::fprintf(stderr, "command [%s] error (%s)\n", quoted.c_str(), failure.c_str());
    return kExitError;
  }
  return 0;
}

// Prints what the watches yield until one has been cancelled in a way that ends the program.
// `exec_of` maps a watch's number to its command.
template <typename ExecOf>
int Follow(const Session& session, client::Watcher& watcher, bool end_on_cancel,
           const ExecOf& exec_of) {
  for (;;) {
    pb::WatchResponse response;
    int number = 0;
    const absl::Status status = watcher.Next(&response, &number);
    Report(session, status, &response);
    if (!status.ok()) break;
    if (number != client::Watcher::kAllWatches) {
      if (const int code = RunForEvents(exec_of(number), response); code != 0) return code;
    }
    if (response.canceled() && end_on_cancel) break;
  }
  return Fail(kExitInterrupted, "watch is canceled by the server");
}

// Without it a watch of a server that stands still looks like one of keys that do not change.
void TellOfInterruption(const absl::Status& status) {
  LogLine("warn",
          fmt::format("\"caller\":\"engramctl/watch.cc\",\"msg\":\"the watch is interrupted "
                      "and tries to go on\",\"error\":{}",
                      base::JsonString(client::ErrorText(status))));
}

int RunOnce(const Invocation& invocation, const EnvironmentKeys& environment) {
  Watch watch;
  if (const std::string bad = ParseWatch(*invocation.flags, environment, &watch); !bad.empty()) {
    return Fail(kExitBadArguments, bad);
  }
  Session session;
  if (const int code = OpenSession(invocation, kNoTable, &session); code != 0) return code;
  const auto watcher =
      client::Watcher::Create(*session.client, /*require_leader=*/true, TellOfInterruption);
  watcher->Add(watch.spec);
  return Follow(session, *watcher, true,
                [&watch](int) -> const std::vector<std::string>& { return watch.exec; });
}

// Interactive mode: this thread reads lines, another prints.
class Interactive {
 public:
  Interactive(const Session& session, EnvironmentKeys environment)
      : session_(session),
        environment_(std::move(environment)),
        watcher_(client::Watcher::Create(*session.client, true, TellOfInterruption)) {}

  int Run() {
    std::thread printer;
    int code = 0;
    for (std::string line;;) {
      if (!ReadLine(&line)) {
        code = Fail(kExitInvalidInput, "error reading watch request line: EOF");
        break;
      }
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (code = HandleLine(line); code != 0) break;
      if (!printer.joinable() && watching_) printer = std::thread([this] { Print(); });
    }
    watcher_->Stop();
    if (printer.joinable()) printer.join();
    return code;
  }

 private:
  // Returns 0, or the exit status when the line ends the program.
  int HandleLine(const std::string& line) {
    std::vector<std::string> words;
    if (const BadRequest bad = SplitWords(line, &words); !bad.ok()) return Fail(bad.code, bad.text);
    if (words.empty()) {
      std::fprintf(stderr, "Invalid command: %s (watch and progress supported)\n", line.c_str());
    } else if (words[0] == "watch") {
      if (words.size() < 2 && environment_.key.empty()) {
        std::fprintf(stderr, "Invalid command %s (command type or key is not provided)\n",
                     line.c_str());
        return 0;
      }
      return AddWatch(line, std::span(words).subspan(1));
    } else if (words[0] == "progress") {
      // Without an open stream there is nothing to report on; the server would not answer either.
      if (const absl::Status status = watcher_->RequestProgress(); !status.ok() && watching_) {
        std::fprintf(stderr, "failed to request progress (%s)\n",
                     client::ErrorText(status).c_str());
      }
    } else {
      std::fprintf(stderr, "Invalid command %s (only support watch)\n", line.c_str());
    }
    return 0;
  }

  int AddWatch(const std::string& line, std::span<const std::string> words) {
    FlagSet flags;
    flags.Add(kWatchFlags);
    if (const absl::Status status = flags.Parse(words); !status.ok()) {
      return Fail(kExitBadArguments, base::Message(status));
    }
    Watch watch;
    if (const std::string bad = ParseWatch(flags, environment_, &watch); !bad.empty()) {
      if (bad != kRangeAndPrefix) return Fail(kExitBadArguments, bad);
      std::fprintf(stderr, "Invalid command %s (%s)\n", line.c_str(), bad.c_str());
      return 0;
    }
    const std::lock_guard lock(mutex_);
    exec_.push_back(std::move(watch.exec));
    watcher_->Add(std::move(watch.spec));
    watching_ = true;
    return 0;
  }

  void Print() {
    for (;;) {
      pb::WatchResponse response;
      int number = 0;
      if (!watcher_->Next(&response, &number).ok()) return;
      Report(session_, absl::OkStatus(), &response);
      if (number == client::Watcher::kAllWatches) continue;
      std::vector<std::string> command;
      {
        const std::lock_guard lock(mutex_);
        command = exec_[static_cast<size_t>(number)];
      }
      if (const int code = RunForEvents(command, response); code != 0) std::_Exit(code);
    }
  }

  const Session& session_;
  const EnvironmentKeys environment_;
  std::unique_ptr<client::Watcher> watcher_;
  std::mutex mutex_;
  std::vector<std::vector<std::string>> exec_;  // by watch number; guarded by mutex_
  bool watching_ = false;                       // reading thread only
};

int RunWatch(const Invocation& invocation) {
  EnvironmentKeys environment = ReadEnvironment();
  if (environment.key.empty() && !environment.range_end.empty()) {
    return Fail(kExitBadArguments,
                fmt::format("ETCDCTL_WATCH_KEY is empty but got ETCDCTL_WATCH_RANGE_END={}",
                            Quote(environment.range_end)));
  }
  if (!invocation.flags->Bool("interactive")) return RunOnce(invocation, environment);
  Session session;
  if (const int code = OpenSession(invocation, kNoTable, &session); code != 0) return code;
  return Interactive(session, std::move(environment)).Run();
}

}  // namespace

Command WatchCommand() {
  return {.name = "watch",
          .usage = "[options] [key or prefix] [range_end] [-- command arguments...]",
          .summary = "Print changes of keys as they happen, or run a command for each",
          .group = kKeyValueGroup,
          .flags = kWatchFlags,
          .run = RunWatch};
}

}  // namespace engramctl
