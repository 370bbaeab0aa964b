// TLS on the server side: what the certificate flags mean, files re-read when they change, client
// checks, self-signed certificates. Thread rule: TlsServer is thread-safe; the free functions too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace net {

struct TlsOptions {
  std::string cert_file;  // PEM chain, leaf first
  std::string key_file;   // PEM
  // PEM bundle the client's certificate must chain to. Its presence alone makes client certificates
  // mandatory.
  std::string trusted_ca_file;
  // Client certificates mandatory; without trusted_ca_file the system's roots are trusted.
  bool client_cert_auth = false;
  std::vector<std::string>
      allowed_common_names;  // when not empty, the verified leaf's CN must be one of them
  std::vector<std::string>
      allowed_hostnames;  // when not empty, the verified leaf must be valid for one of them
  // Serials listed here are refused. DER or PEM; re-read on each handshake; its dates are ignored,
  // as is its signature.
  std::string crl_file;
  // The client certificate's SANs must fit the remote address (peer and metrics listeners): an
  // equal IP SAN, or a DNS SAN that resolves to it; a certificate without SANs passes.
  bool check_client_san = false;
  std::string min_version = "TLS1.2";      // "TLS1.2" or "TLS1.3"
  std::string max_version;                 // empty: the newest
  std::vector<std::string> cipher_suites;  // IANA (Go) names; TLS 1.2 only; empty: a good default
  // Protocols to select by ALPN, most wanted first. A client that offers only others gets the alert
  // no_application_protocol. Empty: ALPN is ignored.
  std::vector<std::string> alpn = {"h2", "http/1.1"};
};

// The first problem of the versions and cipher suites with the reference's text, e.g. `unexpected
// TLS cipher suite "ZZZ"`.
absl::Status CheckTlsOptions(const TlsOptions& options);
// The OpenSSL name of a cipher suite's IANA name; empty when unknown.
std::string_view OpenSslCipherName(std::string_view iana_name);

class TlsServer {
 public:
  // Loads all files once, so that a broken set-up fails at start (NotFound, InvalidArgument with
  // the file's name).
  static absl::StatusOr<std::shared_ptr<TlsServer>> Create(TlsOptions options);
  ~TlsServer();
  const TlsOptions& options() const { return options_; }
  // The context for a new handshake, with the files as they are now. When a changed file cannot be
  // used this is the error, and the handshake must fail, as in the reference. The pointer is a
  // counted reference.
  absl::StatusOr<std::shared_ptr<ssl_ctx_st>> Context();
  struct State;  // internal

 private:
  friend struct TlsServerAccess;
  explicit TlsServer(TlsOptions options);
  const TlsOptions options_;
  std::unique_ptr<State> state_;
};

struct SelfSignedOptions {
  std::string directory;  // cert.pem and key.pem go here; created when missing
  std::vector<std::string>
      hosts;  // SANs: IP addresses and names; an entry "host:port" loses its port
  int validity_years = 1;
};
struct CertificatePair {
  std::string cert_file;
  std::string key_file;
};
// Makes a self-signed ECDSA P-521 certificate (O=etcd, CA, serverAuth + the hosts as SANs) unless
// the directory already holds a pair, which is then used as it is. `now` is wall time since the
// epoch.
absl::StatusOr<CertificatePair> EnsureSelfSigned(const SelfSignedOptions& options,
                                                 base::Duration now);

}  // namespace net
