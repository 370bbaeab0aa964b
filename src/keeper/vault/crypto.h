// The primitives under age and the signing key, as thin names over libsodium and OpenSSL: X25519,
// ChaCha20-Poly1305, HKDF and HMAC with SHA-256, base64. Pure functions, thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/random.h"
#include "base/sha256.h"
#include "vault/secret.h"

namespace vault {

using Bytes = std::span<const uint8_t>;
using Key = SecretBytes<32>;
using Point = std::array<uint8_t, 32>;
using Nonce = std::array<uint8_t, 12>;

inline constexpr size_t kTagBytes = 16;  // what ChaCha20-Poly1305 adds

inline Bytes AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Makes libsodium ready; every function here does so by itself.
void EnsureCrypto();

void FillRandom(base::Random& random, std::span<uint8_t> out);
// The public point of a secret scalar.
Point PublicPoint(const Key& secret);
// False when the shared secret would be zero, which a dishonest point brings about.
[[nodiscard]] bool X25519(const Key& secret, const Point& point, Key* shared);
Key HkdfSha256(Bytes secret, Bytes salt, std::string_view info);
base::Digest HmacSha256(Bytes key, std::string_view data);
// Equal, in a time that does not depend on where they differ.
bool EqualInConstantTime(Bytes a, Bytes b);
// Writes plain.size() + kTagBytes bytes to `out`.
void SealChaCha(const Key& key, const Nonce& nonce, Bytes plain, uint8_t* out);
// Writes sealed.size() - kTagBytes bytes to `out`; false when they were not sealed with this key
// and nonce. Requires sealed.size() >= kTagBytes.
[[nodiscard]] bool OpenChaCha(const Key& key, const Nonce& nonce, Bytes sealed, uint8_t* out);

// Standard alphabet, no padding.
std::string ToBase64(Bytes bytes);
// Takes only what ToBase64 prints: no padding, no other characters, no stray bits at the end.
std::optional<std::string> FromBase64(std::string_view text);

}  // namespace vault
