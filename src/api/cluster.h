// Service etcdserverpb.Cluster. Registration: start-up; handlers: loop threads. Semantics:
// reference client-api.md 6.
#pragma once

#include "api/context.h"
#include "rpc/server.h"

namespace api {

void RegisterCluster(rpc::Server& server, const Context& context);

}  // namespace api
