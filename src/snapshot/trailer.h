// The 32 bytes of SHA-256 behind the database in a snapshot file. Functions are blocking and safe
// on any thread; nothing here writes.
//
//   | database, a multiple of 512 bytes | SHA-256 of it, 32 bytes |
//
// A file whose length is a multiple of 512 is a bare database (copied out of a data directory):
// nothing vouches for its bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "base/sha256.h"

namespace snapshot {

inline constexpr uint64_t kTrailerBytes = base::kDigestBytes;

// Whether a file of this length ends in a digest, by etcd's rule.
constexpr bool HasTrailer(uint64_t file_bytes) { return file_bytes % 512 == kTrailerBytes; }

// DataLoss "expected sha256 [1 2 ...], got [...]", in etcd's words, unless both are equal.
// `expected` is what the file states.
absl::Status CompareDigests(const base::Digest& expected, const base::Digest& actual);

// Reads the digest at the end of a file that HasTrailer.
absl::StatusOr<base::Digest> ReadTrailer(const base::File& file, uint64_t file_bytes);

// Called with the bytes dealt with so far and in all.
using Progress = absl::FunctionRef<void(uint64_t done_bytes, uint64_t total_bytes)>;

// Compares the digest with the file's bytes. False when the file has none; DataLoss when they
// differ; NotFound and the like when it cannot be read.
absl::StatusOr<bool> VerifyTrailer(base::Files& files, const std::string& path, Progress progress);
absl::StatusOr<bool> VerifyTrailer(base::Files& files, const std::string& path);

}  // namespace snapshot
