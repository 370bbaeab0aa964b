#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "base/bytes.h"
#include "base/testing.h"
#include "net/fake_host.h"
#include "net/http2_session.h"
#include "rpc/gzip.h"
#include "rpc/server.h"
#include "rpc/wire_text.h"

namespace rpc {
namespace {

using net::Http2TestClient;

std::string Framed(std::string_view payload, bool compressed = false) {
  std::string bytes(5, '\0');
  bytes[0] = compressed ? 1 : 0;
  base::StoreBe32(bytes.data() + 1, static_cast<uint32_t>(payload.size()));
  return bytes.append(payload);
}

// The payloads of a response body.
std::vector<std::string> Unframed(std::string_view body) {
  std::vector<std::string> all;
  while (body.size() >= 5) {
    const uint32_t n = base::LoadBe32(body.data() + 1);
    all.emplace_back(body.substr(5, n));
    body.remove_prefix(5 + n);
  }
  return all;
}

// What a streaming handler saw.
struct StreamLog {
  CallPtr call;
  std::vector<std::string> messages;
  int half_closes = 0;
  std::vector<absl::Status> cancels;
  int destroyed = 0;
};

class LoggingReceiver final : public StreamReceiver {
 public:
  explicit LoggingReceiver(StreamLog* log) : log_(log) {}
  ~LoggingReceiver() override { ++log_->destroyed; }
  void OnMessage(std::string_view message) override {
    log_->messages.emplace_back(message);
    if (message == "pause") log_->call->PauseReading(true);
    if (message == "finish") log_->call->Finish(absl::StatusCode::kOk, "");
  }
  void OnHalfClose() override { ++log_->half_closes; }
  void OnCancel(const absl::Status& why) override { log_->cancels.push_back(why); }

 private:
  StreamLog* log_;
};

class Rpc : public testing::Test {
 protected:
  Rpc() { Make(); }
  ~Rpc() override { Drop(); }

  void Drop() {
    held_ = nullptr;
    if (host_ != nullptr) host_->set_protocol(nullptr);
    if (session_ != nullptr) session_->OnClosed();
    log_.call = nullptr;
    if (host_ != nullptr) host_->Turn();
    session_.reset();
    server_.reset();
    host_.reset();
  }

  void Make() {
    Drop();
    ServerOptions options;
    options.receive_bytes_max = 1000;
    options.partial_bytes_max = 3000;
    options.on_start = [this](Call& call) {
      ++started_;
      return call.HasMetadata("refuse") ? absl::UnavailableError("etcdserver: no leader")
                                        : absl::OkStatus();
    };
    options.on_end = [this](const CallSummary& summary) {
      ended_.push_back(summary.code);
      bytes_in_ += summary.payload_bytes_received;
      bytes_out_ += summary.payload_bytes_sent;
    };
    server_ = std::make_unique<Server>(std::move(options));
    server_->RegisterUnary("/s.S/Echo", [](CallPtr call, std::string_view request) {
      call->Respond(Message(request));
    });
    server_->RegisterUnary("/s.S/Fail", [](CallPtr call, std::string_view) {
      call->Finish(absl::StatusCode::kNotFound, "etcdserver: 100% gone\n");
    });
    server_->RegisterUnary("/s.S/Hold", [this](CallPtr call, std::string_view) {
      call->SetCancelCallback([this](const absl::Status& why) { held_cancels_.push_back(why); });
      held_ = std::move(call);
    });
    server_->RegisterServerStream("/s.S/Count", [](CallPtr call, std::string_view request) {
      for (const char c : request) {
        Message m;
        m.bytes()->push_back(c);
        m.AddShared(std::make_shared<const std::string>("-shared-"));
        m.bytes()->push_back(c);
        call->Send(std::move(m));
      }
      call->Finish(absl::StatusCode::kOk, "");
    });
    // Its request's bytes as parts of one message; a '!' ends the call with an error instead.
    server_->RegisterUnary("/s.S/Parts", [](CallPtr call, std::string_view request) {
      call->StartMessage(request.size());
      for (const char c : request) {
        if (c == '!') return call->Finish(absl::StatusCode::kDataLoss, "gone");
        call->SendPart(std::string(1, c));
      }
      call->Finish(absl::StatusCode::kOk, "");
    });
    server_->RegisterBidiStream("/s.S/Talk", [this](CallPtr call) {
      log_.call = std::move(call);
      return std::make_unique<LoggingReceiver>(&log_);
    });
    host_ = std::make_unique<net::FakeHost>();
    client_ = std::make_unique<Http2TestClient>();
    session_ = std::make_unique<net::Http2Session>(*host_, http2_, server_.get(), nullptr);
    host_->set_protocol(session_.get());
  }

  void Exchange() {
    for (int i = 0; i < 1000; ++i) {
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

  int32_t Open(const std::string& path, std::string body, bool end = true,
               Http2TestClient::Headers more = {}) {
    Http2TestClient::Headers head = {{":method", "POST"},
                                     {":scheme", "http"},
                                     {":path", path},
                                     {":authority", "a"},
                                     {"content-type", "application/grpc"},
                                     {"te", "trailers"}};
    head.insert(head.end(), more.begin(), more.end());
    return client_->Open(head, std::move(body), end);
  }
  Http2TestClient::Response& Ask(const std::string& path, std::string body,
                                 Http2TestClient::Headers more = {}) {
    const int32_t id = Open(path, std::move(body), true, std::move(more));
    Exchange();
    return client_->responses[id];
  }

  net::Http2Options http2_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<net::FakeHost> host_;
  std::unique_ptr<Http2TestClient> client_;
  std::unique_ptr<net::Http2Session> session_;
  int started_ = 0;
  std::vector<absl::StatusCode> ended_;
  uint64_t bytes_in_ = 0;
  uint64_t bytes_out_ = 0;
  CallPtr held_;
  std::vector<absl::Status> held_cancels_;
  StreamLog log_;
};

TEST_F(Rpc, AnswersAUnaryCall) {
  auto& response = Ask("/s.S/Echo", Framed("hello"));
  EXPECT_EQ(response.headers[":status"], "200");
  EXPECT_EQ(response.headers["content-type"], "application/grpc");
  EXPECT_EQ(response.headers["grpc-status"], "0");
  EXPECT_EQ(Unframed(response.body), std::vector<std::string>{"hello"});
  EXPECT_TRUE(response.ended);
  EXPECT_EQ(started_, 1);
  EXPECT_EQ(ended_, std::vector{absl::StatusCode::kOk});
  EXPECT_EQ(bytes_in_, 5U);
  EXPECT_EQ(bytes_out_, 5U);
}

TEST_F(Rpc, SendsAMessageInParts) {
  auto& response = Ask("/s.S/Parts", Framed("in parts"));
  EXPECT_EQ(Unframed(response.body), std::vector<std::string>{"in parts"});
  EXPECT_EQ(response.headers["grpc-status"], "0");
  EXPECT_EQ(bytes_out_, 8U);
  EXPECT_EQ(Unframed(Ask("/s.S/Parts", Framed("")).body), std::vector<std::string>{""});
  // Half a message is followed by a reset, not by trailers.
  auto& broken = Ask("/s.S/Parts", Framed("ab!d"));
  EXPECT_FALSE(broken.headers.contains("grpc-status"));
  EXPECT_TRUE(broken.closed);
  EXPECT_EQ(ended_.back(), absl::StatusCode::kDataLoss);
}

TEST_F(Rpc, SendsErrorsAsTrailersOnly) {
  auto& response = Ask("/s.S/Fail", Framed(""));
  EXPECT_EQ(response.headers["grpc-status"], "5");
  EXPECT_EQ(response.headers["grpc-message"], "etcdserver: 100%25 gone%0A");
  EXPECT_EQ(response.body, "");
  EXPECT_TRUE(response.ended);
}

TEST_F(Rpc, NamesWhatItDoesNotKnow) {
  EXPECT_EQ(Ask("/s.S/Nope", Framed("")).headers["grpc-message"],
            "unknown method Nope for service s.S");
  EXPECT_EQ(Ask("/x.Y/Nope", Framed("")).headers["grpc-message"], "unknown service x.Y");
  EXPECT_EQ(Ask("/x.Y/Nope", Framed("")).headers["grpc-status"], "12");
  EXPECT_EQ(Ask("nonsense", Framed("")).headers["grpc-status"], "12");
  EXPECT_EQ(started_, 0);
}

TEST_F(Rpc, RefusesWhatIsNotGrpc) {
  const int32_t id = client_->Open(
      {{":method", "GET"}, {":scheme", "http"}, {":path", "/version"}, {":authority", "a"}}, "",
      true);
  Exchange();
  auto& response = client_->responses[id];
  EXPECT_EQ(response.headers[":status"], "415");
  EXPECT_EQ(response.headers["grpc-status"], "3");
  EXPECT_EQ(response.headers["grpc-message"], "invalid gRPC request content-type \"\"");
}

TEST_F(Rpc, RefusesAMessageThatIsTooLargeAtItsFirstBytes) {
  const int32_t id = Open("/s.S/Echo", Framed(std::string(1001, 'x')).substr(0, 20), false);
  Exchange();
  auto& response = client_->responses[id];
  EXPECT_EQ(response.headers["grpc-status"], "8");
  EXPECT_EQ(response.headers["grpc-message"],
            "grpc: received message larger than max (1001 vs. 1000)");
  EXPECT_TRUE(response.closed);
  EXPECT_EQ(Ask("/s.S/Echo", Framed(std::string(1000, 'x'))).headers["grpc-status"], "0");
}

TEST_F(Rpc, PutsMessagesTogetherFromPieces) {
  const std::string bytes = Framed("hello");
  for (size_t cut = 1; cut < bytes.size(); ++cut) {
    const int32_t id = Open("/s.S/Echo", bytes.substr(0, cut), false);
    Exchange();
    client_->Send(id, bytes.substr(cut));
    client_->End(id);
    Exchange();
    EXPECT_EQ(Unframed(client_->responses[id].body), std::vector<std::string>{"hello"}) << cut;
  }
}

TEST_F(Rpc, BoundsUnfinishedMessagesOfAConnection) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 4; ++i)
    ids.push_back(Open("/s.S/Echo", Framed(std::string(1000, 'x')).substr(0, 900), false));
  Exchange();
  EXPECT_FALSE(client_->responses[ids[0]].ended);
  EXPECT_EQ(client_->responses[ids[3]].headers["grpc-status"], "8");
  client_->Send(ids[0], std::string(105, 'x'));
  Exchange();
  EXPECT_EQ(client_->responses[ids[0]].headers["grpc-status"], "0");
  EXPECT_EQ(Ask("/s.S/Echo", Framed(std::string(900, 'x'))).headers["grpc-status"], "0");
}

TEST_F(Rpc, RefusesACallThatEndsInsideAMessage) {
  EXPECT_EQ(Ask("/s.S/Echo", Framed("hello").substr(0, 7)).headers["grpc-status"], "13");
  EXPECT_EQ(Ask("/s.S/Echo", "").headers["grpc-status"], "13");
}

TEST_F(Rpc, UnderstandsGzip) {
  const std::string text(900, 'x');
  EXPECT_EQ(Unframed(Ask("/s.S/Echo", Framed(Gzip(text), true), {{"grpc-encoding", "gzip"}}).body),
            std::vector<std::string>{text});
  EXPECT_EQ(
      Ask("/s.S/Echo", Framed(Gzip(std::string(100000, 'x')), true), {{"grpc-encoding", "gzip"}})
          .headers["grpc-status"],
      "8");
  EXPECT_EQ(
      Ask("/s.S/Echo", Framed("junk", true), {{"grpc-encoding", "gzip"}}).headers["grpc-status"],
      "13");
  EXPECT_EQ(Ask("/s.S/Echo", Framed("junk", true)).headers["grpc-status"], "13");
  EXPECT_EQ(Ask("/s.S/Echo", Framed(""), {{"grpc-encoding", "snappy"}}).headers["grpc-status"],
            "12");
}

TEST_F(Rpc, LetsTheInterceptorRefuse) {
  auto& response = Ask("/s.S/Echo", Framed("x"), {{"refuse", "1"}});
  EXPECT_EQ(response.headers["grpc-status"], "14");
  EXPECT_EQ(response.headers["grpc-message"], "etcdserver: no leader");
  EXPECT_EQ(Ask("/s.S/Talk", "", {{"refuse", "1"}}).headers["grpc-status"], "14");
  EXPECT_EQ(log_.call, nullptr);
  EXPECT_EQ(ended_.size(), 2U);
}

TEST_F(Rpc, FinishesLater) {
  const int32_t id = Open("/s.S/Hold", Framed(""));
  Exchange();
  ASSERT_NE(held_, nullptr);
  EXPECT_FALSE(client_->responses[id].ended);
  held_->Respond(Message("late"));
  Exchange();
  EXPECT_EQ(Unframed(client_->responses[id].body), std::vector<std::string>{"late"});
  held_->Respond(Message("again"));
  held_->Finish(absl::StatusCode::kInternal, "again");
  Exchange();
  EXPECT_TRUE(held_cancels_.empty());
}

TEST_F(Rpc, GivesUpAtTheDeadline) {
  const int32_t id = Open("/s.S/Hold", Framed(""), true, {{"grpc-timeout", "1m"}});
  Exchange();
  EXPECT_TRUE(held_->has_deadline());
  for (int i = 0; i < 1000 && held_cancels_.empty(); ++i) host_->Turn(std::chrono::milliseconds(5));
  Exchange();
  client_->Input(host_->TakeSent());
  ASSERT_EQ(held_cancels_.size(), 1U);
  EXPECT_TRUE(absl::IsDeadlineExceeded(held_cancels_[0]));
  EXPECT_EQ(client_->responses[id].headers["grpc-status"], "4");
  EXPECT_EQ(client_->responses[id].headers["grpc-message"], "context deadline exceeded");
  EXPECT_EQ(ended_, std::vector{absl::StatusCode::kDeadlineExceeded});
}

TEST_F(Rpc, TellsTheHandlerOfACancel) {
  const int32_t id = Open("/s.S/Hold", Framed(""));
  Exchange();
  client_->Reset(id);
  Exchange();
  ASSERT_EQ(held_cancels_.size(), 1U);
  EXPECT_TRUE(absl::IsCancelled(held_cancels_[0]));
  EXPECT_TRUE(held_->done());
  held_->Respond(Message("ignored"));
  EXPECT_EQ(held_->queued_bytes(), 0U);
  EXPECT_EQ(ended_, std::vector{absl::StatusCode::kCancelled});
}

TEST_F(Rpc, TellsTheHandlerOfALostConnection) {
  Open("/s.S/Hold", Framed(""));
  Exchange();
  session_->OnClosed();
  EXPECT_EQ(held_cancels_.size(), 1U);
}

TEST_F(Rpc, StreamsManyAnswersToOneRequest) {
  auto& response = Ask("/s.S/Count", Framed("ab"));
  EXPECT_EQ(Unframed(response.body), (std::vector<std::string>{"a-shared-a", "b-shared-b"}));
  EXPECT_EQ(response.headers["grpc-status"], "0");
}

TEST_F(Rpc, CarriesAConversation) {
  const int32_t id =
      Open("/s.S/Talk", Framed("one") + Framed("two") + Framed("three").substr(0, 6), false);
  Exchange();
  EXPECT_EQ(log_.messages, (std::vector<std::string>{"one", "two"}));
  log_.call->Send(Message("hi"));
  Exchange();
  EXPECT_EQ(Unframed(client_->responses[id].body), std::vector<std::string>{"hi"});
  client_->Send(id, Framed("three").substr(6));
  client_->End(id);
  Exchange();
  EXPECT_EQ(log_.messages.back(), "three");
  EXPECT_EQ(log_.half_closes, 1);
  EXPECT_EQ(log_.destroyed, 0);
  log_.call->Finish(absl::StatusCode::kAborted, "bye");
  Exchange();
  EXPECT_EQ(client_->responses[id].headers["grpc-status"], "10");
  EXPECT_EQ(log_.destroyed, 1);
  EXPECT_TRUE(log_.cancels.empty());
}

TEST_F(Rpc, FinishInsideAMessageStopsTheDelivery) {
  const int32_t id = Open("/s.S/Talk", Framed("finish") + Framed("more"), false);
  Exchange();
  EXPECT_EQ(log_.messages, std::vector<std::string>{"finish"});
  EXPECT_EQ(log_.destroyed, 1);
  EXPECT_TRUE(client_->responses[id].closed);
}

TEST_F(Rpc, CancelsAConversationOnce) {
  const int32_t id = Open("/s.S/Talk", Framed("one"), false);
  Exchange();
  client_->Reset(id);
  Exchange();
  EXPECT_EQ(log_.cancels.size(), 1U);
  EXPECT_EQ(log_.half_closes, 0);
  EXPECT_EQ(log_.destroyed, 1);
}

TEST_F(Rpc, PausesReading) {
  const int32_t id = Open("/s.S/Talk", Framed("pause") + Framed("two"), false);
  Exchange();
  EXPECT_EQ(log_.messages, std::vector<std::string>{"pause"});
  client_->Send(id, Framed("three"));
  client_->End(id);
  Exchange();
  EXPECT_EQ(log_.messages.size(), 1U);
  EXPECT_EQ(log_.half_closes, 0);
  log_.call->PauseReading(false);
  Exchange();
  EXPECT_EQ(log_.messages, (std::vector<std::string>{"pause", "two", "three"}));
  EXPECT_EQ(log_.half_closes, 1);
}

TEST_F(Rpc, TellsAProducerWhenItsClientReads) {
  client_ = std::make_unique<Http2TestClient>(/*auto_window=*/false, /*stream_window=*/1000);
  const int32_t id = Open("/s.S/Talk", Framed("one"), false);
  Exchange();
  log_.call->Send(Message(std::string(5000, 'x')));
  bool writable = false;
  log_.call->NotifyWhenWritable(100, [&] { writable = true; });
  Exchange();
  EXPECT_FALSE(writable);
  EXPECT_GT(log_.call->queued_bytes(), 3000U);
  nghttp2_submit_window_update(client_->session(), NGHTTP2_FLAG_NONE, id, 60000);
  Exchange();
  EXPECT_TRUE(writable);
  EXPECT_EQ(log_.call->queued_bytes(), 0U);
}

TEST_F(Rpc, ShowsMetadataAndThePeer) {
  Open("/s.S/Hold", Framed(""), true, {{"token", "abc"}, {"hasleader", "true"}});
  Exchange();
  EXPECT_EQ(held_->Metadata("token"), "abc");
  EXPECT_EQ(held_->Metadata("missing"), "");
  EXPECT_TRUE(held_->HasMetadata("hasleader"));
  EXPECT_EQ(held_->authority(), "a");
  EXPECT_EQ(held_->connection().remote_address, "192.0.2.1:1234");
  EXPECT_EQ(held_->AllMetadata().size(), 4U);
  EXPECT_EQ(held_->method().name, "Hold");
  EXPECT_EQ(held_->method().service, "s.S");
}

// --- calls inside the process ---

struct LocalLog {
  std::vector<std::string> messages;
  std::vector<absl::Status> finished;
};

class LoggingClient final : public LocalClient {
 public:
  explicit LoggingClient(LocalLog* log) : log_(log) {}
  void OnMessage(std::string_view payload) override { log_->messages.emplace_back(payload); }
  void OnFinish(const absl::Status& status) override { log_->finished.push_back(status); }

 private:
  LocalLog* log_;
};

class Local : public Rpc {
 protected:
  std::shared_ptr<LocalCall> StartLocal(const std::string& path) {
    LocalCallOptions options;
    options.path = path;
    options.metadata = {{"token", "abc"}};
    return server_->StartLocal(host_->loop(), std::move(options),
                               std::make_unique<LoggingClient>(&local_));
  }
  void Turns() {
    for (int i = 0; i < 10; ++i) host_->Turn();
  }
  LocalLog local_;
};

TEST_F(Local, AnswersAUnaryCall) {
  const auto call = StartLocal("/s.S/Echo");
  call->Send("hello");
  call->HalfClose();
  EXPECT_TRUE(local_.messages.empty());
  Turns();
  EXPECT_EQ(local_.messages, std::vector<std::string>{"hello"});
  ASSERT_EQ(local_.finished.size(), 1U);
  EXPECT_OK(local_.finished[0]);
  EXPECT_EQ(started_, 1);
}

TEST_F(Local, PutsPartsTogether) {
  for (const std::string text : {"in parts", ""}) {
    local_ = {};
    const auto call = StartLocal("/s.S/Parts");
    call->Send(text);
    Turns();
    EXPECT_EQ(local_.messages, std::vector<std::string>{text});
    ASSERT_EQ(local_.finished.size(), 1U);
    EXPECT_OK(local_.finished[0]);
  }
  const auto broken = StartLocal("/s.S/Parts");
  broken->Send("ab!d");
  Turns();
  EXPECT_EQ(local_.messages.size(), 1U) << "half a message";
  EXPECT_THAT(local_.finished.back(), base::StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(Local, CarriesErrors) {
  const auto call = StartLocal("/s.S/Fail");
  call->Send("");
  Turns();
  ASSERT_EQ(local_.finished.size(), 1U);
  EXPECT_THAT(local_.finished[0],
              base::StatusIs(absl::StatusCode::kNotFound, "etcdserver: 100% gone\n"));
  const auto unknown = StartLocal("/s.S/Nope");
  Turns();
  EXPECT_THAT(local_.finished[1], base::StatusIs(absl::StatusCode::kUnimplemented));
}

TEST_F(Local, CarriesAConversationUntilDropped) {
  auto call = StartLocal("/s.S/Talk");
  call->Send("one");
  Turns();
  EXPECT_EQ(log_.messages, std::vector<std::string>{"one"});
  EXPECT_TRUE(log_.call->local());
  EXPECT_EQ(log_.call->Metadata("token"), "abc");
  log_.call->Send(Message("hi"));
  EXPECT_EQ(log_.call->queued_bytes(), 2U);
  Turns();
  EXPECT_EQ(local_.messages, std::vector<std::string>{"hi"});
  call->SetHeldBytes(1000);
  bool writable = false;
  log_.call->NotifyWhenWritable(10, [&] { writable = true; });
  Turns();
  EXPECT_FALSE(writable);
  call->SetHeldBytes(0);
  Turns();
  EXPECT_TRUE(writable);
  call.reset();
  Turns();
  EXPECT_EQ(log_.cancels.size(), 1U);
  EXPECT_TRUE(local_.finished.empty());
}

TEST_F(Local, PausesReading) {
  const auto call = StartLocal("/s.S/Talk");
  call->Send("pause");
  call->Send("two");
  Turns();
  EXPECT_EQ(log_.messages.size(), 1U);
  log_.call->PauseReading(false);
  Turns();
  EXPECT_EQ(log_.messages.size(), 2U);
}

// --- texts ---

TEST(WireText, ParsesTimeouts) {
  EXPECT_EQ(ParseTimeout("10S"), base::Duration(std::chrono::seconds(10)));
  EXPECT_EQ(ParseTimeout("1n"), base::Duration(1));
  EXPECT_EQ(ParseTimeout("99999999H"), base::Duration::max());
  EXPECT_EQ(ParseTimeout("2H"), base::Duration(std::chrono::hours(2)));
  for (const char* bad : {"", "S", "1", "1x", "-1S", "123456789S", "1 S"})
    EXPECT_EQ(ParseTimeout(bad), std::nullopt);
}

TEST(WireText, EncodesMessages) {
  EXPECT_EQ(EncodeMessage("etcdserver: ok"), "etcdserver: ok");
  EXPECT_EQ(EncodeMessage("50% \xc3\xa4\n"), "50%25 %C3%A4%0A");
}

TEST(WireText, KnowsGrpcContentTypes) {
  EXPECT_TRUE(IsGrpcContentType("application/grpc"));
  EXPECT_TRUE(IsGrpcContentType("application/grpc+proto"));
  EXPECT_TRUE(IsGrpcContentType("application/grpc;x"));
  EXPECT_FALSE(IsGrpcContentType("application/grpcx"));
  EXPECT_FALSE(IsGrpcContentType("application/json"));
}

TEST(Gzip, RoundTripsAndRefuses) {
  const std::string text = std::string(100000, 'a') + "b";
  EXPECT_THAT(Gunzip(Gzip(text), 200000), base::IsOkAndHolds(text));
  EXPECT_THAT(Gunzip(Gzip(text), text.size()), base::IsOkAndHolds(text));
  EXPECT_THAT(Gunzip(Gzip(text), text.size() - 1),
              base::StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Gunzip(Gzip(text).substr(0, 20), 200000),
              base::StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(Gunzip("", 10), base::StatusIs(absl::StatusCode::kInternal));
}

}  // namespace
}  // namespace rpc
