// The Ed25519 key a writer signs its log with. Values, each for one thread at a time (const use
// from many is safe); the functions are safe on any.
//
// A key file has two lines, of which the second is the secret; lines that begin with # say nothing
// more:
//
//   engram-signing-public-1 <32 bytes of base64>
//   engram-signing-secret-1 <32 bytes of base64, the seed>
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/random.h"
#include "vault/crypto.h"
#include "vault/secret.h"

namespace vault {

using Signature = std::array<uint8_t, 64>;

class VerifyingKey {
 public:
  explicit VerifyingKey(const Point& bytes) : bytes_(bytes) {}
  // Takes the public line of a key file, alone.
  static absl::StatusOr<VerifyingKey> Parse(std::string_view text);
  std::string ToString() const;
  // The first 8 bytes in hex: enough to tell keys apart, too little to trust one by.
  std::string Id() const;
  // DataLoss when the signature is not this key's under the message.
  absl::Status Verify(std::string_view message, const Signature& signature) const;
  const Point& bytes() const { return bytes_; }
  bool operator==(const VerifyingKey&) const = default;

 private:
  Point bytes_;
};

class SigningKey {
 public:
  static SigningKey Generate(base::Random& random);
  // Takes a key file. InvalidArgument, which never quotes the secret, when a line is missing, is
  // there twice or the two do not belong together.
  static absl::StatusOr<SigningKey> Parse(std::string_view text);
  // The text of the key file.
  Secret ToSecret() const;
  const VerifyingKey& verifying_key() const { return public_; }
  Signature Sign(std::string_view message) const;

 private:
  SigningKey(const SecretBytes<64>& secret, const Point& point) : secret_(secret), public_(point) {}
  static SigningKey FromSeed(const Key& seed);

  SecretBytes<64> secret_;  // libsodium's form: the seed, then the public key
  VerifyingKey public_;
};

}  // namespace vault
