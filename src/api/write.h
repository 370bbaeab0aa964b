// How a write travels from a call to the log and its answer back, and how a linearizable read
// waits. Loop thread.
#pragma once

#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "api/context.h"
#include "member/request.h"
#include "rpc/call.h"

namespace api {

// Proposes `message` and answers the call with header + body, or the error, once it is applied. A
// request whose cost finds no room under the quota is refused, and the alarm raised.
void ProposeFor(const Context& context, rpc::CallPtr call, member::RequestKind kind,
                std::string_view message, uint64_t cost = 0);

// Whether there is room; if not, the call is answered with NoSpace once the alarm is up.
bool CheckRoom(const Context& context, const rpc::CallPtr& call, uint64_t cost);

// Runs `then` on the call's loop once applied state may be read as linearizable; answers the call
// with the error otherwise. Check context.member.ReadNow() first: the common case needs none of
// this.
void WhenLinearizable(const Context& context, rpc::CallPtr call, absl::AnyInvocable<void()> then);

}  // namespace api
