// X.509 certificates and private keys as the check sees them, over OpenSSL. Internal to this
// folder; values, thread-safe as such.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bundle {

struct FreeCertificate {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Certificate = std::unique_ptr<X509, FreeCertificate>;
using Key = std::unique_ptr<EVP_PKEY, FreeKey>;

// What the PEM blocks of one text hold.
struct Pem {
  std::vector<Certificate> certificates;  // in order; the first is the holder's own
  Key private_key;                        // the first one
  Key public_key;                         // the first one
  bool has_private_key = false;           // a block says so, whether or not it could be read
  std::vector<std::string> faults;        // of blocks that do not parse
};
// Encrypted private keys are not opened: they are a fault that says so.
Pem ParsePem(std::string_view text);

// "CN=etcd-server", one line.
std::string NameText(const X509_NAME* name);

}  // namespace bundle
