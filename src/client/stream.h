// Internal to the library: a stream on top of grpc's callback interface.
// Thread rule: grpc's threads call the On... functions, the user's threads the Stream ones; one
// mutex guards all state.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "client/channel.h"
#include "client/client.h"

namespace client {

// `context` is set up (metadata, deadline) and not yet used.
std::unique_ptr<Stream> StartStream(std::shared_ptr<grpc::Channel> channel, std::string_view method,
                                    std::unique_ptr<grpc::ClientContext> context);

}  // namespace client
