// What an S3 server answers, taken out of its XML. Everything that comes from the server is checked
// and bounded here, and arrives as plain values. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"

namespace stores {

struct S3Error {
  std::string code;  // "NoSuchKey"; "" when the body does not say
  std::string message;
  std::string request_id;
  std::string region;  // where the server says the bucket is
};
// Texts are cut to a length and to printable characters. What is no error document gives an empty
// one, for proxies answer in HTML.
S3Error ParseS3Error(std::string_view body);

struct S3Listing {
  struct Object {
    std::string key;
    uint64_t bytes = 0;
  };
  std::vector<Object> objects;
  bool truncated = false;
  std::string next;  // continuation token; not empty when truncated
};
absl::StatusOr<S3Listing> ParseS3Listing(std::string_view body);

absl::StatusOr<std::string> ParseS3UploadId(std::string_view body);

struct S3Uploads {
  struct Upload {
    std::string key;
    std::string id;
    base::Duration initiated{};  // since 1970
  };
  std::vector<Upload> uploads;
  bool truncated = false;
  std::string next_key;
  std::string next_id;
};
absl::StatusOr<S3Uploads> ParseS3Uploads(std::string_view body);

// Whether a body that came with status 200 is nevertheless an error, as CompleteMultipartUpload may
// have it.
bool IsS3Error(std::string_view body);

absl::StatusOr<bool> ParseS3Versioning(std::string_view body);
absl::StatusOr<bool> ParseS3ObjectLock(std::string_view body);

// "bytes 0-9/100".
struct S3ContentRange {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t total = 0;
};
std::optional<S3ContentRange> ParseS3ContentRange(std::string_view text);

// "2026-12-01T02:03:04Z", also with a fraction; nothing for other forms.
std::optional<base::Duration> ParseS3Time(std::string_view text);

// Decimal digits that fit.
std::optional<uint64_t> ParseS3Number(std::string_view text);

}  // namespace stores
