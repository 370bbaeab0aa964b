#include "net/http1_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/random.h"
#include "net/fake_host.h"
#include "net/websocket.h"

namespace net {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A session with a handler that a test replaces.
class Http1 : public testing::Test {
 protected:
  Http1() : handler_([this](std::shared_ptr<HttpExchange> x) { on_request(std::move(x)); }) {
    Make();
  }
  ~Http1() override {
    host_->set_protocol(nullptr);
    session_.reset();
    host_->Turn();
  }

  void Make() {
    session_.reset();
    host_ = std::make_unique<FakeHost>();
    session_ = std::make_unique<Http1Session>(*host_, options_, &handler_);
    host_->set_protocol(session_.get());
  }
  // Sends the bytes in one go and returns the answer.
  std::string Send(std::string_view bytes) {
    session_->OnInput(bytes);
    host_->Turn();
    return host_->TakeSent();
  }
  // The status of the answer to one request on a fresh connection, sent in pieces of `piece` bytes.
  int StatusOf(std::string_view request, size_t piece = 1 << 20) {
    Make();
    std::string answer;
    while (!request.empty()) {
      answer += Send(request.substr(0, piece));
      request.remove_prefix(std::min(piece, request.size()));
    }
    if (answer.empty()) return 0;
    return std::atoi(answer.substr(9, 3).c_str());
  }

  Http1Options options_;
  std::function<void(std::shared_ptr<HttpExchange>)> on_request =
      [this](std::shared_ptr<HttpExchange> x) {
        ++requests;
        last_target = x->target();
        x->Respond(200, "text/plain", "hello");
      };
  int requests = 0;
  std::string last_target;
  FunctionHandler handler_;
  std::unique_ptr<FakeHost> host_;
  std::unique_ptr<Http1Session> session_;
};

TEST_F(Http1, AnswersARequest) {
  const std::string answer = Send("GET /version?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(
      answer,
      StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nDate: "));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nhello"));
  EXPECT_EQ(last_target, "/version?x=1");
  EXPECT_TRUE(host_->useful);
  EXPECT_FALSE(host_->closing);
}

TEST_F(Http1, AnswersPipelinedRequestsInOrder) {
  const std::string one = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
  const std::string two = "POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
  const std::string three = "GET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  Send(one + two + three);
  EXPECT_EQ(requests, 3);
  EXPECT_EQ(last_target, "/3");
  EXPECT_TRUE(host_->closing);
}

TEST_F(Http1, KeepsAPipelinedRequestUntilTheFirstIsAnswered) {
  std::shared_ptr<HttpExchange> held;
  on_request = [&](std::shared_ptr<HttpExchange> x) {
    ++requests;
    held = std::move(x);
  };
  Send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(requests, 1);
  auto first = std::exchange(held, nullptr);
  first->Respond(200, "", "1");
  host_->Turn();
  EXPECT_EQ(requests, 2);
  held->Respond(200, "", "2");
  host_->Turn();
  const std::string answer = host_->TakeSent();
  EXPECT_LT(answer.find("\r\n\r\n1"), answer.find("\r\n\r\n2"));
}

TEST_F(Http1, StopsReadingWhenTooMuchIsSentAhead) {
  std::shared_ptr<HttpExchange> held;
  on_request = [&](std::shared_ptr<HttpExchange> x) { held = std::move(x); };
  Send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
  Send(std::string(100 << 10, 'x'));
  EXPECT_TRUE(host_->paused);
  held->Respond(200, "", "");
  host_->Turn();
  EXPECT_FALSE(host_->paused);
}

TEST_F(Http1, UnderstandsRequestsCutAnywhere) {
  on_request = [&](std::shared_ptr<HttpExchange> x) {
    x->ReadBody(100, [x](absl::StatusOr<std::string> body) {
      x->Respond(200, "", body.ok() ? *body : std::string(body.status().message()));
    });
  };
  const std::string request =
      "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nTrailer: x\r\n\r\n";
  for (size_t piece = 1; piece < request.size(); ++piece) {
    Make();
    std::string answer;
    for (size_t at = 0; at < request.size(); at += piece) answer += Send(request.substr(at, piece));
    EXPECT_THAT(answer, EndsWith("\r\n\r\nabcdefg")) << piece;
  }
}

TEST_F(Http1, RefusesWhatCanBeReadInTwoWays) {
  EXPECT_EQ(
      StatusOf(
          "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
      400);
  EXPECT_EQ(
      StatusOf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n"),
      400);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n"),
            400);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
            501);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
                     "chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
            400);
  EXPECT_EQ(StatusOf("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost : a\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(std::string_view("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 39)), 400);
  EXPECT_EQ(
      StatusOf(
          "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n"),
      200);
}

TEST_F(Http1, RefusesBrokenChunks) {
  on_request = [&](std::shared_ptr<HttpExchange> x) {
    x->ReadBody(
        100, [x](absl::StatusOr<std::string> body) { x->Respond(body.ok() ? 200 : 500, "", ""); });
  };
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(StatusOf(head + "3\nabc\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(head + "-3\r\nabc\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(head + "fffffffffffffffff\r\n"), 400);
  EXPECT_EQ(StatusOf(head + "3\r\nabcd\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(head + "\r\n"), 400);
  EXPECT_EQ(StatusOf(head + std::string(5000, '0')), 400);
}

TEST_F(Http1, RefusesMalformedRequestLines) {
  EXPECT_EQ(StatusOf("GET /\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("G@T / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET x HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(StatusOf("GET / FTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("* * *\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET http://h/p HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
  EXPECT_EQ(last_target, "/p");
  EXPECT_EQ(StatusOf("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
}

TEST_F(Http1, BoundsTheHead) {
  options_.header_bytes_max = 10000;
  options_.request_line_bytes_max = 1000;
  options_.header_fields_max = 10;
  EXPECT_EQ(StatusOf("GET /" + std::string(2000, 'x')), 414);
  EXPECT_EQ(StatusOf("GET /" + std::string(2000, 'x') + " HTTP/1.1\r\nHost: a\r\n\r\n"), 414);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nX: " + std::string(20000, 'x'), 500), 431);
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 20; ++i) many += "X: 1\r\n";
  EXPECT_EQ(StatusOf(many + "\r\n"), 431);
}

TEST_F(Http1, SpeaksHttp10) {
  const std::string answer = Send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(host_->closing);
  Make();
  EXPECT_THAT(Send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
              HasSubstr("Connection: keep-alive\r\n"));
  EXPECT_FALSE(host_->closing);
}

TEST_F(Http1, SendsNoBodyForHead) {
  const std::string answer = Send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST_F(Http1, InvitesAWaitingBodyOnlyWhenItIsWanted) {
  std::shared_ptr<HttpExchange> held;
  on_request = [&](std::shared_ptr<HttpExchange> x) { held = std::move(x); };
  const std::string head =
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
  EXPECT_EQ(Send(head), "");
  std::string body;
  held->ReadBody(10, [&](absl::StatusOr<std::string> b) { body = b.value_or("?"); });
  host_->Turn();
  EXPECT_EQ(host_->TakeSent(), "HTTP/1.1 100 Continue\r\n\r\n");
  Send("ab");
  EXPECT_EQ(body, "ab");
  held->Respond(200, "", "");
  host_->Turn();
  EXPECT_FALSE(host_->closing);
  Make();
  Send(head);
  held->Respond(413, "", "");
  host_->Turn();
  EXPECT_THAT(host_->TakeSent(), HasSubstr("Connection: close"));
  EXPECT_TRUE(host_->closing);
}

TEST_F(Http1, StreamsAChunkedResponseAndNoticesTheClientsEnd) {
  std::shared_ptr<HttpExchange> held;
  on_request = [&](std::shared_ptr<HttpExchange> x) { held = std::move(x); };
  Send("GET /raft/stream HTTP/1.1\r\nHost: a\r\n\r\n");
  bool aborted = false;
  held->OnAbort([&] { aborted = true; });
  held->Start(200);
  host_->Turn();
  EXPECT_THAT(host_->TakeSent(), EndsWith("Transfer-Encoding: chunked\r\n\r\n"));
  held->Write("hello");
  held->Write(Piece(std::make_shared<const std::string>("shared")));
  host_->Turn();
  EXPECT_EQ(host_->TakeSent(), "5\r\nhello\r\n6\r\nshared\r\n");
  session_->OnInputEnd();
  EXPECT_TRUE(aborted);
  EXPECT_TRUE(held->aborted());
  held->Write("ignored");
  held->End();
  host_->Turn();
  EXPECT_EQ(host_->TakeSent(), "");
}

TEST_F(Http1, TellsABlockedProducerWhenItsQueueDrains) {
  std::shared_ptr<HttpExchange> held;
  on_request = [&](std::shared_ptr<HttpExchange> x) { held = std::move(x); };
  Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  held->Start(200);
  host_->blocked = true;
  held->Write(std::string(100000, 'x'));
  EXPECT_GE(held->queued_bytes(), 100000U);
  bool drained = false;
  held->NotifyWhenDrained(1000, [&] { drained = true; });
  host_->Turn();
  EXPECT_FALSE(drained);
  host_->blocked = false;
  host_->WantFlush();
  host_->Turn();
  host_->WantFlush();
  host_->Turn();
  EXPECT_TRUE(drained);
  EXPECT_EQ(held->queued_bytes(), 0U);
}

TEST_F(Http1, ClosesAConnectionWhoseQueueIsTooLong) {
  options_.output_bytes_max = 1000;
  Make();
  std::shared_ptr<HttpExchange> held;
  on_request = [&](std::shared_ptr<HttpExchange> x) { held = std::move(x); };
  Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  held->Start(200);
  host_->blocked = true;
  for (int i = 0; i < 20; ++i) held->Write(std::string(100, 'x'));
  EXPECT_TRUE(host_->aborted);
}

TEST_F(Http1, RefusesABodyThatIsTooLong) {
  absl::Status seen;
  on_request = [&](std::shared_ptr<HttpExchange> x) {
    x->ReadBody(5, [&seen, x](absl::StatusOr<std::string> body) {
      seen = body.status();
      x->Respond(413, "", "");
    });
  };
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabcdef"), 413);
  EXPECT_TRUE(absl::IsResourceExhausted(seen));
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
                     "chunked\r\n\r\n6\r\nabcdef\r\n0\r\n\r\n"),
            413);
  EXPECT_TRUE(absl::IsResourceExhausted(seen));
}

TEST_F(Http1, ClosesRatherThanReadALargeBodyNobodyWants) {
  const std::string answer = Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(host_->closing);
}

TEST_F(Http1, ThrowsASmallBodyNobodyWantsAway) {
  Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
  EXPECT_FALSE(host_->closing);
  EXPECT_THAT(Send("abcGET /next HTTP/1.1\r\nHost: a\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(last_target, "/next");
}

TEST_F(Http1, PausesTheBody) {
  std::shared_ptr<HttpExchange> held;
  std::string got;
  on_request = [&](std::shared_ptr<HttpExchange> x) {
    held = x;
    x->PauseBody(true);
    x->ReadBodyPieces(
        [&](std::string_view piece, bool last) { got += std::string(piece) + (last ? "." : "-"); });
  };
  Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100003\r\n\r\nabc");
  EXPECT_EQ(got, "");
  session_->OnInput(std::string(100000, 'y'));
  EXPECT_TRUE(host_->paused);
  held->PauseBody(false);
  host_->Turn();
  EXPECT_FALSE(host_->paused);
  EXPECT_THAT(got, EndsWith("."));
  EXPECT_THAT(got, StartsWith("abcyyy"));
  held->Respond(200, "", "");
}

TEST_F(Http1, DropsResponseHeadersThatWouldSplitTheResponse) {
  on_request = [&](std::shared_ptr<HttpExchange> x) {
    x->AddHeader("X-Evil", "a\r\nX-Injected: 1");
    x->AddHeader("X Evil", "a");
    x->AddHeader("X-Good", "a");
    x->Respond(200, "", "");
  };
  const std::string answer = Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(answer, Not(HasSubstr("Injected")));
  EXPECT_THAT(answer, Not(HasSubstr("X Evil")));
  EXPECT_THAT(answer, HasSubstr("X-Good: a\r\n"));
}

TEST_F(Http1, EndsWhenAskedToDrain) {
  session_->Drain();
  EXPECT_TRUE(host_->closing);
  Make();
  std::shared_ptr<HttpExchange> held;
  on_request = [&](std::shared_ptr<HttpExchange> x) { held = std::move(x); };
  Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  session_->Drain();
  EXPECT_FALSE(host_->closing);
  held->Respond(200, "", "");
  host_->Turn();
  EXPECT_THAT(host_->TakeSent(), HasSubstr("Connection: close"));
  EXPECT_TRUE(host_->closing);
}

TEST_F(Http1, LimitsTheTimeOfAHead) {
  options_.header_timeout = std::chrono::milliseconds(5);
  Make();
  Send("GET / HT");
  while (!host_->aborted) host_->Turn(base::Duration::max());
  EXPECT_TRUE(host_->aborted);
}

TEST_F(Http1, SurvivesRandomBytes) {
  const char* given = std::getenv("ENGRAM_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : base::SystemRandom().Next();
  SCOPED_TRACE(testing::Message() << "ENGRAM_TEST_SEED=" << seed);
  base::SeededRandom random(seed);
  const std::string base_request =
      "POST /v3/kv/put HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
  for (int round = 0; round < 300; ++round) {
    Make();
    std::string bytes = base_request + base_request;
    for (uint64_t i = random.Below(6); i > 0; --i) {
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Next());
    }
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = 1 + random.Below(20);
      Send(bytes.substr(at, n));
      at += n;
    }
  }
}

// --- WebSocket ---

std::string ClientFrame(uint8_t first, std::string_view payload) {
  std::string frame(1, static_cast<char>(first));
  frame.push_back(static_cast<char>(0x80 | payload.size()));
  const char mask[4] = {1, 2, 3, 4};
  frame.append(mask, 4);
  for (size_t i = 0; i < payload.size(); ++i)
    frame.push_back(static_cast<char>(payload[i] ^ mask[i & 3]));
  return frame;
}

const char kUpgrade[] =
    "GET /v3/watch HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

TEST_F(Http1, SpeaksWebSocketAfterAnUpgrade) {
  std::shared_ptr<WebSocket> socket;
  std::vector<std::string> messages;
  int closed = 0;
  on_request = [&](std::shared_ptr<HttpExchange> x) {
    ASSERT_TRUE(x->WantsWebSocket());
    WebSocketHandlers handlers;
    handlers.on_message = [&](std::string_view m) { messages.emplace_back(m); };
    handlers.on_close = [&] { ++closed; };
    socket = x->AcceptWebSocket("Bearer", std::move(handlers));
  };
  // The first frame comes right behind the request.
  const std::string answer = Send(kUpgrade + ClientFrame(0x81, "one"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 101 Switching Protocols\r\n"));
  EXPECT_THAT(answer, HasSubstr("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
  EXPECT_THAT(answer, HasSubstr("Sec-WebSocket-Protocol: Bearer\r\n"));
  Send(ClientFrame(0x01, "tw") + ClientFrame(0x89, "ping") + ClientFrame(0x80, "o"));
  EXPECT_EQ(messages, (std::vector<std::string>{"one", "two"}));
  socket->SendText("answer");
  EXPECT_EQ(Send(""), std::string("\x81\x06") + "answer");
  EXPECT_EQ(Send(ClientFrame(0x88, std::string("\x03\xe8", 2))), std::string("\x88\x02\x03\xe8"));
  EXPECT_TRUE(host_->closing);
  session_->OnClosed();
  EXPECT_EQ(closed, 1);
  socket->SendText("ignored");
}

TEST_F(Http1, EndsAWebSocketThatBreaksTheRules) {
  int closed = 0;
  on_request = [&](std::shared_ptr<HttpExchange> x) {
    WebSocketHandlers handlers;
    handlers.on_close = [&] { ++closed; };
    x->AcceptWebSocket("", std::move(handlers));
  };
  Send(kUpgrade);
  const std::string answer =
      Send(std::string("\x81\x03"
                       "abc"));  // not masked
  EXPECT_THAT(answer, StartsWith(std::string("\x88")));
  EXPECT_THAT(answer, HasSubstr("\x03\xea"));
  EXPECT_TRUE(host_->closing);
  session_.reset();
  EXPECT_EQ(closed, 1);
}

TEST(WebSocketParser, RefusesOverlongAndNestedMessages) {
  using Kind = WebSocketParser::Event::Kind;
  size_t taken = 0;
  WebSocketParser small(4);
  EXPECT_EQ(small.Next(ClientFrame(0x81, "hello"), &taken).code, 1009);
  WebSocketParser nested(100);
  EXPECT_EQ(nested.Next(ClientFrame(0x01, "a"), &taken).kind, Kind::kNone);
  EXPECT_EQ(nested.Next(ClientFrame(0x81, "b"), &taken).code, 1002);
  WebSocketParser huge(100);
  EXPECT_EQ(huge.Next(std::string("\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff"
                                  "mask",
                                  14),
                      &taken)
                .code,
            1009);
  WebSocketParser lost(100);
  EXPECT_EQ(lost.Next(ClientFrame(0x80, "a"), &taken).code, 1002);
}

}  // namespace
}  // namespace net
