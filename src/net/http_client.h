// A blocking HTTP/1.1 client connection, plain or TLS, for threads that may wait: members talking
// to each other. Never for a loop. One thread at a time; only Interrupt is for others.
//
//   auto connection = HttpClient::Connect(url, options, interrupt);
//   (*connection)->set_timeout(5s);
//   (*connection)->SendRequest({.method = "GET", .target = "/version"});
//   auto head = (*connection)->ReadHead();
//   auto body = (*connection)->ReadBody(64 << 10);
//
// Errors are Unavailable in the words of Go's net package ("dial tcp 127.0.0.1:2380: connect:
// connection refused"), DeadlineExceeded "i/o timeout", Cancelled when interrupted. After an error
// the connection is of no use.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/urls.h"
#include "net/http1_response.h"
#include "net/sockets.h"

struct ssl_st;

namespace net {

// Ends the waits of the threads that were given it. Thread-safe.
class Interrupt {
 public:
  Interrupt();
  // For good.
  void Set();
  bool is_set() const;
  // Waits; true when it was cut short.
  bool WaitFor(base::Duration duration) const;
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;  // an eventfd, readable once set
};

struct TlsClientOptions {
  std::string cert_file;  // shown to the server when it asks; may be empty
  std::string key_file;
  std::string trusted_ca_file;  // empty: the system's roots
  std::string server_name;      // the name to check instead of the URL's host
  bool skip_verify = false;
  std::string min_version = "TLS1.2";
  std::string max_version;                 // empty: the newest
  std::vector<std::string> cipher_suites;  // IANA names; empty: a good default
};

struct HttpClientOptions {
  base::Duration connect_timeout = std::chrono::seconds(5);  // the handshake included
  TlsClientOptions tls;                                      // for https and unixs
};

struct HttpRequest {
  std::string method = "GET";
  std::string target;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  // Of a body that is sent by SendBody afterwards; `body` must then be empty.
  std::optional<uint64_t> body_bytes;
};

class HttpClient {
 public:
  // Tries the addresses of the URL's host one after the other. `interrupt` outlives the connection.
  static absl::StatusOr<std::unique_ptr<HttpClient>> Connect(const base::Url& url,
                                                             const HttpClientOptions& options,
                                                             const Interrupt& interrupt);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // How long each of the following calls may take without progress.
  void set_timeout(base::Duration timeout) { timeout_ = timeout; }
  absl::Status SendRequest(const HttpRequest& request);
  absl::Status SendBody(std::string_view bytes);
  absl::StatusOr<HttpResponseHead> ReadHead();
  // The next piece of the body, valid until the next call; empty at its end.
  absl::StatusOr<std::string_view> ReadSome();
  // What is left of the body. ResourceExhausted when it is longer than `bytes_max`.
  absl::StatusOr<std::string> ReadBody(size_t bytes_max);
  // Whether another request may be sent: the response was read to its end and the server agrees.
  bool reusable() const { return !failed_ && response_.done() && response_.keep_alive(); }
  // Whether any byte of the response to the last request came.
  bool got_bytes() const { return got_bytes_; }

 private:
  HttpClient(const Interrupt& interrupt, std::string host);
  absl::Status StartTls(const TlsClientOptions& options, const std::string& host);
  absl::Status Wait(bool write);
  absl::StatusOr<size_t> ReadSocket(char* out, size_t n);
  absl::Status WriteAll(std::string_view bytes);
  absl::Status Receive();
  absl::Status Fail(absl::Status status);

  const Interrupt& interrupt_;
  const std::string host_;  // the Host header
  Fd fd_;
  ssl_st* ssl_ = nullptr;
  base::Duration timeout_ = std::chrono::seconds(5);
  std::vector<char> buffer_;
  std::string input_;  // received beyond the present response
  std::string body_;   // received and not handed out
  std::string handed_out_;
  Http1Response response_;
  bool got_bytes_ = false;
  bool failed_ = false;
};

// One request on a connection of its own, body and all.
struct HttpAnswer {
  HttpResponseHead head;
  std::string body;
};
absl::StatusOr<HttpAnswer> FetchOnce(const base::Url& url, const HttpRequest& request,
                                     const HttpClientOptions& options, base::Duration timeout,
                                     size_t body_bytes_max, const Interrupt& interrupt);

}  // namespace net
