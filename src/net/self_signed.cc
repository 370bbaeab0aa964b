#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <string>

#include "base/files.h"
#include "base/status.h"
#include "net/openssl_ptr.h"
#include "net/tls.h"

namespace net {
namespace {

// The host of "host:port", "[ipv6]:port" or a bare host.
std::string HostOf(const std::string& text) {
  if (!text.empty() && text[0] == '[') return text.substr(1, text.find(']') - 1);
  const size_t colon = text.find(':');
  if (colon == std::string::npos || text.find(':', colon + 1) != std::string::npos) return text;
  return text.substr(0, colon);
}

std::string AlternativeNames(const std::vector<std::string>& hosts) {
  std::string names;
  for (const std::string& entry : hosts) {
    const std::string host = HostOf(entry);
    if (host.empty() || host.find_first_of(",\n") != std::string::npos) continue;
    in6_addr ignored{};
    const bool ip = ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
                    ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
    if (!names.empty()) names += ",";
    names += (ip ? "IP:" : "DNS:") + host;
  }
  return names;
}

bool AddExtension(X509* certificate, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool Fill(X509* certificate, EVP_PKEY* key, const SelfSignedOptions& options, base::Duration now) {
  unsigned char serial[16];
  if (RAND_bytes(serial, sizeof serial) != 1) return false;
  serial[0] &= 0x7f;
  const BignumPtr number(BN_bin2bn(serial, sizeof serial, nullptr));
  if (number == nullptr ||
      BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) == nullptr) {
    return false;
  }
  const time_t begin = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  constexpr time_t kYearSeconds = 365 * 24 * 3600;
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_TIME_set(X509_getm_notBefore(certificate), begin);
  ASN1_TIME_set(X509_getm_notAfter(certificate), begin + options.validity_years * kYearSeconds);
  X509_NAME* name = X509_get_subject_name(certificate);
  if (X509_NAME_add_entry_by_txt(name, "O", MBSTRING_ASC,
                                 reinterpret_cast<const unsigned char*>("etcd"), -1, -1, 0) != 1 ||
      X509_set_issuer_name(certificate, name) != 1 || X509_set_pubkey(certificate, key) != 1) {
    return false;
  }
  const std::string names = AlternativeNames(options.hosts);
  return AddExtension(certificate, NID_key_usage,
                      "critical,digitalSignature,keyEncipherment,cRLSign") &&
         AddExtension(certificate, NID_ext_key_usage, "serverAuth") &&
         AddExtension(certificate, NID_basic_constraints, "critical,CA:TRUE") &&
         (names.empty() || AddExtension(certificate, NID_subject_alt_name, names)) &&
         X509_sign(certificate, key, EVP_sha512()) > 0;
}

std::string Contents(BIO* bio) {
  char* data = nullptr;
  const long n = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(n)};
}

}  // namespace

absl::StatusOr<CertificatePair> EnsureSelfSigned(const SelfSignedOptions& options,
                                                 base::Duration now) {
  base::Files& files = base::PosixFiles();
  const CertificatePair pair = {base::JoinPath(options.directory, "cert.pem"),
                                base::JoinPath(options.directory, "key.pem")};
  if (base::Exists(files, pair.cert_file) && base::Exists(files, pair.key_file)) return pair;
  if (options.validity_years < 1) {
    return absl::InvalidArgumentError(
        "selfSignedCertValidity is invalid,it should be greater than 0");
  }
  RETURN_IF_ERROR(base::MakeDirectories(files, options.directory, 0700));
  ERR_clear_error();
  const KeyPtr key(EVP_EC_gen("P-521"));
  const X509Ptr certificate(X509_new());
  const BioPtr cert_pem(BIO_new(BIO_s_mem()));
  const BioPtr key_pem(BIO_new(BIO_s_mem()));
  if (key == nullptr || certificate == nullptr || cert_pem == nullptr || key_pem == nullptr ||
      !Fill(certificate.get(), key.get(), options, now) ||
      PEM_write_bio_X509(cert_pem.get(), certificate.get()) != 1 ||
      PEM_write_bio_PrivateKey_traditional(key_pem.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                           nullptr) != 1) {
    return base::MakeStatus(absl::StatusCode::kInternal, "self-signed certificate: {}",
                            TakeOpenSslError());
  }
  // The key first: a certificate without its key would be taken for a pair that is whole.
  RETURN_IF_ERROR(base::WriteFileAtomically(files, pair.key_file, Contents(key_pem.get()), 0600));
  RETURN_IF_ERROR(base::WriteFileAtomically(files, pair.cert_file, Contents(cert_pem.get()), 0600));
  return pair;
}

}  // namespace net
