// The JSON gateway: POST /v3/... as calls of the gRPC services inside the process. Thread rule: an
// instance is immutable and thread-safe; requests are handled on their loops. Mapping: reference
// client-api.md 8.
#pragma once

#include <memory>

#include "net/http.h"
#include "rpc/server.h"

namespace api {

class Gateway {
 public:
  explicit Gateway(rpc::Server& server) : server_(server) {}
  // Whether the path belongs to the gateway.
  static bool Owns(std::string_view path);
  void Handle(const std::shared_ptr<net::HttpExchange>& exchange) const;

 private:
  rpc::Server& server_;
};

}  // namespace api
