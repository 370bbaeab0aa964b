// Service etcdserverpb.Lease. Registration: start-up; handlers: loop threads. Semantics: reference
// client-api.md 4.
#pragma once

#include "api/context.h"
#include "rpc/server.h"

namespace api {

void RegisterLease(rpc::Server& server, const Context& context);

}  // namespace api
