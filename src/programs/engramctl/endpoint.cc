#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "commands.h"
#include "endpoints.h"
#include "print.h"
#include "proto/kv.pb.h"
#include "proto/rpc.pb.h"
#include "session.h"
#include "text.h"

namespace engramctl {
namespace {

constexpr FlagSpec kClusterFlag[] = {
    {.name = "cluster", .type = FlagType::kBool, .help = "ask all members of the cluster"}};
constexpr FlagSpec kHashFlags[] = {
    {.name = "rev", .type = FlagType::kInt, .help = "hash the state up to this revision"}};

// --- health ---

struct Health {
  std::string endpoint;
  bool healthy = false;
  base::Duration took{};
  std::string error;
};

std::string AlarmsText(client::Client& client, const client::CallOptions& options) {
  const auto response = client.Call(client::kAlarm, pb::AlarmRequest(), options);
  if (!response.ok()) return "Unable to fetch the alarm list";
  std::string text;
  for (const pb::AlarmMember& alarm : response->alarms()) {
    if (alarm.alarm() != pb::NONE) text += pb::AlarmType_Name(alarm.alarm()) + " ";
  }
  return text.empty() ? "" : "Active Alarm(s): " + text;
}

Health Check(const Session& session, const std::string& endpoint) {
  Health health{.endpoint = endpoint, .healthy = false, .took = {}, .error = {}};
  const base::Duration start = base::SystemClock().Monotonic();
  client::Options options = session.options;
  options.endpoints = {endpoint};
  absl::StatusOr<std::unique_ptr<client::Client>> client = client::Client::Open(std::move(options));
  absl::Status status = client.status();
  if (status.ok()) {
    pb::RangeRequest request;
    request.set_key("health");
    status = (*client)->Call(client::kRange, request, session.call_options()).status();
  }
  // Being refused the key proves that a quorum was there to decide so.
  health.healthy = status.ok() || base::Message(status) == "etcdserver: permission denied";
  health.took = base::SystemClock().Monotonic() - start;
  if (!health.healthy) {
    health.error = client::ErrorText(status);
    return health;
  }
  health.error = AlarmsText(**client, session.call_options());
  if (!health.error.empty()) health.healthy = false;
  return health;
}

void PrintHealth(const Session& session, const std::vector<Health>& all) {
  std::string out;
  switch (session.format) {
    case Format::kJson:
      for (const Health& health : all) {
        out += fmt::format("{}{{\"endpoint\":{},\"health\":{},\"took\":\"{}\"",
                           out.empty() ? "[" : ",", JsonString(health.endpoint), health.healthy,
                           FormatDuration(health.took));
        if (!health.error.empty()) out += fmt::format(",\"error\":{}", JsonString(health.error));
        out += '}';
      }
      return Emit((out.empty() ? "[" : out) + "]\n");
    case Format::kFields:
      for (const Health& health : all) {
        out += Field("Endpoint", Quote(health.endpoint));
        out += Field("Health", health.healthy ? "true" : "false");
        out += Field("Took", FormatDuration(health.took));
        out += Field("Error", health.error) + '\n';
      }
      return Emit(out);
    case Format::kTable: {
      std::vector<std::vector<std::string>> rows;
      for (const Health& health : all) {
        rows.push_back({health.endpoint, health.healthy ? "true" : "false",
                        FormatDuration(health.took), health.error});
      }
      return Emit(Table({"endpoint", "health", "took", "error"}, rows));
    }
    default:
      for (const Health& health : all) {
        if (health.error.empty()) {
          Emit(fmt::format("{} is healthy: successfully committed proposal: took = {}\n",
                           health.endpoint, FormatDuration(health.took)));
        } else {
          std::fprintf(stderr, "%s is unhealthy: failed to commit proposal: %s\n",
                       health.endpoint.c_str(), health.error.c_str());
        }
      }
  }
}

int RunHealth(const Invocation& invocation) {
  Session session;
  if (const int code = LoadSession(invocation, kNoProtobuf, &session); code != 0) return code;
  std::vector<std::string> endpoints;
  if (const int code = ListEndpoints(invocation, &session, &endpoints); code != 0) return code;
  std::mutex mutex;
  std::vector<Health> all;  // in the order of completion
  std::vector<std::thread> checks;
  for (const std::string& endpoint : endpoints) {
    checks.emplace_back([&] {
      Health health = Check(session, endpoint);
      const std::lock_guard lock(mutex);
      all.push_back(std::move(health));
    });
  }
  for (std::thread& check : checks) check.join();
  PrintHealth(session, all);
  const bool healthy = std::all_of(all.begin(), all.end(),
                                   [](const Health& health) { return health.error.empty(); });
  return healthy ? kExitOk : Fail(kExitError, "unhealthy cluster");
}

// --- status and hashkv ---

// One endpoint's answer, or why there is none.
template <typename Response>
struct Answer {
  std::string endpoint;
  absl::Status status;
  Response response;
};

// Asks each endpoint in turn through a client of its own, so that each answers for itself.
template <typename Request, typename Response>
std::vector<Answer<Response>> AskEach(const Session& session,
                                      const std::vector<std::string>& endpoints,
                                      const client::Unary<Request, Response>& method,
                                      const Request& request, std::string_view what) {
  std::vector<Answer<Response>> answers;
  for (const std::string& endpoint : endpoints) {
    Answer<Response> answer{.endpoint = endpoint, .status = {}, .response = {}};
    client::Options options = session.options;
    options.endpoints = {endpoint};
    auto client = client::Client::Open(std::move(options));
    answer.status = client.status();
    if (client.ok()) {
      auto response = (*client)->Call(method, request, session.call_options());
      answer.status = response.status();
      if (response.ok()) answer.response = *std::move(response);
    }
    if (!answer.status.ok()) {
      std::fprintf(stderr, "Failed to get the %s of endpoint %s (%s)\n", std::string(what).c_str(),
                   endpoint.c_str(), client::ErrorText(answer.status).c_str());
    }
    answers.push_back(std::move(answer));
  }
  return answers;
}

std::string_view TrueFalse(bool value) { return value ? "true" : "false"; }

std::string FreePercent(const pb::StatusResponse& status) {
  const double size = static_cast<double>(status.dbsize());
  const double unused = 1 - static_cast<double>(status.dbsizeinuse()) / size;
  return fmt::format("{}%", size == 0 ? 0 : std::lround(unused * 100));
}

std::vector<std::string> StatusRow(const std::string& endpoint, const pb::StatusResponse& status) {
  const std::vector<std::string> errors(status.errors().begin(), status.errors().end());
  const pb::DowngradeInfo& downgrade = status.downgradeinfo();
  return {endpoint,
          fmt::format("{:x}", status.header().member_id()),
          status.version(),
          status.storageversion(),
          HumanSize(static_cast<uint64_t>(status.dbsize())),
          HumanSize(static_cast<uint64_t>(status.dbsizeinuse())),
          FreePercent(status),
          HumanSize(static_cast<uint64_t>(status.dbsizequota())),
          std::string(TrueFalse(status.leader() == status.header().member_id())),
          std::string(TrueFalse(status.islearner())),
          std::to_string(status.raftterm()),
          std::to_string(status.raftindex()),
          std::to_string(status.raftappliedindex()),
          Join(errors, ", "),
          downgrade.targetversion(),
          std::string(TrueFalse(downgrade.enabled()))};
}

std::string StatusFields(const std::string& endpoint, const pb::StatusResponse& status, bool hex) {
  const std::vector<std::string> errors(status.errors().begin(), status.errors().end());
  std::string out = HeaderFields(status.header(), hex);
  out += Field("Version", Quote(status.version()));
  out += Field("StorageVersion", Quote(status.storageversion()));
  out += Field("DBSize", std::to_string(status.dbsize()));
  out += Field("DBSizeInUse", std::to_string(status.dbsizeinuse()));
  out += Field("DBSizeQuota", std::to_string(status.dbsizequota()));
  out += Field("Leader", std::to_string(status.leader()));
  out += Field("IsLearner", TrueFalse(status.islearner()));
  out += Field("RaftIndex", std::to_string(status.raftindex()));
  out += Field("RaftAppliedIndex", std::to_string(status.raftappliedindex()));
  out += Field("Errors", "[" + Join(errors, " ") + "]");
  out += Field("Endpoint", Quote(endpoint));
  out += Field("DowngradeTargetVersion", Quote(status.downgradeinfo().targetversion()));
  return out + Field("DowngradeEnabled", TrueFalse(status.downgradeinfo().enabled())) + '\n';
}

// A JSON list with an element per answer. A failing endpoint gets one too, with "Error" in place of
// the answer; etcdctl leaves it out, and then a script cannot tell which one failed. With no live
// endpoint at all the list is still a list.
template <typename Response>
std::string AnswersJson(const std::vector<Answer<Response>>& answers, std::string_view name) {
  std::string out;
  for (const Answer<Response>& answer : answers) {
    out += fmt::format("{}{{\"Endpoint\":{},", out.empty() ? "" : ",", JsonString(answer.endpoint));
    out += answer.status.ok()
               ? fmt::format("\"{}\":{}}}", name, ToJson(answer.response))
               : fmt::format("\"Error\":{}}}", JsonString(client::ErrorText(answer.status)));
  }
  return "[" + out + "]\n";
}

int RunStatus(const Invocation& invocation) {
  Session session;
  if (const int code = LoadSession(invocation, kNoProtobuf, &session); code != 0) return code;
  std::vector<std::string> endpoints;
  if (const int code = ListEndpoints(invocation, &session, &endpoints); code != 0) return code;
  const auto answers = AskEach(session, endpoints, client::kStatus, pb::StatusRequest(), "status");
  std::string out;
  std::vector<std::vector<std::string>> rows;
  int code = kExitOk;
  for (const auto& answer : answers) {
    if (!answer.status.ok()) {
      code = kExitError;
      continue;
    }
    rows.push_back(StatusRow(answer.endpoint, answer.response));
    if (session.format == Format::kFields) {
      out += StatusFields(answer.endpoint, answer.response, session.hex);
    } else if (session.format == Format::kSimple) {
      out += Join(rows.back(), ", ") + '\n';
    }
  }
  if (session.json()) out = AnswersJson(answers, "Status");
  if (session.format == Format::kTable) {
    out = Table(
        {"endpoint", "id", "version", "storage version", "db size", "in use",
         "percentage not in use", "quota", "is leader", "is learner", "raft term", "raft index",
         "raft applied index", "errors", "downgrade target version", "downgrade enabled"},
        rows);
  }
  Emit(out);
  return code;
}

int RunHashKv(const Invocation& invocation) {
  Session session;
  if (const int code = LoadSession(invocation, kNoProtobuf, &session); code != 0) return code;
  std::vector<std::string> endpoints;
  if (const int code = ListEndpoints(invocation, &session, &endpoints); code != 0) return code;
  pb::HashKVRequest request;
  request.set_revision(invocation.flags->Int("rev"));
  const auto answers = AskEach(session, endpoints, client::kHashKV, request, "hash");
  std::string out;
  std::vector<std::vector<std::string>> rows;
  absl::Status failure;
  for (const auto& answer : answers) {
    if (!answer.status.ok()) {
      failure = answer.status;
      continue;
    }
    const pb::HashKVResponse& hash = answer.response;
    rows.push_back(
        {answer.endpoint, std::to_string(hash.hash()), std::to_string(hash.hash_revision())});
    if (session.format == Format::kFields) {
      out += HeaderFields(hash.header(), session.hex);
      out += Field("Endpoint", Quote(answer.endpoint));
      out += Field("Hash", std::to_string(hash.hash()));
      out += Field("HashRevision", std::to_string(hash.hash_revision())) + '\n';
    } else if (session.format == Format::kSimple) {
      out += Join(rows.back(), ", ") + '\n';
    }
  }
  if (session.json()) out = AnswersJson(answers, "HashKV");
  if (session.format == Format::kTable) out = Table({"endpoint", "hash", "hash revision"}, rows);
  Emit(out);
  return failure.ok() ? kExitOk : FailCall(failure);
}

}  // namespace

int ListEndpoints(const Invocation& invocation, Session* session,
                  std::vector<std::string>* endpoints) {
  if (session->options.endpoints.empty()) {
    return Fail(kExitBadConnection, "etcdclient: no available endpoints");
  }
  if (!invocation.flags->Bool("cluster")) {
    *endpoints = session->options.endpoints;
    return 0;
  }
  if (const int code = Connect(session); code != 0) return code;
  pb::MemberListRequest request;
  request.set_linearizable(true);
  const auto response =
      session->client->Call(client::kMemberList, request, session->call_options());
  if (!response.ok()) {
    return Fail(kExitError,
                fmt::format("failed to fetch endpoints from etcd cluster member list: {}",
                            client::ErrorText(response.status())));
  }
  for (const pb::Member& member : response->members()) {
    for (const std::string& url : member.clienturls()) {
      if (std::find(endpoints->begin(), endpoints->end(), url) == endpoints->end()) {
        endpoints->push_back(url);
      }
    }
  }
  return 0;
}

Command EndpointCommand() {
  return {.name = "endpoint",
          .usage = "",
          .summary = "Health, status and hashes of single members",
          .group = kMaintenanceGroup,
          .persistent_flags = kClusterFlag,
          .commands = {
              {.name = "hashkv",
               .usage = "",
               .summary = "Print a hash of each member's key-value history",
               .flags = kHashFlags,
               .run = RunHashKv},
              {.name = "health",
               .usage = "",
               .summary = "Check that each endpoint can commit",
               .run = RunHealth},
              {.name = "status",
               .usage = "",
               .summary = "Print version, sizes, leader and indexes of each endpoint",
               .run = RunStatus},
          }};
}

}  // namespace engramctl
