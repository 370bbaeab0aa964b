#include "client/lease.h"

#include <fmt/format.h>

#include <thread>

#include "base/status.h"
#include "commands.h"
#include "print.h"
#include "proto/rpc.pb.h"
#include "session.h"
#include "text.h"

namespace engramctl {
namespace {

constexpr base::Duration kKeepAliveAnswerMax = std::chrono::seconds(5);

std::string HexId(int64_t id) { return fmt::format("{:016x}", static_cast<uint64_t>(id)); }

std::string IdField(int64_t id, bool hex) {
  return Field("ID", hex ? HexId(id) : std::to_string(id));
}

// Lease answers have the fields of the header beside their own.
std::string FlatJson(const pb::ResponseHeader& header, std::string_view rest) {
  const std::string fields = HeaderJson(header);
  return fmt::format("{{{}{}{}}}\n", fields, fields.empty() ? "" : ",", rest);
}

// Reads the lease id argument; returns 0 or an exit status.
int ParseLeaseId(std::string_view text, int64_t* id) {
  const absl::StatusOr<int64_t> parsed = ParseInt(text, 16);
  if (!parsed.ok()) {
    return Fail(kExitBadArguments, fmt::format("bad lease ID arg ({}), expecting ID in Hex",
                                               base::Message(parsed.status())));
  }
  *id = *parsed;
  return 0;
}

int RunGrant(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "lease grant command needs TTL argument");
  }
  const absl::StatusOr<int64_t> ttl = ParseInt(invocation.words[0], 10);
  if (!ttl.ok()) {
    return Fail(kExitBadArguments, fmt::format("bad TTL ({})", base::Message(ttl.status())));
  }
  Session session;
  if (const int code = OpenSession(invocation, kNoTable, &session); code != 0) return code;
  pb::LeaseGrantRequest request;
  request.set_ttl(*ttl);
  const auto response = session.client->Call(client::kLeaseGrant, request, session.call_options());
  if (!response.ok()) {
    return Fail(kExitError,
                fmt::format("failed to grant lease ({})", client::ErrorText(response.status())));
  }
  switch (session.format) {
    case Format::kJson:
      Emit(FlatJson(response->header(),
                    fmt::format("\"ID\":{},\"TTL\":{},\"Error\":{}", response->id(),
                                response->ttl(), JsonString(response->error()))));
      break;
    case Format::kProtobuf:
      EmitMessage(session, *response);
      break;
    case Format::kFields:
      Emit(HeaderFields(response->header(), session.hex) + IdField(response->id(), session.hex) +
           Field("TTL", std::to_string(response->ttl())));
      break;
    default:
      Emit(fmt::format("lease {} granted with TTL({}s)\n", HexId(response->id()), response->ttl()));
  }
  return kExitOk;
}

int RunRevoke(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "lease revoke command needs 1 argument");
  }
  int64_t id = 0;
  if (const int code = ParseLeaseId(invocation.words[0], &id); code != 0) return code;
  Session session;
  if (const int code = OpenSession(invocation, kNoTable, &session); code != 0) return code;
  pb::LeaseRevokeRequest request;
  request.set_id(id);
  const auto response = session.client->Call(client::kLeaseRevoke, request, session.call_options());
  if (!response.ok()) {
    return Fail(kExitError,
                fmt::format("failed to revoke lease ({})", client::ErrorText(response.status())));
  }
  if (EmitMessage(session, *response)) return kExitOk;
  Emit(session.format == Format::kFields ? HeaderFields(response->header(), session.hex)
                                         : fmt::format("lease {} revoked\n", HexId(id)));
  return kExitOk;
}

constexpr FlagSpec kTimeToLiveFlags[] = {
    {.name = "keys", .type = FlagType::kBool, .help = "list the keys bound to the lease"}};

std::string TimeToLiveLine(const pb::LeaseTimeToLiveResponse& response, bool keys) {
  if (response.grantedttl() == 0 && response.ttl() == -1) {
    return fmt::format("lease {} already expired\n", HexId(response.id()));
  }
  std::string line = fmt::format("lease {} granted with TTL({}s), remaining({}s)",
                                 HexId(response.id()), response.grantedttl(), response.ttl());
  if (keys) {
    const std::vector<std::string> names(response.keys().begin(), response.keys().end());
    line += fmt::format(", attached keys([{}])", Join(names, " "));
  }
  return line + '\n';
}

std::string TimeToLiveJson(const pb::LeaseTimeToLiveResponse& response) {
  std::string keys = response.keys_size() == 0 ? "null" : "[";
  for (int i = 0; i < response.keys_size(); ++i) {
    keys += fmt::format("{}\"{}\"", i > 0 ? "," : "", Base64(response.keys(i)));
  }
  if (response.keys_size() > 0) keys += ']';
  return FlatJson(response.header(),
                  fmt::format("\"id\":{},\"ttl\":{},\"granted-ttl\":{},\"keys\":{}", response.id(),
                              response.ttl(), response.grantedttl(), keys));
}

int RunTimeToLive(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "lease timetolive command needs lease ID as argument");
  }
  pb::LeaseTimeToLiveRequest request;
  int64_t id = 0;
  if (const int code = ParseLeaseId(invocation.words[0], &id); code != 0) return code;
  Session session;
  if (const int code = OpenSession(invocation, kNoTable, &session); code != 0) return code;
  const bool keys = invocation.flags->Bool("keys");
  request.set_id(id);
  request.set_keys(keys);
  const auto response =
      session.client->Call(client::kLeaseTimeToLive, request, session.call_options());
  if (!response.ok()) return FailCall(response.status(), kExitBadConnection);
  switch (session.format) {
    case Format::kJson:
      Emit(TimeToLiveJson(*response));
      break;
    case Format::kProtobuf:
      EmitMessage(session, *response);
      break;
    case Format::kFields: {
      std::string out = HeaderFields(response->header(), session.hex);
      out += IdField(response->id(), session.hex);
      out += Field("TTL", std::to_string(response->ttl()));
      out += Field("GrantedTTL", std::to_string(response->grantedttl()));
      for (const std::string& key : response->keys()) out += Field("Key", Quote(key));
      Emit(out);
      break;
    }
    default:
      Emit(TimeToLiveLine(*response, keys));
  }
  return kExitOk;
}

int RunList(const Invocation& invocation) {
  Session session;
  if (const int code = OpenSession(invocation, kNoTable, &session); code != 0) return code;
  // No time limit, as in etcdctl: listing many leases may take long.
  const auto response = session.client->Call(client::kLeaseLeases, pb::LeaseLeasesRequest());
  if (!response.ok()) return FailCall(response.status(), kExitBadConnection);
  std::string out;
  switch (session.format) {
    case Format::kJson: {
      std::string ids;
      for (const pb::LeaseStatus& lease : response->leases()) {
        ids += fmt::format("{}{{\"id\":{}}}", ids.empty() ? "" : ",", lease.id());
      }
      out = FlatJson(response->header(), fmt::format("\"leases\":[{}]", ids));
      break;
    }
    case Format::kProtobuf:
      out = response->SerializeAsString();
      break;
    case Format::kFields:
      out = HeaderFields(response->header(), session.hex);
      for (const pb::LeaseStatus& lease : response->leases()) {
        out += IdField(lease.id(), session.hex);
      }
      break;
    default:
      out = fmt::format("found {} leases\n", response->leases_size());
      for (const pb::LeaseStatus& lease : response->leases()) out += HexId(lease.id()) + '\n';
  }
  Emit(out);
  return kExitOk;
}

constexpr FlagSpec kKeepAliveFlags[] = {
    {.name = "once", .type = FlagType::kBool, .help = "renew once and exit"}};

void PrintKeepAlive(const Session& session, const pb::LeaseKeepAliveResponse& response) {
  switch (session.format) {
    case Format::kJson:
      return Emit(FlatJson(response.header(),
                           fmt::format("\"ID\":{},\"TTL\":{}", response.id(), response.ttl())));
    case Format::kProtobuf:
      return Emit(response.SerializeAsString());
    case Format::kFields:
      return Emit(HeaderFields(response.header(), session.hex) +
                  IdField(response.id(), session.hex) +
                  Field("TTL", std::to_string(response.ttl())));
    default:
      return Emit(
          fmt::format("lease {} keepalived with TTL({})\n", HexId(response.id()), response.ttl()));
  }
}

// Renews until the lease is gone. A broken stream is opened again; the lease outlives it.
int KeepAlive(const Session& session, int64_t id, bool once) {
  std::unique_ptr<client::Stream> stream;
  for (;;) {
    if (stream == nullptr) {
      auto opened = session.client->OpenStream(client::kLeaseKeepAliveMethod, {});
      if (!opened.ok()) return FailCall(opened.status(), kExitBadConnection);
      stream = *std::move(opened);
    }
    pb::LeaseKeepAliveResponse response;
    const absl::Status status = client::KeepLeaseAliveOnce(
        *stream, id, once ? base::Duration{} : kKeepAliveAnswerMax, &response);
    if (!status.ok()) {
      const bool transient = status.code() == absl::StatusCode::kUnavailable ||
                             status.code() == absl::StatusCode::kDeadlineExceeded;
      if (once || !transient) return FailCall(status, kExitBadConnection);
      stream.reset();
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      continue;
    }
    if (response.ttl() <= 0) {
      if (once) return Fail(kExitBadConnection, "etcdserver: requested lease not found");
      Emit(fmt::format("lease {} expired or revoked.\n", HexId(id)));
      return kExitOk;
    }
    PrintKeepAlive(session, response);
    if (once) return kExitOk;
    std::this_thread::sleep_for(std::chrono::milliseconds(response.ttl() * 1000 / 3));
  }
}

int RunKeepAlive(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "lease keep-alive command needs lease ID as argument");
  }
  int64_t id = 0;
  if (const int code = ParseLeaseId(invocation.words[0], &id); code != 0) return code;
  Session session;
  if (const int code = OpenSession(invocation, kNoTable, &session); code != 0) return code;
  return KeepAlive(session, id, invocation.flags->Bool("once"));
}

}  // namespace

Command LeaseCommand() {
  return {.name = "lease",
          .usage = "",
          .summary = "Create, inspect, renew and revoke leases",
          .group = kKeyValueGroup,
          .commands = {
              {.name = "grant",
               .usage = "<ttl>",
               .summary = "Create a lease that lives for some seconds",
               .run = RunGrant},
              {.name = "keep-alive",
               .usage = "[options] <leaseID>",
               .summary = "Renew a lease, again and again",
               .flags = kKeepAliveFlags,
               .run = RunKeepAlive},
              {.name = "list", .usage = "", .summary = "List all leases", .run = RunList},
              {.name = "revoke",
               .usage = "<leaseID>",
               .summary = "End a lease and delete its keys",
               .run = RunRevoke},
              {.name = "timetolive",
               .usage = "<leaseID> [options]",
               .summary = "Show how long a lease has to live",
               .flags = kTimeToLiveFlags,
               .run = RunTimeToLive},
          }};
}

}  // namespace engramctl
