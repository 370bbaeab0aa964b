#include <fmt/format.h>

#include <atomic>

#include "base/status.h"
#include "client/watch.h"
#include "commands.h"
#include "election.h"
#include "exec.h"
#include "kv_requests.h"
#include "print.h"
#include "proto/kv.pb.h"
#include "proto/rpc.pb.h"
#include "session.h"

namespace engramctl {
namespace {

constexpr FlagSpec kLockFlags[] = {{.name = "ttl",
                                    .type = FlagType::kInt,
                                    .default_value = "10",
                                    .help = "seconds the lock survives its holder"}};
constexpr FlagSpec kElectFlags[] = {
    {.name = "listen", .type = FlagType::kBool, .help = "only show who leads", .shorthand = 'l'}};
constexpr int64_t kElectTtlSeconds = 60;

void Print(const Session& session, const pb::RangeResponse& response) {
  if (EmitMessage(session, response)) return;
  Emit(session.format == Format::kFields ? GetFields(response, session.hex)
                                         : GetLines(response, session.hex));
}

// Shows the own key as `get` would.
absl::Status PrintKey(const Session& session, const std::string& key) {
  pb::RangeRequest request;
  request.set_key(key);
  ASSIGN_OR_RETURN(const pb::RangeResponse response, session.client->Call(client::kRange, request));
  if (response.kvs_size() == 0) return absl::NotFoundError("no lock key found");
  Print(session, response);
  return absl::OkStatus();
}

// Ends the signal's action before what it refers to.
class ActionGuard {
 public:
  explicit ActionGuard(SignalWaiter& signals) : signals_(signals) {}
  ~ActionGuard() { signals_.Finish(); }
  ActionGuard(const ActionGuard&) = delete;
  ActionGuard& operator=(const ActionGuard&) = delete;

 private:
  SignalWaiter& signals_;
};

// Runs the command of a lock; its exit status becomes ours.
int RunHolder(const Contender& contender, std::span<const std::string> command) {
  const std::vector<std::string> environment = {
      fmt::format("ETCD_LOCK_KEY={}", contender.key()),
      fmt::format("ETCD_LOCK_REV={}", contender.revision())};
  const ProgramResult result = RunProgram({command.begin(), command.end()}, environment);
  return result.failure.empty() ? kExitOk : Fail(result.exit_status, result.failure);
}

// Takes part in the queue `name` until a signal, the loss of the lease or the end of `command`.
int Contend(Session& session, const std::string& name, std::string_view value, int64_t ttl,
            std::span<const std::string> command, SignalWaiter& signals,
            std::string_view lost_text) {
  Contender contender(*session.client);
  const ActionGuard guard(signals);
  std::atomic<bool> lost{false};
  absl::Status status = contender.Start(ttl, [&] {
    lost = true;
    contender.Stop();
    signals.Raise();
  });
  if (!status.ok()) return FailCall(status);
  signals.OnSignal([&contender] { contender.Stop(); });
  int code = kExitOk;
  status = contender.Acquire(name, value);
  if (status.ok() && !command.empty()) {
    code = RunHolder(contender, command);
  } else if (status.ok()) {
    status = PrintKey(session, contender.key());
    if (status.ok()) signals.Wait();
  }
  const bool was_lost = lost;
  if (!status.ok() && !was_lost) {
    code = status.code() == absl::StatusCode::kCancelled ? Fail(kExitError, base::Message(status))
                                                         : FailCall(status);
  }
  const absl::Status released = contender.Release();
  if (was_lost) return Fail(kExitError, lost_text);
  if (!released.ok() && code == kExitOk) return FailCall(released);
  return code;
}

int RunLock(const Invocation& invocation) {
  if (invocation.words.empty()) {
    return Fail(kExitBadArguments,
                "lock takes a lock name argument and an optional command to execute");
  }
  SignalWaiter signals;
  Session session;
  if (const int code = OpenSession(invocation, kNoTable, &session); code != 0) return code;
  return Contend(session, invocation.words[0], "", invocation.flags->Int("ttl"),
                 std::span(invocation.words).subspan(1), signals, "session expired");
}

// Shows each leader of the queue: the oldest key, again whenever it is written, then its successor.
int Observe(const Session& session, const std::string& name, SignalWaiter& signals) {
  const std::string prefix = name + "/";
  const auto watcher = client::Watcher::Create(*session.client, true);
  const ActionGuard guard(signals);
  signals.OnSignal([&watcher] { watcher->Stop(); });
  std::string leader_key;
  int64_t shown_revision = 0;
  int64_t watched_from = 0;
  for (;;) {
    pb::RangeRequest request;
    request.set_key(prefix);
    request.set_range_end(PrefixEnd(prefix));
    request.set_sort_order(pb::RangeRequest::ASCEND);
    request.set_sort_target(pb::RangeRequest::CREATE);
    request.set_limit(1);
    const auto response = session.client->Call(client::kRange, request);
    if (!response.ok()) return FailCall(response.status());
    if (response->kvs_size() > 0) {
      const mvccpb::KeyValue& leader = response->kvs(0);
      if (leader.key() != leader_key || leader.mod_revision() != shown_revision) {
        leader_key = leader.key();
        shown_revision = leader.mod_revision();
        pb::RangeResponse shown;
        *shown.mutable_header() = response->header();
        *shown.add_kvs() = leader;
        Print(session, shown);
      }
    }
    // Any change of the queue may change the leader: look again after it.
    if (watched_from == 0) {
      watched_from = response->header().revision() + 1;
      watcher->Add({.key = prefix, .range_end = PrefixEnd(prefix), .start_revision = watched_from});
    }
    pb::WatchResponse change;
    int watch = 0;
    const absl::Status status = watcher->Next(&change, &watch);
    if (status.code() == absl::StatusCode::kCancelled) return kExitOk;
    if (!status.ok()) return FailCall(status);
    if (change.canceled()) return Fail(kExitError, "elect: observer lost");
  }
}

int RunElect(const Invocation& invocation) {
  const std::vector<std::string>& words = invocation.words;
  if (words.empty() || words.size() > 2) {
    return Fail(kExitBadArguments,
                "elect takes one election name argument and an optional proposal argument");
  }
  const bool listen = invocation.flags->Bool("listen");
  if (words.size() == 1 && !listen) {
    return Fail(kExitBadArguments, "no proposal argument but -l not set");
  }
  if (words.size() == 2 && listen) {
    return Fail(kExitBadArguments, "proposal given but -l is set");
  }
  SignalWaiter signals;
  Session session;
  if (const int code = OpenSession(invocation, kNoTable, &session); code != 0) return code;
  if (listen) return Observe(session, words[0], signals);
  return Contend(session, words[0], words[1], kElectTtlSeconds, {}, signals,
                 "elect: session expired");
}

}  // namespace

Command LockCommand() {
  return {.name = "lock",
          .usage = "<lockname> [-- command arguments...]",
          .summary = "Hold a named lock until interrupted, or while a command runs",
          .group = kConcurrencyGroup,
          .flags = kLockFlags,
          .run = RunLock};
}

Command ElectCommand() {
  return {.name = "elect",
          .usage = "<election-name> [proposal]",
          .summary = "Take part in a leader election, or watch one",
          .group = kConcurrencyGroup,
          .flags = kElectFlags,
          .run = RunElect};
}

}  // namespace engramctl
