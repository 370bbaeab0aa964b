// For tests and fuzzers: a protocol's host without a socket, and an HTTP/2 client made of frames.
// Not thread-safe.
#pragma once

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/http.h"
#include "net/loop.h"
#include "net/output_queue.h"
#include "net/protocol.h"

namespace net {

// Collects what a protocol sends. The loop is driven by hand.
class FakeHost final : public ProtocolHost, public TurnEndHook {
 public:
  FakeHost() {
    auto info = std::make_shared<ConnectionInfo>();
    info->remote_address = "192.0.2.1:1234";
    info->remote_ip = "192.0.2.1";
    info_ = std::move(info);
  }
  ~FakeHost() { loop_.RemoveTurnEndHook(this); }

  void set_protocol(Protocol* protocol) { protocol_ = protocol; }
  Loop& loop() override { return loop_; }
  const std::shared_ptr<const ConnectionInfo>& info() const override { return info_; }
  OutputQueue& output() override { return output_; }
  void WantFlush() override { loop_.AtTurnEnd(this); }
  void CloseAfterFlush() override { closing = true; }
  void Abort() override { aborted = true; }
  void PauseInput(bool pause) override { paused = pause; }
  void MarkUseful() override { useful = true; }

  void OnTurnEnd() override {
    if (protocol_ == nullptr || blocked) return;
    // What leaves the queue makes room for more, as on a socket that takes everything.
    for (int i = 0; i < 1000; ++i) {
      protocol_->Produce();
      if (output_.empty()) break;
      while (!output_.empty()) {
        const std::string_view front = output_.Front();
        sent.append(front);
        output_.Consume(front.size());
      }
    }
  }

  // Runs one turn: timers, posted tasks, then the flush.
  void Turn(base::Duration wait = base::Duration::zero()) { loop_.RunOnce(wait); }
  std::string TakeSent() { return std::exchange(sent, std::string()); }

  std::string sent;
  bool closing = false;
  bool aborted = false;
  bool paused = false;
  bool useful = false;
  bool blocked = false;  // the socket takes nothing

 private:
  Loop loop_;
  std::shared_ptr<const ConnectionInfo> info_;
  OutputQueue output_;
  Protocol* protocol_ = nullptr;
};

// A well-behaved client: nghttp2's client side, with what it learned of each stream.
class Http2TestClient {
 public:
  struct Response {
    std::map<std::string, std::string> headers;  // trailers too
    std::string body;
    bool ended = false;  // END_STREAM seen
    bool closed = false;
    uint32_t error_code = 0;
  };
  using Headers = std::vector<std::pair<std::string, std::string>>;

  // Flow control: with `auto_window` false the client never opens its windows again.
  explicit Http2TestClient(bool auto_window = true, uint32_t stream_window = 65535) {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks,
        [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_length,
           const uint8_t* value, size_t value_length, uint8_t, void* self) {
          static_cast<Http2TestClient*>(self)
              ->responses[frame->hd.stream_id]
              .headers[std::string(reinterpret_cast<const char*>(name), name_length)] =
              std::string(reinterpret_cast<const char*>(value), value_length);
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks,
        [](nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t length, void* self) {
          static_cast<Http2TestClient*>(self)->responses[id].body.append(
              reinterpret_cast<const char*>(data), length);
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* raw) {
          auto* self = static_cast<Http2TestClient*>(raw);
          if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
              (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
            self->responses[frame->hd.stream_id].ended = true;
          }
          if (frame->hd.type == NGHTTP2_GOAWAY) {
            self->goaway = true;
            self->goaway_code = frame->goaway.error_code;
            self->goaway_text.assign(reinterpret_cast<const char*>(frame->goaway.opaque_data),
                                     frame->goaway.opaque_data_len);
          }
          if (frame->hd.type == NGHTTP2_PING) ++self->pings;
          if (frame->hd.type == NGHTTP2_SETTINGS && (frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) {
            for (size_t i = 0; i < frame->settings.niv; ++i) {
              self->settings[frame->settings.iv[i].settings_id] = frame->settings.iv[i].value;
            }
          }
          return 0;
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(
        callbacks, [](nghttp2_session*, int32_t id, uint32_t code, void* self) {
          auto& response = static_cast<Http2TestClient*>(self)->responses[id];
          response.closed = true;
          response.error_code = code;
          return 0;
        });
    nghttp2_option* option = nullptr;
    nghttp2_option_new(&option);
    nghttp2_option_set_no_auto_window_update(option, auto_window ? 0 : 1);
    nghttp2_option_set_no_http_messaging(option, 1);
    nghttp2_session_client_new2(&session_, callbacks, this, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    const nghttp2_settings_entry entry = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, stream_window};
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, &entry, 1);
  }
  ~Http2TestClient() { nghttp2_session_del(session_); }
  Http2TestClient(const Http2TestClient&) = delete;
  Http2TestClient& operator=(const Http2TestClient&) = delete;

  nghttp2_session* session() { return session_; }

  // Opens a stream. With `end` the body is complete, else more follows by Send and End.
  int32_t Open(const Headers& headers, std::string body, bool end) {
    std::vector<nghttp2_nv> fields;
    for (const auto& [name, value] : headers) {
      fields.push_back({reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
                        reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(),
                        value.size(), NGHTTP2_NV_FLAG_NONE});
    }
    auto upload = std::make_unique<Upload>();
    upload->bytes = std::move(body);
    upload->end = end;
    nghttp2_data_provider provider;
    provider.source.ptr = upload.get();
    provider.read_callback = [](nghttp2_session*, int32_t, uint8_t* out, size_t length,
                                uint32_t* flags, nghttp2_data_source* source, void*) -> ssize_t {
      auto* from = static_cast<Upload*>(source->ptr);
      const size_t n = std::min(length, from->bytes.size());
      if (n == 0 && !from->end) return NGHTTP2_ERR_DEFERRED;
      from->bytes.copy(reinterpret_cast<char*>(out), n);
      from->bytes.erase(0, n);
      if (from->bytes.empty() && from->end) *flags |= NGHTTP2_DATA_FLAG_EOF;
      return static_cast<ssize_t>(n);
    };
    const int32_t id =
        nghttp2_submit_request(session_, nullptr, fields.data(), fields.size(), &provider, nullptr);
    uploads_[id] = std::move(upload);
    return id;
  }
  void Send(int32_t id, std::string_view bytes) {
    uploads_[id]->bytes.append(bytes);
    nghttp2_session_resume_data(session_, id);
  }
  void End(int32_t id) {
    uploads_[id]->end = true;
    nghttp2_session_resume_data(session_, id);
  }
  void Reset(int32_t id, uint32_t code = NGHTTP2_CANCEL) {
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, code);
  }
  void Ping() { nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr); }

  // The bytes the client wants to send.
  std::string TakeOutput() {
    std::string out;
    for (;;) {
      const uint8_t* data = nullptr;
      const ssize_t n = nghttp2_session_mem_send(session_, &data);
      if (n <= 0) return out;
      out.append(reinterpret_cast<const char*>(data), static_cast<size_t>(n));
    }
  }
  // False when the server's bytes broke the protocol.
  bool Input(std::string_view bytes) {
    return nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(bytes.data()),
                                    bytes.size()) >= 0;
  }

  std::map<int32_t, Response> responses;
  std::map<int32_t, uint32_t> settings;  // the server's
  bool goaway = false;
  uint32_t goaway_code = 0;
  std::string goaway_text;
  int pings = 0;

 private:
  struct Upload {
    std::string bytes;
    bool end = false;
  };
  nghttp2_session* session_ = nullptr;
  std::map<int32_t, std::unique_ptr<Upload>> uploads_;
};

}  // namespace net
