// The HTTP/1.1 endpoints of the client port, of the metrics port and of the peer port. Instances
// are immutable and thread-safe; requests are handled on their loops. Paths and bodies: reference
// client-api.md 7.6, programs.md 1.11, raft-and-peers.md 3.1 and 3.9.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/context.h"
#include "api/gateway.h"
#include "net/http.h"

namespace api {

struct HttpOptions {
  bool gateway = true;
  std::vector<std::string> cors = {"*"};
  std::vector<std::string> host_whitelist = {"*"};
  bool debug_endpoints = false;  // /debug/requests and /debug/events
  std::vector<std::string> command_line;
  // What serves paths under /raft on the peer port; borrowed. Null: nobody.
  net::HttpHandler* raft = nullptr;
};

// What the endpoints count.
struct HealthCounters {
  std::function<void(bool success)> health;
  std::function<void(std::string_view type, std::string_view name, bool success)> check;
};

class ClientHttp final : public net::HttpHandler {
 public:
  ClientHttp(const Context& context, rpc::Server& grpc, HttpOptions options,
             HealthCounters counters, std::function<std::string()> scrape);
  void OnRequest(std::shared_ptr<net::HttpExchange> exchange) override;
  // /metrics, /health, /livez and /readyz only; false when the path is none of them.
  bool ServeHealthAndMetrics(const std::shared_ptr<net::HttpExchange>& exchange) const;

 private:
  void Health(const std::shared_ptr<net::HttpExchange>& exchange) const;
  void Checks(const std::shared_ptr<net::HttpExchange>& exchange, std::string_view type,
              std::string_view only) const;
  void DebugVars(const std::shared_ptr<net::HttpExchange>& exchange) const;

  const Context& context_;
  const HttpOptions options_;
  const HealthCounters counters_;
  const std::function<std::string()> scrape_;
  const Gateway gateway_;
};

class MetricsHttp final : public net::HttpHandler {
 public:
  explicit MetricsHttp(const ClientHttp& client) : client_(client) {}
  void OnRequest(std::shared_ptr<net::HttpExchange> exchange) override;

 private:
  const ClientHttp& client_;
};

// What a member answers to others.
class PeerHttp final : public net::HttpHandler {
 public:
  PeerHttp(const Context& context, net::HttpHandler* raft) : context_(context), raft_(raft) {}
  void OnRequest(std::shared_ptr<net::HttpExchange> exchange) override;

 private:
  const Context& context_;
  net::HttpHandler* const raft_;
};

// {"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0"}
std::string VersionJson(const Context& context);

}  // namespace api
