#include "api/gateway.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "base/go_text.h"
#include "base/log.h"
#include "base/status.h"
#include "proto/election.pb.h"
#include "proto/lock.pb.h"
#include "proto/rpc.pb.h"

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

// Finds the end of the first value of a body by the strict grammar of RFC 8259. The library's own
// parser takes more than that (single quotes, names without quotes, commas at the end) and refuses
// what follows the value, which etcd never looks at.
class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text) : text_(text) {}

  // The first value; empty if there are only blanks.
  absl::StatusOr<std::string_view> First() {
    SkipBlanks();
    const size_t begin = at_;
    if (at_ < text_.size()) RETURN_IF_ERROR(Value(0));
    return text_.substr(begin, at_ - begin);
  }

 private:
  static constexpr int kDepthMax = 100;  // the library's own limit

  absl::Status Unexpected(std::string_view where) const {
    if (at_ >= text_.size()) return absl::InvalidArgumentError("unexpected EOF");
    const std::string quoted = base::GoQuote(text_.substr(at_, 1));
    const std::string inner = text_[at_] == '"'    ? "\""
                              : text_[at_] == '\'' ? "\\'"
                                                   : quoted.substr(1, quoted.size() - 2);
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "invalid character '{}' {}", inner,
                            where);
  }
  bool Has(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool HasDigit() const { return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; }
  void SkipBlanks() {
    while (Has(' ') || Has('\t') || Has('\n') || Has('\r')) ++at_;
  }

  absl::Status Value(int depth) {
    if (depth > kDepthMax) return absl::InvalidArgumentError("exceeded max depth");
    if (Has('{')) return Object(depth);
    if (Has('[')) return Array(depth);
    if (Has('"')) return String();
    if (Has('-') || HasDigit()) return Number();
    for (const std::string_view word : {"true", "false", "null"}) {
      if (!Has(word[0])) continue;
      for (const char c : word) {
        if (!Has(c)) return Unexpected("in literal " + std::string(word));
        ++at_;
      }
      return absl::OkStatus();
    }
    return Unexpected("looking for beginning of value");
  }

  absl::Status Object(int depth) {
    ++at_;
    SkipBlanks();
    if (Has('}')) return ++at_, absl::OkStatus();
    while (true) {
      SkipBlanks();
      if (!Has('"')) return Unexpected("looking for beginning of object key string");
      RETURN_IF_ERROR(String());
      SkipBlanks();
      if (!Has(':')) return Unexpected("after object key");
      ++at_;
      SkipBlanks();
      RETURN_IF_ERROR(Value(depth + 1));
      SkipBlanks();
      if (Has('}')) return ++at_, absl::OkStatus();
      if (!Has(',')) return Unexpected("after object key:value pair");
      ++at_;
    }
  }

  absl::Status Array(int depth) {
    ++at_;
    SkipBlanks();
    if (Has(']')) return ++at_, absl::OkStatus();
    while (true) {
      SkipBlanks();
      // The library would drop such an element without a word.
      if (Has('n')) return absl::InvalidArgumentError("unexpected token null");
      RETURN_IF_ERROR(Value(depth + 1));
      SkipBlanks();
      if (Has(']')) return ++at_, absl::OkStatus();
      if (!Has(',')) return Unexpected("after array element");
      ++at_;
    }
  }

  // What an escape means, and whether the bytes are UTF-8, is for the library to judge.
  absl::Status String() {
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"') return ++at_, absl::OkStatus();
      if (c == '\\') ++at_;
      if (static_cast<unsigned char>(c) < 0x20) return Unexpected("in string literal");
    }
    return Unexpected("");
  }

  absl::Status Digits() {
    if (!HasDigit()) return Unexpected("in numeric literal");
    while (HasDigit()) ++at_;
    return absl::OkStatus();
  }

  absl::Status Number() {
    if (Has('-')) ++at_;
    if (Has('0')) {
      ++at_;
    } else {
      RETURN_IF_ERROR(Digits());
    }
    if (Has('.')) {
      ++at_;
      RETURN_IF_ERROR(Digits());
    }
    if (Has('e') || Has('E')) {
      ++at_;
      if (Has('+') || Has('-')) ++at_;
      RETURN_IF_ERROR(Digits());
    }
    return absl::OkStatus();
  }

  const std::string_view text_;
  size_t at_ = 0;
};

absl::StatusOr<std::string> JsonToWire(std::string_view body, const MethodTypes& types) {
  ASSIGN_OR_RETURN(const std::string_view json, JsonScanner(body).First());
  if (json.empty()) return std::string();
  const std::unique_ptr<protobuf::Message> message(types.request->New());
  protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto parsed =
      protobuf::util::JsonStringToMessage({json.data(), json.size()}, message.get(), options);
  if (!parsed.ok()) {
    const auto text = parsed.message();
    return absl::InvalidArgumentError(std::string(text.data(), text.size()));
  }
  return message->SerializeAsString();
}

std::string WireToJson(std::string_view bytes, const MethodTypes& types) {
  const std::unique_ptr<protobuf::Message> message(types.response->New());
  message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto printed = protobuf::util::MessageToJsonString(*message, &json, options);
  return printed.ok() ? json : "{}";
}

// Cuts concatenated JSON objects apart. Fed in pieces; yields each complete top-level value.
class JsonSplitter {
 public:
  static constexpr size_t kValueBytesMax = 4 << 20;

  // False when the bytes can be no sequence of objects, or one is too long.
  bool Feed(std::string_view bytes, const std::function<void(std::string_view)>& on_value) {
    for (const char c : bytes) {
      if (depth_ == 0) {
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',') continue;
        if (c != '{') return false;
      }
      value_.push_back(c);
      if (value_.size() > kValueBytesMax) return false;
      if (in_string_) {
        if (escaped_) {
          escaped_ = false;
        } else if (c == '\\') {
          escaped_ = true;
        } else if (c == '"') {
          in_string_ = false;
        }
        continue;
      }
      if (c == '"') in_string_ = true;
      if (c == '{' || c == '[') ++depth_;
      if (c == '}' || c == ']') {
        if (--depth_ == 0) {
          on_value(value_);
          value_.clear();
        }
      }
    }
    return true;
  }
  bool empty() const { return value_.empty(); }

 private:
  std::string value_;
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

std::optional<base::Duration> ParseGrpcTimeout(std::string_view text) {
  if (text.size() < 2) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size() - 1, value);
  if (error != std::errc() || end != text.data() + text.size() - 1 || value < 0 || value > 99999999)
    return std::nullopt;
  switch (text.back()) {
    case 'H':
      return std::chrono::hours(value);
    case 'M':
      return std::chrono::minutes(value);
    case 'S':
      return std::chrono::seconds(value);
    case 'm':
      return std::chrono::milliseconds(value);
    case 'u':
      return std::chrono::microseconds(value);
    case 'n':
      return std::chrono::nanoseconds(value);
    default:
      return std::nullopt;
  }
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
      if (const auto timeout = ParseGrpcTimeout(value)) options.timeout = *timeout;
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
  void OnMessage(std::string_view payload) override { json_ = WireToJson(payload, types_); }
  void OnFinish(const absl::Status& status) override {
    if (exchange_->aborted()) return;
    if (!status.ok()) return RespondError(*exchange_, status, HttpStatusOf(status.code()));
    exchange_->AddHeader("Grpc-Metadata-Content-Type", "application/grpc");
    exchange_->Respond(200, "application/json", std::move(json_));
  }

 private:
  const std::shared_ptr<net::HttpExchange> exchange_;
  const MethodTypes& types_;
  std::string json_;
};

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
    exchange_->Write("{\"result\":" + WireToJson(payload, types_) + "}\n");
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

void HandleUnary(rpc::Server& server, const std::shared_ptr<net::HttpExchange>& exchange,
                 const MethodTypes& types, std::string_view method) {
  constexpr size_t kBodyBytesMax = 64 << 20;
  exchange->ReadBody(
      kBodyBytesMax, [&server, exchange, &types, method](absl::StatusOr<std::string> body) {
        if (!body.ok()) {
          if (!exchange->aborted())
            RespondError(*exchange, body.status(), HttpStatusOf(body.status().code()));
          return;
        }
        const auto request = JsonToWire(body->empty() ? "{}" : *body, types);
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
      const auto request = JsonToWire(json, types);
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
  void OnMessage(std::string_view payload) override {
    Send("{\"result\":" + WireToJson(payload, types_) + "}");
  }
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
    const auto request = JsonToWire(text, types);
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
      !timeout.empty() && !ParseGrpcTimeout(timeout)) {
    const std::string text = "invalid grpc-timeout: " + std::string(timeout);
    return RespondError(*exchange, absl::InvalidArgumentError(text), 400);
  }
  if (types->method->server_streaming() || types->method->client_streaming()) {
    return HandleStream(server_, exchange, *types, found->method);
  }
  HandleUnary(server_, exchange, *types, found->method);
}

}  // namespace api
