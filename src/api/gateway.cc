#include "api/gateway.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "api/json.h"
#include "base/log.h"
#include "base/status.h"
#include "proto/election.pb.h"
#include "proto/lock.pb.h"
#include "proto/rpc.pb.h"
#include "rpc/wire_text.h"

namespace api {
namespace {

namespace protobuf = google::protobuf;

struct Route {
  std::string_view path;
  std::string_view method;  // "service/Method"
};

constexpr Route kRoutes[] = {
    {"/v3/kv/range", "etcdserverpb.KV/Range"},
    {"/v3/kv/put", "etcdserverpb.KV/Put"},
    {"/v3/kv/deleterange", "etcdserverpb.KV/DeleteRange"},
    {"/v3/kv/txn", "etcdserverpb.KV/Txn"},
    {"/v3/kv/compaction", "etcdserverpb.KV/Compact"},
    {"/v3/watch", "etcdserverpb.Watch/Watch"},
    {"/v3/lease/grant", "etcdserverpb.Lease/LeaseGrant"},
    {"/v3/lease/revoke", "etcdserverpb.Lease/LeaseRevoke"},
    {"/v3/kv/lease/revoke", "etcdserverpb.Lease/LeaseRevoke"},
    {"/v3/lease/keepalive", "etcdserverpb.Lease/LeaseKeepAlive"},
    {"/v3/lease/timetolive", "etcdserverpb.Lease/LeaseTimeToLive"},
    {"/v3/kv/lease/timetolive", "etcdserverpb.Lease/LeaseTimeToLive"},
    {"/v3/lease/leases", "etcdserverpb.Lease/LeaseLeases"},
    {"/v3/kv/lease/leases", "etcdserverpb.Lease/LeaseLeases"},
    {"/v3/cluster/member/add", "etcdserverpb.Cluster/MemberAdd"},
    {"/v3/cluster/member/remove", "etcdserverpb.Cluster/MemberRemove"},
    {"/v3/cluster/member/update", "etcdserverpb.Cluster/MemberUpdate"},
    {"/v3/cluster/member/list", "etcdserverpb.Cluster/MemberList"},
    {"/v3/cluster/member/promote", "etcdserverpb.Cluster/MemberPromote"},
    {"/v3/maintenance/alarm", "etcdserverpb.Maintenance/Alarm"},
    {"/v3/maintenance/status", "etcdserverpb.Maintenance/Status"},
    {"/v3/maintenance/defragment", "etcdserverpb.Maintenance/Defragment"},
    {"/v3/maintenance/hash", "etcdserverpb.Maintenance/Hash"},
    {"/v3/maintenance/hashkv", "etcdserverpb.Maintenance/HashKV"},
    {"/v3/maintenance/snapshot", "etcdserverpb.Maintenance/Snapshot"},
    {"/v3/maintenance/transfer-leadership", "etcdserverpb.Maintenance/MoveLeader"},
    {"/v3/maintenance/downgrade", "etcdserverpb.Maintenance/Downgrade"},
    {"/v3/auth/enable", "etcdserverpb.Auth/AuthEnable"},
    {"/v3/auth/disable", "etcdserverpb.Auth/AuthDisable"},
    {"/v3/auth/status", "etcdserverpb.Auth/AuthStatus"},
    {"/v3/auth/authenticate", "etcdserverpb.Auth/Authenticate"},
    {"/v3/auth/user/add", "etcdserverpb.Auth/UserAdd"},
    {"/v3/auth/user/get", "etcdserverpb.Auth/UserGet"},
    {"/v3/auth/user/list", "etcdserverpb.Auth/UserList"},
    {"/v3/auth/user/delete", "etcdserverpb.Auth/UserDelete"},
    {"/v3/auth/user/changepw", "etcdserverpb.Auth/UserChangePassword"},
    {"/v3/auth/user/grant", "etcdserverpb.Auth/UserGrantRole"},
    {"/v3/auth/user/revoke", "etcdserverpb.Auth/UserRevokeRole"},
    {"/v3/auth/role/add", "etcdserverpb.Auth/RoleAdd"},
    {"/v3/auth/role/get", "etcdserverpb.Auth/RoleGet"},
    {"/v3/auth/role/list", "etcdserverpb.Auth/RoleList"},
    {"/v3/auth/role/delete", "etcdserverpb.Auth/RoleDelete"},
    {"/v3/auth/role/grant", "etcdserverpb.Auth/RoleGrantPermission"},
    {"/v3/auth/role/revoke", "etcdserverpb.Auth/RoleRevokePermission"},
    {"/v3/lock/lock", "v3lockpb.Lock/Lock"},
    {"/v3/lock/unlock", "v3lockpb.Lock/Unlock"},
    {"/v3/election/campaign", "v3electionpb.Election/Campaign"},
    {"/v3/election/proclaim", "v3electionpb.Election/Proclaim"},
    {"/v3/election/leader", "v3electionpb.Election/Leader"},
    {"/v3/election/observe", "v3electionpb.Election/Observe"},
    {"/v3/election/resign", "v3electionpb.Election/Resign"},
};

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    default:
      return 500;
  }
}

std::string ErrorJson(const absl::Status& status) {
  return fmt::format(R"({{"code":{},"message":{}}})", static_cast<int>(status.code()),
                     base::JsonString(base::Message(status)));
}

void RespondError(net::HttpExchange& exchange, const absl::Status& status, int http_status) {
  if (http_status == 401) exchange.AddHeader("WWW-Authenticate", base::Message(status));
  exchange.Respond(http_status, "application/json", ErrorJson(status));
}

// Request and response types of a method.
struct MethodTypes {
  const protobuf::MethodDescriptor* method = nullptr;
  const protobuf::Message* request = nullptr;  // prototypes
  const protobuf::Message* response = nullptr;
};

const MethodTypes* FindTypes(std::string_view method) {
  static const auto* const table = [] {
    // Touching the messages links their descriptors in.
    etcdserverpb::RangeRequest::descriptor();
    v3lockpb::LockRequest::descriptor();
    v3electionpb::LeaderRequest::descriptor();
    auto* types = new std::map<std::string, MethodTypes, std::less<>>;
    const auto* pool = protobuf::DescriptorPool::generated_pool();
    auto* factory = protobuf::MessageFactory::generated_factory();
    for (const Route& route : kRoutes) {
      const size_t slash = route.method.find('/');
      const auto* service = pool->FindServiceByName(std::string(route.method.substr(0, slash)));
      const auto* m = service == nullptr
                          ? nullptr
                          : service->FindMethodByName(std::string(route.method.substr(slash + 1)));
      if (m == nullptr) continue;
      (*types)[std::string(route.method)] = {.method = m,
                                             .request = factory->GetPrototype(m->input_type()),
                                             .response = factory->GetPrototype(m->output_type())};
    }
    return types;
  }();
  const auto it = table->find(method);
  return it == table->end() ? nullptr : &it->second;
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

rpc::LocalCallOptions CallOptions(net::HttpExchange& exchange, std::string_view method) {
  rpc::LocalCallOptions options;
  options.path = "/" + std::string(method);
  for (const net::Header& header : exchange.headers()) {
    const std::string name = Lower(header.name);
    const std::string value(header.value);
    if (name == "authorization") options.metadata.emplace_back("authorization", value);
    if (name == "grpc-timeout") {
      if (const auto timeout = rpc::ParseTimeout(value)) options.timeout = *timeout;
    } else if (name.starts_with("grpc-metadata-")) {
      options.metadata.emplace_back(name.substr(14), value);
    } else if (name == "accept" || name == "user-agent" || name == "content-type" ||
               name == "authorization") {
      options.metadata.emplace_back("grpcgateway-" + name, value);
    }
  }
  options.metadata.emplace_back("x-forwarded-for", exchange.connection().remote_ip);
  options.metadata.emplace_back("x-forwarded-host", std::string(exchange.host()));
  options.connection = std::make_shared<net::ConnectionInfo>(exchange.connection());
  return options;
}

// Unary: one JSON object in, one out.
class UnaryClient final : public rpc::LocalClient {
 public:
  UnaryClient(std::shared_ptr<net::HttpExchange> exchange, const MethodTypes& types)
      : exchange_(std::move(exchange)), types_(types) {}
  void OnMessage(std::string_view payload) override {
    json_ = WireToJson(payload, *types_.response);
  }
  void OnFinish(const absl::Status& finish) override {
    if (exchange_->aborted()) return;
    const absl::Status& status = finish.ok() ? json_.status() : finish;
    if (!status.ok()) return RespondError(*exchange_, status, HttpStatusOf(status.code()));
    exchange_->AddHeader("Grpc-Metadata-Content-Type", "application/grpc");
    exchange_->Respond(200, "application/json", *std::move(json_));
  }

 private:
  const std::shared_ptr<net::HttpExchange> exchange_;
  const MethodTypes& types_;
  absl::StatusOr<std::string> json_ = absl::InternalError("no answer");
};

// What a stream sends for a message.
std::string ResultJson(std::string_view payload, const MethodTypes& types) {
  const auto json = WireToJson(payload, *types.response);
  return json.ok() ? "{\"result\":" + *json + "}" : "{\"error\":" + ErrorJson(json.status()) + "}";
}

// Streams: a line of JSON for each message.
class StreamClient final : public rpc::LocalClient {
 public:
  StreamClient(std::shared_ptr<net::HttpExchange> exchange, const MethodTypes& types)
      : exchange_(std::move(exchange)), types_(types) {}
  void OnMessage(std::string_view payload) override {
    if (exchange_->aborted()) return;
    if (!exchange_->started()) {
      exchange_->AddHeader("Content-Type", "application/json");
      exchange_->AddHeader("Grpc-Metadata-Content-Type", "application/grpc");
      exchange_->Start(200);
    }
    exchange_->Write(ResultJson(payload, types_) + "\n");
  }
  void OnFinish(const absl::Status& status) override {
    if (exchange_->aborted()) return;
    if (status.ok()) {
      if (!exchange_->started()) exchange_->Start(200);
      return exchange_->End();
    }
    const std::string body = "{\"error\":" + ErrorJson(status) + "}\n";
    if (!exchange_->started())
      return exchange_->Respond(HttpStatusOf(status.code()), "application/json", body);
    exchange_->Write(body);
    exchange_->End();
  }

 private:
  const std::shared_ptr<net::HttpExchange> exchange_;
  const MethodTypes& types_;
};

// As JSON a request is longer than its wire form, by a third where it is base64. What is longer
// than this need not be read to be refused.
size_t BodyBytesMax(const rpc::Server& server) {
  constexpr size_t kAlwaysRead = 64 << 20;
  return std::max(kAlwaysRead, 2 * size_t{server.options().receive_bytes_max});
}

void HandleUnary(rpc::Server& server, const std::shared_ptr<net::HttpExchange>& exchange,
                 const MethodTypes& types, std::string_view method) {
  exchange->ReadBody(
      BodyBytesMax(server), [&server, exchange, &types, method](absl::StatusOr<std::string> body) {
        if (absl::IsResourceExhausted(body.status())) {
          body = base::MakeStatus(absl::StatusCode::kResourceExhausted,
                                  "grpc: received message larger than max (a body of more than {} "
                                  "bytes vs. {})",
                                  BodyBytesMax(server), server.options().receive_bytes_max);
        }
        if (!body.ok()) {
          if (!exchange->aborted())
            RespondError(*exchange, body.status(), HttpStatusOf(body.status().code()));
          return;
        }
        const auto request = JsonToWire(body->empty() ? "{}" : *body, *types.request);
        if (!request.ok()) return RespondError(*exchange, request.status(), 400);
        auto call = server.StartLocal(exchange->loop(), CallOptions(*exchange, method),
                                      std::make_unique<UnaryClient>(exchange, types));
        call->Send(*request);
        call->HalfClose();
        exchange->OnAbort([call] { call->Cancel(); });
      });
}

// What the body of a streaming request needs while it arrives. Loop thread.
struct StreamState {
  std::shared_ptr<rpc::LocalCall> call;
  JsonSplitter splitter;
  bool failed = false;
};

void HandleStream(rpc::Server& server, const std::shared_ptr<net::HttpExchange>& exchange,
                  const MethodTypes& types, std::string_view method) {
  auto state = std::make_shared<StreamState>();
  state->call = server.StartLocal(exchange->loop(), CallOptions(*exchange, method),
                                  std::make_unique<StreamClient>(exchange, types));
  exchange->OnAbort([state] { state->call->Cancel(); });
  const bool many = types.method->client_streaming();
  auto any = std::make_shared<bool>(false);
  exchange->ReadBodyPieces([exchange, state, &types, many, any](std::string_view piece, bool last) {
    if (state->failed) return;
    absl::Status bad;
    const bool fine = state->splitter.Feed(piece, [&](std::string_view json) {
      if (!many && *any) return;
      *any = true;
      const auto request = JsonToWire(json, *types.request);
      if (request.ok()) {
        state->call->Send(*request);
      } else {
        bad = request.status();
      }
    });
    if (!fine) bad = absl::InvalidArgumentError("the body is no sequence of JSON objects");
    if (bad.ok() && last && !state->splitter.empty())
      bad = absl::InvalidArgumentError("unexpected EOF");
    if (!bad.ok()) {
      state->failed = true;
      state->call->Cancel();
      if (exchange->aborted()) return;
      if (!exchange->started()) return RespondError(*exchange, bad, 400);
      exchange->Write("{\"error\":" + ErrorJson(bad) + "}\n");
      return exchange->End();
    }
    if (!last) return;
    if (!many && !*any) state->call->Send("");
    state->call->HalfClose();
  });
}

// WebSocket: a text frame for each request object and each result line.
class SocketClient final : public rpc::LocalClient {
 public:
  SocketClient(std::shared_ptr<std::shared_ptr<net::WebSocket>> socket, const MethodTypes& types)
      : socket_(std::move(socket)), types_(types) {}
  void OnMessage(std::string_view payload) override { Send(ResultJson(payload, types_)); }
  void OnFinish(const absl::Status& status) override {
    if (!status.ok()) Send("{\"error\":" + ErrorJson(status) + "}");
    if (*socket_ != nullptr) (*socket_)->Close(1000, "");
  }

 private:
  void Send(const std::string& text) {
    if (*socket_ != nullptr) (*socket_)->SendText(text);
  }
  const std::shared_ptr<std::shared_ptr<net::WebSocket>> socket_;
  const MethodTypes& types_;
};

void HandleWebSocket(rpc::Server& server, const std::shared_ptr<net::HttpExchange>& exchange,
                     const MethodTypes& types, std::string_view method) {
  rpc::LocalCallOptions options = CallOptions(*exchange, method);
  // Browsers cannot set headers here: the token comes as a second protocol, or as a cookie.
  std::string_view protocols = exchange->header("Sec-WebSocket-Protocol");
  if (const size_t comma = protocols.find(',');
      protocols.starts_with("Bearer") && comma != std::string_view::npos) {
    std::string_view token = protocols.substr(comma + 1);
    while (token.starts_with(' ')) token.remove_prefix(1);
    options.metadata.emplace_back("authorization", "Bearer " + std::string(token));
    protocols = "Bearer";
  } else if (const std::string_view cookie = exchange->header("Cookie");
             cookie.find("token=") != std::string_view::npos) {
    std::string_view token = cookie.substr(cookie.find("token=") + 6);
    token = token.substr(0, token.find(';'));
    options.metadata.emplace_back("authorization", "Bearer " + std::string(token));
  }
  auto socket = std::make_shared<std::shared_ptr<net::WebSocket>>();
  auto call = server.StartLocal(exchange->loop(), std::move(options),
                                std::make_unique<SocketClient>(socket, types));
  net::WebSocketHandlers handlers;
  handlers.on_message = [call, socket, &types](std::string_view text) {
    const auto request = JsonToWire(text, *types.request);
    if (request.ok()) return call->Send(*request);
    if (*socket != nullptr) (*socket)->SendText("{\"error\":" + ErrorJson(request.status()) + "}");
  };
  handlers.on_close = [call, socket] {
    socket->reset();
    call->Cancel();
  };
  *socket = exchange->AcceptWebSocket(protocols, std::move(handlers));
}

}  // namespace

bool Gateway::Owns(std::string_view path) {
  return path.starts_with("/v3/") || path.starts_with("/v3beta/");
}

void Gateway::Handle(const std::shared_ptr<net::HttpExchange>& exchange) const {
  std::string path(exchange->path());
  if (path.starts_with("/v3beta/")) path = "/v3/" + path.substr(8);
  const Route* found = nullptr;
  for (const Route& route : kRoutes) {
    if (route.path == path) found = &route;
  }
  const MethodTypes* types = found == nullptr ? nullptr : FindTypes(found->method);
  if (types == nullptr) return RespondError(*exchange, absl::NotFoundError("Not Found"), 404);
  if (exchange->WantsWebSocket()) return HandleWebSocket(server_, exchange, *types, found->method);
  if (exchange->method() != "POST")
    return RespondError(*exchange, absl::UnimplementedError("Method Not Allowed"), 501);
  if (const std::string_view timeout = exchange->header("Grpc-Timeout");
      !timeout.empty() && !rpc::ParseTimeout(timeout)) {
    const std::string text = "invalid grpc-timeout: " + std::string(timeout);
    return RespondError(*exchange, absl::InvalidArgumentError(text), 400);
  }
  if (types->method->server_streaming() || types->method->client_streaming()) {
    return HandleStream(server_, exchange, *types, found->method);
  }
  HandleUnary(server_, exchange, *types, found->method);
}

}  // namespace api
