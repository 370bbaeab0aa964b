// Listeners and the connections they accept. Thread rule: Server's functions are called by its
// owner's thread (not a loop thread) unless said otherwise; handlers are called on loop threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "net/http2_limits.h"

namespace net {

class Loop;
class LoopPool;
class HttpHandler;
class GrpcHandler;  // net/http2.h; rpc::Server is one
class TlsServer;

// Where to listen. For unix sockets `path` is the file; "localhost:20000" is a file of that name in
// the working directory.
struct ListenAddress {
  std::string host;  // IP literal or "localhost" (both families where available)
  uint16_t port = 0;
  std::string path;  // unix socket when not empty
  static ListenAddress Tcp(std::string_view host, uint16_t port) {
    return {std::string(host), port, ""};
  }
  static ListenAddress Unix(std::string_view path) { return {"", 0, std::string(path)}; }
};

struct Http1Options {
  uint32_t request_line_bytes_max = 64 << 10;
  uint32_t header_bytes_max = 1 << 20;
  uint32_t header_fields_max = 1000;
  // From the first byte of a request (or the connection's beginning) to the end of its head.
  base::Duration header_timeout = std::chrono::minutes(5);
  // Between requests; 0: like header_timeout.
  base::Duration idle_timeout{0};
  // While a body is being read: longest silence; 0: none.
  base::Duration read_timeout{0};
  // Output without progress for this long closes the connection.
  base::Duration write_stall_max = std::chrono::minutes(5);
  uint64_t output_bytes_max = 256 << 20;
  uint32_t pipelined_max = 16;  // requests read ahead while one is being answered
};

struct ListenerOptions {
  ListenAddress address;
  // What is served. Plain connections: HTTP/2 preface -> grpc (else 415), HTTP/1 -> http. TLS: ALPN
  // decides the version, the content type decides between grpc and http. With only `grpc` an HTTP/1
  // request is answered 415; with only `http` HTTP/2 is served over TLS and gRPC requests reach the
  // HttpHandler.
  GrpcHandler* grpc = nullptr;
  HttpHandler* http = nullptr;
  bool plain = true;               // serve unencrypted connections
  std::shared_ptr<TlsServer> tls;  // serve TLS; with `plain` both, the first byte decides
  bool http2 = true;               // false: HTTP/1.1 only (peer listener)
  bool reuse_port = false;         // SO_REUSEPORT; SO_REUSEADDR is always set
  uint32_t connections_max = 0;    // 0: open-file limit less 150. Further ones wait in the backlog
  // Connections that have sent nothing useful yet (no preface, no request, handshake unfinished).
  // At the bound the oldest is closed.
  uint32_t unfinished_connections_max = 4096;
  Http1Options http1;
  Http2Options http2_options;
  base::Duration tls_handshake_timeout = std::chrono::seconds(10);
};

// Why a connection was refused during its TLS handshake or before its first request.
struct RejectedConnection {
  std::string remote_address;
  std::string server_name;
  std::string error;  // in Go's words: "remote error: tls: bad certificate", "EOF", ...
};

class Listener {
 public:
  virtual ~Listener() = default;
  // The port in use (useful after asking for 0); 0 for unix sockets.
  virtual uint16_t port() const = 0;
  // "127.0.0.1:4711" or the socket's path. Thread-safe.
  virtual const std::string& address() const = 0;
  virtual uint32_t connections() const = 0;  // open now; thread-safe
};

class Server {
 public:
  // `loops` outlives the server and must be running.
  explicit Server(LoopPool& loops);
  ~Server();  // Shutdown with no grace

  // Called on loop threads, for logging. Set before Listen.
  void set_on_rejected(std::function<void(const RejectedConnection&)> fn);
  // Opens the sockets and begins to accept. Errors in Go's words: "listen tcp 127.0.0.1:2379: bind:
  // address already in use".
  absl::StatusOr<Listener*> Listen(ListenerOptions options);
  // Closes the listening sockets (removes unix socket files), tells HTTP/2 clients to go away, lets
  // running requests finish for up to `grace`, then closes all connections. Returns when none is
  // left. Idempotent.
  void Shutdown(base::Duration grace);
  uint32_t connections() const;  // thread-safe

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace net
