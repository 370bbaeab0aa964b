#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include "bundle/certificates.h"

namespace bundle {
namespace {

struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Bio = std::unique_ptr<BIO, FreeBio>;

Bio MemoryBio(std::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// OpenSSL would ask on the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

void ReadBlock(std::string_view label, std::string_view block, Pem* pem) {
  const Bio bio = MemoryBio(block);
  ERR_clear_error();
  if (label == "CERTIFICATE" || label == "TRUSTED CERTIFICATE") {
    Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr));
    if (certificate == nullptr) {
      pem->faults.emplace_back("a certificate in it does not parse");
    } else {
      pem->certificates.push_back(std::move(certificate));
    }
  } else if (label.ends_with("PRIVATE KEY")) {
    pem->has_private_key = true;
    const bool encrypted = label.starts_with("ENCRYPTED") ||
                           block.find("Proc-Type: 4,ENCRYPTED") != std::string_view::npos;
    Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
    if (key == nullptr) {
      pem->faults.emplace_back(encrypted
                                   ? "its private key is encrypted with a password: whether it "
                                     "fits cannot be said"
                                   : "its private key does not parse");
    } else if (pem->private_key == nullptr) {
      pem->private_key = std::move(key);
    }
  } else if (label == "PUBLIC KEY") {
    Key key(PEM_read_bio_PUBKEY(bio.get(), nullptr, NoPassword, nullptr));
    if (key == nullptr) {
      pem->faults.emplace_back("its public key does not parse");
    } else if (pem->public_key == nullptr) {
      pem->public_key = std::move(key);
    }
  }
  ERR_clear_error();
}

}  // namespace

Pem ParsePem(std::string_view text) {
  constexpr std::string_view kBegin = "-----BEGIN ";
  constexpr std::string_view kDashes = "-----";
  Pem pem;
  while (true) {
    const size_t begin = text.find(kBegin);
    if (begin == std::string_view::npos) return pem;
    text.remove_prefix(begin);
    const size_t label_end = text.find(kDashes, kBegin.size());
    if (label_end == std::string_view::npos) return pem;
    const std::string label(text.substr(kBegin.size(), label_end - kBegin.size()));
    const std::string end_line = "-----END " + label + "-----";
    const size_t end = text.find(end_line);
    if (end == std::string_view::npos) {
      pem.faults.push_back("it is cut: a block `" + label.substr(0, 40) + "` has no end");
      return pem;
    }
    ReadBlock(label, text.substr(0, end + end_line.size()), &pem);
    text.remove_prefix(end + end_line.size());
  }
}

std::string NameText(const X509_NAME* name) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (X509_NAME_print_ex(bio.get(), name, 0, XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB) < 0)
    return "?";
  char* data = nullptr;
  const long n = BIO_get_mem_data(bio.get(), &data);
  return n <= 0 ? "(no name)" : std::string(data, static_cast<size_t>(n));
}

}  // namespace bundle
