// Service etcdserverpb.KV. Registration: start-up; handlers: loop threads.
#pragma once

#include "api/context.h"
#include "rpc/server.h"

namespace api {

// `context` outlives the server.
void RegisterKv(rpc::Server& server, const Context& context);

}  // namespace api
