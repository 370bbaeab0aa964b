// CRC-32C (Castagnoli), the checksum of the WAL, of snapshot hashes and of HashKV. Pure functions,
// thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace base {

// Continues a finished CRC the way zlib's crc32(seed, ...) does; seed 0 starts afresh.
// Crc32c(0, "123456789") == 0xe3069283.
uint32_t Crc32c(uint32_t seed, std::string_view data);

// FNV-1a 64, the checksum of a db file's meta page.
uint64_t Fnv1a64(std::string_view data);

}  // namespace base
