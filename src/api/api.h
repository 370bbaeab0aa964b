// All services of the client port over one member. Made after the member has started; register,
// then listen. Thread rule: construction and destruction on the owner's thread; the rest runs on
// loops.
#pragma once

#include <memory>

#include "api/context.h"
#include "api/http_endpoints.h"
#include "api/server_metrics.h"
#include "api/watch.h"
#include "base/metrics.h"
#include "rpc/server.h"

namespace api {

class Api {
 public:
  Api(member::Member& member, net::LoopPool& loops, ServerMetrics& server_metrics,
      base::Metrics& metrics, ApiOptions options, HttpOptions http_options);
  // The listeners must be closed and the loops stopped.
  ~Api();

  rpc::Server& grpc() { return *grpc_; }
  net::HttpHandler& client_http() { return *client_http_; }
  net::HttpHandler& metrics_http() { return *metrics_http_; }
  net::HttpHandler& peer_http() { return *peer_http_; }
  // Ends the helpers; calls that wait for them get no answer any more.
  void StopHelpers() { helpers_->Stop(); }
  // The member's batch of applied entries ended: answers may leave.
  void OnBatchEnd() { answers_->Flush(); }

 private:
  absl::Status OnStart(rpc::Call& call);

  const ApiOptions options_;
  ServerMetrics& server_metrics_;
  member::Member& member_;
  std::unique_ptr<HelperPool> helpers_;
  std::unique_ptr<Answers> answers_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<rpc::Server> grpc_;
  std::unique_ptr<WatchService> watch_;
  std::unique_ptr<ClientHttp> client_http_;
  std::unique_ptr<MetricsHttp> metrics_http_;
  std::unique_ptr<PeerHttp> peer_http_;
};

}  // namespace api
