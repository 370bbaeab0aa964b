// One HTTP/1.x server connection: bytes in, bytes out, requests one after the other. Requests that
// a client sends ahead wait until the one before is answered. Refuses what proxies and servers
// could read differently (request smuggling): two lengths, a length beside a transfer coding,
// folded lines, blanks before colons. Loop thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/http.h"
#include "net/loop.h"
#include "net/protocol.h"
#include "net/server.h"
#include "net/websocket.h"

namespace net {

class Http1Exchange;
class WebSocketImpl;

class Http1Session final : public Protocol {
 public:
  // `http` is null on listeners that serve gRPC only: every request is answered 415. All arguments
  // outlive the session.
  Http1Session(ProtocolHost& host, const Http1Options& options, HttpHandler* http);
  ~Http1Session() override;

  void OnInput(std::string_view bytes) override;
  void OnInputEnd() override;
  void Produce() override;
  void OnClosed() override;
  void Drain() override;

 private:
  friend class Http1Exchange;
  friend class WebSocketImpl;

  enum class State : uint8_t {
    kHead,       // collecting a request head
    kBody,       // content_left_ bytes of body follow
    kChunkSize,  // a chunk's size line
    kChunk,      // content_left_ bytes of the chunk follow
    kChunkEnd,   // the CRLF behind a chunk
    kTrailer,    // lines up to an empty one
    kAnswering,  // request received in full, the response is not
    kWebSocket,
    kClosing,  // nothing more is read
  };

  // Takes a prefix of `bytes`; returns how much. Zero when it needs more bytes or must wait.
  size_t Take(std::string_view bytes);
  // Takes what it can of `bytes` and keeps the rest in input_. `owned`, if not null, is the string
  // that `bytes` views; its memory is then kept instead of a copy.
  void Process(std::string_view bytes, std::string* owned);
  size_t TakeHead(std::string_view bytes);
  size_t TakeBody(std::string_view bytes);
  size_t TakeLine(std::string_view bytes);
  void OnHead(std::string_view head);
  void OnBodyEnd();
  void OnResponseEnd();
  void NextRequest();
  void Refuse(int status, std::string_view reason);
  void Append(std::string_view bytes);
  void Append(Piece piece);
  bool CheckOutput();
  void OnWebSocket(const WebSocketParser::Event& event);
  void CloseWebSocket();
  void DrainWebSocket();
  void SetDeadline(base::Duration delay);  // zero: none
  void OnTimer();

  ProtocolHost& host_;
  const Http1Options& options_;
  HttpHandler* const http_;
  State state_ = State::kHead;
  std::string input_;  // received and not taken yet
  bool processing_ = false;
  bool resume_ = false;        // input_ can be taken now
  bool input_paused_ = false;  // the body's reader asked to wait
  bool keep_alive_ = true;     // may serve another request after this one
  bool useful_ = false;
  bool closed_ = false;
  bool head_begun_ = false;  // the deadline of the head runs
  size_t head_scanned_ = 0;  // bytes of input_ known to hold no end of head
  uint64_t content_left_ = 0;
  uint64_t discarded_bytes_ = 0;  // body thrown away after the response
  uint64_t trailer_bytes_ = 0;
  std::shared_ptr<Http1Exchange> exchange_;
  std::unique_ptr<WebSocketParser> web_socket_;
  std::shared_ptr<WebSocketImpl> web_socket_handle_;
  size_t drained_low_bytes_ = 0;
  absl::AnyInvocable<void()> on_drained_;

  TimerId timer_;
  base::Duration deadline_{};  // zero: none
  base::Duration timer_at_{};
};

}  // namespace net
