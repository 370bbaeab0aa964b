// For tests: age files in strings, with keys from a seed. One thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/random.h"
#include "base/status.h"
#include "vault/age.h"
#include "vault/age_keys.h"
#include "vault/stream.h"

namespace vault {

inline constexpr size_t kTestBytesMax = size_t{64} << 20;

inline Identity TestIdentity(uint64_t seed) {
  base::SeededRandom random(seed);
  return Identity::Generate(random);
}

// Bytes without a pattern that compression or swapped chunks could hide behind.
inline std::string TestBytes(size_t n, uint64_t seed = 1) {
  base::SeededRandom random(seed);
  std::string bytes(n, '\0');
  FillRandom(random, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()});
  return bytes;
}

// Reads everything, in pieces of `piece` bytes.
inline absl::StatusOr<std::string> ReadAll(Source& from, size_t piece = 10'000) {
  std::string all;
  std::string buffer(piece, '\0');
  while (true) {
    ASSIGN_OR_RETURN(const size_t n, from.Read(buffer.data(), buffer.size()));
    CHECK_OP(n, <=, piece);
    if (n == 0) return all;
    all.append(buffer, 0, n);
    if (all.size() > kTestBytesMax) return absl::ResourceExhaustedError("no end");
  }
}

inline absl::StatusOr<std::string> AgeEncrypt(std::span<const Recipient> recipients,
                                              std::string_view plain, size_t piece = 10'000) {
  base::SeededRandom random(7);
  std::string sealed;
  StringSink sink(&sealed, kTestBytesMax);
  ASSIGN_OR_RETURN(const auto age, AgeSink::Open(recipients, random, sink));
  for (size_t at = 0; at < plain.size(); at += piece) {
    RETURN_IF_ERROR(age->Write(plain.substr(at, piece)));
  }
  RETURN_IF_ERROR(age->Finish());
  return sealed;
}

inline absl::StatusOr<std::string> AgeDecrypt(std::span<const Identity> identities,
                                              std::string_view sealed, size_t piece = 10'000) {
  StringSource source(sealed);
  ASSIGN_OR_RETURN(const auto age, AgeSource::Open(identities, source));
  return ReadAll(*age, piece);
}

}  // namespace vault
