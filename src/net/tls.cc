#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <array>
#include <utility>

#include "base/files.h"
#include "base/status.h"
#include "net/tls_state.h"

namespace net {
namespace {

struct CipherName {
  std::string_view iana;
  std::string_view openssl;
};

// TLS 1.2 suites by the names Go knows them by, the two legacy ones for ChaCha20 included. Those of
// TLS 1.3 are accepted too and mean nothing: they are always on.
constexpr std::array<CipherName, 26> kCiphers = {{
    {"TLS_RSA_WITH_3DES_EDE_CBC_SHA", "DES-CBC3-SHA"},
    {"TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"},
    {"TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"},
    {"TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"},
    {"TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"},
    {"TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"},
    {"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "ECDHE-ECDSA-AES128-SHA"},
    {"TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "ECDHE-ECDSA-AES256-SHA"},
    {"TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA", "ECDHE-RSA-DES-CBC3-SHA"},
    {"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"},
    {"TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", "ECDHE-RSA-AES256-SHA"},
    {"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"},
    {"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"},
    {"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"},
    {"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"},
    {"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"},
    {"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"},
    {"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"},
    {"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"},
    {"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "ECDHE-RSA-CHACHA20-POLY1305"},
    {"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "ECDHE-ECDSA-CHACHA20-POLY1305"},
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"},
    {"TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"},
    {"TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"},
    {"TLS_RSA_WITH_RC4_128_SHA", "RC4-SHA"},
    {"TLS_ECDHE_RSA_WITH_RC4_128_SHA", "ECDHE-RSA-RC4-SHA"},
}};

constexpr const char* kDefaultCiphers =
    "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:!aNULL:!SHA256:!SHA384";

// 0: not a version we know.
int VersionNumber(std::string_view name) {
  if (name == "TLS1.2") return TLS1_2_VERSION;
  if (name == "TLS1.3") return TLS1_3_VERSION;
  return 0;
}

absl::Status FileError(std::string_view what, const std::string& file) {
  return base::MakeStatus(absl::StatusCode::kInvalidArgument, "{} {}: {}", what, file,
                          TakeOpenSslError());
}

absl::Status LoadPair(SSL_CTX* context, const TlsOptions& options) {
  RETURN_IF_ERROR(base::ReadFile(base::PosixFiles(), options.cert_file).status());
  RETURN_IF_ERROR(base::ReadFile(base::PosixFiles(), options.key_file).status());
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(context, options.cert_file.c_str()) != 1) {
    return FileError("certificate file", options.cert_file);
  }
  if (SSL_CTX_use_PrivateKey_file(context, options.key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    return FileError("key file", options.key_file);
  }
  if (SSL_CTX_check_private_key(context) != 1) {
    return FileError("private key does not match the certificate", options.key_file);
  }
  return absl::OkStatus();
}

absl::Status LoadAuthorities(SSL_CTX* context, const TlsOptions& options) {
  if (options.trusted_ca_file.empty()) {
    if (!options.client_cert_auth) return absl::OkStatus();
    if (SSL_CTX_set_default_verify_paths(context) != 1) {
      return base::MakeStatus(absl::StatusCode::kInternal, "system certificates: {}",
                              TakeOpenSslError());
    }
  } else {
    RETURN_IF_ERROR(base::ReadFile(base::PosixFiles(), options.trusted_ca_file).status());
    ERR_clear_error();
    if (SSL_CTX_load_verify_locations(context, options.trusted_ca_file.c_str(), nullptr) != 1) {
      return FileError("CA file", options.trusted_ca_file);
    }
    STACK_OF(X509_NAME)* names = SSL_load_client_CA_file(options.trusted_ca_file.c_str());
    if (names == nullptr) return FileError("CA file", options.trusted_ca_file);
    SSL_CTX_set_client_CA_list(context, names);
  }
  SSL_CTX_set_verify_depth(context, 16);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SSL_CTX>> MakeContext(const TlsOptions& options) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr) return absl::InternalError(base::ToAbsl(TakeOpenSslError()));
  SSL_CTX_set_min_proto_version(context.get(), VersionNumber(options.min_version));
  SSL_CTX_set_max_proto_version(context.get(), VersionNumber(options.max_version));
  std::string ciphers;
  for (const std::string& name : options.cipher_suites) {
    if (name.starts_with("TLS_AES_") || name.starts_with("TLS_CHACHA20_")) continue;
    if (!ciphers.empty()) ciphers += ":";
    ciphers += OpenSslCipherName(name);
  }
  if (options.cipher_suites.empty()) ciphers = kDefaultCiphers;
  // A list of nothing but suites this OpenSSL was built without leaves TLS 1.3 only.
  if (ciphers.empty() || SSL_CTX_set_cipher_list(context.get(), ciphers.c_str()) != 1) {
    SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
    ERR_clear_error();
  }
  // A resumed session would not show its certificate again, so a certificate revoked or an
  // authority dropped since would still pass: every connection makes a full handshake.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION |
                                         SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                         SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  RETURN_IF_ERROR(LoadPair(context.get(), options));
  RETURN_IF_ERROR(LoadAuthorities(context.get(), options));
  SetUpTlsCallbacks(context.get(), options);
  return context;
}

}  // namespace

std::string TakeOpenSslError() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  if (code == 0) return "unknown error";
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : fmt::format("error {:x}", code);
}

FileStamp StampOf(const std::string& path) {
  struct stat info {};
  if (path.empty() || ::stat(path.c_str(), &info) != 0) return {};
  FileStamp stamp;
  stamp.inode = info.st_ino;
  stamp.size = info.st_size;
  stamp.modified_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
  stamp.changed_ns = info.st_ctim.tv_sec * 1'000'000'000 + info.st_ctim.tv_nsec;
  return stamp;
}

std::string SerialHex(const ASN1_INTEGER* serial) {
  const BignumPtr number(ASN1_INTEGER_to_BN(serial, nullptr));
  if (number == nullptr) return "";
  char* hex = BN_bn2hex(number.get());
  if (hex == nullptr) return "";
  std::string text = hex;
  OPENSSL_free(hex);
  return text;
}

std::string_view OpenSslCipherName(std::string_view iana_name) {
  for (const CipherName& cipher : kCiphers) {
    if (cipher.iana == iana_name) return cipher.openssl;
  }
  return {};
}

absl::Status CheckTlsOptions(const TlsOptions& options) {
  for (const std::string& version : {options.min_version, options.max_version}) {
    if (version.empty() || VersionNumber(version) != 0) continue;
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "unexpected TLS version \"{}\" (must be one of: TLS1.2, TLS1.3)",
                            version);
  }
  if (!options.max_version.empty() &&
      VersionNumber(options.min_version) > VersionNumber(options.max_version)) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "min version ({}) is greater than max version ({})",
                            options.min_version, options.max_version);
  }
  if (options.min_version == "TLS1.3" && !options.cipher_suites.empty()) {
    return absl::InvalidArgumentError(
        "cipher suites cannot be configured when only TLS1.3 is enabled");
  }
  for (const std::string& name : options.cipher_suites) {
    if (!OpenSslCipherName(name).empty()) continue;
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "unexpected TLS cipher suite \"{}\"", name);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const SerialSet>> TlsServer::State::Revoked(
    const std::string& crl_file) {
  std::lock_guard lock(mutex);
  const FileStamp stamp = StampOf(crl_file);
  if (revoked != nullptr && stamp == crl_stamp) return revoked;
  revoked = nullptr;
  ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(base::PosixFiles(), crl_file));
  auto serials = std::make_shared<SerialSet>();
  const auto add = [&](X509_CRL* list) {
    STACK_OF(X509_REVOKED)* entries = X509_CRL_get_REVOKED(list);
    for (int i = 0; i < sk_X509_REVOKED_num(entries); ++i) {
      serials->insert(SerialHex(X509_REVOKED_get0_serialNumber(sk_X509_REVOKED_value(entries, i))));
    }
  };
  ERR_clear_error();
  const auto* der = reinterpret_cast<const unsigned char*>(bytes.data());
  if (const X509CrlPtr list(d2i_X509_CRL(nullptr, &der, static_cast<long>(bytes.size())));
      list != nullptr) {
    add(list.get());
  } else {
    const BioPtr bio(BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())));
    int lists = 0;
    for (;;) {
      const X509CrlPtr next(PEM_read_bio_X509_CRL(bio.get(), nullptr, nullptr, nullptr));
      if (next == nullptr) break;
      add(next.get());
      ++lists;
    }
    ERR_clear_error();
    if (lists == 0) {
      return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                              "CRL file {}: neither DER nor PEM", crl_file);
    }
  }
  revoked = std::move(serials);
  crl_stamp = stamp;
  return revoked;
}

TlsServer::State& TlsServerAccess::StateOf(TlsServer& server) { return *server.state_; }

TlsServer::TlsServer(TlsOptions options)
    : options_(std::move(options)), state_(std::make_unique<State>()) {}
TlsServer::~TlsServer() = default;

absl::StatusOr<std::shared_ptr<TlsServer>> TlsServer::Create(TlsOptions options) {
  RETURN_IF_ERROR(CheckTlsOptions(options));
  std::shared_ptr<TlsServer> server(new TlsServer(std::move(options)));
  RETURN_IF_ERROR(server->Context().status());
  return server;
}

absl::StatusOr<std::shared_ptr<ssl_ctx_st>> TlsServer::Context() {
  std::vector<FileStamp> stamps = {StampOf(options_.cert_file), StampOf(options_.key_file),
                                   StampOf(options_.trusted_ca_file)};
  std::lock_guard lock(state_->mutex);
  if (state_->context != nullptr && stamps == state_->stamps) return state_->context;
  state_->context = nullptr;
  ASSIGN_OR_RETURN(state_->context, MakeContext(options_));
  state_->stamps = std::move(stamps);
  return state_->context;
}

}  // namespace net
