// The gRPC server: a table of methods served on the HTTP/2 streams of net::Server's connections,
// and on calls made inside the process. Thread rule: register everything before the first
// connection; from then on the object is immutable and thread-safe. Handlers run on the loop thread
// of their connection.
//
//   rpc::Server grpc(options);
//   grpc.RegisterUnary("/etcdserverpb.KV/Range", [&](rpc::CallPtr call, std::string_view request) {
//   ... }); net::ListenerOptions listener; listener.grpc = &grpc; ...
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "net/http2.h"
#include "rpc/call.h"

namespace rpc {

// What is known of a call that ended; for metrics. Valid during the callback.
struct CallSummary {
  const MethodInfo& method;
  absl::StatusCode code;
  uint64_t messages_received;
  uint64_t messages_sent;
  uint64_t payload_bytes_received;  // protobuf bytes, without framing
  uint64_t payload_bytes_sent;
  base::Duration took;
};

struct ServerOptions {
  // Largest message accepted, after decompression: RESOURCE_EXHAUSTED "grpc: received message
  // larger than max (N vs. MAX)".
  uint32_t receive_bytes_max = 1572864 + 512 * 1024;
  uint32_t send_bytes_max = 2147483647;
  // Bytes of unfinished messages one connection may hold; a stream that wants more gets
  // RESOURCE_EXHAUSTED.
  uint64_t partial_bytes_max = 64 << 20;
  // Called before the handler, for registered methods only. Not OK: the call ends with that status
  // and no handler runs. Must be cheap; runs on loop threads, several at once.
  absl::AnyInvocable<absl::Status(Call&) const> on_start;
  // Called once for each call for which on_start was called.
  absl::AnyInvocable<void(const CallSummary&) const> on_end;
};

// The request, valid during the call. The call may be finished later.
using UnaryHandler = absl::AnyInvocable<void(CallPtr call, std::string_view request) const>;
using StreamHandler = absl::AnyInvocable<std::unique_ptr<StreamReceiver>(CallPtr call) const>;

// The client side of a call made inside the process (JSON gateway). Functions are called on the
// call's loop, in a later turn than the one they answer to.
class LocalClient {
 public:
  virtual ~LocalClient() = default;
  // The payload, valid during the call.
  virtual void OnMessage(std::string_view payload) = 0;
  // The last call. `status` has the code and text as a gRPC client would see them.
  virtual void OnFinish(const absl::Status& status) = 0;
};

// What the client side holds of a local call. Loop thread. Dropping the last pointer cancels an
// unfinished call.
class LocalCall {
 public:
  virtual ~LocalCall() = default;
  virtual void Send(std::string_view payload) = 0;  // one request message
  virtual void HalfClose() = 0;
  virtual void Cancel() = 0;  // OnFinish is not called for it
  // Back-pressure towards the handler: bytes the client holds unsent. The handler's queued_bytes()
  // shows them; call again as they drain.
  virtual void SetHeldBytes(size_t bytes) = 0;
};

struct LocalCallOptions {
  std::string path;                                           // "/etcdserverpb.KV/Range"
  std::vector<std::pair<std::string, std::string>> metadata;  // lower-case keys
  base::Duration timeout = base::Duration::max();
  std::shared_ptr<const net::ConnectionInfo>
      connection;  // of the HTTP request behind it; may be null
};

class Server final : public net::GrpcHandler {
 public:
  explicit Server(ServerOptions options);
  ~Server() override;

  // Unary and server-streaming methods share a shape: one request comes in. A server-streaming
  // handler calls Send any number of times, then Finish.
  void RegisterUnary(std::string_view path, UnaryHandler handler);
  void RegisterServerStream(std::string_view path, UnaryHandler handler);
  // `factory` is called when the call begins, before its first message.
  void RegisterBidiStream(std::string_view path, StreamHandler factory);
  void RegisterClientStream(std::string_view path, StreamHandler factory);
  // In the order of registration; stable once registration has ended.
  std::vector<const MethodInfo*> methods() const;
  const ServerOptions& options() const;

  // Starts a call from inside the process, on `loop` (call it on that loop's thread). The path of
  // an unknown method ends in OnFinish(Unimplemented).
  std::shared_ptr<LocalCall> StartLocal(net::Loop& loop, LocalCallOptions options,
                                        std::unique_ptr<LocalClient> client);

  // What net::Server calls.
  net::StreamConsumer* OnGrpcStream(net::Http2Stream& stream) override;

  struct Method;  // internal
  struct Impl;    // internal

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace rpc
