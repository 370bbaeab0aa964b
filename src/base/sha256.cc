#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/bytes.h"
#include "base/check.h"

namespace base {

struct Sha256Stream::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  Context() = default;
  ~Context() { EVP_MD_CTX_free(evp); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

Sha256Stream::Sha256Stream() : context_(std::make_unique<Context>()) {
  CHECK(context_->evp != nullptr);
  CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}

Sha256Stream::~Sha256Stream() = default;

void Sha256Stream::Update(std::string_view data) {
  CHECK(EVP_DigestUpdate(context_->evp, data.data(), data.size()) == 1);
}

Digest Sha256Stream::Finish() {
  Digest digest{};
  unsigned length = 0;
  CHECK(EVP_DigestFinal_ex(context_->evp, digest.data(), &length) == 1);
  CHECK(length == digest.size());
  return digest;
}

Digest Sha256(std::string_view data) {
  Sha256Stream stream;
  stream.Update(data);
  return stream.Finish();
}

std::string DigestToHex(const Digest& digest) { return ToHex(DigestBytes(digest)); }

bool ParseDigest(std::string_view hex, Digest* digest) {
  if (hex.size() != 2 * kDigestBytes) return false;
  Digest parsed{};
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    const bool decimal = c >= '0' && c <= '9';
    if (!decimal && !(c >= 'a' && c <= 'f')) return false;
    const int value = decimal ? c - '0' : c - 'a' + 10;
    parsed[i / 2] = static_cast<uint8_t>(parsed[i / 2] << 4 | value);
  }
  *digest = parsed;
  return true;
}

}  // namespace base
