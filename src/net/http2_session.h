// One HTTP/2 server connection: bytes in, bytes out, streams between. Framing, header compression
// and flow control are nghttp2's; this class adds the limits, the gRPC keep-alive rules and the
// streams' output queues. Loop thread only.
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "net/http2.h"
#include "net/http2_guard.h"
#include "net/http2_limits.h"
#include "net/loop.h"
#include "net/piece_queue.h"
#include "net/protocol.h"

namespace net {

class Http2Session;

class Http2StreamImpl final : public Http2Stream {
 public:
  RequestHead& head() override { return head_; }
  const ConnectionInfo& connection() const override;
  const std::shared_ptr<const ConnectionInfo>& shared_connection() const override;
  Loop& loop() override;
  bool remote_ended() const override { return remote_ended_; }
  void SendHeaders(std::span<const Header> headers, bool is_static, bool end) override;
  void Write(Piece piece) override;
  void End(std::span<const Header> trailers, bool is_static) override;
  void Reset(uint32_t error_code) override;
  void Consume(size_t bytes) override;
  size_t queued_bytes() const override { return queued_bytes_; }
  uint64_t& held_bytes() override;
  void NotifyWhenDrained(size_t low_bytes) override;

 private:
  friend class Http2Session;

  void Recycle();
  // Bytes of the queue beyond what was handed to nghttp2 go out when the peer's windows allow.
  ssize_t OnRead(size_t length, uint32_t* flags);
  // Appends exactly `length` bytes of the queue to the connection's output.
  void MoveTo(OutputQueue* output, size_t length);

  Http2Session* session_ = nullptr;
  int32_t id_ = 0;
  size_t position_ = 0;  // in Http2Session::streams_
  RequestHead head_;
  uint32_t header_bytes_ = 0;
  StreamConsumer* consumer_ = nullptr;
  PieceQueue queue_;
  size_t queue_offset_ = 0;  // of its first piece
  size_t queued_bytes_ = 0;
  size_t low_bytes_ = 0;
  size_t unconsumed_bytes_ = 0;  // delivered, and not yet given back to the client's windows
  // Trailers that are sent when the queue is empty. Copied unless static.
  std::vector<nghttp2_nv> trailers_;
  std::string trailer_bytes_;
  bool malformed_ = false;   // the head breaks the rules or the limits: reset, never dispatched
  bool dispatched_ = false;  // the head is complete
  bool remote_ended_ = false;
  bool responded_ = false;  // SendHeaders was called
  bool ended_ = false;      // End was called, or SendHeaders with `end`
  bool deferred_ = false;   // nghttp2 waits for a resume
  bool notify_drained_ = false;
  bool in_drained_list_ = false;
};

class Http2Session final : public Protocol {
 public:
  // `grpc` gets the streams with a gRPC content type, and all of them when `http` is null. At least
  // one is set.
  Http2Session(ProtocolHost& host, const Http2Options& options, GrpcHandler* grpc,
               HttpHandler* http);
  ~Http2Session() override;

  void OnInput(std::string_view bytes) override;
  void OnInputEnd() override;
  void Produce() override;
  void OnClosed() override;
  void Drain() override;

  size_t open_streams() const { return streams_.size(); }
  // Bytes queued in all streams and the connection.
  uint64_t queued_bytes() const { return queued_bytes_; }

 private:
  friend class Http2StreamImpl;
  struct Callbacks;
  struct Shared;

  Http2StreamImpl* NewStream(int32_t id);
  void ReleaseStream(Http2StreamImpl* stream, uint32_t error_code);
  void OnHeader(Http2StreamImpl* stream, std::string_view name, std::string_view value);
  void OnRequest(Http2StreamImpl* stream, bool end);
  void OnRemoteEnd(Http2StreamImpl* stream);
  void OnPing();
  // GOAWAY with a reason, then close.
  void Terminate(uint32_t error_code, std::string_view reason);
  void CloseIfDone();
  void TellDrained();
  void ArmTimer(base::Duration delay);
  void OnTimer();

  ProtocolHost& host_;
  const Http2Options& options_;
  GrpcHandler* const grpc_;
  HttpHandler* const http_;
  nghttp2_session* session_ = nullptr;
  Http2Guard guard_;
  uint64_t queued_bytes_ = 0;
  uint64_t held_bytes_ = 0;  // see Http2Stream::held_bytes
  bool receiving_ = false;   // inside nghttp2_session_mem_recv
  bool terminated_ = false;  // GOAWAY with an error was queued: nothing more is read
  bool draining_ = false;
  bool preface_done_ = false;
  bool closed_ = false;

  TimerId timer_;
  base::Duration last_activity_{};  // of the peer
  base::Duration ping_sent_at_{};   // of our keep-alive ping; zero: none outstanding
  base::Duration last_client_ping_{};
  bool client_pinged_ = false;
  bool ping_strikes_reset_ = true;  // we sent HEADERS or DATA since the last ping
  int ping_strikes_ = 0;

  std::vector<int32_t> drained_;  // streams to be told at the end of Produce
  std::vector<std::unique_ptr<Http2StreamImpl>> streams_;  // open; each knows its position
};

}  // namespace net
