#include "api/http_endpoints.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/lease.h"
#include "base/bytes.h"
#include "base/log.h"
#include "base/status.h"
#include "member/errors.h"
#include "proto/rpc.pb.h"

namespace api {
namespace {

namespace pb = etcdserverpb;

constexpr std::string_view kPromotePath = "/members/promote/";
constexpr std::string_view kTextPlain = "text/plain; charset=utf-8";

void NotFound(net::HttpExchange& exchange) {
  exchange.AddHeader("X-Content-Type-Options", "nosniff");
  exchange.Respond(404, kTextPlain, "404 page not found\n");
}

bool RequireMethod(net::HttpExchange& exchange, std::string_view method) {
  if (exchange.method() == method) return true;
  exchange.AddHeader("Allow", method);
  exchange.AddHeader("X-Content-Type-Options", "nosniff");
  exchange.Respond(405, kTextPlain, "Method Not Allowed\n");
  return false;
}

std::vector<std::string> QueryValues(const net::HttpExchange& exchange, std::string_view key) {
  std::vector<std::string> values;
  for (auto& [name, value] : net::ParseQuery(exchange.query())) {
    if (name == key) values.push_back(std::move(value));
  }
  return values;
}

bool Contains(const std::vector<std::string>& values, std::string_view wanted) {
  return std::find(values.begin(), values.end(), wanted) != values.end();
}

// Reads one key of the store the way a client would.
absl::Status ProbeStore(const Context& context) {
  std::string out;
  return context.member.store().Range({.key = "a", .limit = 1}, &out).status();
}

// Runs `then` on the exchange's loop with the outcome of a linearizable probe.
void ProbeLinearizable(const Context& context, const std::shared_ptr<net::HttpExchange>& exchange,
                       std::function<void(const absl::Status&)> then) {
  if (context.member.ReadNow()) return then(ProbeStore(context));
  // Moved on, never copied: the exchange must end on its loop's thread.
  net::Loop& loop = exchange->loop();
  context.member.Read(
      [&context, &loop, exchange, then = std::move(then)](const absl::Status& status) mutable {
        loop.Post([&context, exchange = std::move(exchange), then = std::move(then), status] {
          then(status.ok() ? ProbeStore(context) : status);
        });
      });
}

}  // namespace

std::string VersionJson(const Context& context) {
  const auto view = context.member.membership();
  const std::string storage = context.member.storage_version();
  return fmt::format(R"({{"etcdserver":"{}","etcdcluster":"{}","storage":"{}"}})",
                     context.options.version,
                     view->cluster_version.empty() ? "not_decided" : view->cluster_version,
                     storage.empty() ? "unknown" : storage);
}

ClientHttp::ClientHttp(const Context& context, rpc::Server& grpc, HttpOptions options,
                       HealthCounters counters, std::function<std::string()> scrape)
    : context_(context),
      options_(std::move(options)),
      counters_(std::move(counters)),
      scrape_(std::move(scrape)),
      gateway_(grpc) {}

void ClientHttp::OnRequest(std::shared_ptr<net::HttpExchange> exchange) {
  net::HttpExchange& x = *exchange;
  const std::string_view origin = x.header("Origin");
  const bool any_origin = Contains(options_.cors, "*");
  if (any_origin || (!origin.empty() && Contains(options_.cors, origin))) {
    x.AddHeader("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE");
    x.AddHeader("Access-Control-Allow-Origin", any_origin ? "*" : origin);
    x.AddHeader("Access-Control-Allow-Headers", "accept, content-type, authorization");
  }
  if (!x.connection().tls && !Contains(options_.host_whitelist, "*")) {
    std::string_view host = x.host();
    if (const size_t colon = host.rfind(':');
        colon != std::string_view::npos && !host.ends_with(']')) {
      host = host.substr(0, colon);
    }
    if (!Contains(options_.host_whitelist, host)) {
      return x.Respond(421, kTextPlain,
                       "etcd received your request, but the Host header was unrecognized.\n\n"
                       "To allow it, add the host to --host-whitelist. The check guards against "
                       "DNS rebinding: see "
                       "CVE-2018-5702.\n");
    }
  }
  if (x.method() == "OPTIONS") return x.Respond(200, "", "");
  const std::string_view path = x.path();
  if (ServeHealthAndMetrics(exchange)) return;
  if (path == "/version") {
    if (RequireMethod(x, "GET")) x.Respond(200, "application/json", VersionJson(context_));
    return;
  }
  if (path == "/debug/vars") return DebugVars(exchange);
  if (options_.debug_endpoints && (path == "/debug/requests" || path == "/debug/events")) {
    return x.Respond(200, "text/html; charset=utf-8",
                     "<html><body>no traces are kept</body></html>\n");
  }
  if (options_.gateway) {
    if (path == "/v3") {
      x.AddHeader("Location", "/v3/");
      return x.Respond(307, "text/html; charset=utf-8",
                       "<a href=\"/v3/\">Temporary Redirect</a>.\n\n");
    }
    if (Gateway::Owns(path)) return gateway_.Handle(exchange);
  }
  NotFound(x);
}

bool ClientHttp::ServeHealthAndMetrics(const std::shared_ptr<net::HttpExchange>& exchange) const {
  const std::string_view path = exchange->path();
  if (path == "/metrics") {
    exchange->Respond(200, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
                      scrape_());
    return true;
  }
  if (path == "/health") {
    if (RequireMethod(*exchange, "GET")) Health(exchange);
    return true;
  }
  for (const std::string_view type : {"livez", "readyz"}) {
    const std::string root = "/" + std::string(type);
    if (path == root) {
      if (RequireMethod(*exchange, "GET")) Checks(exchange, type, "");
      return true;
    }
    if (path.starts_with(root + "/")) {
      const std::string only(path.substr(root.size() + 1));
      const bool known =
          only == "serializable_read" ||
          (type == "readyz" &&
           (only == "data_corruption" || only == "linearizable_read" || only == "non_learner"));
      if (!known) {
        NotFound(*exchange);
      } else if (RequireMethod(*exchange, "GET")) {
        Checks(exchange, type, only);
      }
      return true;
    }
  }
  return false;
}

void ClientHttp::Health(const std::shared_ptr<net::HttpExchange>& exchange) const {
  const auto answer = [this, exchange](const std::string& reason) {
    const bool healthy = reason.empty();
    counters_.health(healthy);
    std::string body =
        fmt::format(R"({{"health":"{}","reason":{}}})", healthy, base::JsonString(reason));
    if (!healthy) {
      body += "\n";
      exchange->AddHeader("X-Content-Type-Options", "nosniff");
      LOG_WARN("serving /health false", {"reason", reason});
    }
    exchange->Respond(healthy ? 200 : 503, kTextPlain, std::move(body));
  };
  const auto excluded = QueryValues(*exchange, "exclude");
  for (const member::Alarm& alarm : context_.member.alarms().List(0)) {
    const std::string name = alarm.type == 1 ? "NOSPACE" : alarm.type == 2 ? "CORRUPT" : "UNKNOWN";
    if (!Contains(excluded, name)) return answer("ALARM " + name);
  }
  const auto range_error = [answer](const absl::Status& status) {
    answer(status.ok() ? "" : fmt::format("RANGE ERROR:{}", base::Message(status)));
  };
  if (Contains(QueryValues(*exchange, "serializable"), "true"))
    return range_error(ProbeStore(context_));
  if (context_.member.leader() == raft::kNoNode) return answer("RAFT NO LEADER");
  ProbeLinearizable(context_, exchange, range_error);
}

void ClientHttp::Checks(const std::shared_ptr<net::HttpExchange>& exchange, std::string_view type,
                        std::string_view only) const {
  const auto excluded = QueryValues(*exchange, "exclude");
  bool verbose = false;
  for (const auto& [name, value] : net::ParseQuery(exchange->query()))
    verbose = verbose || name == "verbose";
  // Name and outcome of each check that runs.
  auto results = std::make_shared<std::vector<std::pair<std::string, absl::Status>>>();
  const auto wanted = [&](std::string_view name) {
    return (only.empty() || only == name) && !Contains(excluded, name);
  };
  if (type == "readyz") {
    if (wanted("data_corruption")) {
      results->emplace_back("data_corruption", context_.member.alarms().HasCorrupt()
                                                   ? absl::InternalError("alarm activated: CORRUPT")
                                                   : absl::OkStatus());
    }
    if (wanted("non_learner")) {
      results->emplace_back("non_learner", context_.member.is_learner()
                                               ? absl::InternalError("not supported for learner")
                                               : absl::OkStatus());
    }
  }
  if (wanted("serializable_read")) results->emplace_back("serializable_read", ProbeStore(context_));
  const auto answer = [this, exchange, results, verbose, type = std::string(type)] {
    std::string lines;
    bool healthy = true;
    for (const auto& [name, status] : *results) {
      counters_.check(type, name, status.ok());
      healthy = healthy && status.ok();
      lines += status.ok() ? fmt::format("[+]{} ok\n", name)
                           : fmt::format("[-]{} failed: {}\n", name, base::Message(status));
    }
    exchange->AddHeader("X-Content-Type-Options", "nosniff");
    if (!healthy) return exchange->Respond(503, kTextPlain, lines + "\n");
    exchange->Respond(200, kTextPlain, (verbose ? lines : "") + "ok\n");
  };
  if (type != "readyz" || !wanted("linearizable_read")) return answer();
  ProbeLinearizable(context_, exchange, [results, answer](const absl::Status& status) {
    results->emplace_back("linearizable_read", status);
    answer();
  });
}

void ClientHttp::DebugVars(const std::shared_ptr<net::HttpExchange>& exchange) const {
  const member::Member& member = context_.member;
  nlohmann::json vars;
  vars["cmdline"] = options_.command_line;
  vars["file_descriptor_limit"] = 0;
  vars["memstats"] = nlohmann::json::object();
  vars["raft.status"] = {{"id", base::IdToHex(member.id())},
                         {"term", member.term()},
                         {"commit", member.committed_index()},
                         {"applied", member.applied_index()},
                         {"lead", base::IdToHex(member.leader())},
                         {"raftState", member.is_leader() ? "StateLeader" : "StateFollower"}};
  exchange->Respond(200, "application/json; charset=utf-8", vars.dump() + "\n");
}

void MetricsHttp::OnRequest(std::shared_ptr<net::HttpExchange> exchange) {
  if (!client_.ServeHealthAndMetrics(exchange)) NotFound(*exchange);
}

namespace {

void PeerMembers(const Context& context, net::HttpExchange& x) {
  std::string body = "[";
  for (const auto& [id, member] : context.member.membership()->members) {
    if (body.size() > 1) body += ",";
    body += cluster::EncodeMember(member);
  }
  x.Respond(200, "application/json", body + "]\n");
}

void PeerProbing(net::HttpExchange& x) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  ::gmtime_r(&now.tv_sec, &utc);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
  x.Respond(200, kTextPlain,
            fmt::format("{{\"OK\":true,\"Now\":\"{}.{:09}Z\"}}\n", date, now.tv_nsec));
}

void PeerHashKv(const Context& context, const std::shared_ptr<net::HttpExchange>& exchange) {
  const std::string_view cluster = exchange->header("X-Etcd-Cluster-Id");
  if (!cluster.empty() && cluster != base::IdToHex(context.member.cluster_id())) {
    return exchange->Respond(412, kTextPlain, "cluster ID mismatch\n");
  }
  constexpr size_t kBodyBytesMax = 64 << 10;
  exchange->ReadBody(kBodyBytesMax, [&context, exchange](absl::StatusOr<std::string> body) {
    const auto request =
        body.ok() ? nlohmann::json::parse(*body, nullptr, false) : nlohmann::json();
    if (!request.is_object())
      return exchange->Respond(400, kTextPlain, "error unmarshalling request\n");
    const auto it = request.find("revision");
    const int64_t revision =
        it != request.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
    net::Loop& loop = exchange->loop();
    const bool posted = context.helpers.Post([&context, &loop, exchange, revision]() mutable {
      auto hash = context.member.store().HashByRevision(revision);
      loop.Post([exchange = std::move(exchange), hash = std::move(hash)] {
        if (!hash.ok()) {
          std::string_view text = base::Message(hash.status());
          if (text.starts_with("etcdserver: ")) text.remove_prefix(12);
          return exchange->Respond(400, kTextPlain, std::string(text) + "\n");
        }
        nlohmann::ordered_json json;
        json["header"] = {{"revision", hash->current_revision}};
        if (hash->hash != 0) json["hash"] = hash->hash;
        json["compact_revision"] = hash->compact_revision;
        json["hash_revision"] = hash->hash_revision;
        exchange->Respond(200, "application/json", json.dump());
      });
    });
    if (!posted) exchange->Respond(503, kTextPlain, "too many requests\n");
  });
}

// Reads a small body, waits until what is committed now is applied, and runs `then` on the loop.
void WithCaughtUp(const Context& context, const std::shared_ptr<net::HttpExchange>& exchange,
                  std::function<void(const std::string& body)> then) {
  if (exchange->method() != "POST") {
    exchange->AddHeader("X-Content-Type-Options", "nosniff");
    return exchange->Respond(405, kTextPlain, "Method Not Allowed\n");
  }
  constexpr size_t kBodyBytesMax = 64 << 10;
  exchange->ReadBody(kBodyBytesMax, [&context, exchange, then = std::move(then)](
                                        absl::StatusOr<std::string> body) mutable {
    if (!body.ok()) {
      const bool large = absl::IsResourceExhausted(body.status());
      return exchange->Respond(large ? 413 : 400, kTextPlain, "error reading body\n");
    }
    net::Loop& loop = exchange->loop();
    context.member.Read([&loop, exchange = std::move(exchange), then = std::move(then),
                         body = *std::move(body)](const absl::Status& status) mutable {
      loop.Post([exchange = std::move(exchange), then = std::move(then), body = std::move(body),
                 status] {
        if (!status.ok()) {
          return exchange->Respond(
              408, kTextPlain, "waiting for node to catch up its applied index has timed out\n");
        }
        then(body);
      });
    });
  });
}

void NoLease(net::HttpExchange& x) { x.Respond(404, kTextPlain, "lease not found\n"); }
void NotPrimary(net::HttpExchange& x) { x.Respond(400, kTextPlain, "not a primary lessor\n"); }

void PeerLeaseKeepAlive(const Context& context,
                        const std::shared_ptr<net::HttpExchange>& exchange) {
  WithCaughtUp(context, exchange, [&context, exchange](const std::string& body) {
    pb::LeaseKeepAliveRequest request;
    if (!Parse(body, &request))
      return exchange->Respond(400, kTextPlain, "error unmarshalling request\n");
    const auto renewal = context.member.lessor().Renew(request.id());
    switch (renewal.outcome) {
      case lease::Lessor::RenewOutcome::kRenewed: {
        if (renewal.clear_checkpoint) ClearCheckpoint(context, request.id());
        pb::LeaseKeepAliveResponse response;
        response.set_id(request.id());
        response.set_ttl(renewal.ttl_seconds);
        return exchange->Respond(200, "application/protobuf", response.SerializeAsString());
      }
      case lease::Lessor::RenewOutcome::kNotFound:
        return NoLease(*exchange);
      case lease::Lessor::RenewOutcome::kNotPrimary:
        return NotPrimary(*exchange);
      case lease::Lessor::RenewOutcome::kExpired:
        return context.member.lessor().OnceRevoked(
            request.id(), [exchange, &loop = exchange->loop()](bool gone) mutable {
              loop.Post([exchange = std::move(exchange), gone] {
                gone ? NoLease(*exchange) : NotPrimary(*exchange);
              });
            });
    }
  });
}

void PeerLeaseTimeToLive(const Context& context,
                         const std::shared_ptr<net::HttpExchange>& exchange) {
  WithCaughtUp(context, exchange, [&context, exchange](const std::string& body) {
    pb::LeaseTimeToLiveRequest ask;
    const auto inner = UnwrapInternal(body);
    if (!inner || !Parse(*inner, &ask))
      return exchange->Respond(400, kTextPlain, "error unmarshalling request\n");
    const lease::Lessor& lessor = context.member.lessor();
    if (!lessor.is_primary()) return NotPrimary(*exchange);
    pb::LeaseTimeToLiveResponse response;
    response.mutable_header();
    if (!FillTimeToLive(lessor, ask, &response)) return NoLease(*exchange);
    exchange->Respond(200, "application/protobuf", WrapInternal(response.SerializeAsString()));
  });
}

// The outcome of a promotion asked for by another member.
class PeerPromotion final : public member::Proposal {
 public:
  PeerPromotion(const Context& context, std::shared_ptr<net::HttpExchange> exchange, uint64_t id)
      : context_(context), exchange_(std::move(exchange)), id_(id) {}
  void Done(member::ApplyResult result) override {
    net::Loop& loop = exchange_->loop();
    context_.answers.Deliver(loop, [&context = context_, exchange = std::move(exchange_), id = id_,
                                    status = result.status] {
      if (status.ok()) return PeerMembers(context, *exchange);
      if (status == member::MemberNotFoundError()) {
        exchange->Respond(404, kTextPlain, "membership: ID not found\n");
      } else if (status == member::MemberNotLearnerError()) {
        exchange->Respond(412, kTextPlain, "membership: can only promote a learner member\n");
      } else if (status == member::LearnerNotReadyError()) {
        exchange->Respond(412, kTextPlain, std::string(base::Message(status)) + "\n");
      } else {
        LOG_WARN("failed to promote a member", {"member-id", base::IdToHex(id)}, {"error", status});
        exchange->Respond(500, "application/json", R"({"message":"Internal Server Error"})");
      }
    });
  }

 private:
  const Context& context_;
  std::shared_ptr<net::HttpExchange> exchange_;
  const uint64_t id_;
};

void PeerPromote(const Context& context, const std::shared_ptr<net::HttpExchange>& exchange,
                 std::string_view text) {
  if (!RequireMethod(*exchange, "POST")) return;
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return exchange->Respond(404, kTextPlain,
                             fmt::format("member {} not found in cluster\n", text));
  }
  context.member.PromoteMember(id, std::make_unique<PeerPromotion>(context, exchange, id));
}

}  // namespace

void PeerHttp::OnRequest(std::shared_ptr<net::HttpExchange> exchange) {
  net::HttpExchange& x = *exchange;
  const std::string_view path = x.path();
  x.AddHeader("X-Etcd-Cluster-Id", base::IdToHex(context_.member.cluster_id()));
  if (path == "/members") {
    if (RequireMethod(x, "GET")) PeerMembers(context_, x);
  } else if (path == "/version") {
    if (RequireMethod(x, "GET")) x.Respond(200, "application/json", VersionJson(context_));
  } else if (path == "/raft/probing") {
    PeerProbing(x);
  } else if (raft_ != nullptr && (path == "/raft" || path.starts_with("/raft/"))) {
    raft_->OnRequest(std::move(exchange));
  } else if (path == "/leases") {
    PeerLeaseKeepAlive(context_, exchange);
  } else if (path == "/leases/internal") {
    PeerLeaseTimeToLive(context_, exchange);
  } else if (path.starts_with(kPromotePath)) {
    PeerPromote(context_, exchange, path.substr(kPromotePath.size()));
  } else if (path == "/members/hashkv") {
    if (RequireMethod(x, "GET")) PeerHashKv(context_, exchange);
  } else if (path == "/downgrade/enabled") {
    if (RequireMethod(x, "GET")) x.Respond(200, kTextPlain, "false");
  } else {
    NotFound(x);
  }
}

}  // namespace api
