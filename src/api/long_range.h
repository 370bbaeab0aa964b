// Ranges that may be long: read by helper threads, a piece at a time as the client takes them, so
// that many large or slow reads do not fill the memory. Called on the call's loop, after the
// request was checked and, unless it is serializable, confirmed to be linearizable.
#pragma once

#include <string>

#include "api/context.h"
#include "rpc/call.h"

namespace api {

// KV.Range: one message, as clients expect. Built whole where it is small and there is room for it
// (Context::answer_bytes); otherwise its size is found out first, and its parts follow. Sorted and
// filtered ones are built whole in any case.
void AnswerLongRange(const Context& context, rpc::CallPtr call, std::string request);

// KV.RangeStream: many messages, the first ones small. Sorted ones are built whole, in one message.
void StreamRange(const Context& context, rpc::CallPtr call, std::string request);

}  // namespace api
