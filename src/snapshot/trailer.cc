#include "snapshot/trailer.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/status.h"

namespace snapshot {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;

std::string Decimals(const base::Digest& digest) {
  std::string out;
  for (const uint8_t byte : digest) out += fmt::format("{}{}", out.empty() ? "" : " ", byte);
  return out;
}

}  // namespace

absl::Status CompareDigests(const base::Digest& expected, const base::Digest& actual) {
  if (expected == actual) return absl::OkStatus();
  return base::MakeStatus(absl::StatusCode::kDataLoss, "expected sha256 [{}], got [{}]",
                          Decimals(expected), Decimals(actual));
}

absl::StatusOr<base::Digest> ReadTrailer(const base::File& file, uint64_t file_bytes) {
  char bytes[kTrailerBytes];
  ASSIGN_OR_RETURN(const size_t n, file.ReadAt(file_bytes - kTrailerBytes, bytes, sizeof bytes));
  if (n != sizeof bytes) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "{}: the file became shorter while it was read", file.path());
  }
  base::Digest digest{};
  std::memcpy(digest.data(), bytes, sizeof bytes);
  return digest;
}

absl::StatusOr<bool> VerifyTrailer(base::Files& files, const std::string& path, Progress progress) {
  ASSIGN_OR_RETURN(const auto file, files.Open(path, {}));
  ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  if (!HasTrailer(size)) return false;
  ASSIGN_OR_RETURN(const base::Digest expected, ReadTrailer(*file, size));
  const uint64_t total = size - kTrailerBytes;
  base::Sha256Stream stream;
  std::vector<char> chunk(std::min(total, kChunkBytes));
  for (uint64_t at = 0; at < total;) {
    ASSIGN_OR_RETURN(const size_t n,
                     file->ReadAt(at, chunk.data(), std::min(total - at, kChunkBytes)));
    if (n == 0) {
      return base::MakeStatus(absl::StatusCode::kDataLoss,
                              "{}: the file became shorter while it was read", path);
    }
    stream.Update({chunk.data(), n});
    at += n;
    progress(at, total);
  }
  RETURN_IF_ERROR(CompareDigests(expected, stream.Finish()));
  return true;
}

absl::StatusOr<bool> VerifyTrailer(base::Files& files, const std::string& path) {
  return VerifyTrailer(files, path, [](uint64_t, uint64_t) {});
}

}  // namespace snapshot
