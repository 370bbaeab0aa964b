#include "vault/signing.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/status.h"

namespace vault {
namespace {

constexpr std::string_view kPublicWord = "engram-signing-public-1 ";
constexpr std::string_view kSecretWord = "engram-signing-secret-1 ";
constexpr size_t kIdBytes = 8;

static_assert(crypto_sign_SEEDBYTES == Key::size());
static_assert(crypto_sign_PUBLICKEYBYTES == sizeof(Point));
static_assert(crypto_sign_SECRETKEYBYTES == 64);
static_assert(crypto_sign_BYTES == sizeof(Signature));

bool ParseLine(std::string_view line, std::string_view word, std::span<uint8_t, 32> out) {
  if (!line.starts_with(word)) return false;
  std::optional<std::string> bytes = FromBase64(line.substr(word.size()));
  if (!bytes.has_value()) return false;
  const bool fits = bytes->size() == out.size();
  if (fits) std::memcpy(out.data(), bytes->data(), out.size());
  Wipe(bytes->data(), bytes->size());
  return fits;
}

}  // namespace

absl::StatusOr<VerifyingKey> VerifyingKey::Parse(std::string_view text) {
  Point point;
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (!ParseLine(text, kPublicWord, point)) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "not a public signing key: expected \"{}\" and 43 characters of base64",
                            kPublicWord);
  }
  return VerifyingKey(point);
}

std::string VerifyingKey::ToString() const {
  return fmt::format("{}{}", kPublicWord, ToBase64(bytes_));
}

std::string VerifyingKey::Id() const {
  return base::ToHex({reinterpret_cast<const char*>(bytes_.data()), kIdBytes});
}

absl::Status VerifyingKey::Verify(std::string_view message, const Signature& signature) const {
  EnsureCrypto();
  const Bytes bytes = AsBytes(message);
  if (::crypto_sign_verify_detached(signature.data(), bytes.data(), bytes.size(), bytes_.data()) !=
      0) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "the signature is not that of key {}",
                            Id());
  }
  return absl::OkStatus();
}

SigningKey SigningKey::FromSeed(const Key& seed) {
  EnsureCrypto();
  SecretBytes<64> secret;
  Point point;
  CHECK(::crypto_sign_seed_keypair(point.data(), secret.data(), seed.data()) == 0);
  return SigningKey(secret, point);
}

SigningKey SigningKey::Generate(base::Random& random) {
  Key seed;
  FillRandom(random, seed.span());
  return FromSeed(seed);
}

absl::StatusOr<SigningKey> SigningKey::Parse(std::string_view text) {
  std::optional<VerifyingKey> stated;
  std::optional<SigningKey> key;
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    Point point;
    Key seed;
    if (!stated.has_value() && ParseLine(line, kPublicWord, point)) {
      stated.emplace(point);
    } else if (!key.has_value() && ParseLine(line, kSecretWord, seed.span())) {
      key.emplace(FromSeed(seed));
    } else {
      return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                              "signing key file, line {}: malformed, or there twice", number);
    }
  }
  if (!stated.has_value() || !key.has_value()) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "signing key file: the line with \"{}\" is missing",
                            stated.has_value() ? kSecretWord : kPublicWord);
  }
  if (*stated != key->verifying_key()) {
    return absl::InvalidArgumentError(
        "signing key file: the secret and the public line do not belong together");
  }
  return *std::move(key);
}

Secret SigningKey::ToSecret() const {
  std::string seed = ToBase64(Bytes(secret_.data(), Key::size()));
  std::string text;
  // Room for all of it at once: a string that grows leaves its bytes behind.
  text.reserve(2 * (kSecretWord.size() + seed.size() + kPublicWord.size()));
  text.append(public_.ToString()).push_back('\n');
  text.append(kSecretWord).append(seed).push_back('\n');
  Wipe(seed.data(), seed.size());
  return Secret(std::move(text));
}

Signature SigningKey::Sign(std::string_view message) const {
  EnsureCrypto();
  Signature signature;
  const Bytes bytes = AsBytes(message);
  CHECK(::crypto_sign_detached(signature.data(), nullptr, bytes.data(), bytes.size(),
                               secret_.data()) == 0);
  return signature;
}

}  // namespace vault
