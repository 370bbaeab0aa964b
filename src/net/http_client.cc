#include "net/http_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/status.h"
#include "net/openssl_ptr.h"
#include "net/tls.h"

namespace net {
namespace {

constexpr size_t kReadBytes = 64 << 10;

absl::Status Unavailable(std::string text) { return absl::UnavailableError(text); }
absl::Status Interrupted() { return absl::CancelledError("interrupted"); }

int Milliseconds(base::Duration duration) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(duration).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 1 << 30));
}

// Waits until `fd` is ready. OK, Cancelled or DeadlineExceeded.
absl::Status WaitFd(int fd, short events, base::Duration timeout, const Interrupt& interrupt) {
  const base::Clock& clock = base::SystemClock();
  const base::Duration deadline = clock.Monotonic() + timeout;
  while (true) {
    pollfd fds[2] = {{.fd = fd, .events = events, .revents = 0},
                     {.fd = interrupt.fd(), .events = POLLIN, .revents = 0}};
    const int n = ::poll(fds, 2, Milliseconds(deadline - clock.Monotonic()));
    if (n < 0 && errno != EINTR) return Unavailable("poll: " + ErrnoText(errno));
    if (fds[1].revents != 0) return Interrupted();
    if (n > 0 && fds[0].revents != 0) return absl::OkStatus();
    if (clock.Monotonic() >= deadline) return absl::DeadlineExceededError("i/o timeout");
  }
}

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

absl::StatusOr<std::vector<Address>> Resolve(const base::Url& url) {
  std::vector<Address> addresses;
  if (url.is_unix()) {
    Address address;
    auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
    if (url.host_port.size() >= sizeof un->sun_path)
      return Unavailable("dial unix " + url.host_port + ": path too long");
    un->sun_family = AF_UNIX;
    std::memcpy(un->sun_path, url.host_port.data(), url.host_port.size());
    address.length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + url.host_port.size() + 1);
    addresses.push_back(address);
    return addresses;
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = url.port.empty() ? (url.tls() ? "443" : "80") : url.port;
  if (const int error = ::getaddrinfo(url.host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return Unavailable(
        error == EAI_NONAME
            ? fmt::format("dial tcp: lookup {}: no such host", url.host)
            : fmt::format("dial tcp: lookup {}: {}", url.host, ::gai_strerror(error)));
  }
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    Address address;
    std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
    address.length = info->ai_addrlen;
    addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  return addresses;
}

absl::StatusOr<Fd> Dial(const Address& address, base::Duration timeout,
                        const Interrupt& interrupt) {
  const bool is_unix = address.storage.ss_family == AF_UNIX;
  const auto failed = [&](const std::string& why) {
    return Unavailable(fmt::format("dial {} {}: {}", is_unix ? "unix" : "tcp",
                                   AddressText(address.storage, address.length), why));
  };
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return failed("socket: " + ErrnoText(errno));
  const int on = 1;
  if (!is_unix) {
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  }
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) !=
      0) {
    if (errno != EINPROGRESS) return failed("connect: " + ErrnoText(errno));
    const absl::Status ready = WaitFd(fd.get(), POLLOUT, timeout, interrupt);
    if (absl::IsCancelled(ready)) return ready;
    if (!ready.ok()) return failed(std::string(base::Message(ready)));
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return failed("connect: " + ErrnoText(error));
  }
  return fd;
}

}  // namespace

Interrupt::Interrupt() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { CHECK(fd_.get() >= 0); }

void Interrupt::Set() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n =
      ::write(fd_.get(), &one, sizeof one);  // fails when set already
}

bool Interrupt::is_set() const {
  pollfd fd{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&fd, 1, 0) > 0;
}

bool Interrupt::WaitFor(base::Duration duration) const {
  return absl::IsCancelled(WaitFd(-1, 0, duration, *this));
}

HttpClient::HttpClient(const Interrupt& interrupt, std::string host)
    : interrupt_(interrupt), host_(std::move(host)), buffer_(kReadBytes) {}

HttpClient::~HttpClient() {
  if (ssl_ != nullptr) {
    if (!failed_) SSL_shutdown(ssl_);
    SSL_free(ssl_);
    ERR_clear_error();
  }
}

absl::StatusOr<std::unique_ptr<HttpClient>> HttpClient::Connect(const base::Url& url,
                                                                const HttpClientOptions& options,
                                                                const Interrupt& interrupt) {
  ASSIGN_OR_RETURN(const std::vector<Address> addresses, Resolve(url));
  absl::Status failure = Unavailable("dial tcp: no address");
  for (const Address& address : addresses) {
    auto fd = Dial(address, options.connect_timeout, interrupt);
    if (!fd.ok()) {
      failure = fd.status();
      if (absl::IsCancelled(failure)) return failure;
      continue;
    }
    std::unique_ptr<HttpClient> client(
        new HttpClient(interrupt, url.is_unix() ? "localhost" : url.host_port));
    client->fd_ = *std::move(fd);
    client->timeout_ = options.connect_timeout;
    if (url.tls()) RETURN_IF_ERROR(client->StartTls(options.tls, url.host));
    return client;
  }
  return failure;
}

absl::Status HttpClient::StartTls(const TlsClientOptions& options, const std::string& host) {
  // A context for each connection: the files are read anew, so a renewed certificate needs no
  // restart.
  const std::unique_ptr<SSL_CTX, OpenSslDeleter<SSL_CTX_free>> context(
      SSL_CTX_new(TLS_client_method()));
  const auto failed = [this](const std::string& why) { return Fail(Unavailable("tls: " + why)); };
  if (context == nullptr) return failed(TakeOpenSslError());
  SSL_CTX_set_min_proto_version(context.get(),
                                options.min_version == "TLS1.3" ? TLS1_3_VERSION : TLS1_2_VERSION);
  if (options.max_version == "TLS1.2") SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION);
  std::string ciphers;
  for (const std::string& name : options.cipher_suites) {
    if (name.starts_with("TLS_AES_") || name.starts_with("TLS_CHACHA20_")) continue;
    if (!ciphers.empty()) ciphers += ":";
    ciphers += OpenSslCipherName(name);
  }
  if (!ciphers.empty() && SSL_CTX_set_cipher_list(context.get(), ciphers.c_str()) != 1)
    return failed(TakeOpenSslError());
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (!options.cert_file.empty()) {
    if (SSL_CTX_use_certificate_chain_file(context.get(), options.cert_file.c_str()) != 1)
      return failed(options.cert_file + ": " + TakeOpenSslError());
    if (SSL_CTX_use_PrivateKey_file(context.get(), options.key_file.c_str(), SSL_FILETYPE_PEM) != 1)
      return failed(options.key_file + ": " + TakeOpenSslError());
  }
  if (options.skip_verify) {
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  } else {
    const int loaded = options.trusted_ca_file.empty()
                           ? SSL_CTX_set_default_verify_paths(context.get())
                           : SSL_CTX_load_verify_locations(
                                 context.get(), options.trusted_ca_file.c_str(), nullptr);
    if (loaded != 1) return failed(options.trusted_ca_file + ": " + TakeOpenSslError());
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  }
  ssl_ = SSL_new(context.get());
  if (ssl_ == nullptr || SSL_set_fd(ssl_, fd_.get()) != 1) return failed(TakeOpenSslError());
  const std::string& name = options.server_name.empty() ? host : options.server_name;
  if (base::IsIpLiteral(name)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_), name.c_str());
  } else {
    SSL_set_tlsext_host_name(ssl_, name.c_str());
    SSL_set1_host(ssl_, name.c_str());
  }
  while (true) {
    const int result = SSL_connect(ssl_);
    if (result == 1) return absl::OkStatus();
    const int error = SSL_get_error(ssl_, result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      const long verified = SSL_get_verify_result(ssl_);
      const std::string why = TakeOpenSslError();
      return failed(verified != X509_V_OK && !options.skip_verify
                        ? fmt::format("failed to verify certificate: {}",
                                      X509_verify_cert_error_string(verified))
                        : why);
    }
    RETURN_IF_ERROR(Wait(error == SSL_ERROR_WANT_WRITE));
  }
}

absl::Status HttpClient::Fail(absl::Status status) {
  failed_ = true;
  return status;
}

absl::Status HttpClient::Wait(bool write) {
  absl::Status ready = WaitFd(fd_.get(), write ? POLLOUT : POLLIN, timeout_, interrupt_);
  if (!ready.ok()) failed_ = true;
  return ready;
}

absl::StatusOr<size_t> HttpClient::ReadSocket(char* out, size_t n) {
  while (true) {
    bool wait_for_write = false;
    if (ssl_ != nullptr) {
      const int got = SSL_read(ssl_, out, static_cast<int>(n));
      if (got > 0) return static_cast<size_t>(got);
      const int error = SSL_get_error(ssl_, got);
      if (error == SSL_ERROR_ZERO_RETURN) return 0;
      if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
        return Fail(Unavailable("read: " + TakeOpenSslError()));
      wait_for_write = error == SSL_ERROR_WANT_WRITE;
    } else {
      const ssize_t got = ::recv(fd_.get(), out, n, 0);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK)
        return Fail(Unavailable("read: " + ErrnoText(errno)));
    }
    RETURN_IF_ERROR(Wait(wait_for_write));
  }
}

absl::Status HttpClient::WriteAll(std::string_view bytes) {
  if (failed_) return Unavailable("use of closed network connection");
  while (!bytes.empty()) {
    bool wait_for_write = true;
    if (ssl_ != nullptr) {
      constexpr size_t kWriteBytes = 1 << 20;
      const int put =
          SSL_write(ssl_, bytes.data(), static_cast<int>(std::min(bytes.size(), kWriteBytes)));
      if (put > 0) {
        bytes.remove_prefix(static_cast<size_t>(put));
        continue;
      }
      const int error = SSL_get_error(ssl_, put);
      if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
        return Fail(Unavailable("write: " + TakeOpenSslError()));
      wait_for_write = error == SSL_ERROR_WANT_WRITE;
    } else {
      const ssize_t put = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (put >= 0) {
        bytes.remove_prefix(static_cast<size_t>(put));
        continue;
      }
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK)
        return Fail(Unavailable("write: " + ErrnoText(errno)));
    }
    RETURN_IF_ERROR(Wait(wait_for_write));
  }
  return absl::OkStatus();
}

absl::Status HttpClient::SendRequest(const HttpRequest& request) {
  response_ = {};
  got_bytes_ = false;
  body_.clear();
  std::string head = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: engram\r\n",
                                 request.method, request.target, host_);
  for (const auto& [name, value] : request.headers) {
    head.append(name).append(": ").append(value).append("\r\n");
  }
  if (request.body_bytes || !request.body.empty() || request.method == "POST") {
    head += fmt::format("Content-Length: {}\r\n", request.body_bytes.value_or(request.body.size()));
  }
  head += "\r\n";
  head += request.body;
  return WriteAll(head);
}

absl::Status HttpClient::SendBody(std::string_view bytes) { return WriteAll(bytes); }

absl::Status HttpClient::Receive() {
  if (failed_) return Unavailable("use of closed network connection");
  std::string_view bytes;
  std::string left;
  if (!input_.empty()) {
    left.swap(input_);
    bytes = left;
  } else {
    ASSIGN_OR_RETURN(const size_t n, ReadSocket(buffer_.data(), buffer_.size()));
    if (n == 0) {
      const absl::Status ended = response_.OnEof();
      return ended.ok() ? ended : Fail(ended);
    }
    bytes = {buffer_.data(), n};
  }
  got_bytes_ = true;
  const auto taken = response_.Feed(bytes, [this](std::string_view piece) { body_ += piece; });
  if (!taken.ok()) return Fail(taken.status());
  input_.assign(bytes.substr(*taken));
  return absl::OkStatus();
}

absl::StatusOr<HttpResponseHead> HttpClient::ReadHead() {
  while (!response_.head_done()) RETURN_IF_ERROR(Receive());
  return response_.head();
}

absl::StatusOr<std::string_view> HttpClient::ReadSome() {
  while (body_.empty() && !response_.done()) RETURN_IF_ERROR(Receive());
  handed_out_.clear();
  handed_out_.swap(body_);
  return handed_out_;
}

absl::StatusOr<std::string> HttpClient::ReadBody(size_t bytes_max) {
  std::string all;
  while (true) {
    ASSIGN_OR_RETURN(const std::string_view piece, ReadSome());
    if (piece.empty()) return all;
    if (all.size() + piece.size() > bytes_max)
      return Fail(absl::ResourceExhaustedError("response body too large"));
    all += piece;
  }
}

absl::StatusOr<HttpAnswer> FetchOnce(const base::Url& url, const HttpRequest& request,
                                     const HttpClientOptions& options, base::Duration timeout,
                                     size_t body_bytes_max, const Interrupt& interrupt) {
  HttpClientOptions bounded = options;
  bounded.connect_timeout = std::min(options.connect_timeout, timeout);
  ASSIGN_OR_RETURN(const auto client, HttpClient::Connect(url, bounded, interrupt));
  client->set_timeout(timeout);
  RETURN_IF_ERROR(client->SendRequest(request));
  HttpAnswer answer;
  ASSIGN_OR_RETURN(answer.head, client->ReadHead());
  ASSIGN_OR_RETURN(answer.body, client->ReadBody(body_bytes_max));
  return answer;
}

}  // namespace net
