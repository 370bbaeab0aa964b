#include <fmt/format.h>

#include <cstdio>

#include "base/clock.h"
#include "base/status.h"
#include "commands.h"
#include "endpoints.h"
#include "print.h"
#include "proto/rpc.pb.h"
#include "session.h"
#include "text.h"

namespace engramctl {
namespace {

// --- alarm ---

void PrintAlarms(const Session& session, const pb::AlarmResponse& response) {
  if (EmitMessage(session, response)) return;
  std::string out;
  if (session.format == Format::kFields) out = HeaderFields(response.header(), session.hex);
  for (const pb::AlarmMember& alarm : response.alarms()) {
    const std::string& type = pb::AlarmType_Name(alarm.alarm());
    out +=
        session.format == Format::kFields
            ? Field("MemberID", std::to_string(alarm.memberid())) + Field("AlarmType", type) + '\n'
            : fmt::format("memberID:{} alarm:{} \n", alarm.memberid(), type);
  }
  Emit(out);
}

int RunAlarm(const Invocation& invocation, std::string_view name,
             pb::AlarmRequest::AlarmAction action) {
  if (!invocation.words.empty()) {
    return Fail(kExitBadArguments, fmt::format("alarm {} command accepts no arguments", name));
  }
  Session session;
  if (const int code = OpenSession(invocation, kNoTable, &session); code != 0) return code;
  pb::AlarmRequest request;
  request.set_action(pb::AlarmRequest::GET);
  auto response = session.client->Call(client::kAlarm, request, session.call_options());
  if (!response.ok()) return FailCall(response.status());
  if (action == pb::AlarmRequest::DEACTIVATE) {
    // The server clears one alarm a call; show all that were cleared.
    pb::AlarmResponse cleared;
    *cleared.mutable_header() = response->header();
    for (const pb::AlarmMember& alarm : response->alarms()) {
      request.set_action(action);
      request.set_memberid(alarm.memberid());
      request.set_alarm(alarm.alarm());
      const auto one = session.client->Call(client::kAlarm, request, session.call_options());
      if (!one.ok()) return FailCall(one.status());
      *cleared.mutable_header() = one->header();
      cleared.mutable_alarms()->MergeFrom(one->alarms());
    }
    *response = std::move(cleared);
  }
  PrintAlarms(session, *response);
  return kExitOk;
}

int RunAlarmList(const Invocation& invocation) {
  return RunAlarm(invocation, "list", pb::AlarmRequest::GET);
}
int RunAlarmDisarm(const Invocation& invocation) {
  return RunAlarm(invocation, "disarm", pb::AlarmRequest::DEACTIVATE);
}

// --- defrag ---

constexpr FlagSpec kDefragFlags[] = {
    {.name = "cluster", .type = FlagType::kBool, .help = "all members of the cluster"}};

int RunDefrag(const Invocation& invocation) {
  Session session;
  if (const int code = LoadSession(invocation, kAllFormats, &session); code != 0) return code;
  std::vector<std::string> endpoints;
  if (const int code = ListEndpoints(invocation, &session, &endpoints); code != 0) return code;
  int code = kExitOk;
  for (const std::string& endpoint : endpoints) {
    session.options.endpoints = {endpoint};
    if (const int failed = Connect(&session); failed != 0) return failed;
    const base::Duration start = base::SystemClock().Monotonic();
    const auto response =
        session.client->Call(client::kDefragment, pb::DefragmentRequest(), session.call_options());
    const std::string took = FormatDuration(base::SystemClock().Monotonic() - start);
    if (response.ok()) {
      Emit(fmt::format("Finished defragmenting etcd member[{}]. took {}\n", endpoint, took));
    } else {
      std::fprintf(stderr, "Failed to defragment etcd member[%s]. took %s. (%s)\n",
                   endpoint.c_str(), took.c_str(), client::ErrorText(response.status()).c_str());
      code = kExitError;
    }
  }
  return code;
}

// --- move-leader ---

int RunMoveLeader(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "move-leader command needs 1 argument");
  }
  const absl::StatusOr<uint64_t> target = ParseUint(invocation.words[0], 16);
  if (!target.ok()) return Fail(kExitBadArguments, base::Message(target.status()));
  Session session;
  if (const int code = OpenSession(invocation, kNoFieldsNoTable, &session); code != 0) return code;
  const std::vector<std::string> endpoints = session.options.endpoints;
  for (const std::string& endpoint : endpoints) {
    session.options.endpoints = {endpoint};
    if (const int code = Connect(&session); code != 0) return code;
    const auto status =
        session.client->Call(client::kStatus, pb::StatusRequest(), session.call_options());
    if (!status.ok()) return FailCall(status.status());
    if (status->header().member_id() != status->leader()) continue;
    pb::MoveLeaderRequest request;
    request.set_targetid(*target);
    const auto response =
        session.client->Call(client::kMoveLeader, request, session.call_options());
    if (!response.ok()) return FailCall(response.status());
    if (!EmitMessage(session, pb::MoveLeaderResponse())) {
      Emit(fmt::format("Leadership transferred from {:x} to {:x}\n", status->leader(), *target));
    }
    return kExitOk;
  }
  return Fail(kExitBadArguments,
              fmt::format("no leader endpoint given at [{}]", Join(endpoints, " ")));
}

// --- downgrade ---

int RunDowngrade(const Invocation& invocation, std::string_view name,
                 pb::DowngradeRequest::DowngradeAction action) {
  pb::DowngradeRequest request;
  request.set_action(action);
  if (action != pb::DowngradeRequest::CANCEL) {
    if (invocation.words.empty()) return Fail(kExitBadArguments, "TARGET_VERSION not provided");
    if (invocation.words.size() > 1) return Fail(kExitBadArguments, "too many arguments");
    request.set_version(invocation.words[0]);
  }
  Session session;
  if (const int code = OpenSession(invocation, kNoFieldsNoTable, &session); code != 0) return code;
  const auto response = session.client->Call(client::kDowngrade, request, session.call_options());
  if (!response.ok()) return FailCall(response.status());
  if (!EmitMessage(session, *response)) {
    Emit(fmt::format("Downgrade {} success, cluster version {}\n", name, response->version()));
  }
  return kExitOk;
}

int RunDowngradeValidate(const Invocation& invocation) {
  return RunDowngrade(invocation, "validate", pb::DowngradeRequest::VALIDATE);
}
int RunDowngradeEnable(const Invocation& invocation) {
  return RunDowngrade(invocation, "enable", pb::DowngradeRequest::ENABLE);
}
int RunDowngradeCancel(const Invocation& invocation) {
  return RunDowngrade(invocation, "cancel", pb::DowngradeRequest::CANCEL);
}

}  // namespace

Command AlarmCommand() {
  return {.name = "alarm",
          .usage = "",
          .summary = "Show and clear alarms",
          .group = kMaintenanceGroup,
          .commands = {
              {.name = "disarm", .usage = "", .summary = "Clear all alarms", .run = RunAlarmDisarm},
              {.name = "list", .usage = "", .summary = "List all alarms", .run = RunAlarmList},
          }};
}

Command DefragCommand() {
  return {.name = "defrag",
          .usage = "",
          .summary = "Give free space of the db file back, member by member",
          .group = kMaintenanceGroup,
          .flags = kDefragFlags,
          .run = RunDefrag};
}

Command MoveLeaderCommand() {
  return {.name = "move-leader",
          .usage = "<transferee-member-id>",
          .summary = "Hand leadership to another member",
          .group = kMaintenanceGroup,
          .run = RunMoveLeader};
}

Command DowngradeCommand() {
  return {.name = "downgrade",
          .usage = "",
          .summary = "Prepare the cluster for an older version",
          .group = kMaintenanceGroup,
          .commands = {
              {.name = "cancel",
               .usage = "",
               .summary = "Stop a downgrade under way",
               .run = RunDowngradeCancel},
              {.name = "enable",
               .usage = "<TARGET_VERSION>",
               .summary = "Start a downgrade",
               .run = RunDowngradeEnable},
              {.name = "validate",
               .usage = "<TARGET_VERSION>",
               .summary = "Check that a downgrade is possible",
               .run = RunDowngradeValidate},
          }};
}

}  // namespace engramctl
