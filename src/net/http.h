// HTTP requests as handlers see them: the same for HTTP/1.1 and for the requests on HTTP/2 that are
// not gRPC. Thread rule: an exchange lives on the loop of its connection. Every function here, and
// every callback, runs on that loop's thread; another thread that has an answer posts it to
// exchange->loop().
//
// Typical handler:
//   void OnRequest(std::shared_ptr<HttpExchange> x) override {
//     if (x->path() != "/version") return x->Respond(404, "text/plain; charset=utf-8", "404 page
//     not found\n"); x->Respond(200, "application/json", version_json);
//   }
// A handler that answers later keeps the shared_ptr; a long-lived stream calls Start() once,
// Write() whenever it has something, and learns from OnAbort() that the client is gone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/piece.h"

namespace net {

class Loop;

struct Header {
  std::string_view name;
  std::string_view value;
};

// What is known of a connection; immutable once it serves requests, so it may be read from any
// thread while the connection or one of its calls lives.
struct ConnectionInfo {
  std::string remote_address;  // "127.0.0.1:4711", "[::1]:4711"; "@" for an unnamed unix socket
  std::string remote_ip;       // without the port, IPv6 without brackets; empty for unix sockets
  std::string local_address;
  bool tls = false;
  // The client showed a certificate and it was verified against the trusted CAs.
  bool verified_client_certificate = false;
  std::string common_name;  // subject CN of the verified leaf, possibly empty
  std::string server_name;  // SNI the client asked for
};

// ASCII-only comparison, as header names need it.
bool EqualsIgnoringCase(std::string_view a, std::string_view b);
// The reason phrase of a status code as Go's net/http has it ("Not Found"); empty for unknown
// codes.
std::string_view StatusText(int status);
// Undoes %XX escapes, and '+' as a blank when `plus_is_blank` (queries, not paths); nullopt for a
// broken escape.
std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_blank);
// The decoded key=value pairs of a query string, in order; pairs with broken escapes are left out
// as Go does.
std::vector<std::pair<std::string, std::string>> ParseQuery(std::string_view query);

// A server-side WebSocket connection (RFC 6455). Loop thread only.
class WebSocket {
 public:
  virtual ~WebSocket() = default;
  // One text message; ignored after either side closed.
  virtual void SendText(std::string_view text) = 0;
  // Sends a close frame (e.g. 1000 normal, 1011 internal error) and closes once the peer answered
  // or 1 s passed.
  virtual void Close(uint16_t code, std::string_view reason) = 0;
  // Bytes sent but not yet taken by the kernel.
  virtual size_t queued_bytes() const = 0;
  // Calls `fn` once, as soon as queued_bytes() <= low_bytes (in a later turn, never from inside
  // this function).
  virtual void NotifyWhenDrained(size_t low_bytes, absl::AnyInvocable<void()> fn) = 0;
  virtual Loop& loop() = 0;
};

struct WebSocketHandlers {
  // One whole text (or binary) message of the client, valid during the call.
  absl::AnyInvocable<void(std::string_view)> on_message;
  // The connection ended, whoever began it. Exactly once; nothing is called after it.
  absl::AnyInvocable<void()> on_close;
  size_t message_bytes_max = 4 << 20;
};

class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // --- the request; views are valid as long as the exchange ---
  virtual std::string_view method() const = 0;  // "GET", as sent
  virtual std::string_view target()
      const = 0;                              // "/v3/kv/put?x=1", as sent; for OPTIONS possibly "*"
  std::string_view path() const;              // the target before '?', not decoded
  std::string_view query() const;             // the target after '?', not decoded
  virtual std::string_view host() const = 0;  // Host or :authority
  // Names as sent (HTTP/2: lower case; its pseudo headers are not among them).
  virtual std::span<const Header> headers() const = 0;
  // First value of the header, any case; empty when absent.
  std::string_view header(std::string_view name) const;
  virtual int http_major() const = 0;  // 1 or 2
  virtual int http_minor() const = 0;  // 0 or 1 (HTTP/2: 0)
  virtual std::optional<uint64_t> content_length() const = 0;
  virtual const ConnectionInfo& connection() const = 0;
  virtual Loop& loop() = 0;

  // --- the body ---
  // Collects the body and calls `done` once: with the body, ResourceExhausted when it is longer
  // than `bytes_max`, Cancelled when the client went away, InvalidArgument when its framing is
  // broken. May call it right away.
  void ReadBody(size_t bytes_max, absl::AnyInvocable<void(absl::StatusOr<std::string>)> done);
  // Delivers the body in pieces as it arrives (the view is valid during the call), the last with
  // `last` (possibly an empty piece). When the client goes away the last call never comes; see
  // OnAbort. May call it right away. A body nobody reads is thrown away when the response ends
  // (large ones by closing the connection).
  virtual void ReadBodyPieces(
      absl::AnyInvocable<void(std::string_view piece, bool last)> on_piece) = 0;
  // Stops and resumes the delivery; the client feels it through flow control.
  virtual void PauseBody(bool paused) = 0;

  // --- the response ---
  // Adds a response header; before Start or Respond. Names and values with control characters are
  // refused (dropped).
  virtual void AddHeader(std::string_view name, std::string_view value) = 0;
  // The whole response in one go. For HEAD the body is counted but not sent.
  void Respond(int status, std::string_view content_type, std::string body);
  // Sends the head. Without a "Content-Length" header added before, HTTP/1.1 uses chunked coding.
  virtual void Start(int status) = 0;
  // Queues body bytes; they leave at the end of the turn. Ignored once aborted.
  virtual void Write(Piece piece) = 0;
  void Write(std::string bytes) { Write(Piece(std::move(bytes))); }
  // Ends the response.
  virtual void End() = 0;
  // Cuts the response off: HTTP/1.1 closes the connection, HTTP/2 resets the stream. OnAbort is not
  // called for it.
  virtual void Abort() = 0;
  // Whether Start (or Respond) was called.
  virtual bool started() const = 0;
  // Bytes written but not yet taken by the kernel. Producers stop at a bound of their choice (64
  // KiB is good), because a connection whose queue passes its cap is closed.
  virtual size_t queued_bytes() const = 0;
  // Calls `fn` once, as soon as queued_bytes() <= low_bytes (in a later turn, never from inside
  // this function).
  virtual void NotifyWhenDrained(size_t low_bytes, absl::AnyInvocable<void()> fn) = 0;
  // `fn` is called once when the client goes away, or the server closes the connection, before
  // End(). Called in a later turn when that already happened.
  virtual void OnAbort(absl::AnyInvocable<void()> fn) = 0;
  virtual bool aborted() const = 0;

  // --- WebSocket ---
  // Whether the request asks for an upgrade to WebSocket version 13 in a valid way.
  bool WantsWebSocket() const;
  // Answers 101 and turns the connection into a WebSocket. Requires WantsWebSocket(). `protocol` is
  // echoed as Sec-WebSocket-Protocol unless empty. The exchange is over afterwards.
  virtual std::shared_ptr<WebSocket> AcceptWebSocket(std::string_view protocol,
                                                     WebSocketHandlers handlers) = 0;
};

// Serves requests of many connections on many loops: OnRequest is called on the loop thread of each
// connection, when the head of a request is complete, so implementations are thread-safe.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  virtual void OnRequest(std::shared_ptr<HttpExchange> exchange) = 0;
};

// Wraps a function as a handler.
class FunctionHandler final : public HttpHandler {
 public:
  using Function = absl::AnyInvocable<void(std::shared_ptr<HttpExchange>) const>;
  explicit FunctionHandler(Function function) : function_(std::move(function)) {}
  void OnRequest(std::shared_ptr<HttpExchange> exchange) override {
    function_(std::move(exchange));
  }

 private:
  const Function function_;
};

}  // namespace net
