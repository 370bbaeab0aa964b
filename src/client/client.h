// Client of an etcd-compatible cluster: one object for a set of endpoints, calls by method,
// streams, token auth, failover. A Client is thread-safe: any thread may call, and calls of several
// threads run side by side. A Stream allows one reading thread beside any number of writing ones.
// Nothing here includes grpc++ or message headers; include "proto/rpc.pb.h" where messages are
// built, and "client/methods.h" for the list of methods.
//
// Errors are the server's: code and text as on the wire, so `Message(status)` is "etcdserver: key
// not found" and the like. A call that runs out of time ends as DeadlineExceeded "context deadline
// exceeded". ErrorText() says it the way etcd's Go client does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "client/methods.h"

namespace google::protobuf {
class MessageLite;
}

namespace client {

struct TlsOptions {
  std::string cert_file;  // PEM; given together with key_file or not at all
  std::string key_file;
  std::string ca_file;       // PEM bundle; empty: the system's
  std::string server_name;   // verified instead of the endpoint's host when not empty
  bool skip_verify = false;  // accept any server certificate
};

// One failed attempt of a call, for the log of a program.
struct AttemptFailure {
  std::string_view endpoint = {};
  std::string_view peer = {};    // gRPC's name of the connection; empty when there was none
  std::string_view method = {};  // "/etcdserverpb.KV/Range"
  int attempt = 0;               // from 0
  const absl::Status& status;
};

struct Options {
  // host:port, http://host:port, https://host:port, unix://path, unixs://path. https and unixs are
  // always encrypted, http and unix never; a bare host:port is when a certificate or a CA is given
  // or insecure_transport is false.
  std::vector<std::string> endpoints = {"127.0.0.1:2379"};
  bool insecure_transport = true;
  TlsOptions tls;

  std::string user;  // empty: anonymous
  std::string password;
  std::string jwt_token;  // sent as it is; excludes user

  base::Duration dial_timeout{};  // bounds the Authenticate call of Open(); 0: unbounded
  base::Duration
      keepalive_time{};  // 0: no pings; values below 10 s are raised to it, as gRPC for Go does
  base::Duration keepalive_timeout{};
  uint64_t request_bytes_max =
      2 << 20;  // larger requests fail with ResourceExhausted before they are sent
  uint64_t response_bytes_max = 0;  // 0: unlimited
  // What a stream may send ahead of its reader; 0: as much as the connection seems to bear. A
  // reader that paces itself wants little, or what it paces comes in bursts.
  uint32_t read_ahead_bytes = 0;

  bool transport_logs = false;  // let grpc write its own log lines to standard error

  // Called, from the calling thread, after each failed attempt of a unary call.
  std::function<void(const AttemptFailure&)> on_attempt_failed;
  // Called, from the thread in Open(), when a user is given but the server has authentication off.
  std::function<void()> on_auth_not_enabled;
};

struct CallOptions {
  base::Duration timeout{};     // of the call with all its attempts; 0: unbounded
  bool require_leader = false;  // the server ends the call when it knows no leader
  // One attempt, which waits for no connection: its error says why there is none.
  bool fail_fast = false;
};

// A stream in both directions (also used for server streams, whose only request is already sent).
// Destroying it cancels it and waits until grpc is done with it.
class Stream {
 public:
  enum class ReadResult { kMessage, kEnd, kTimeout };

  virtual ~Stream() = default;
  // Queues one message. Errors: the stream has ended (its status, or Unavailable if it ended OK).
  virtual absl::Status Write(const google::protobuf::MessageLite& message) = 0;
  // No more writes will come; reading goes on.
  virtual void WritesDone() = 0;
  // Waits for the next message, at most `timeout` (0: for ever). kEnd: see Finish().
  virtual ReadResult Read(google::protobuf::MessageLite* message, base::Duration timeout = {}) = 0;
  // The status the stream ended with; only after Read() returned kEnd. A message that could not be
  // parsed is DataLoss.
  virtual absl::Status Finish() = 0;
  // Ends the stream from any thread; a blocked Read() returns kEnd.
  virtual void Cancel() = 0;
};

class Client {
 public:
  // Reads the TLS files, and gets a token when a user is given. No other connection is made before
  // the first call. Errors: FailedPrecondition "etcdclient: no available endpoints"; "open /x: no
  // such file or directory" and other TLS material errors; what Authenticate answered.
  static absl::StatusOr<std::unique_ptr<Client>> Open(Options options);
  virtual ~Client() = default;

  // One unary call: waits for a connection to one of the endpoints, moves on to the next one when
  // the call is safe to repeat and the endpoint is unavailable, renews the token when the server no
  // longer accepts it.
  virtual absl::Status CallRaw(std::string_view method,
                               const google::protobuf::MessageLite& request,
                               google::protobuf::MessageLite* response,
                               const CallOptions& options) = 0;

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(const Unary<Request, Response>& method, const Request& request,
                                const CallOptions& options = {}) {
    Response response;
    absl::Status status = CallRaw(method.name, request, &response, options);
    if (!status.ok()) return status;
    return response;
  }

  // Opens a stream on one connected endpoint; waits for a connection no longer than
  // options.timeout, which is also the deadline of the whole stream. Watch and LeaseKeepAlive: the
  // caller writes requests.
  virtual absl::StatusOr<std::unique_ptr<Stream>> OpenStream(std::string_view method,
                                                             const CallOptions& options) = 0;
  // Snapshot, RangeStream, Observe: `request` is the only one.
  absl::StatusOr<std::unique_ptr<Stream>> OpenServerStream(
      std::string_view method, const google::protobuf::MessageLite& request,
      const CallOptions& options);

  // As given in Options.
  virtual const std::vector<std::string>& endpoints() const = 0;
};

// "etcdserver: key not found" for the texts etcd's clients know, "context deadline exceeded" for a
// call that ran out of time, "rpc error: code = Unimplemented desc = ..." for the rest.
std::string ErrorText(const absl::Status& status);
// The last form, always.
std::string RpcErrorText(const absl::Status& status);
// gRPC's spelling of a code: "InvalidArgument".
std::string_view CodeName(absl::StatusCode code);

}  // namespace client
