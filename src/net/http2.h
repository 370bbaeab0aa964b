// The seam between HTTP/2 connections and the gRPC layer: a stream as its server side sees it, and
// who consumes it. Handlers of plain HTTP requests never see this; they get an HttpExchange
// (net/http.h). Loop thread only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/http.h"
#include "net/piece.h"

namespace net {

class Loop;
class Http2Stream;

// The head of a request in one block of memory. Its buffers are reused: Clear() keeps their
// capacity.
class RequestHead {
 public:
  void Clear();
  // Appends a regular field.
  void Add(std::string_view name, std::string_view value);
  // Keeps a pseudo header; false when it is unknown, comes twice or after a regular field.
  bool AddPseudo(std::string_view name, std::string_view value);
  std::string_view method() const { return View(method_); }
  std::string_view path() const { return View(path_); }
  std::string_view authority() const { return View(authority_); }
  std::string_view scheme() const { return View(scheme_); }
  std::string_view content_type() const { return View(content_type_); }
  size_t size() const { return fields_.size(); }
  std::string_view name(size_t i) const { return View(fields_[i].name); }
  std::string_view value(size_t i) const { return View(fields_[i].value); }
  // First value of a (lower-case) name; empty when absent.
  std::string_view Find(std::string_view name) const;
  bool Has(std::string_view name) const;
  void swap(RequestHead& other) noexcept;
  // Heads go round in circles on each thread, with the capacity of their buffers.
  static RequestHead FromStock();
  static void ToStock(RequestHead&& used);

 private:
  struct Range {
    uint32_t begin = 0;
    uint32_t length = 0;
  };
  struct Field {
    Range name;
    Range value;
  };
  std::string_view View(Range r) const { return {bytes_.data() + r.begin, r.length}; }

  std::string bytes_;
  std::vector<Field> fields_;
  Range method_, path_, authority_, scheme_, content_type_;
};

class StreamConsumer {
 public:
  // Body bytes, valid during the call. The consumer owes a Consume() of as many bytes, now or
  // later: that is what lets the client send more.
  virtual void OnStreamData(std::string_view bytes) = 0;
  // The client has sent all. Not called when it resets the stream.
  virtual void OnStreamEnd() = 0;
  // The stream's queue fell to the mark given to Http2Stream::NotifyWhenDrained. Called at the end
  // of a turn.
  virtual void OnStreamDrained() = 0;
  // The stream is gone, with an HTTP/2 error code (0: it ended in the regular way). The last call,
  // always made, except when the consumer was detached; the stream must not be touched afterwards.
  virtual void OnStreamClosed(uint32_t error_code) = 0;

 protected:
  ~StreamConsumer() = default;
};

// One request and its response. Valid until OnStreamClosed. Implemented by the HTTP/2 session.
class Http2Stream {
 public:
  virtual RequestHead& head() = 0;
  virtual const ConnectionInfo& connection() const = 0;
  virtual const std::shared_ptr<const ConnectionInfo>& shared_connection() const = 0;
  virtual Loop& loop() = 0;
  // Whether the client has already sent all (a request without body).
  virtual bool remote_ended() const = 0;

  // Response head. The memory of names and values must be static when `is_static`, else it is
  // copied. `end`: no body follows.
  virtual void SendHeaders(std::span<const Header> headers, bool is_static, bool end) = 0;
  // Body bytes, after SendHeaders.
  virtual void Write(Piece piece) = 0;
  // Ends the body with trailers; without any, with an empty DATA frame. Afterwards a client that is
  // still sending is told to stop.
  virtual void End(std::span<const Header> trailers, bool is_static) = 0;
  virtual void Reset(uint32_t error_code) = 0;
  // Gives the client room for `bytes` more.
  virtual void Consume(size_t bytes) = 0;
  // Bytes written that the peer's flow control or the socket has not let out yet.
  virtual size_t queued_bytes() const = 0;
  // Bytes of unfinished messages that the consumers of this connection's streams hold; theirs to
  // keep count of.
  virtual uint64_t& held_bytes() = 0;
  // Calls OnStreamDrained once, as soon as queued_bytes() <= low_bytes.
  virtual void NotifyWhenDrained(size_t low_bytes) = 0;

 protected:
  ~Http2Stream() = default;
};

class GrpcHandler {
 public:
  virtual ~GrpcHandler() = default;
  // The head of a request has arrived. Returns who consumes the stream, or nullptr when the
  // response was already sent (then the rest of the request is ignored). Called on loop threads of
  // many connections: thread-safe.
  virtual StreamConsumer* OnGrpcStream(Http2Stream& stream) = 0;
};

// HTTP/2 error codes we use (RFC 9113 section 7).
inline constexpr uint32_t kHttp2NoError = 0x0;
inline constexpr uint32_t kHttp2ProtocolError = 0x1;
inline constexpr uint32_t kHttp2InternalError = 0x2;
inline constexpr uint32_t kHttp2RefusedStream = 0x7;
inline constexpr uint32_t kHttp2Cancel = 0x8;
inline constexpr uint32_t kHttp2EnhanceYourCalm = 0xb;

}  // namespace net
