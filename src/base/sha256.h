// SHA-256 of bytes that come in pieces. A stream belongs to one thread; the functions are safe on
// any.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace base {

inline constexpr size_t kDigestBytes = 32;
using Digest = std::array<uint8_t, kDigestBytes>;

class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(const Sha256Stream&) = delete;
  Sha256Stream& operator=(const Sha256Stream&) = delete;
  void Update(std::string_view data);
  // Ends the stream.
  Digest Finish();

 private:
  struct Context;
  const std::unique_ptr<Context> context_;
};

Digest Sha256(std::string_view data);
// The bytes of the digest, valid as long as it is.
inline std::string_view DigestBytes(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}
// 64 lower-case hex digits.
std::string DigestToHex(const Digest& digest);
// Takes what DigestToHex gives and nothing else; false otherwise.
bool ParseDigest(std::string_view hex, Digest* digest);

}  // namespace base
