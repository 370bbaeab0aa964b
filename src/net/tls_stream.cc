#include "net/tls_stream.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <openssl/err.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "net/tls_state.h"

namespace net {
namespace {

// Alerts of the peer in the words of Go's crypto/tls.
std::string_view AlertText(int alert) {
  switch (alert) {
    case 0:
      return "close notify";
    case 10:
      return "unexpected message";
    case 20:
      return "bad record MAC";
    case 21:
      return "decryption failed";
    case 22:
      return "record overflow";
    case 30:
      return "decompression failure";
    case 40:
      return "handshake failure";
    case 42:
      return "bad certificate";
    case 43:
      return "unsupported certificate";
    case 44:
      return "revoked certificate";
    case 45:
      return "expired certificate";
    case 46:
      return "unknown certificate";
    case 47:
      return "illegal parameter";
    case 48:
      return "unknown certificate authority";
    case 49:
      return "access denied";
    case 50:
      return "error decoding message";
    case 51:
      return "error decrypting message";
    case 60:
      return "export restriction";
    case 70:
      return "protocol version not supported";
    case 71:
      return "insufficient security level";
    case 80:
      return "internal error";
    case 86:
      return "inappropriate fallback";
    case 90:
      return "user canceled";
    case 100:
      return "no renegotiation";
    case 109:
      return "missing extension";
    case 110:
      return "unsupported extension";
    case 111:
      return "certificate unobtainable";
    case 112:
      return "unrecognized name";
    case 113:
      return "bad certificate status response";
    case 114:
      return "bad certificate hash value";
    case 115:
      return "unknown PSK identity";
    case 116:
      return "certificate required";
    case 120:
      return "no application protocol";
    default:
      return "";
  }
}

std::string VerifyText(int error) {
  std::string text = "tls: failed to verify certificate: x509: ";
  switch (error) {
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_UNTRUSTED:
      return text + "certificate signed by unknown authority";
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return text + "certificate has expired or is not yet valid";
    case X509_V_ERR_INVALID_PURPOSE:
      return text + "certificate specifies an incompatible key usage";
    default:
      return text + X509_verify_cert_error_string(error);
  }
}

std::string CommonNameOf(X509* certificate) {
  X509_NAME* subject = X509_get_subject_name(certificate);
  int last = -1;
  for (int i = -1; (i = X509_NAME_get_index_by_NID(subject, NID_commonName, i)) >= 0;) last = i;
  if (last < 0) return "";
  unsigned char* utf8 = nullptr;
  const int n =
      ASN1_STRING_to_UTF8(&utf8, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, last)));
  if (n < 0) return "";
  std::string name(reinterpret_cast<const char*>(utf8), static_cast<size_t>(n));
  OPENSSL_free(utf8);
  return name;
}

bool IsValidFor(X509* certificate, const std::string& host) {
  in6_addr ignored{};
  if (::inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
      ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1) {
    return X509_check_ip_asc(certificate, host.c_str(), 0) == 1;
  }
  return X509_check_host(certificate, host.data(), host.size(), X509_CHECK_FLAG_NEVER_CHECK_SUBJECT,
                         nullptr) == 1;
}

// How the SANs of a client certificate relate to the address it connects from.
struct SanMatch {
  bool good = false;
  std::vector<std::string> names;  // to resolve when not good yet
};

SanMatch MatchSans(X509* certificate, const std::string& remote_ip) {
  SanMatch match;
  const NamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  bool any_ip = false;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_IPADD) any_ip = true;
    if (name->type != GEN_DNS) continue;
    match.names.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                             static_cast<size_t>(ASN1_STRING_length(name->d.dNSName)));
  }
  if (!any_ip && match.names.empty()) {
    match.good = true;
  } else if (any_ip && X509_check_ip_asc(certificate, remote_ip.c_str(), 0) == 1) {
    match.good = true;
    match.names.clear();
  }
  return match;
}

bool NameMatches(std::string_view pattern, std::string_view name) {
  while (!name.empty() && name.back() == '.') name.remove_suffix(1);
  if (pattern == name) return true;
  if (!pattern.starts_with("*.")) return false;
  const size_t dot = name.find('.');
  return dot != std::string_view::npos && name.substr(dot) == pattern.substr(1);
}

int BioRead(BIO* bio, char* out, int n);
int BioWrite(BIO* bio, const char* data, int n);

long BioControl(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO_METHOD* Method() {
  static BIO_METHOD* method = [] {
    BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "engram");
    CHECK(m != nullptr);
    BIO_meth_set_read(m, BioRead);
    BIO_meth_set_write(m, BioWrite);
    BIO_meth_set_ctrl(m, BioControl);
    return m;
  }();
  return method;
}

}  // namespace

struct TlsCallbacks {
  static TlsStream* Stream(const SSL* ssl) {
    return static_cast<TlsStream*>(SSL_get_app_data(ssl));
  }

  static int Read(BIO* bio, char* out, int n) {
    auto* stream = static_cast<TlsStream*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    if (stream->raw_in_.empty()) {
      BIO_set_retry_read(bio);
      return -1;
    }
    const size_t taken = std::min(static_cast<size_t>(n), stream->raw_in_.size());
    std::memcpy(out, stream->raw_in_.data(), taken);
    stream->raw_in_.remove_prefix(taken);
    return static_cast<int>(taken);
  }

  static int Write(BIO* bio, const char* data, int n) {
    auto* stream = static_cast<TlsStream*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    stream->raw_out_->Append(std::string_view(data, static_cast<size_t>(n)));
    return n;
  }

  static int SelectAlpn(SSL*, const unsigned char** out, unsigned char* out_length,
                        const unsigned char* offered, unsigned offered_length, void* arg) {
    const auto& wanted = *static_cast<const std::vector<std::string>*>(arg);
    bool offers_http1 = false;
    for (const std::string& protocol : wanted) {
      for (unsigned i = 0; i < offered_length && i + 1U + offered[i] <= offered_length;
           i += offered[i] + 1U) {
        const std::string_view name(reinterpret_cast<const char*>(offered + i + 1), offered[i]);
        if (name == "http/1.1") offers_http1 = true;
        if (name != protocol) continue;
        *out = offered + i + 1;
        *out_length = offered[i];
        return SSL_TLSEXT_ERR_OK;
      }
    }
    // As in Go: a server that speaks HTTP/2 only lets a client that offers HTTP/1.1 in without a
    // protocol.
    return offers_http1 ? SSL_TLSEXT_ERR_NOACK : SSL_TLSEXT_ERR_ALERT_FATAL;
  }

  // Called for each certificate of the chain, the leaf last.
  static int Verify(int good, X509_STORE_CTX* context) {
    auto* ssl = static_cast<SSL*>(
        X509_STORE_CTX_get_ex_data(context, SSL_get_ex_data_X509_STORE_CTX_idx()));
    TlsStream* stream = Stream(ssl);
    if (good != 1) {
      if (stream->verify_error_.empty()) {
        stream->verify_error_ = VerifyText(X509_STORE_CTX_get_error(context));
      }
      return 0;
    }
    if (X509_STORE_CTX_get_error_depth(context) != 0) return 1;
    std::string problem = CheckClient(*stream, context);
    if (problem.empty()) return 1;
    stream->verify_error_ = std::move(problem);
    X509_STORE_CTX_set_error(context, X509_V_ERR_CERT_REJECTED);
    return 0;
  }

  // What we ask beyond a valid chain. Empty when all is well, else what is wrong.
  static std::string CheckClient(TlsStream& stream, X509_STORE_CTX* context) {
    const TlsOptions& options = stream.server_->options();
    X509* leaf = X509_STORE_CTX_get_current_cert(context);
    if (!options.crl_file.empty()) {
      const auto revoked = TlsServerAccess::StateOf(*stream.server_).Revoked(options.crl_file);
      if (!revoked.ok()) return std::string(base::Message(revoked.status()));
      const auto listed = [&](STACK_OF(X509) * certificates) {
        for (int i = 0; i < sk_X509_num(certificates); ++i) {
          const std::string serial =
              SerialHex(X509_get0_serialNumber(sk_X509_value(certificates, i)));
          if ((*revoked)->contains(serial)) return true;
        }
        return false;
      };
      if (listed(X509_STORE_CTX_get0_untrusted(context)) ||
          listed(X509_STORE_CTX_get0_chain(context))) {
        return "transport: certificate serial " + SerialHex(X509_get0_serialNumber(leaf)) +
               " revoked";
      }
    }
    const auto& names = options.allowed_common_names;
    if (!names.empty() &&
        std::find(names.begin(), names.end(), CommonNameOf(leaf)) == names.end()) {
      return "client certificate authentication failed";
    }
    const auto& hosts = options.allowed_hostnames;
    if (!hosts.empty() && std::none_of(hosts.begin(), hosts.end(), [&](const std::string& host) {
          return IsValidFor(leaf, host);
        })) {
      return "client certificate authentication failed";
    }
    if (options.check_client_san && !stream.remote_ip_.empty()) {
      SanMatch match = MatchSans(leaf, stream.remote_ip_);
      if (!match.good && match.names.empty()) {
        return "tls: \"" + stream.remote_ip_ +
               "\" does not match any of the certificate's IP addresses";
      }
      stream.names_to_resolve_ = std::move(match.names);
      if (match.good) stream.names_to_resolve_.clear();
    }
    return "";
  }
};

namespace {
int BioRead(BIO* bio, char* out, int n) { return TlsCallbacks::Read(bio, out, n); }
int BioWrite(BIO* bio, const char* data, int n) { return TlsCallbacks::Write(bio, data, n); }
}  // namespace

void SetUpTlsCallbacks(SSL_CTX* context, const TlsOptions& options) {
  if (!options.alpn.empty()) {
    // The options live as long as the TlsServer, which every TlsStream holds.
    SSL_CTX_set_alpn_select_cb(context, TlsCallbacks::SelectAlpn,
                               const_cast<std::vector<std::string>*>(&options.alpn));
  }
  if (options.client_cert_auth || !options.trusted_ca_file.empty()) {
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       TlsCallbacks::Verify);
  }
}

TlsStream::TlsStream(std::shared_ptr<TlsServer> server, std::shared_ptr<ssl_ctx_st> context,
                     std::string remote_ip)
    : server_(std::move(server)),
      context_(std::move(context)),
      remote_ip_(std::move(remote_ip)),
      ssl_(SSL_new(context_.get())) {
  CHECK(ssl_ != nullptr);
  BIO* bio = BIO_new(Method());
  CHECK(bio != nullptr);
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);  // owns it
  SSL_set_app_data(ssl_, this);
  SSL_set_accept_state(ssl_);
}

TlsStream::~TlsStream() { SSL_free(ssl_); }

absl::Status TlsStream::Handshake() {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  if (result == 1) {
    handshake_done_ = true;
    return absl::OkStatus();
  }
  if (SSL_get_error(ssl_, result) == SSL_ERROR_WANT_READ) return absl::OkStatus();
  return Failure(result);
}

absl::Status TlsStream::Failure(int result) {
  failed_ = true;
  const int kind = SSL_get_error(ssl_, result);
  const unsigned long code = ERR_peek_last_error();
  const int reason = ERR_GET_REASON(code);
  std::string text;
  if (kind != SSL_ERROR_SSL && code == 0) {
    text = "EOF";
  } else if (reason > SSL_AD_REASON_OFFSET && reason <= SSL_AD_REASON_OFFSET + 255) {
    const int alert = reason - SSL_AD_REASON_OFFSET;
    const std::string_view name = AlertText(alert);
    text = name.empty() ? fmt::format("remote error: tls: alert({})", alert)
                        : fmt::format("remote error: tls: {}", name);
  } else {
    switch (reason) {
      case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
        text = "tls: client didn't provide a certificate";
        break;
      case SSL_R_CERTIFICATE_VERIFY_FAILED:
        text = verify_error_.empty() ? VerifyText(static_cast<int>(SSL_get_verify_result(ssl_)))
                                     : verify_error_;
        break;
      case SSL_R_HTTP_REQUEST:
      case SSL_R_HTTPS_PROXY_REQUEST:
      case SSL_R_WRONG_VERSION_NUMBER:
        text = "tls: first record does not look like a TLS handshake";
        break;
      case SSL_R_NO_SHARED_CIPHER:
        text = "tls: no cipher suite supported by both client and server";
        break;
      case SSL_R_UNSUPPORTED_PROTOCOL:
      case SSL_R_VERSION_TOO_LOW:
        text = "tls: client offered only unsupported versions";
        break;
      case SSL_R_NO_APPLICATION_PROTOCOL:
        text = "tls: client requested unsupported application protocols";
        break;
      default:
        text = "tls: " + TakeOpenSslError();
        break;
    }
  }
  ERR_clear_error();
  return absl::Status(absl::StatusCode::kUnauthenticated, base::ToAbsl(text));
}

absl::Status TlsStream::OnInput(std::string_view raw, OutputQueue* raw_out,
                                absl::FunctionRef<void(std::string_view)> on_plain) {
  if (failed_ || closed_by_peer_) return absl::OkStatus();
  raw_in_ = raw;
  raw_out_ = raw_out;
  if (!handshake_done_) {
    RETURN_IF_ERROR(Handshake());
    if (!handshake_done_) return absl::OkStatus();
  }
  // A record holds 16 KiB at most, so one call never returns more.
  thread_local const std::unique_ptr<char[]> buffer(new char[16 << 10]);
  for (;;) {
    ERR_clear_error();
    size_t n = 0;
    const int result = SSL_read_ex(ssl_, buffer.get(), 16 << 10, &n);
    if (result == 1) {
      on_plain({buffer.get(), n});
      raw_out_ = raw_out;  // whoever was called may have used this object
      continue;
    }
    switch (SSL_get_error(ssl_, result)) {
      case SSL_ERROR_WANT_READ:
        return absl::OkStatus();
      case SSL_ERROR_ZERO_RETURN:
        closed_by_peer_ = true;
        return absl::OkStatus();
      default:
        return Failure(result);
    }
  }
}

absl::Status TlsStream::Encrypt(OutputQueue* plain, OutputQueue* raw_out, size_t raw_bytes_max) {
  if (!handshake_done_ || failed_) return absl::OkStatus();
  raw_out_ = raw_out;
  while (!plain->empty() && raw_out->size() < raw_bytes_max) {
    const std::string_view front = plain->Front();
    ERR_clear_error();
    size_t n = 0;
    const int result = SSL_write_ex(ssl_, front.data(), front.size(), &n);
    if (result != 1) return Failure(result);
    plain->Consume(n);
  }
  return absl::OkStatus();
}

void TlsStream::CloseNotify(OutputQueue* raw_out) {
  if (!handshake_done_ || failed_) return;
  raw_out_ = raw_out;
  ERR_clear_error();
  SSL_shutdown(ssl_);
  ERR_clear_error();
}

std::string_view TlsStream::alpn() const {
  const unsigned char* name = nullptr;
  unsigned length = 0;
  SSL_get0_alpn_selected(ssl_, &name, &length);
  return {reinterpret_cast<const char*>(name), length};
}

std::string TlsStream::server_name() const {
  const char* name = SSL_get_servername(ssl_, TLSEXT_NAMETYPE_host_name);
  return name == nullptr ? "" : name;
}

bool TlsStream::verified_client_certificate() const {
  return SSL_get0_peer_certificate(ssl_) != nullptr && SSL_get_verify_result(ssl_) == X509_V_OK &&
         SSL_get_verify_mode(ssl_) != SSL_VERIFY_NONE;
}

std::string TlsStream::common_name() const {
  return verified_client_certificate() ? CommonNameOf(SSL_get0_peer_certificate(ssl_)) : "";
}

bool ResolvesTo(const std::vector<std::string>& names, const std::string& ip) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* remote = nullptr;
  if (::getaddrinfo(ip.c_str(), nullptr, &hints, &remote) != 0) return false;
  char host[NI_MAXHOST] = "";
  bool good = false;
  if (::getnameinfo(remote->ai_addr, remote->ai_addrlen, host, sizeof host, nullptr, 0,
                    NI_NAMEREQD) == 0) {
    for (const std::string& name : names) good |= NameMatches(name, host);
  }
  ::freeaddrinfo(remote);
  hints.ai_flags = 0;
  for (const std::string& name : names) {
    if (good) break;
    if (name.starts_with("*.")) continue;
    addrinfo* found = nullptr;
    if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) continue;
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
      if (::getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST) ==
              0 &&
          ip == host) {
        good = true;
      }
    }
    ::freeaddrinfo(found);
  }
  return good;
}

}  // namespace net
