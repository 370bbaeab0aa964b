// Fixed-width integers in byte strings, and hex. Pure functions, thread-safe. Callers check lengths
// before loading.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace base {

static_assert(std::endian::native == std::endian::little,
              "the db file is in host order, read as little-endian");

template <typename T>
T LoadLe(const char* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <typename T>
void StoreLe(char* p, T v) {
  std::memcpy(p, &v, sizeof v);
}
inline uint64_t LoadBe64(const char* p) { return __builtin_bswap64(LoadLe<uint64_t>(p)); }
inline void StoreBe64(char* p, uint64_t v) { StoreLe(p, __builtin_bswap64(v)); }
inline uint32_t LoadBe32(const char* p) { return __builtin_bswap32(LoadLe<uint32_t>(p)); }
inline void StoreBe32(char* p, uint32_t v) { StoreLe(p, __builtin_bswap32(v)); }

// Lower-case hex of each byte.
std::string ToHex(std::string_view bytes);
// Lower-case hex without leading zeros, the way etcd prints 64-bit ids ("0" for 0).
std::string IdToHex(uint64_t id);
// Parses 1 to 16 hex digits; false for anything else.
bool ParseHexId(std::string_view text, uint64_t* id);
// Takes exactly 16 lower-case hex digits, as names of a fixed length have them; false otherwise.
bool ParseHex16(std::string_view text, uint64_t* value);

// Transparent hash for string-keyed absl containers, so that a std::string_view looks up without a
// copy.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
};

}  // namespace base
