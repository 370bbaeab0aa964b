// Service etcdserverpb.Watch: streams of requests and responses over the watcher group of each
// loop. Handlers: loop threads. Semantics: reference client-api.md 3.
#pragma once

#include <memory>
#include <vector>

#include "api/context.h"
#include "rpc/server.h"

namespace api {

class WatchLoop;

class WatchService {
 public:
  // Register before the first connection; `context` outlives the service.
  WatchService(rpc::Server& server, const Context& context);
  // The loops must have stopped serving calls.
  ~WatchService();
  uint64_t streams() const;

 private:
  std::vector<std::unique_ptr<WatchLoop>> loops_;
};

}  // namespace api
