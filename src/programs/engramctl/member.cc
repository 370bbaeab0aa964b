#include <fmt/format.h>

#include <thread>

#include "base/status.h"
#include "base/urls.h"
#include "commands.h"
#include "print.h"
#include "proto/rpc.pb.h"
#include "session.h"
#include "text.h"

namespace engramctl {
namespace {

constexpr FlagSpec kAddFlags[] = {
    {.name = "peer-urls", .help = "peer URLs of the new member, comma-separated"},
    {.name = "learner", .type = FlagType::kBool, .help = "add it without a vote"}};
constexpr FlagSpec kUpdateFlags[] = {
    {.name = "peer-urls", .help = "new peer URLs of the member, comma-separated"}};
constexpr FlagSpec kListFlags[] = {
    {.name = "consistency",
     .default_value = "l",
     .help = "l: linearizable; s: serializable, from the member's own state"}};

// Ids are padded with blanks, not zeros, as etcdctl prints them here.
std::string PaddedId(uint64_t id) { return fmt::format("{:>16}", fmt::format("{:x}", id)); }

std::vector<std::string> Strings(const google::protobuf::RepeatedPtrField<std::string>& list) {
  return {list.begin(), list.end()};
}

int ParseMemberId(const Invocation& invocation, uint64_t* id) {
  if (invocation.words.size() != 1) return Fail(kExitBadArguments, "member ID is not provided");
  const absl::StatusOr<uint64_t> parsed = ParseUint(invocation.words[0], 16);
  if (!parsed.ok()) {
    return Fail(kExitBadArguments, fmt::format("bad member ID arg ({}), expecting ID in Hex",
                                               base::Message(parsed.status())));
  }
  *id = *parsed;
  return 0;
}

// Prints the answer to a change: json and protobuf as it is, else `line`.
template <typename Response>
int PrintChange(const Session& session, const Response& response, std::string_view line) {
  if (session.json()) {
    Emit(ToJson(response, session.hex) + '\n');
  } else if (!EmitMessage(session, response)) {
    Emit(line);
  }
  return kExitOk;
}

// --- list ---

std::vector<std::string> MemberRow(const pb::Member& member) {
  return {fmt::format("{:x}", member.id()),
          member.name().empty() ? "unstarted" : "started",
          member.name(),
          Join(Strings(member.peerurls()), ","),
          Join(Strings(member.clienturls()), ","),
          member.islearner() ? "true" : "false"};
}

std::string ListFields(const pb::MemberListResponse& response, bool hex) {
  std::string out = HeaderFields(response.header(), hex);
  for (const pb::Member& member : response.members()) {
    out += Field("ID", hex ? fmt::format("{:x}", member.id()) : std::to_string(member.id()));
    out += Field("Name", Quote(member.name()));
    for (const std::string& url : member.peerurls()) out += Field("PeerURL", Quote(url));
    for (const std::string& url : member.clienturls()) out += Field("ClientURL", Quote(url));
    out += Field("IsLearner", member.islearner() ? "true" : "false") + '\n';
  }
  return out;
}

int RunList(const Invocation& invocation) {
  const std::string& consistency = invocation.flags->String("consistency");
  if (consistency != "l" && consistency != "s") {
    return Fail(kExitBadFeature, fmt::format("unknown consistency flag {}", Quote(consistency)));
  }
  Session session;
  if (const int code = OpenSession(invocation, kAllFormats, &session); code != 0) return code;
  pb::MemberListRequest request;
  request.set_linearizable(consistency == "l");
  const auto response = session.client->Call(client::kMemberList, request, session.call_options());
  if (!response.ok()) return FailCall(response.status());
  if (session.json()) {
    Emit(ToJson(*response, session.hex) + '\n');
    return kExitOk;
  }
  if (EmitMessage(session, *response)) return kExitOk;
  if (session.format == Format::kFields) {
    Emit(ListFields(*response, session.hex));
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows;
  for (const pb::Member& member : response->members()) rows.push_back(MemberRow(member));
  if (session.format == Format::kTable) {
    Emit(Table({"id", "status", "name", "peer addrs", "client addrs", "is learner"}, rows));
    return kExitOk;
  }
  std::string out;
  for (const auto& row : rows) out += Join(row, ", ") + '\n';
  Emit(out);
  return kExitOk;
}

// --- add ---

std::string AddText(const std::string& name, bool as_learner,
                    const pb::MemberAddResponse& response) {
  std::string out =
      fmt::format("Member {} added {}to cluster {}\n", PaddedId(response.member().id()),
                  as_learner ? "as learner " : "", PaddedId(response.header().cluster_id()));
  std::vector<std::string> cluster;
  for (const pb::Member& member : response.members()) {
    const bool added = member.id() == response.member().id();
    for (const std::string& url : member.peerurls()) {
      cluster.push_back(fmt::format("{}={}", added ? name : member.name(), url));
    }
  }
  out += fmt::format("\nETCD_NAME={}\n", Quote(name));
  out += fmt::format("ETCD_INITIAL_CLUSTER={}\n", Quote(Join(cluster, ",")));
  out += fmt::format("ETCD_INITIAL_ADVERTISE_PEER_URLS={}\n",
                     Quote(Join(Strings(response.member().peerurls()), ",")));
  return out + "ETCD_INITIAL_CLUSTER_STATE=\"existing\"\n";
}

int RunAdd(const Invocation& invocation) {
  const std::vector<std::string>& words = invocation.words;
  if (words.empty()) return Fail(kExitBadArguments, "member name not provided");
  if (words.size() > 1) {
    std::string text = "too many arguments";
    if (words[1].substr(0, 7) == "http://" || words[1].substr(0, 8) == "https://") {
      text += fmt::format(", did you mean --peer-urls={}", words[1]);
    }
    return Fail(kExitBadArguments, text);
  }
  const std::string& urls = invocation.flags->String("peer-urls");
  if (urls.empty()) return Fail(kExitBadArguments, "member peer urls not provided");
  Session session;
  if (const int code = LoadSession(invocation, kNoFieldsNoTable, &session); code != 0) return code;
  for (const std::string& url : Split(urls, ',')) {
    if (const auto parsed = base::ParseUrl(url); !parsed.ok()) {
      return Fail(kExitError, base::Message(parsed.status()));
    }
  }
  if (const int code = Connect(&session); code != 0) return code;
  pb::MemberAddRequest request;
  for (const std::string& url : Split(urls, ',')) request.add_peerurls(url);
  request.set_islearner(invocation.flags->Bool("learner"));
  const auto response = session.client->Call(client::kMemberAdd, request, session.call_options());
  if (!response.ok()) return FailCall(response.status());
  if (session.format != Format::kSimple) return PrintChange(session, *response, "");
  Emit(AddText(words[0], request.islearner(), *response));
  if (response->member().islearner() && !request.islearner()) {
    std::fputs(
        "Note: it is a learner, since a second voter that has not started would stop all writes; "
        "it is promoted once it has caught up.\n",
        stderr);
  }
  return kExitOk;
}

// --- remove, update, promote ---

template <typename Request, typename Response>
int RunChange(const Invocation& invocation, const client::Unary<Request, Response>& method,
              Request request, std::string_view done) {
  uint64_t id = 0;
  if (const int code = ParseMemberId(invocation, &id); code != 0) return code;
  Session session;
  if (const int code = OpenSession(invocation, kNoFieldsNoTable, &session); code != 0) return code;
  request.set_id(id);
  const auto response = session.client->Call(method, request, session.call_options());
  if (!response.ok()) return FailCall(response.status());
  return PrintChange(session, *response,
                     fmt::format("Member {} {} cluster {}\n", PaddedId(id), done,
                                 PaddedId(response->header().cluster_id())));
}

int RunRemove(const Invocation& invocation) {
  return RunChange(invocation, client::kMemberRemove, pb::MemberRemoveRequest(), "removed from");
}

int RunPromote(const Invocation& invocation) {
  return RunChange(invocation, client::kMemberPromote, pb::MemberPromoteRequest(), "promoted in");
}

int RunUpdate(const Invocation& invocation) {
  uint64_t id = 0;
  if (const int code = ParseMemberId(invocation, &id); code != 0) return code;
  const std::string& urls = invocation.flags->String("peer-urls");
  if (urls.empty()) return Fail(kExitBadArguments, "member peer urls not provided");
  pb::MemberUpdateRequest request;
  for (const std::string& url : Split(urls, ',')) request.add_peerurls(url);
  return RunChange(invocation, client::kMemberUpdate, std::move(request), "updated in");
}

}  // namespace

Command MemberCommand() {
  return {
      .name = "member",
      .usage = "",
      .summary = "List and change the members of the cluster",
      .group = kMaintenanceGroup,
      .commands = {
          {.name = "add",
           .usage = "<memberName> [options]",
           .summary = "Add a member",
           .flags = kAddFlags,
           .run = RunAdd},
          {.name = "list",
           .usage = "",
           .summary = "List the members",
           .flags = kListFlags,
           .run = RunList},
          {.name = "promote",
           .usage = "<memberID>",
           .summary = "Give a learner its vote",
           .run = RunPromote},
          {.name = "remove", .usage = "<memberID>", .summary = "Remove a member", .run = RunRemove},
          {.name = "update",
           .usage = "<memberID> [options]",
           .summary = "Change the peer URLs of a member",
           .flags = kUpdateFlags,
           .run = RunUpdate},
      }};
}

}  // namespace engramctl
