// Service etcdserverpb.Lease. Registration: start-up; handlers: loop threads. Semantics: reference
// client-api.md 4.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/context.h"
#include "rpc/server.h"

namespace etcdserverpb {
class LeaseTimeToLiveRequest;
class LeaseTimeToLiveResponse;
}  // namespace etcdserverpb
namespace lease {
class Lessor;
}

namespace api {

void RegisterLease(rpc::Server& server, const Context& context);

// A lease was renewed in full: what a checkpoint says of its remaining time no longer holds.
void ClearCheckpoint(const Context& context, int64_t id);

// What this member, when it is primary, says of a lease; false, with only the id set, when there is
// none.
bool FillTimeToLive(const lease::Lessor& lessor, const etcdserverpb::LeaseTimeToLiveRequest& ask,
                    etcdserverpb::LeaseTimeToLiveResponse* response);

// Field 1 of the messages in which members carry a TimeToLive among themselves (POST
// /leases/internal); nullopt when malformed.
std::string WrapInternal(std::string_view message);
std::optional<std::string_view> UnwrapInternal(std::string_view bytes);

}  // namespace api
