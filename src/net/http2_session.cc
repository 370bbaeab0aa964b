#include "net/http2_session.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "net/http2_exchange.h"
#include "net/recycler.h"

namespace net {
namespace {

// Stream objects kept by each thread for the next streams of any of its connections.
constexpr size_t kSpareStreamsMax = 1024;
constexpr uint32_t kStreamsNotAnnounced = 4294967295;
constexpr uint32_t kDefaultWindowBytes = 65535;
constexpr size_t kFieldOverheadBytes = 32;  // RFC 9113 section 10.5.1
constexpr base::Duration kIdlePingIntervalMin = std::chrono::hours(2);
constexpr int kPingStrikesMax = 2;

uint8_t* Bytes(std::string_view view) {
  return reinterpret_cast<uint8_t*>(const_cast<char*>(view.data()));
}

constexpr auto kNameCharacters = [] {
  std::array<bool, 256> table{};
  for (int c = 'a'; c <= 'z'; ++c) table[static_cast<size_t>(c)] = true;
  for (int c = '0'; c <= '9'; ++c) table[static_cast<size_t>(c)] = true;
  for (const char c : std::string_view("!#$%&'*+-.^_`|~")) table[static_cast<uint8_t>(c)] = true;
  return table;
}();

bool IsFieldName(std::string_view name) {
  bool good = !name.empty();
  for (const char c : name) good &= kNameCharacters[static_cast<uint8_t>(c)];
  return good;
}

bool IsFieldValue(std::string_view value) {
  bool bad = false;
  for (const char c : value) {
    const auto byte = static_cast<uint8_t>(c);
    bad |= (byte < 0x20 && byte != '\t') || byte == 0x7f;
  }
  return !bad;
}

// Fields that speak of one HTTP/1 connection and make an HTTP/2 request malformed (RFC 9113
// section 8.2.2).
bool IsConnectionField(std::string_view name, std::string_view value) {
  switch (name.size()) {
    case 2:
      return name == "te" && value != "trailers";
    case 7:
      return name == "upgrade";
    case 10:
      return name == "connection" || name == "keep-alive";
    case 16:
      return name == "proxy-connection";
    case 17:
      return name == "transfer-encoding";
    default:
      return false;
  }
}

std::vector<std::unique_ptr<Http2StreamImpl>>& SpareStreams() {
  thread_local std::vector<std::unique_ptr<Http2StreamImpl>> spare;
  return spare;
}

}  // namespace

// --- nghttp2's callbacks ---

struct Http2Session::Callbacks {
  static Http2Session* Self(void* user_data) { return static_cast<Http2Session*>(user_data); }
  static Http2StreamImpl* Stream(nghttp2_session* session, int32_t id) {
    return static_cast<Http2StreamImpl*>(nghttp2_session_get_stream_user_data(session, id));
  }

  static int OnBeginHeaders(nghttp2_session* session, const nghttp2_frame* frame, void* user_data) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    Http2StreamImpl* stream = Self(user_data)->NewStream(frame->hd.stream_id);
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, stream);
    return 0;
  }

  static int OnHeader(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name,
                      size_t name_length, const uint8_t* value, size_t value_length, uint8_t,
                      void* user_data) {
    Http2StreamImpl* stream = Stream(session, frame->hd.stream_id);
    if (stream == nullptr || stream->dispatched_) return 0;  // request trailers mean nothing here
    Self(user_data)->OnHeader(stream, {reinterpret_cast<const char*>(name), name_length},
                              {reinterpret_cast<const char*>(value), value_length});
    return 0;
  }

  static int OnFrame(nghttp2_session* session, const nghttp2_frame* frame, void* user_data) {
    Http2Session* self = Self(user_data);
    switch (frame->hd.type) {
      case NGHTTP2_HEADERS:
      case NGHTTP2_DATA: {
        Http2StreamImpl* stream = Stream(session, frame->hd.stream_id);
        if (stream == nullptr) return 0;
        const bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
        if (frame->hd.type == NGHTTP2_HEADERS && !stream->dispatched_) {
          self->OnRequest(stream, end);
        } else if (end) {
          self->OnRemoteEnd(stream);
        }
        return 0;
      }
      case NGHTTP2_SETTINGS:
        if (!self->preface_done_) {
          self->preface_done_ = true;
          self->host_.MarkUseful();
        }
        return 0;
      case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) self->OnPing();
        return 0;
      default:
        return 0;
    }
  }

  static int OnData(nghttp2_session* session, uint8_t, int32_t id, const uint8_t* data,
                    size_t length, void*) {
    Http2StreamImpl* stream = Stream(session, id);
    if (stream == nullptr || stream->consumer_ == nullptr) {
      // Nobody wants it: the connection's window must not shrink for it.
      nghttp2_session_consume(session, id, length);
      return 0;
    }
    stream->unconsumed_bytes_ += length;
    stream->consumer_->OnStreamData({reinterpret_cast<const char*>(data), length});
    return 0;
  }

  static int OnStreamClose(nghttp2_session* session, int32_t id, uint32_t error_code,
                           void* user_data) {
    Http2StreamImpl* stream = Stream(session, id);
    if (stream != nullptr) Self(user_data)->ReleaseStream(stream, error_code);
    return 0;
  }

  static int OnFrameSent(nghttp2_session* session, const nghttp2_frame* frame, void* user_data) {
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    Http2StreamImpl* stream = Stream(session, frame->hd.stream_id);
    if (stream == nullptr) return 0;
    Self(user_data)->guard_.OnAnswered();
    if (!stream->remote_ended_) {
      // The answer is complete, so what the client still sends is in vain: it is told to stop.
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    }
    return 0;
  }

  static int SendData(nghttp2_session*, nghttp2_frame*, const uint8_t* frame_header, size_t length,
                      nghttp2_data_source* source, void* user_data) {
    Http2Session* self = Self(user_data);
    OutputQueue& output = self->host_.output();
    if (output.size() >= kProduceBytesMax) return NGHTTP2_ERR_WOULDBLOCK;
    output.Append({reinterpret_cast<const char*>(frame_header), 9});
    static_cast<Http2StreamImpl*>(source->ptr)->MoveTo(&output, length);
    self->ping_strikes_reset_ = true;
    self->guard_.OnSent();
    return 0;
  }
};

// What all sessions share: the table of callbacks. Never destroyed.
struct Http2Session::Shared {
  Shared() {
    CHECK_OP(nghttp2_session_callbacks_new(&callbacks), ==, 0);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, Callbacks::OnBeginHeaders);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, Callbacks::OnHeader);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, Callbacks::OnFrame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Callbacks::OnData);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, Callbacks::OnStreamClose);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, Callbacks::OnFrameSent);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, Callbacks::SendData);
  }
  static const Shared& Get() {
    static const Shared* shared = new Shared;
    return *shared;
  }
  nghttp2_session_callbacks* callbacks = nullptr;
};

// --- the session ---

Http2Session::Http2Session(ProtocolHost& host, const Http2Options& options, GrpcHandler* grpc,
                           HttpHandler* http)
    : host_(host), options_(options), grpc_(grpc), http_(http), guard_(options) {
  nghttp2_option* option = nullptr;
  CHECK_OP(nghttp2_option_new(&option), ==, 0);
  nghttp2_option_set_no_auto_window_update(option, 1);
  nghttp2_option_set_no_closed_streams(option, 1);
  // The head is checked here (OnHeader): nghttp2 refuses authorities such as the path of a unix
  // socket, which clients of unix listeners do send.
  nghttp2_option_set_no_http_messaging(option, 1);
  // Http2Guard judges resets by whether they were answered; these bounds only stop what is absurd.
  nghttp2_option_set_stream_reset_rate_limit(option, 1000000, 100000);
  nghttp2_option_set_max_continuations(option, options.continuation_frames_max);
  nghttp2_option_set_max_outbound_ack(option, 10000);
  // Each stream takes and frees a dozen small blocks; a stock per thread serves them faster than
  // malloc.
  nghttp2_mem memory{nullptr, [](size_t n, void*) { return RecyclerAllocate(n); },
                     [](void* block, void*) { RecyclerFree(block); },
                     [](size_t count, size_t n, void*) { return RecyclerAllocateZeroed(count, n); },
                     [](void* block, size_t n, void*) { return RecyclerReallocate(block, n); }};
  CHECK_OP(nghttp2_session_server_new3(&session_, Shared::Get().callbacks, this, option, &memory),
           ==, 0);
  nghttp2_option_del(option);

  std::array<nghttp2_settings_entry, 4> settings;
  size_t count = 0;
  settings[count++] = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, options.stream_window_bytes};
  settings[count++] = {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, options.header_list_bytes_max};
  settings[count++] = {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1};
  if (options.concurrent_streams_max != kStreamsNotAnnounced) {
    settings[count++] = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, options.concurrent_streams_max};
  }
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), count);
  if (options.connection_window_bytes > kDefaultWindowBytes) {
    nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0,
                                          static_cast<int32_t>(options.connection_window_bytes));
  }
  last_activity_ = host_.loop().Now();
  ArmTimer(options_.preface_timeout);
  host_.WantFlush();
}

Http2Session::~Http2Session() {
  OnClosed();
  nghttp2_session_del(session_);
}

void Http2Session::OnInput(std::string_view bytes) {
  if (terminated_ || closed_) return;
  last_activity_ = host_.loop().Now();
  if (const char* reason = guard_.Scan(bytes, last_activity_); reason != nullptr) {
    return Terminate(kHttp2EnhanceYourCalm, reason);
  }
  receiving_ = true;
  const ssize_t taken = nghttp2_session_mem_recv(
      session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  receiving_ = false;
  host_.WantFlush();
  if (taken < 0) {
    terminated_ = true;
    if (taken == NGHTTP2_ERR_BAD_CLIENT_MAGIC) return host_.Abort();
    nghttp2_session_terminate_session(session_, NGHTTP2_PROTOCOL_ERROR);
    host_.CloseAfterFlush();
  }
}

void Http2Session::OnInputEnd() {
  // A gRPC client that closes its side is gone; nothing it asked for can matter to it any more.
  host_.Abort();
}

void Http2Session::Produce() {
  if (closed_) return;
  OutputQueue& output = host_.output();
  for (int round = 0; round < 4; ++round) {
    while (output.size() < kProduceBytesMax) {
      const uint8_t* data = nullptr;
      const ssize_t n = nghttp2_session_mem_send(session_, &data);
      if (n < 0) return host_.Abort();
      if (n == 0) break;
      output.Append({reinterpret_cast<const char*>(data), static_cast<size_t>(n)});
    }
    if (drained_.empty()) break;
    TellDrained();
  }
  CloseIfDone();
}

void Http2Session::TellDrained() {
  std::vector<int32_t> ids;
  ids.swap(drained_);
  for (const int32_t id : ids) {
    Http2StreamImpl* stream = Callbacks::Stream(session_, id);
    if (stream == nullptr) continue;
    stream->in_drained_list_ = false;
    if (!stream->notify_drained_ || stream->queued_bytes_ > stream->low_bytes_) continue;
    stream->notify_drained_ = false;
    if (stream->consumer_ != nullptr) stream->consumer_->OnStreamDrained();
  }
}

void Http2Session::CloseIfDone() {
  if (closed_) return;
  if (nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0) {
    host_.CloseAfterFlush();
  } else if (draining_ && streams_.empty() && nghttp2_session_want_write(session_) == 0) {
    host_.CloseAfterFlush();
  }
}

void Http2Session::OnClosed() {
  if (closed_) return;
  closed_ = true;
  host_.loop().Cancel(&timer_);
  while (!streams_.empty()) ReleaseStream(streams_.back().get(), kHttp2Cancel);
}

void Http2Session::Drain() {
  if (draining_ || closed_) return;
  draining_ = true;
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                        nullptr, 0);
  host_.WantFlush();
}

Http2StreamImpl* Http2Session::NewStream(int32_t id) {
  std::unique_ptr<Http2StreamImpl> stream;
  auto& spare = SpareStreams();
  if (spare.empty()) {
    stream = std::make_unique<Http2StreamImpl>();
  } else {
    stream = std::move(spare.back());
    spare.pop_back();
  }
  stream->session_ = this;
  stream->id_ = id;
  stream->position_ = streams_.size();
  streams_.push_back(std::move(stream));
  return streams_.back().get();
}

void Http2Session::ReleaseStream(Http2StreamImpl* stream, uint32_t error_code) {
  nghttp2_session_set_stream_user_data(session_, stream->id_, nullptr);
  std::unique_ptr<Http2StreamImpl> owned = std::move(streams_[stream->position_]);
  if (stream->position_ + 1 != streams_.size()) {
    streams_[stream->position_] = std::move(streams_.back());
    streams_[stream->position_]->position_ = stream->position_;
  }
  streams_.pop_back();
  queued_bytes_ -= stream->queued_bytes_;
  stream->queued_bytes_ = 0;
  const bool answered = stream->ended_;
  if (StreamConsumer* consumer = std::exchange(stream->consumer_, nullptr); consumer != nullptr) {
    consumer->OnStreamClosed(error_code);
  }
  if (stream->unconsumed_bytes_ > 0 && !closed_) {
    nghttp2_session_consume_connection(session_, stream->unconsumed_bytes_);
    stream->unconsumed_bytes_ = 0;
  }
  if (auto& spare = SpareStreams(); spare.size() < kSpareStreamsMax) {
    stream->Recycle();
    spare.push_back(std::move(owned));
  }
  if (closed_) return;
  if (!answered && error_code != kHttp2NoError && !terminated_) {
    if (const char* reason = guard_.OnUnansweredReset(last_activity_); reason != nullptr) {
      Terminate(kHttp2EnhanceYourCalm, reason);
    }
  }
  if (draining_) host_.WantFlush();
}

void Http2Session::OnHeader(Http2StreamImpl* stream, std::string_view name,
                            std::string_view value) {
  if (stream->malformed_) return;
  stream->header_bytes_ += static_cast<uint32_t>(name.size() + value.size() + kFieldOverheadBytes);
  const bool pseudo = !name.empty() && name[0] == ':';
  if (stream->header_bytes_ > options_.header_list_bytes_max ||
      stream->head_.size() >= options_.header_fields_max || !IsFieldValue(value) ||
      (pseudo ? !stream->head_.AddPseudo(name, value)
              : !IsFieldName(name) || IsConnectionField(name, value))) {
    stream->malformed_ = true;
    stream->Reset(kHttp2ProtocolError);
    return;
  }
  if (!pseudo) stream->head_.Add(name, value);
}

void Http2Session::OnRequest(Http2StreamImpl* stream, bool end) {
  stream->dispatched_ = true;
  stream->remote_ended_ = end;
  if (stream->malformed_) return;
  RequestHead& head = stream->head_;
  if (head.method().empty() || head.path().empty() || head.scheme().empty()) {
    stream->malformed_ = true;
    return stream->Reset(kHttp2ProtocolError);
  }
  if (streams_.size() > options_.open_streams_max ||
      streams_.size() > options_.concurrent_streams_max) {
    return stream->Reset(kHttp2RefusedStream);
  }
  if (options_.print_authority) {
    std::fprintf(stderr, "http2: decoded hpack field header field \":authority\" = \"%.*s\"\n",
                 static_cast<int>(head.authority().size()), head.authority().data());
  }
  const bool grpc =
      grpc_ != nullptr &&
      (http_ == nullptr || head.content_type().find("application/grpc") != std::string_view::npos);
  if (grpc) {
    stream->consumer_ = grpc_->OnGrpcStream(*stream);
    if (end && stream->consumer_ != nullptr) stream->consumer_->OnStreamEnd();
  } else {
    StartHttp2Exchange(*stream, *http_, &stream->consumer_);
  }
}

void Http2Session::OnRemoteEnd(Http2StreamImpl* stream) {
  stream->remote_ended_ = true;
  if (stream->consumer_ != nullptr) stream->consumer_->OnStreamEnd();
}

void Http2Session::OnPing() {
  if (options_.client_ping_interval_min <= base::Duration::zero()) return;
  const base::Duration now = host_.loop().Now();
  const base::Duration since = client_pinged_ ? now - last_client_ping_ : base::Duration::max();
  client_pinged_ = true;
  last_client_ping_ = now;
  if (ping_strikes_reset_) {
    ping_strikes_reset_ = false;
    ping_strikes_ = 0;
    return;
  }
  const base::Duration interval_min =
      streams_.empty() ? kIdlePingIntervalMin : options_.client_ping_interval_min;
  if (since < interval_min) ++ping_strikes_;
  if (ping_strikes_ > kPingStrikesMax) Terminate(kHttp2EnhanceYourCalm, "too_many_pings");
}

void Http2Session::Terminate(uint32_t error_code, std::string_view reason) {
  if (terminated_) return;
  terminated_ = true;
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_), error_code,
                        Bytes(reason), reason.size());
  host_.WantFlush();
  host_.CloseAfterFlush();
}

void Http2Session::ArmTimer(base::Duration delay) {
  timer_ = host_.loop().RunAfter(delay, [this] {
    timer_ = TimerId{};
    OnTimer();
  });
}

void Http2Session::OnTimer() {
  if (!preface_done_) return host_.Abort();
  if (options_.keepalive_interval <= base::Duration::zero() ||
      options_.keepalive_timeout <= base::Duration::zero()) {
    return;
  }
  const base::Duration now = host_.loop().Now();
  if (ping_sent_at_ != base::Duration::zero()) {
    // Whatever the client sent since then proves that it is alive, the answer to the ping included.
    if (last_activity_ < ping_sent_at_) return host_.Abort();
    ping_sent_at_ = base::Duration::zero();
  }
  const base::Duration silent = now - last_activity_;
  if (silent < options_.keepalive_interval) return ArmTimer(options_.keepalive_interval - silent);
  ping_sent_at_ = now;
  nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
  host_.WantFlush();
  ArmTimer(options_.keepalive_timeout);
}

}  // namespace net
