// WebSocket connections: what becomes of a Http1Session after an upgrade.
#include <utility>

#include "net/http1_exchange.h"
#include "net/http1_session.h"
#include "net/websocket.h"

namespace net {
namespace {

constexpr base::Duration kCloseAnswerTimeout = std::chrono::seconds(1);

}  // namespace

class WebSocketImpl final : public WebSocket {
 public:
  WebSocketImpl(Http1Session* session, WebSocketHandlers handlers)
      : session_(session), loop_(session->host_.loop()), handlers_(std::move(handlers)) {}

  void SendText(std::string_view text) override {
    if (session_ == nullptr || close_sent_) return;
    std::string frame;
    frame.reserve(text.size() + 10);
    AppendWebSocketFrame(&frame, WebSocketOpcode::kText, text);
    session_->Append(Piece(std::move(frame)));
    session_->CheckOutput();
  }

  void Close(uint16_t code, std::string_view reason) override {
    if (session_ == nullptr || close_sent_) return;
    SendClose(code, reason);
    // The timer aborts the connection of a client that does not answer.
    session_->SetDeadline(kCloseAnswerTimeout);
  }

  size_t queued_bytes() const override {
    return session_ == nullptr ? 0 : session_->host_.output().size();
  }

  void NotifyWhenDrained(size_t low_bytes, absl::AnyInvocable<void()> fn) override {
    if (session_ == nullptr) return;
    session_->drained_low_bytes_ = low_bytes;
    session_->on_drained_ = std::move(fn);
    session_->host_.WantFlush();
  }

  Loop& loop() override { return loop_; }

  void OnEvent(const WebSocketParser::Event& event) {
    using Kind = WebSocketParser::Event::Kind;
    switch (event.kind) {
      case Kind::kNone:
      case Kind::kPong:
        return;
      case Kind::kMessage:
        if (!close_sent_ && handlers_.on_message) handlers_.on_message(event.payload);
        return;
      case Kind::kPing: {
        std::string frame;
        AppendWebSocketFrame(&frame, WebSocketOpcode::kPong, event.payload);
        session_->Append(frame);
        session_->CheckOutput();
        return;
      }
      case Kind::kClose:
        SendClose(event.code == 1005 ? 1000 : event.code, "");
        return End();
      case Kind::kError:
        SendClose(event.code, event.payload);
        return End();
    }
  }

  // The connection is gone.
  void Detach() {
    session_ = nullptr;
    handlers_.on_message = nullptr;
    if (!handlers_.on_close) return;
    auto fn = std::move(handlers_.on_close);
    handlers_.on_close = nullptr;
    fn();
  }

 private:
  void SendClose(uint16_t code, std::string_view reason) {
    if (close_sent_) return;
    close_sent_ = true;
    std::string payload;
    payload.push_back(static_cast<char>(code >> 8));
    payload.push_back(static_cast<char>(code & 0xff));
    payload.append(reason.substr(0, 123));
    std::string frame;
    AppendWebSocketFrame(&frame, WebSocketOpcode::kClose, payload);
    session_->Append(frame);
  }

  void End() {
    session_->state_ = Http1Session::State::kClosing;
    session_->host_.CloseAfterFlush();
  }

  Http1Session* session_;  // null once the connection is gone
  Loop& loop_;
  WebSocketHandlers handlers_;
  bool close_sent_ = false;
};

void Http1Session::OnWebSocket(const WebSocketParser::Event& event) {
  const auto socket = web_socket_handle_;
  socket->OnEvent(event);
}

void Http1Session::CloseWebSocket() {
  if (web_socket_handle_ == nullptr) return;
  const auto socket = std::exchange(web_socket_handle_, nullptr);
  socket->Detach();
}

void Http1Session::DrainWebSocket() { web_socket_handle_->Close(1001, "server stopped"); }

std::shared_ptr<WebSocket> Http1Exchange::AcceptWebSocket(std::string_view protocol,
                                                          WebSocketHandlers handlers) {
  if (session_ == nullptr || started_ || !WantsWebSocket()) return nullptr;
  Http1Session* session = session_;
  started_ = ended_ = true;
  on_abort_ = nullptr;
  std::string head =
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Accept: " +
      WebSocketAcceptKey(header("Sec-WebSocket-Key")) + "\r\n";
  if (!protocol.empty()) head.append("Sec-WebSocket-Protocol: ").append(protocol).append("\r\n");
  head += response_fields_;
  head += "\r\n";
  session->Append(head);
  session->web_socket_ = std::make_unique<WebSocketParser>(handlers.message_bytes_max);
  auto socket = std::make_shared<WebSocketImpl>(session, std::move(handlers));
  session->web_socket_handle_ = socket;
  session->state_ = Http1Session::State::kWebSocket;
  session->SetDeadline(base::Duration::zero());
  session->exchange_ = nullptr;
  session_ = nullptr;
  // Frames the client sent right behind its request are taken once the handler has returned.
  session->resume_ = true;
  session->host_.WantFlush();
  return socket;
}

}  // namespace net
