#include "net/http2_exchange.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "net/http_text.h"
#include "net/loop.h"

namespace net {
namespace {

class Http2Exchange final : public HttpExchange,
                            public StreamConsumer,
                            public std::enable_shared_from_this<Http2Exchange> {
 public:
  explicit Http2Exchange(Http2Stream& stream)
      : stream_(&stream), loop_(stream.loop()), connection_(stream.shared_connection()) {
    head_.swap(stream.head());
    for (size_t i = 0; i < head_.size(); ++i) headers_.push_back({head_.name(i), head_.value(i)});
    if (stream.remote_ended()) body_ended_ = true;
    length_ = ParseDecimal(head_.Find("content-length"));
  }

  // The stream keeps the exchange alive until it closes.
  void KeepAlive() { self_ = shared_from_this(); }

  std::string_view method() const override { return head_.method(); }
  std::string_view target() const override { return head_.path(); }
  std::string_view host() const override {
    return head_.authority().empty() ? head_.Find("host") : head_.authority();
  }
  std::span<const Header> headers() const override { return headers_; }
  int http_major() const override { return 2; }
  int http_minor() const override { return 0; }
  std::optional<uint64_t> content_length() const override { return length_; }
  const ConnectionInfo& connection() const override { return *connection_; }
  Loop& loop() override { return loop_; }

  void ReadBodyPieces(absl::AnyInvocable<void(std::string_view, bool)> on_piece) override {
    on_piece_ = std::move(on_piece);
    DeliverPending();
  }

  void PauseBody(bool paused) override {
    paused_ = paused;
    if (!paused) DeliverPending();
  }

  void AddHeader(std::string_view name, std::string_view value) override {
    if (started_ || !IsToken(name) || !IsHeaderValue(value)) return;
    std::string lower = ToLowerAscii(name);
    if (lower == "connection" || lower == "transfer-encoding" || lower == "keep-alive") return;
    response_headers_.emplace_back(std::move(lower), std::string(value));
  }

  void Start(int status) override {
    if (started_ || stream_ == nullptr) return;
    started_ = true;
    no_body_ = HasNoBody(method(), status);
    const std::string code = fmt::format_int(status).str();
    std::vector<Header> fields;
    fields.push_back({":status", code});
    for (const auto& [name, value] : response_headers_) fields.push_back({name, value});
    fields.push_back({"date", HttpDate()});
    stream_->SendHeaders(fields, /*is_static=*/false, /*end=*/false);
  }

  void Write(Piece piece) override {
    if (stream_ == nullptr || !started_ || ended_ || no_body_) return;
    stream_->Write(std::move(piece));
  }

  void End() override {
    if (stream_ == nullptr || !started_ || ended_) return;
    ended_ = true;
    on_abort_ = nullptr;
    // Nobody reads the rest of the body any more.
    pending_.clear();
    stream_->End({}, /*is_static=*/true);
  }

  void Abort() override {
    ended_ = true;
    on_abort_ = nullptr;
    if (stream_ != nullptr) stream_->Reset(kHttp2InternalError);
  }

  bool started() const override { return started_; }
  size_t queued_bytes() const override { return stream_ == nullptr ? 0 : stream_->queued_bytes(); }

  void NotifyWhenDrained(size_t low_bytes, absl::AnyInvocable<void()> fn) override {
    if (stream_ == nullptr) return;
    on_drained_ = std::move(fn);
    stream_->NotifyWhenDrained(low_bytes);
  }

  void OnAbort(absl::AnyInvocable<void()> fn) override {
    if (aborted_) {
      loop_.Post(std::move(fn));
    } else if (!ended_) {
      on_abort_ = std::move(fn);
    }
  }
  bool aborted() const override { return aborted_; }

  std::shared_ptr<WebSocket> AcceptWebSocket(std::string_view, WebSocketHandlers) override {
    return nullptr;  // WantsWebSocket() is never true here
  }

  // --- StreamConsumer ---

  void OnStreamData(std::string_view bytes) override {
    received_ += bytes.size();
    if (length_ && received_ > *length_) {
      stream_->Consume(bytes.size());
      return stream_->Reset(kHttp2ProtocolError);
    }
    if (ended_) {
      stream_->Consume(bytes.size());
    } else if (on_piece_ && !paused_ && pending_.empty()) {
      const auto keep = self_;
      on_piece_(bytes, false);
      if (stream_ != nullptr) stream_->Consume(bytes.size());
    } else {
      pending_.append(bytes);  // at most the stream's receive window
    }
  }

  void OnStreamEnd() override {
    body_ended_ = true;
    if (length_ && received_ != *length_ && stream_ != nullptr) {
      return stream_->Reset(kHttp2ProtocolError);
    }
    DeliverPending();
  }

  void OnStreamDrained() override {
    if (!on_drained_) return;
    auto fn = std::move(on_drained_);
    on_drained_ = nullptr;
    fn();
  }

  void OnStreamClosed(uint32_t) override {
    stream_ = nullptr;
    on_drained_ = nullptr;
    auto keep = std::move(self_);
    on_piece_ = nullptr;
    if (ended_) return;
    aborted_ = true;
    if (on_abort_) {
      auto fn = std::move(on_abort_);
      on_abort_ = nullptr;
      fn();
    }
  }

 private:
  void DeliverPending() {
    if (!on_piece_ || paused_ || body_done_) return;
    const auto keep = shared_from_this();
    if (!pending_.empty()) {
      std::string bytes;
      bytes.swap(pending_);
      on_piece_(bytes, false);
      if (stream_ != nullptr) stream_->Consume(bytes.size());
    }
    if (body_ended_ && !paused_ && on_piece_ && !body_done_) {
      body_done_ = true;
      auto fn = std::move(on_piece_);
      on_piece_ = nullptr;
      fn({}, true);
    }
  }

  Http2Stream* stream_;  // null once closed
  Loop& loop_;
  const std::shared_ptr<const ConnectionInfo> connection_;
  std::shared_ptr<Http2Exchange> self_;  // while the stream lives
  RequestHead head_;
  std::vector<Header> headers_;
  std::optional<uint64_t> length_;
  uint64_t received_ = 0;

  absl::AnyInvocable<void(std::string_view, bool)> on_piece_;
  std::string pending_;  // body that arrived before somebody wanted it
  bool paused_ = false;
  bool body_ended_ = false;  // the client sent all
  bool body_done_ = false;   // and the handler has it

  std::vector<std::pair<std::string, std::string>> response_headers_;
  bool started_ = false;
  bool no_body_ = false;
  bool ended_ = false;
  bool aborted_ = false;
  absl::AnyInvocable<void()> on_abort_;
  absl::AnyInvocable<void()> on_drained_;
};

}  // namespace

void StartHttp2Exchange(Http2Stream& stream, HttpHandler& handler, StreamConsumer** consumer) {
  auto exchange = std::make_shared<Http2Exchange>(stream);
  exchange->KeepAlive();
  *consumer = exchange.get();
  handler.OnRequest(std::move(exchange));
}

}  // namespace net
