// Services etcdserverpb.Maintenance and grpc.health.v1.Health. Registration: start-up; handlers:
// loop threads; long work on helpers. Semantics: reference client-api.md 6.
#pragma once

#include "api/context.h"
#include "rpc/server.h"

namespace api {

void RegisterMaintenance(rpc::Server& server, const Context& context);
void RegisterHealth(rpc::Server& server, const Context& context);

// What StatusResponse.errors lists: the missing leader, then each alarm.
std::vector<std::string> StatusErrors(const Context& context);

}  // namespace api
