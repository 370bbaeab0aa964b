#include "net/http_client.h"

#include <thread>

#include "base/log.h"
#include "base/testing.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/server.h"
#include "net/tls.h"

namespace net {
namespace {

using ::testing::HasSubstr;

constexpr base::Duration kPatience = std::chrono::seconds(20);

// Echoes the body; never answers "/silence".
class EchoHandler final : public HttpHandler {
 public:
  void OnRequest(std::shared_ptr<HttpExchange> x) override {
    if (x->path() == "/silence") return x->OnAbort([x] {});
    x->ReadBody(64 << 20, [x](absl::StatusOr<std::string> body) {
      x->Respond(200, "text/plain", body.ok() ? *std::move(body) : "no body");
    });
  }
};

class HttpClientTest : public ::testing::Test {
 protected:
  HttpClientTest() : loops_(1), server_(loops_), directory_(::testing::TempDir() + "http_client") {
    base::SetLogLevel(base::LogLevel::kPanic);
    const auto pair = EnsureSelfSigned({.directory = directory_, .hosts = {"127.0.0.1"}},
                                       base::SystemClock().Wall());
    EXPECT_OK(pair);
    cert_file_ = pair->cert_file;
    auto tls = TlsServer::Create({.cert_file = pair->cert_file, .key_file = pair->key_file});
    EXPECT_OK(tls);
    ListenerOptions options;
    options.address = ListenAddress::Tcp("127.0.0.1", 0);
    options.http = &handler_;
    options.http2 = false;
    options.tls = *tls;
    const auto listener = server_.Listen(std::move(options));
    EXPECT_OK(listener);
    port_ = (*listener)->port();
  }
  ~HttpClientTest() override {
    server_.Shutdown({});
    loops_.Stop();
  }
  base::Url Url(std::string_view scheme) const {
    return *base::ParseUrl(fmt::format("{}://127.0.0.1:{}", scheme, port_));
  }
  absl::StatusOr<HttpAnswer> Fetch(std::string_view scheme, HttpRequest request,
                                   TlsClientOptions tls = {}) {
    return FetchOnce(Url(scheme), request, {.tls = std::move(tls)}, kPatience, 1 << 20, interrupt_);
  }

  EchoHandler handler_;
  LoopPool loops_;
  Server server_;
  const std::string directory_;
  std::string cert_file_;
  uint16_t port_ = 0;
  Interrupt interrupt_;
};

TEST_F(HttpClientTest, AsksPlainlyAndOverTls) {
  for (const char* scheme : {"http", "https"}) {
    const auto answer = Fetch(scheme, {.method = "POST", .target = "/", .body = "hello"},
                              {.trusted_ca_file = cert_file_});
    ASSERT_OK(answer);
    EXPECT_EQ(answer->head.status, 200);
    EXPECT_EQ(answer->body, "hello");
  }
}

TEST_F(HttpClientTest, TrustsNoStrangersUnlessTold) {
  const auto refused = Fetch("https", {.target = "/"});
  EXPECT_THAT(std::string(base::Message(refused.status())),
              HasSubstr("tls: failed to verify certificate"));
  EXPECT_FALSE(Fetch("https", {.target = "/"},
                     {.trusted_ca_file = cert_file_, .server_name = "other.example"})
                   .ok());
  EXPECT_OK(Fetch("https", {.target = "/"}, {.skip_verify = true}));
}

TEST_F(HttpClientTest, KeepsItsConnectionForLargeBodies) {
  const auto client = HttpClient::Connect(Url("https"), {.tls = {.skip_verify = true}}, interrupt_);
  ASSERT_OK(client);
  (*client)->set_timeout(kPatience);
  const std::string large(5 << 20, 'x');
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(
        (*client)->SendRequest({.method = "POST", .target = "/", .body_bytes = 2 * large.size()}));
    ASSERT_OK((*client)->SendBody(large));
    ASSERT_OK((*client)->SendBody(large));
    ASSERT_OK((*client)->ReadHead());
    const auto body = (*client)->ReadBody(64 << 20);
    ASSERT_OK(body);
    EXPECT_EQ(body->size(), 2 * large.size());
    EXPECT_TRUE((*client)->reusable());
  }
}

TEST_F(HttpClientTest, WaitsNoLongerThanToldAndCanBeInterrupted) {
  const auto client = HttpClient::Connect(Url("http"), {}, interrupt_);
  ASSERT_OK(client);
  (*client)->set_timeout(std::chrono::milliseconds(20));
  ASSERT_OK((*client)->SendRequest({.target = "/silence"}));
  EXPECT_THAT((*client)->ReadHead().status(),
              base::StatusIs(absl::StatusCode::kDeadlineExceeded, "i/o timeout"));
  EXPECT_FALSE((*client)->reusable());
  EXPECT_FALSE((*client)->SendBody("x").ok());

  std::thread waiting(
      [this] { EXPECT_TRUE(absl::IsCancelled(Fetch("http", {.target = "/silence"}).status())); });
  EXPECT_FALSE(interrupt_.WaitFor(std::chrono::milliseconds(20)));
  interrupt_.Set();
  waiting.join();
  EXPECT_TRUE(interrupt_.is_set());
}

}  // namespace
}  // namespace net
