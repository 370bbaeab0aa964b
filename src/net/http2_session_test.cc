#include "net/http2_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "base/random.h"
#include "net/fake_host.h"

namespace net {
namespace {

const char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string frame;
  frame.push_back(static_cast<char>(payload.size() >> 16));
  frame.push_back(static_cast<char>(payload.size() >> 8));
  frame.push_back(static_cast<char>(payload.size()));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  for (int shift = 24; shift >= 0; shift -= 8) frame.push_back(static_cast<char>(stream >> shift));
  frame.append(payload);
  return frame;
}

// HPACK by hand: POST, https, "/" and the authority "a", all without the dynamic table.
std::string SmallHead() {
  return std::string(
      "\x83\x87\x84\x01\x01"
      "a",
      6);
}

// Takes all streams, keeps what comes.
class RecordingHandler final : public GrpcHandler, public StreamConsumer {
 public:
  StreamConsumer* OnGrpcStream(Http2Stream& stream) override {
    ++streams;
    last = &stream;
    path = stream.head().path();
    return this;
  }
  void OnStreamData(std::string_view bytes) override {
    data.append(bytes);
    if (consume && last != nullptr) last->Consume(bytes.size());
  }
  void OnStreamEnd() override { ++ends; }
  void OnStreamDrained() override { ++drained; }
  void OnStreamClosed(uint32_t code) override {
    ++closed;
    close_code = code;
    last = nullptr;
  }

  int streams = 0;
  int ends = 0;
  int drained = 0;
  int closed = 0;
  uint32_t close_code = 0;
  bool consume = true;
  std::string data;
  std::string path;
  Http2Stream* last = nullptr;
};

class Http2 : public testing::Test {
 protected:
  Http2() : http_([this](std::shared_ptr<HttpExchange> x) { on_request(std::move(x)); }) { Make(); }
  ~Http2() override { Drop(); }

  void Drop() {
    if (host_ != nullptr) host_->set_protocol(nullptr);
    session_.reset();
    if (host_ != nullptr) host_->Turn();
    host_.reset();
  }
  void Make() {
    Drop();
    host_ = std::make_unique<FakeHost>();
    client_ = std::make_unique<Http2TestClient>();
    session_ =
        std::make_unique<Http2Session>(*host_, options_, &grpc_, serve_http_ ? &http_ : nullptr);
    host_->set_protocol(session_.get());
    host_->Turn();
  }
  // Carries bytes both ways until neither side has more to say.
  void Exchange() {
    for (int i = 0; i < 100; ++i) {
      const std::string out = client_->TakeOutput();
      if (!out.empty()) session_->OnInput(out);
      host_->Turn();
      const std::string back = host_->TakeSent();
      if (!back.empty()) {
        ASSERT_TRUE(client_->Input(back));
      }
      if (out.empty() && back.empty()) return;
    }
  }
  // For frames made by hand.
  void Raw(std::string_view bytes) {
    session_->OnInput(bytes);
    host_->Turn();
    const std::string sent = host_->TakeSent();
    raw_sent_ += sent;
    client_->Input(sent);
  }
  void RawPreface() { Raw(std::string(kPreface) + Frame(4, 0, 0, "")); }
  static Http2TestClient::Headers GrpcHead() {
    return {{":method", "POST"},
            {":scheme", "http"},
            {":path", "/s/m"},
            {":authority", "a"},
            {"content-type", "application/grpc"},
            {"te", "trailers"}};
  }

  Http2Options options_;
  bool serve_http_ = true;
  RecordingHandler grpc_;
  std::function<void(std::shared_ptr<HttpExchange>)> on_request =
      [](std::shared_ptr<HttpExchange> x) { x->Respond(200, "text/plain", "hello"); };
  FunctionHandler http_;
  std::unique_ptr<FakeHost> host_;
  std::unique_ptr<Http2TestClient> client_;
  std::unique_ptr<Http2Session> session_;
  std::string raw_sent_;
};

TEST_F(Http2, RoutesByContentType) {
  const int32_t grpc = client_->Open(GrpcHead(), "abc", true);
  const int32_t plain = client_->Open(
      {{":method", "GET"}, {":scheme", "http"}, {":path", "/version"}, {":authority", "a"}}, "",
      true);
  Exchange();
  EXPECT_EQ(grpc_.streams, 1);
  EXPECT_EQ(grpc_.data, "abc");
  EXPECT_EQ(grpc_.ends, 1);
  EXPECT_FALSE(client_->responses[grpc].ended);
  EXPECT_EQ(client_->responses[plain].headers[":status"], "200");
  EXPECT_EQ(client_->responses[plain].headers["content-length"], "5");
  EXPECT_EQ(client_->responses[plain].body, "hello");
  EXPECT_TRUE(client_->responses[plain].ended);
  EXPECT_TRUE(host_->useful);
}

TEST_F(Http2, AnnouncesStreamsOnlyBelowTheDefault) {
  Exchange();
  EXPECT_FALSE(client_->settings.contains(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS));
  options_.concurrent_streams_max = 7;
  Make();
  Exchange();
  EXPECT_EQ(client_->settings[NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS], 7U);
}

TEST_F(Http2, AcceptsThePathOfASocketAsAuthority) {
  auto head = GrpcHead();
  head[3].second = "/run/etcd.sock";
  client_->Open(head, "", true);
  Exchange();
  EXPECT_EQ(grpc_.streams, 1);
}

TEST_F(Http2, SendsBodyAndTrailersAsWindowsAllow) {
  const int32_t id = client_->Open(GrpcHead(), "", true);
  Exchange();
  const Header head[] = {{":status", "200"}};
  const Header trailers[] = {{"grpc-status", "0"}};
  const std::string body(1 << 20, 'x');
  grpc_.last->SendHeaders(head, true, false);
  grpc_.last->Write(Piece(body));
  grpc_.last->Write(Piece(std::make_shared<const std::string>(body)));
  grpc_.last->End(trailers, false);
  Exchange();
  EXPECT_EQ(client_->responses[id].body.size(), 2 * body.size());
  EXPECT_EQ(client_->responses[id].headers["grpc-status"], "0");
  EXPECT_TRUE(client_->responses[id].ended);
  EXPECT_EQ(grpc_.closed, 1);
  EXPECT_EQ(grpc_.close_code, 0U);
  EXPECT_EQ(session_->queued_bytes(), 0U);
}

TEST_F(Http2, HoldsBackWhatTheClientDoesNotTake) {
  Drop();
  host_ = std::make_unique<FakeHost>();
  client_ = std::make_unique<Http2TestClient>(/*auto_window=*/false, /*stream_window=*/1000);
  session_ = std::make_unique<Http2Session>(*host_, options_, &grpc_, nullptr);
  host_->set_protocol(session_.get());
  const int32_t id = client_->Open(GrpcHead(), "", true);
  Exchange();
  const Header head[] = {{":status", "200"}};
  grpc_.last->SendHeaders(head, true, false);
  grpc_.last->Write(Piece(std::string(5000, 'x')));
  grpc_.last->NotifyWhenDrained(1500);
  Exchange();
  EXPECT_EQ(client_->responses[id].body.size(), 1000U);
  EXPECT_EQ(grpc_.last->queued_bytes(), 4000U);
  EXPECT_EQ(grpc_.drained, 0);
  nghttp2_session_consume(client_->session(), id, 1000);
  nghttp2_submit_window_update(client_->session(), NGHTTP2_FLAG_NONE, id, 2500);
  Exchange();
  EXPECT_EQ(grpc_.drained, 1);
}

TEST_F(Http2, ResetsAStreamThatPilesUpOutput) {
  options_.output_bytes_max = 10000;
  Make();
  const int32_t id = client_->Open(GrpcHead(), "", true);
  Exchange();
  const Header head[] = {{":status", "200"}};
  grpc_.last->SendHeaders(head, true, false);
  host_->blocked = true;
  for (int i = 0; i < 10; ++i) grpc_.last->Write(Piece(std::string(9000, 'x')));
  EXPECT_LE(grpc_.last->queued_bytes(), 18000U);
  host_->blocked = false;
  host_->WantFlush();
  Exchange();
  EXPECT_EQ(client_->responses[id].error_code, kHttp2EnhanceYourCalm);
  EXPECT_EQ(grpc_.close_code, kHttp2EnhanceYourCalm);
  EXPECT_EQ(session_->queued_bytes(), 0U);
  EXPECT_FALSE(host_->aborted);
}

TEST_F(Http2, LimitsTheRequestBodyByTheWindowUntilItIsConsumed) {
  options_.stream_window_bytes = 100000;
  options_.connection_window_bytes = 150000;
  Make();
  grpc_.consume = false;
  client_->Open(GrpcHead(), std::string(300000, 'x'), true);
  Exchange();
  EXPECT_EQ(grpc_.data.size(), 100000U);
  grpc_.last->Consume(100000);
  Exchange();
  EXPECT_EQ(grpc_.data.size(), 200000U);
}

TEST_F(Http2, GivesTheConnectionBackWhatAResetStreamHeld) {
  options_.stream_window_bytes = 100000;
  options_.connection_window_bytes = 100000;
  Make();
  grpc_.consume = false;
  const int32_t id = client_->Open(GrpcHead(), std::string(100000, 'x'), false);
  Exchange();
  client_->Reset(id);
  Exchange();
  EXPECT_EQ(grpc_.closed, 1);
  grpc_.data.clear();
  client_->Open(GrpcHead(), std::string(90000, 'y'), true);
  Exchange();
  EXPECT_EQ(grpc_.data.size(), 90000U);
}

TEST_F(Http2, TellsAboutAReset) {
  const int32_t id = client_->Open(GrpcHead(), "", false);
  Exchange();
  client_->Reset(id, NGHTTP2_CANCEL);
  Exchange();
  EXPECT_EQ(grpc_.closed, 1);
  EXPECT_EQ(grpc_.close_code, kHttp2Cancel);
  EXPECT_EQ(session_->open_streams(), 0U);
}

TEST_F(Http2, TellsAClientThatStillSendsToStop) {
  const int32_t id = client_->Open(GrpcHead(), "abc", false);
  Exchange();
  const Header head[] = {{":status", "200"}, {"grpc-status", "8"}};
  grpc_.last->SendHeaders(head, true, /*end=*/true);
  Exchange();
  EXPECT_TRUE(client_->responses[id].ended);
  EXPECT_TRUE(client_->responses[id].closed);
  EXPECT_EQ(client_->responses[id].error_code, kHttp2NoError);
  EXPECT_EQ(session_->open_streams(), 0U);
}

TEST_F(Http2, TellsAllStreamsWhenTheConnectionGoes) {
  client_->Open(GrpcHead(), "", false);
  Exchange();
  session_->OnClosed();
  EXPECT_EQ(grpc_.closed, 1);
}

TEST_F(Http2, DrainsInOrder) {
  const int32_t id = client_->Open(GrpcHead(), "", true);
  Exchange();
  session_->Drain();
  Exchange();
  EXPECT_TRUE(client_->goaway);
  EXPECT_EQ(client_->goaway_code, kHttp2NoError);
  EXPECT_FALSE(host_->closing);
  const Header head[] = {{":status", "200"}};
  grpc_.last->SendHeaders(head, true, true);
  Exchange();
  EXPECT_TRUE(client_->responses[id].ended);
  EXPECT_TRUE(host_->closing);
}

// --- keep-alive ---

TEST_F(Http2, EndsAClientThatPingsTooOften) {
  client_->Open(GrpcHead(), "", false);
  Exchange();
  client_->Ping();  // the first resets the strikes
  Exchange();
  for (int i = 0; i < 2; ++i) {
    client_->Ping();
    Exchange();
    EXPECT_FALSE(client_->goaway) << i;
  }
  client_->Ping();
  Exchange();
  EXPECT_TRUE(client_->goaway);
  EXPECT_EQ(client_->goaway_code, kHttp2EnhanceYourCalm);
  EXPECT_EQ(client_->goaway_text, "too_many_pings");
  EXPECT_TRUE(host_->closing);
}

TEST_F(Http2, ForgivesPingsBetweenResponses) {
  on_request = [](std::shared_ptr<HttpExchange> x) { x->Respond(200, "", ""); };
  for (int i = 0; i < 20; ++i) {
    client_->Open({{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "a"}},
                  "", true);
    client_->Ping();
    Exchange();
  }
  EXPECT_FALSE(client_->goaway);
}

TEST_F(Http2, PingsASilentClientAndGivesUp) {
  options_.keepalive_interval = std::chrono::milliseconds(2);
  options_.keepalive_timeout = std::chrono::milliseconds(2);
  options_.preface_timeout = std::chrono::milliseconds(20);
  do {  // once more when the machine stood still until the preface was late
    Make();
    Exchange();
  } while (host_->aborted);
  for (int i = 0; i < 1000 && !host_->aborted; ++i) host_->Turn(std::chrono::milliseconds(5));
  EXPECT_TRUE(host_->aborted);
  client_->Input(host_->TakeSent());
  EXPECT_GE(client_->pings, 1);
}

TEST_F(Http2, GivesUpOnAMissingPreface) {
  options_.preface_timeout = std::chrono::milliseconds(2);
  Make();
  for (int i = 0; i < 1000 && !host_->aborted; ++i) host_->Turn(std::chrono::milliseconds(5));
  EXPECT_TRUE(host_->aborted);
}

// --- clients that mean harm ---

TEST_F(Http2, RefusesAWrongPreface) {
  Raw("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n and more");
  EXPECT_TRUE(host_->aborted);
}

TEST_F(Http2, EndsAnEndlessHeaderBlock) {
  RawPreface();
  std::string flood = Frame(1, 0, 1, SmallHead());
  for (int i = 0; i < 100; ++i)
    flood += Frame(9, 0, 1,
                   std::string("\x00\x01"
                               "a"
                               "\x01"
                               "b",
                               5));
  Raw(flood);
  EXPECT_TRUE(client_->goaway);
  EXPECT_TRUE(host_->closing);
  EXPECT_EQ(grpc_.streams, 0);
}

TEST_F(Http2, EndsAHugeHeaderBlock) {
  options_.header_block_bytes_max = 100000;
  Make();
  RawPreface();
  std::string flood = Frame(1, 0, 1, SmallHead());
  for (int i = 0; i < 10; ++i) flood += Frame(9, 0, 1, std::string(16000, '\x80'));
  Raw(flood);
  EXPECT_TRUE(client_->goaway);
}

TEST_F(Http2, RefusesAHeaderListThatUnpacksBeyondTheLimit) {
  options_.header_list_bytes_max = 100000;
  Make();
  RawPreface();
  // One long field goes into the dynamic table; a byte each then repeats it.
  std::string head = SmallHead();
  head += std::string(
      "\x40\x01"
      "x"
      "\x7f",
      4);                              // literal with indexing, value length 127 + ...
  head += std::string("\x81\x1e", 2);  // 127 + 1 + 30 * 128 = 3968 bytes
  head += std::string(3968, 'v');
  head += std::string(5000, '\xbe');
  std::string frames = Frame(1, 5, 1, head);
  Raw(frames);
  EXPECT_EQ(grpc_.streams, 0);
  EXPECT_EQ(session_->open_streams(), 0U);
  EXPECT_FALSE(host_->aborted);
}

TEST_F(Http2, RefusesTooManyFields) {
  options_.header_fields_max = 50;
  Make();
  auto head = GrpcHead();
  for (int i = 0; i < 60; ++i) head.emplace_back("x", "y");
  const int32_t id = client_->Open(head, "", true);
  Exchange();
  EXPECT_EQ(grpc_.streams, 0);
  EXPECT_TRUE(client_->responses[id].closed);
}

TEST_F(Http2, RefusesMalformedHeads) {
  const std::vector<Http2TestClient::Headers> bad = {
      {{":method", "GET"}, {":scheme", "http"}},
      {{":method", "GET"}, {":method", "GET"}, {":scheme", "http"}, {":path", "/"}},
      {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":status", "200"}},
      {{":method", "GET"}, {"x", "y"}, {":scheme", "http"}, {":path", "/"}},
      {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {"x", "a\r\nb"}},
      {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {"connection", "close"}},
      {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {"transfer-encoding", "chunked"}},
      {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {"te", "gzip"}}};
  for (const auto& head : bad) {
    const int32_t id = client_->Open(head, "", true);
    Exchange();
    EXPECT_TRUE(client_->responses[id].closed);
    EXPECT_EQ(client_->responses[id].error_code, kHttp2ProtocolError) << head.back().first;
  }
  EXPECT_EQ(session_->open_streams(), 0U);
}

TEST_F(Http2, RefusesNamesInUpperCase) {
  RawPreface();
  Raw(Frame(1, 5, 1,
            SmallHead() + std::string("\x00\x01"
                                      "X"
                                      "\x01"
                                      "y",
                                      5)));
  EXPECT_EQ(grpc_.streams, 0);
  EXPECT_EQ(session_->open_streams(), 0U);
}

TEST_F(Http2, EndsRapidResets) {
  options_.resets_burst_max = 100;
  options_.resets_per_second = 1;
  Make();
  RawPreface();
  std::string flood;
  for (uint32_t i = 0; i < 300; ++i) {
    flood += Frame(1, 4, 2 * i + 1,
                   SmallHead() + std::string("\x0f\x10\x10"
                                             "application/grpc",
                                             19));
    flood += Frame(3, 0, 2 * i + 1, std::string("\0\0\0\x08", 4));
  }
  for (size_t at = 0; at < flood.size() && !client_->goaway; at += 1000)
    Raw(flood.substr(at, 1000));
  EXPECT_TRUE(client_->goaway);
  EXPECT_EQ(client_->goaway_code, kHttp2EnhanceYourCalm);
  EXPECT_LT(grpc_.streams, 150);
}

TEST_F(Http2, EndsFloodsOfFramesThatAskForNothing) {
  options_.control_frames_burst_max = 500;
  options_.control_frames_per_second = 1;
  options_.client_ping_interval_min = base::Duration::zero();
  const std::vector<std::string> kinds = {
      Frame(4, 0, 0, ""), Frame(6, 0, 0, "12345678"), Frame(8, 0, 0, std::string("\0\0\0\1", 4)),
      Frame(2, 0, 1, std::string("\0\0\0\0\1", 5)), Frame(0x42, 0, 0, "unknown")};
  for (const std::string& kind : kinds) {
    Make();
    raw_sent_.clear();
    RawPreface();
    for (int i = 0; i < 2000 && !host_->closing; ++i) Raw(kind);
    EXPECT_TRUE(host_->closing) << static_cast<int>(kind[3]);
    EXPECT_THAT(raw_sent_, testing::HasSubstr("too many control frames"));
  }
}

TEST_F(Http2, EndsAFloodOfEmptyData) {
  options_.control_frames_burst_max = 500;
  options_.control_frames_per_second = 1;
  Make();
  RawPreface();
  Raw(Frame(1, 4, 1,
            SmallHead() + std::string("\x0f\x10\x10"
                                      "application/grpc",
                                      19)));
  EXPECT_EQ(grpc_.streams, 1);
  for (int i = 0; i < 2000 && !client_->goaway; ++i) Raw(Frame(0, 0, 1, ""));
  EXPECT_TRUE(client_->goaway);
}

TEST_F(Http2, RefusesStreamsBeyondTheLimit) {
  options_.open_streams_max = 10;
  Make();
  std::vector<int32_t> ids;
  for (int i = 0; i < 12; ++i) ids.push_back(client_->Open(GrpcHead(), "", false));
  Exchange();
  EXPECT_EQ(grpc_.streams, 10);
  EXPECT_EQ(client_->responses[ids.back()].error_code, kHttp2RefusedStream);
}

TEST_F(Http2, SurvivesRandomFrames) {
  const char* given = std::getenv("ENGRAM_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : base::SystemRandom().Next();
  SCOPED_TRACE(testing::Message() << "ENGRAM_TEST_SEED=" << seed);
  base::SeededRandom random(seed);
  for (int round = 0; round < 200; ++round) {
    Make();
    std::string bytes = std::string(kPreface) + Frame(4, 0, 0, "");
    for (int i = 0; i < 30; ++i) {
      std::string payload = random.OneIn(2) ? SmallHead() : std::string();
      for (uint64_t n = random.Below(20); n > 0; --n)
        payload.push_back(static_cast<char>(random.Next()));
      bytes +=
          Frame(static_cast<uint8_t>(random.Below(11)), static_cast<uint8_t>(random.Next() & 0x2d),
                static_cast<uint32_t>(random.Below(8)), payload);
    }
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = 1 + random.Below(50);
      Raw(bytes.substr(at, n));
      at += n;
    }
  }
}

}  // namespace
}  // namespace net
