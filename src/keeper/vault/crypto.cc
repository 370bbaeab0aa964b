#include "vault/crypto.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sodium.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"

namespace vault {
namespace {

bool IsBase64(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
         c == '/';
}

}  // namespace

void EnsureCrypto() {
  static const bool ready = ::sodium_init() >= 0;
  CHECK(ready);
}

void FillRandom(base::Random& random, std::span<uint8_t> out) {
  while (!out.empty()) {
    uint64_t word = random.Next();
    const size_t n = std::min(out.size(), sizeof word);
    std::copy_n(reinterpret_cast<const uint8_t*>(&word), n, out.data());
    Wipe(&word, sizeof word);
    out = out.subspan(n);
  }
}

Point PublicPoint(const Key& secret) {
  EnsureCrypto();
  Point point;
  CHECK(::crypto_scalarmult_base(point.data(), secret.data()) == 0);
  return point;
}

bool X25519(const Key& secret, const Point& point, Key* shared) {
  EnsureCrypto();
  return ::crypto_scalarmult(shared->data(), secret.data(), point.data()) == 0;
}

Key HkdfSha256(Bytes secret, Bytes salt, std::string_view info) {
  EVP_KDF* const kdf = ::EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  CHECK(kdf != nullptr);
  EVP_KDF_CTX* const context = ::EVP_KDF_CTX_new(kdf);
  ::EVP_KDF_free(kdf);
  CHECK(context != nullptr);
  char hash[] = "SHA256";
  // OpenSSL takes its parameters as pointers to what it will not change.
  const auto octets = [](const char* name, const void* data, size_t n) {
    return ::OSSL_PARAM_construct_octet_string(name, const_cast<void*>(data), n);
  };
  const OSSL_PARAM parameters[] = {
      ::OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, hash, 0),
      octets(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      octets(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
      salt.empty() ? ::OSSL_PARAM_construct_end()
                   : octets(OSSL_KDF_PARAM_SALT, salt.data(), salt.size()),
      ::OSSL_PARAM_construct_end()};
  Key key;
  CHECK(::EVP_KDF_derive(context, key.data(), key.size(), parameters) == 1);
  ::EVP_KDF_CTX_free(context);
  return key;
}

base::Digest HmacSha256(Bytes key, std::string_view data) {
  base::Digest digest{};
  unsigned length = 0;
  CHECK(::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
               reinterpret_cast<const uint8_t*>(data.data()), data.size(), digest.data(),
               &length) != nullptr);
  CHECK(length == digest.size());
  return digest;
}

bool EqualInConstantTime(Bytes a, Bytes b) {
  return a.size() == b.size() && ::sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

void SealChaCha(const Key& key, const Nonce& nonce, Bytes plain, uint8_t* out) {
  EnsureCrypto();
  unsigned long long length = 0;
  CHECK(::crypto_aead_chacha20poly1305_ietf_encrypt(out, &length, plain.data(), plain.size(),
                                                    nullptr, 0, nullptr, nonce.data(),
                                                    key.data()) == 0);
  CHECK_OP(length, ==, plain.size() + kTagBytes);
}

bool OpenChaCha(const Key& key, const Nonce& nonce, Bytes sealed, uint8_t* out) {
  EnsureCrypto();
  CHECK_OP(sealed.size(), >=, kTagBytes);
  unsigned long long length = 0;
  if (::crypto_aead_chacha20poly1305_ietf_decrypt(out, &length, nullptr, sealed.data(),
                                                  sealed.size(), nullptr, 0, nonce.data(),
                                                  key.data()) != 0) {
    return false;
  }
  CHECK_OP(length, ==, sealed.size() - kTagBytes);
  return true;
}

std::string ToBase64(Bytes bytes) {
  constexpr int kVariant = sodium_base64_VARIANT_ORIGINAL_NO_PADDING;
  std::string text(sodium_base64_ENCODED_LEN(bytes.size(), kVariant), '\0');
  ::sodium_bin2base64(text.data(), text.size(), bytes.data(), bytes.size(), kVariant);
  text.pop_back();  // the terminating zero
  return text;
}

std::optional<std::string> FromBase64(std::string_view text) {
  // libsodium 1.0.18 takes some bytes beyond ASCII for letters, where char is signed.
  if (!std::all_of(text.begin(), text.end(), IsBase64)) return std::nullopt;
  std::string bytes(text.size() / 4 * 3 + 3, '\0');
  size_t length = 0;
  if (::sodium_base642bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), text.data(),
                          text.size(), nullptr, &length, nullptr,
                          sodium_base64_VARIANT_ORIGINAL_NO_PADDING) != 0) {
    return std::nullopt;
  }
  bytes.resize(length);
  return bytes;
}

}  // namespace vault
