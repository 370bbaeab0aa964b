#include "net/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include "base/files.h"
#include "base/testing.h"
#include "net/fake_host.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/openssl_ptr.h"
#include "net/tls.h"

namespace net {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// --- certificates made on the spot ---

struct Identity {
  X509Ptr certificate;
  KeyPtr key;
};

struct IdentityOptions {
  std::string common_name;
  std::string names = "IP:127.0.0.1,DNS:localhost";  // SANs
  std::string usage = "serverAuth,clientAuth";
  bool authority = false;
  long serial = 1;
};

// Signed by `issuer`, or by itself.
Identity MakeIdentity(const IdentityOptions& options, const Identity* issuer) {
  Identity made;
  made.key.reset(EVP_EC_gen("P-256"));
  made.certificate.reset(X509_new());
  X509* x = made.certificate.get();
  X509_set_version(x, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(x), options.serial);
  X509_gmtime_adj(X509_getm_notBefore(x), -60);
  X509_gmtime_adj(X509_getm_notAfter(x), 3600);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(options.common_name.c_str()),
                             -1, -1, 0);
  X509* signer = issuer != nullptr ? issuer->certificate.get() : x;
  X509_set_issuer_name(x, X509_get_subject_name(signer));
  X509_set_pubkey(x, made.key.get());
  const auto add = [&](int nid, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, signer, x, nullptr, nullptr, 0);
    const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
    X509_add_ext(x, extension.get(), -1);
  };
  add(NID_basic_constraints, options.authority ? "critical,CA:TRUE" : "CA:FALSE");
  if (!options.authority) {
    add(NID_ext_key_usage, options.usage);
    if (!options.names.empty()) add(NID_subject_alt_name, options.names);
  }
  X509_sign(x, issuer != nullptr ? issuer->key.get() : made.key.get(), EVP_sha256());
  return made;
}

std::string PemOf(X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  char* data = nullptr;
  const long n = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(n)};
}

std::string PemOf(EVP_PKEY* key) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  char* data = nullptr;
  const long n = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(n)};
}

// A revocation list of one serial, DER.
std::string RevocationList(const Identity& authority, const Identity& revoked) {
  const X509CrlPtr crl(X509_CRL_new());
  X509_CRL_set_issuer_name(crl.get(), X509_get_subject_name(authority.certificate.get()));
  ASN1_TIME* now = ASN1_TIME_new();
  X509_gmtime_adj(now, -7200);
  X509_CRL_set1_lastUpdate(crl.get(), now);
  X509_CRL_set1_nextUpdate(crl.get(), now);  // long out of date, which must not matter
  X509_REVOKED* entry = X509_REVOKED_new();
  X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(revoked.certificate.get()));
  X509_REVOKED_set_revocationDate(entry, now);
  ASN1_TIME_free(now);
  X509_CRL_add0_revoked(crl.get(), entry);
  X509_CRL_sign(crl.get(), authority.key.get(), EVP_sha256());
  unsigned char* der = nullptr;
  const int n = i2d_X509_CRL(crl.get(), &der);
  std::string bytes(reinterpret_cast<const char*>(der), static_cast<size_t>(n));
  OPENSSL_free(der);
  return bytes;
}

// --- clients ---

class Client {
 public:
  explicit Client(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  explicit Client(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  virtual ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  virtual bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // The next bytes; empty at the end of the connection.
  virtual std::string Receive() {
    char buffer[16384];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    return n <= 0 ? std::string() : std::string(buffer, static_cast<size_t>(n));
  }
  // Everything up to `mark`, or to the end of the connection.
  std::string Until(std::string_view mark) {
    std::string all;
    while (all.find(mark) == std::string::npos) {
      const std::string more = Receive();
      if (more.empty()) break;
      all += more;
    }
    return all;
  }
  std::string UntilEnd() { return Until(std::string_view("\0never\0", 7)); }

 private:
  int fd_;
  bool connected_ = false;
};

struct TlsClientOptions {
  const Identity* identity = nullptr;
  std::string alpn = "";  // wire form, e.g. "\x02h2"
  int max_version = 0;
  std::string ciphers = "";
};

class TlsClient final : public Client {
 public:
  TlsClient(uint16_t port, const TlsClientOptions& options) : Client(port) {
    context_ = SSL_CTX_new(TLS_client_method());
    if (options.max_version != 0) SSL_CTX_set_max_proto_version(context_, options.max_version);
    if (!options.ciphers.empty()) SSL_CTX_set_cipher_list(context_, options.ciphers.c_str());
    if (options.identity != nullptr) {
      SSL_CTX_use_certificate(context_, options.identity->certificate.get());
      SSL_CTX_use_PrivateKey(context_, options.identity->key.get());
    }
    ssl_ = SSL_new(context_);
    if (!options.alpn.empty()) {
      SSL_set_alpn_protos(ssl_, reinterpret_cast<const unsigned char*>(options.alpn.data()),
                          static_cast<unsigned>(options.alpn.size()));
    }
    SSL_set_tlsext_host_name(ssl_, "localhost");
    SSL_set_fd(ssl_, fd());
    handshake_ = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() override {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  bool handshake() const { return handshake_; }
  std::string alpn() const {
    const unsigned char* name = nullptr;
    unsigned n = 0;
    SSL_get0_alpn_selected(ssl_, &name, &n);
    return {reinterpret_cast<const char*>(name), n};
  }
  std::string server_common_name() const {
    const X509Ptr certificate(SSL_get1_peer_certificate(ssl_));
    char name[256] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, name,
                              sizeof name);
    return name;
  }
  bool Send(std::string_view bytes) override {
    return SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())) ==
           static_cast<int>(bytes.size());
  }
  std::string Receive() override {
    char buffer[16384];
    const int n = SSL_read(ssl_, buffer, sizeof buffer);
    return n <= 0 ? std::string() : std::string(buffer, static_cast<size_t>(n));
  }
  // Whether a request is answered: in TLS 1.3 a client learns only then that its certificate was
  // refused.
  bool Works() {
    if (!handshake_ || !Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")) return false;
    return Until("hello").find("200 OK") != std::string::npos;
  }

 private:
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
  bool handshake_ = false;
};

class ServerTest : public testing::Test {
 protected:
  ServerTest()
      : pool_(2),
        http_([this](std::shared_ptr<HttpExchange> x) { on_request(std::move(x)); }),
        server_(std::make_unique<Server>(pool_)) {
    ::signal(SIGPIPE, SIG_IGN);  // OpenSSL's socket BIO writes without MSG_NOSIGNAL
    server_->set_on_rejected([this](const RejectedConnection& r) {
      std::lock_guard lock(mutex_);
      rejected_.push_back(r);
      changed_.notify_all();
    });
  }
  ~ServerTest() override {
    server_.reset();
    pool_.Stop();
  }

  Listener* Listen(ListenerOptions options = {}) {
    if (options.address.host.empty() && options.address.path.empty()) {
      options.address = ListenAddress::Tcp("127.0.0.1", 0);
    }
    options.http = &http_;
    auto listener = server_->Listen(std::move(options));
    EXPECT_OK(listener);
    return *listener;
  }

  // The error of the next refused connection.
  std::string NextRejection() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !rejected_.empty(); });
    std::string error = rejected_.front().error;
    rejected_.erase(rejected_.begin());
    return error;
  }

  // Writes a pair for the server and returns options with it.
  TlsOptions ServerPair(const Identity* authority, const std::string& common_name = "server") {
    const Identity identity = MakeIdentity({.common_name = common_name}, authority);
    TlsOptions tls;
    tls.cert_file = Write("cert.pem", PemOf(identity.certificate.get()));
    tls.key_file = Write("key.pem", PemOf(identity.key.get()));
    return tls;
  }
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = directory_ / name;
    EXPECT_OK(base::WriteFileAtomically(base::PosixFiles(), path, bytes, 0600));
    return path;
  }
  Listener* ListenTls(TlsOptions tls, bool plain = false) {
    auto made = TlsServer::Create(std::move(tls));
    EXPECT_OK(made);
    ListenerOptions options;
    options.plain = plain;
    options.tls = *made;
    return Listen(std::move(options));
  }

  base::ScratchDirectory directory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RejectedConnection> rejected_;
  std::function<void(std::shared_ptr<HttpExchange>)> on_request =
      [](std::shared_ptr<HttpExchange> x) {
        x->AddHeader("X-Tls", x->connection().tls ? "yes" : "no");
        x->AddHeader("X-Cn", x->connection().common_name);
        x->Respond(200, "text/plain", "hello");
      };
  LoopPool pool_;
  FunctionHandler http_;
  std::unique_ptr<Server> server_;
};

const char kGet[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

TEST_F(ServerTest, ServesOnAPortOfTheSystemsChoice) {
  Listener* listener = Listen();
  EXPECT_GT(listener->port(), 0);
  EXPECT_EQ(listener->address(), "127.0.0.1:" + std::to_string(listener->port()));
  Client client(listener->port());
  client.Send(kGet);
  EXPECT_THAT(client.Until("hello"), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_EQ(listener->connections(), 1U);
}

TEST_F(ServerTest, SaysWhatIsWrongWithAnAddress) {
  Listener* listener = Listen();
  ListenerOptions options;
  options.http = &http_;
  options.address = ListenAddress::Tcp("127.0.0.1", listener->port());
  EXPECT_EQ(base::Message(server_->Listen(options).status()),
            "listen tcp 127.0.0.1:" + std::to_string(listener->port()) +
                ": bind: address already in use");
  options.address = ListenAddress::Tcp("example.com", 0);
  EXPECT_THAT(server_->Listen(options), base::StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ServerTest, ListensOnLocalhostAndTheWildcard) {
  for (const char* host : {"localhost", "0.0.0.0", "::"}) {
    ListenerOptions options;
    options.address = ListenAddress::Tcp(host, 0);
    Client client(Listen(std::move(options))->port());
    client.Send(kGet);
    EXPECT_THAT(client.Until("hello"), StartsWith("HTTP/1.1 200 OK")) << host;
  }
}

TEST_F(ServerTest, ServesUnixSocketsAndReplacesStaleOnes) {
  const std::string path = directory_ / "localhost:20000";
  // A socket file whose server is gone.
  const int stale = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(stale, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(stale);
  ListenerOptions options;
  options.address = ListenAddress::Unix(path);
  Listener* listener = Listen(options);
  EXPECT_EQ(listener->address(), path);
  Client client(path);
  client.Send(kGet);
  EXPECT_THAT(client.Until("hello"), StartsWith("HTTP/1.1 200 OK"));
  // One that is alive stays.
  options.http = &http_;
  EXPECT_EQ(base::Message(server_->Listen(options).status()),
            "listen unix " + path + ": bind: address already in use");
  server_->Shutdown(base::Duration::zero());
  EXPECT_FALSE(base::Exists(base::PosixFiles(), path));
}

TEST_F(ServerTest, BoundsItsConnections) {
  ListenerOptions options;
  options.connections_max = 2;
  Listener* listener = Listen(std::move(options));
  auto first = std::make_unique<Client>(listener->port());
  Client second(listener->port());
  first->Send(kGet);
  first->Until("hello");
  second.Send(kGet);
  second.Until("hello");
  Client third(listener->port());
  third.Send(kGet);
  pollfd poll_third{third.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&poll_third, 1, 50), 0);
  first.reset();
  EXPECT_THAT(third.Until("hello"), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(ServerTest, ClosesTheOldestOfTooManySilentConnections) {
  ListenerOptions options;
  options.unfinished_connections_max = 20;
  Listener* listener = Listen(std::move(options));
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(std::make_unique<Client>(listener->port()));
  Client normal(listener->port());
  normal.Send(kGet);
  EXPECT_THAT(normal.Until("hello"), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_EQ(silent[0]->Receive(), "");
}

TEST_F(ServerTest, FinishesRunningRequestsWhenItShutsDown) {
  std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<HttpExchange> held;
  on_request = [&](std::shared_ptr<HttpExchange> x) {
    std::lock_guard lock(mutex);
    held = std::move(x);
    changed.notify_all();
  };
  Client client(Listen()->port());
  client.Send(kGet);
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return held != nullptr; });
  }
  std::thread answer([&] {
    held->loop().Post([x = std::exchange(held, nullptr)] { x->Respond(200, "", "hello"); });
  });
  server_->Shutdown(std::chrono::seconds(60));
  answer.join();
  EXPECT_THAT(client.UntilEnd(), EndsWith("hello"));
  EXPECT_EQ(server_->connections(), 0U);
}

TEST_F(ServerTest, SendsALargeAnswerToASlowReader) {
  on_request = [](std::shared_ptr<HttpExchange> x) {
    x->Respond(200, "", std::string(8 << 20, 'x'));
  };
  Client client(Listen()->port());
  client.Send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const std::string answer = client.UntilEnd();
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, 8U << 20);
}

TEST_F(ServerTest, DeliversTheAnswerToAClientThatStillSends) {
  Client client(Listen()->port());
  client.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
  client.Send(std::string(1 << 20, 'x'));
  EXPECT_THAT(client.Until("hello"), StartsWith("HTTP/1.1 200 OK"));
}

// --- TLS ---

TEST_F(ServerTest, ServesTls) {
  Listener* listener = ListenTls(ServerPair(nullptr));
  TlsClient client(listener->port(), {.alpn = "\x08http/1.1"});
  EXPECT_EQ(client.alpn(), "http/1.1");
  client.Send(kGet);
  EXPECT_THAT(client.Until("hello"), HasSubstr("X-Tls: yes"));
  TlsClient old(listener->port(), {.max_version = TLS1_2_VERSION});
  EXPECT_TRUE(old.Works());
}

TEST_F(ServerTest, ServesPlainAndTlsOnOnePort) {
  Listener* listener = ListenTls(ServerPair(nullptr), /*plain=*/true);
  TlsClient secure(listener->port(), {});
  EXPECT_TRUE(secure.Works());
  Client plain(listener->port());
  plain.Send(kGet);
  EXPECT_THAT(plain.Until("hello"), HasSubstr("X-Tls: no"));
}

TEST_F(ServerTest, ServesHttp2OverTls) {
  Listener* listener = ListenTls(ServerPair(nullptr));
  TlsClient client(listener->port(), {.alpn = "\x02h2\x08http/1.1"});
  ASSERT_EQ(client.alpn(), "h2");
  Http2TestClient http2;
  const int32_t id = http2.Open(
      {{":method", "GET"}, {":scheme", "https"}, {":path", "/"}, {":authority", "a"}}, "", true);
  while (!http2.responses[id].ended) {
    const std::string out = http2.TakeOutput();
    if (!out.empty()) {
      ASSERT_TRUE(client.Send(out));
    }
    const std::string in = client.Receive();
    ASSERT_FALSE(in.empty());
    ASSERT_TRUE(http2.Input(in));
  }
  EXPECT_EQ(http2.responses[id].body, "hello");
  EXPECT_EQ(http2.responses[id].headers["x-tls"], "yes");
}

TEST_F(ServerTest, SendsMuchOverTls) {
  on_request = [](std::shared_ptr<HttpExchange> x) {
    x->ReadBody(64 << 20,
                [x](absl::StatusOr<std::string> body) { x->Respond(200, "", std::move(*body)); });
  };
  TlsClient client(ListenTls(ServerPair(nullptr))->port(), {});
  const size_t n = 4 << 20;
  client.Send("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: " +
              std::to_string(n) + "\r\n\r\n");
  client.Send(std::string(n, 'y'));
  const std::string answer = client.UntilEnd();
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, n);
}

TEST_F(ServerTest, VerifiesClientCertificates) {
  const Identity authority = MakeIdentity({.common_name = "ca", .authority = true}, nullptr);
  const Identity other = MakeIdentity({.common_name = "other", .authority = true}, nullptr);
  TlsOptions tls = ServerPair(&authority);
  tls.trusted_ca_file = Write("ca.pem", PemOf(authority.certificate.get()));
  Listener* listener = ListenTls(std::move(tls));
  const Identity good = MakeIdentity({.common_name = "root", .serial = 2}, &authority);
  TlsClient welcome(listener->port(), {.identity = &good});
  welcome.Send(kGet);
  EXPECT_THAT(welcome.Until("hello"), HasSubstr("X-Cn: root\r\n"));

  TlsClient without(listener->port(), {});
  EXPECT_FALSE(without.Works());
  EXPECT_EQ(NextRejection(), "tls: client didn't provide a certificate");
  const Identity stranger = MakeIdentity({.common_name = "root", .serial = 3}, &other);
  TlsClient strange(listener->port(), {.identity = &stranger});
  EXPECT_FALSE(strange.Works());
  EXPECT_EQ(NextRejection(),
            "tls: failed to verify certificate: x509: certificate signed by unknown authority");
  const Identity server_only =
      MakeIdentity({.common_name = "root", .usage = "serverAuth"}, &authority);
  TlsClient wrong_usage(listener->port(), {.identity = &server_only});
  EXPECT_FALSE(wrong_usage.Works());
  EXPECT_EQ(
      NextRejection(),
      "tls: failed to verify certificate: x509: certificate specifies an incompatible key usage");
}

TEST_F(ServerTest, ChecksNamesOfClientCertificates) {
  const Identity authority = MakeIdentity({.common_name = "ca", .authority = true}, nullptr);
  const std::string ca = Write("ca.pem", PemOf(authority.certificate.get()));
  const Identity good = MakeIdentity(
      {.common_name = "peer", .names = "DNS:peer.example,DNS:*.wild.example"}, &authority);
  const Identity bad =
      MakeIdentity({.common_name = "else", .names = "DNS:else.example"}, &authority);
  TlsOptions by_cn = ServerPair(&authority);
  by_cn.trusted_ca_file = ca;
  by_cn.allowed_common_names = {"first", "peer"};
  TlsOptions by_host = by_cn;
  by_host.allowed_common_names = {};
  by_host.allowed_hostnames = {"a.wild.example"};
  for (const TlsOptions& tls : {by_cn, by_host}) {
    Listener* listener = ListenTls(tls);
    EXPECT_TRUE(TlsClient(listener->port(), {.identity = &good}).Works());
    EXPECT_FALSE(TlsClient(listener->port(), {.identity = &bad}).Works());
    EXPECT_EQ(NextRejection(), "client certificate authentication failed");
  }
}

TEST_F(ServerTest, ChecksThatClientCertificatesFitTheAddress) {
  const Identity authority = MakeIdentity({.common_name = "ca", .authority = true}, nullptr);
  TlsOptions tls = ServerPair(&authority);
  tls.trusted_ca_file = Write("ca.pem", PemOf(authority.certificate.get()));
  tls.check_client_san = true;
  Listener* listener = ListenTls(std::move(tls));
  const auto works = [&](const std::string& names) {
    const Identity identity = MakeIdentity({.common_name = "peer", .names = names}, &authority);
    return TlsClient(listener->port(), {.identity = &identity}).Works();
  };
  EXPECT_TRUE(works("IP:127.0.0.1"));
  EXPECT_TRUE(works(""));
  EXPECT_TRUE(works("IP:10.1.2.3,DNS:localhost"));
  EXPECT_FALSE(works("IP:10.1.2.3"));
  EXPECT_THAT(NextRejection(), HasSubstr("does not match any of the certificate's IP addresses"));
  EXPECT_FALSE(works("DNS:does-not-exist.invalid"));
  EXPECT_THAT(NextRejection(), HasSubstr("does not match any of DNSNames"));
}

TEST_F(ServerTest, RefusesRevokedCertificatesWhateverTheListsDates) {
  const Identity authority = MakeIdentity({.common_name = "ca", .authority = true}, nullptr);
  const Identity good = MakeIdentity({.common_name = "good", .serial = 100}, &authority);
  const Identity revoked = MakeIdentity({.common_name = "revoked", .serial = 200}, &authority);
  TlsOptions tls = ServerPair(&authority);
  tls.trusted_ca_file = Write("ca.pem", PemOf(authority.certificate.get()));
  tls.crl_file = Write("crl.der", RevocationList(authority, revoked));
  Listener* listener = ListenTls(std::move(tls));
  EXPECT_TRUE(TlsClient(listener->port(), {.identity = &good}).Works());
  EXPECT_FALSE(TlsClient(listener->port(), {.identity = &revoked}).Works());
  EXPECT_THAT(NextRejection(), HasSubstr("revoked"));
  // The list is read again when it changes.
  Write("crl.der", RevocationList(authority, good));
  EXPECT_TRUE(TlsClient(listener->port(), {.identity = &revoked}).Works());
  EXPECT_FALSE(TlsClient(listener->port(), {.identity = &good}).Works());
  NextRejection();
  Write("crl.der", "not a list");
  EXPECT_FALSE(TlsClient(listener->port(), {.identity = &revoked}).Works());
}

TEST_F(ServerTest, UsesReplacedFilesWithoutARestart) {
  const Identity first_ca = MakeIdentity({.common_name = "ca1", .authority = true}, nullptr);
  const Identity second_ca = MakeIdentity({.common_name = "ca2", .authority = true}, nullptr);
  const Identity first = MakeIdentity({.common_name = "one"}, &first_ca);
  const Identity second = MakeIdentity({.common_name = "two"}, &second_ca);
  TlsOptions tls = ServerPair(&first_ca, "before");
  tls.trusted_ca_file = Write("ca.pem", PemOf(first_ca.certificate.get()));
  Listener* listener = ListenTls(tls);
  EXPECT_FALSE(TlsClient(listener->port(), {.identity = &second}).Works());
  NextRejection();
  ServerPair(&first_ca, "after");
  Write("ca.pem", PemOf(first_ca.certificate.get()) + PemOf(second_ca.certificate.get()));
  for (const Identity* identity : {&first, &second}) {
    TlsClient client(listener->port(), {.identity = identity});
    EXPECT_TRUE(client.Works());
    EXPECT_EQ(client.server_common_name(), "after");
  }
}

TEST_F(ServerTest, SelectsProtocolsByAlpn) {
  TlsOptions tls = ServerPair(nullptr);
  Listener* both = ListenTls(tls);
  EXPECT_FALSE(TlsClient(both->port(), {.alpn = "\x03xyz"}).handshake());
  EXPECT_EQ(NextRejection(), "tls: client requested unsupported application protocols");
  EXPECT_TRUE(TlsClient(both->port(), {}).Works());
  tls.alpn = {"h2"};
  TlsClient only_http1(ListenTls(tls)->port(), {.alpn = "\x08http/1.1"});
  EXPECT_TRUE(only_http1.handshake());
  EXPECT_EQ(only_http1.alpn(), "");
  EXPECT_TRUE(only_http1.Works());
}

TEST_F(ServerTest, KeepsToItsVersionsAndCiphers) {
  TlsOptions tls = ServerPair(nullptr);
  tls.min_version = "TLS1.3";
  EXPECT_FALSE(TlsClient(ListenTls(tls)->port(), {.max_version = TLS1_2_VERSION}).handshake());
  EXPECT_EQ(NextRejection(), "tls: client offered only unsupported versions");
  tls.min_version = "TLS1.2";
  tls.max_version = "TLS1.2";
  tls.cipher_suites = {"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"};
  Listener* one = ListenTls(tls);
  EXPECT_TRUE(TlsClient(one->port(), {.ciphers = "ECDHE-ECDSA-AES128-GCM-SHA256"}).Works());
  EXPECT_FALSE(TlsClient(one->port(), {.ciphers = "ECDHE-ECDSA-AES256-GCM-SHA384"}).handshake());
  EXPECT_EQ(NextRejection(), "tls: no cipher suite supported by both client and server");
}

TEST_F(ServerTest, ReportsConnectionsThatAreNotTls) {
  Listener* listener = ListenTls(ServerPair(nullptr));
  Client plain(listener->port());
  plain.Send(kGet);
  EXPECT_THAT(plain.UntilEnd(), HasSubstr("Client sent an HTTP request to an HTTPS server."));
  EXPECT_EQ(NextRejection(), "tls: first record does not look like a TLS handshake");
  { Client silent(listener->port()); }
  EXPECT_EQ(NextRejection(), "EOF");
}

TEST_F(ServerTest, LimitsTheTimeOfAHandshake) {
  auto tls = TlsServer::Create(ServerPair(nullptr));
  ASSERT_OK(tls);
  ListenerOptions options;
  options.plain = false;
  options.tls = *tls;
  options.tls_handshake_timeout = std::chrono::milliseconds(20);
  Client client(Listen(std::move(options))->port());
  client.Send("\x16\x03\x01");
  EXPECT_EQ(client.UntilEnd(), "");
}

TEST(Tls, ChecksOptions) {
  TlsOptions tls;
  EXPECT_OK(CheckTlsOptions(tls));
  tls.min_version = "TLS1.1";
  EXPECT_EQ(base::Message(CheckTlsOptions(tls)),
            "unexpected TLS version \"TLS1.1\" (must be one of: TLS1.2, TLS1.3)");
  tls.min_version = "TLS1.3";
  tls.max_version = "TLS1.2";
  EXPECT_EQ(base::Message(CheckTlsOptions(tls)),
            "min version (TLS1.3) is greater than max version (TLS1.2)");
  tls.max_version = "";
  tls.cipher_suites = {"TLS_RSA_WITH_AES_128_CBC_SHA"};
  EXPECT_EQ(base::Message(CheckTlsOptions(tls)),
            "cipher suites cannot be configured when only TLS1.3 is enabled");
  tls.min_version = "TLS1.2";
  EXPECT_OK(CheckTlsOptions(tls));
  tls.cipher_suites = {"ZZZ"};
  EXPECT_EQ(base::Message(CheckTlsOptions(tls)), "unexpected TLS cipher suite \"ZZZ\"");
}

TEST_F(ServerTest, MakesSelfSignedCertificatesOnce) {
  SelfSignedOptions options;
  options.directory = directory_ / "fixtures/client";
  options.hosts = {"127.0.0.1:2379", "localhost:2379", "[::1]:2379"};
  ASSERT_OK_AND_ASSIGN(const CertificatePair pair,
                       EnsureSelfSigned(options, base::SystemClock().Wall()));
  ASSERT_OK_AND_ASSIGN(const std::string first, base::ReadFile(base::PosixFiles(), pair.cert_file));
  ASSERT_OK(EnsureSelfSigned(options, base::SystemClock().Wall()));
  EXPECT_THAT(base::ReadFile(base::PosixFiles(), pair.cert_file), base::IsOkAndHolds(first));
  const BioPtr bio(BIO_new_mem_buf(first.data(), static_cast<int>(first.size())));
  const X509Ptr certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ASSERT_NE(certificate, nullptr);
  EXPECT_EQ(X509_check_host(certificate.get(), "localhost", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "127.0.0.1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "::1", 0), 1);
  EXPECT_EQ(EVP_PKEY_get_bits(X509_get0_pubkey(certificate.get())), 521);
  TlsOptions tls;
  tls.cert_file = pair.cert_file;
  tls.key_file = pair.key_file;
  EXPECT_TRUE(TlsClient(ListenTls(tls)->port(), {}).Works());
}

TEST_F(ServerTest, RefusesASetUpThatCannotWork) {
  TlsOptions tls = ServerPair(nullptr);
  tls.key_file = directory_ / "missing.pem";
  EXPECT_THAT(TlsServer::Create(tls), base::StatusIs(absl::StatusCode::kNotFound));
  tls.key_file = Write("broken.pem", "no key");
  EXPECT_THAT(TlsServer::Create(tls), base::StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace net
