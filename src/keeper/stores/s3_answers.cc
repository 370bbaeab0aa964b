#include "stores/s3_answers.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include "base/status.h"
#include "stores/xml.h"

namespace stores {
namespace {

constexpr size_t kShownBytesMax = 300;
constexpr size_t kKeyBytesMax = 4096;

// Text for a message of one line.
std::string Shown(std::string_view text) {
  std::string out(text.substr(0, kShownBytesMax));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = ' ';
  }
  return out;
}

absl::Status Unexpected(std::string_view what) {
  return base::MakeStatus(absl::StatusCode::kInternal, "the server's answer: {}", what);
}

// The root, which must be called `name`.
absl::StatusOr<XmlElement> ParseRoot(std::string_view body, std::string_view name) {
  absl::StatusOr<XmlElement> root = ParseXml(body);
  if (!root.ok()) return Unexpected(base::Message(root.status()));
  if (root->name != name) {
    return Unexpected(fmt::format("<{}> where <{}> belongs", Shown(root->name), name));
  }
  return root;
}

absl::StatusOr<bool> Truncated(const XmlElement& root) {
  const std::string_view text = root.TextOf("IsTruncated");
  if (text == "true") return true;
  if (text == "false" || text.empty()) return false;
  return Unexpected("IsTruncated is neither true nor false");
}

bool IsKey(std::string_view key) { return !key.empty() && key.size() <= kKeyBytesMax; }

}  // namespace

std::optional<uint64_t> ParseS3Number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

S3Error ParseS3Error(std::string_view body) {
  const absl::StatusOr<XmlElement> root = ParseXml(body);
  if (!root.ok() || root->name != "Error") return {};
  return {.code = Shown(root->TextOf("Code")),
          .message = Shown(root->TextOf("Message")),
          .request_id = Shown(root->TextOf("RequestId")),
          .region = Shown(root->TextOf("Region"))};
}

bool IsS3Error(std::string_view body) {
  const absl::StatusOr<XmlElement> root = ParseXml(body);
  return root.ok() && root->name == "Error";
}

absl::StatusOr<S3Listing> ParseS3Listing(std::string_view body) {
  ASSIGN_OR_RETURN(const XmlElement root, ParseRoot(body, "ListBucketResult"));
  S3Listing listing;
  for (const XmlElement& child : root.children) {
    if (child.name != "Contents") continue;
    const std::string_view key = child.TextOf("Key");
    const std::optional<uint64_t> bytes = ParseS3Number(child.TextOf("Size"));
    if (!IsKey(key) || !bytes.has_value()) return Unexpected("an object without key or size");
    listing.objects.push_back({.key = std::string(key), .bytes = *bytes});
  }
  ASSIGN_OR_RETURN(listing.truncated, Truncated(root));
  listing.next = root.TextOf("NextContinuationToken");
  if (listing.truncated && (listing.next.empty() || listing.next.size() > kKeyBytesMax)) {
    return Unexpected("a truncated list that does not say how to go on");
  }
  return listing;
}

absl::StatusOr<std::string> ParseS3UploadId(std::string_view body) {
  ASSIGN_OR_RETURN(const XmlElement root, ParseRoot(body, "InitiateMultipartUploadResult"));
  const std::string_view id = root.TextOf("UploadId");
  if (!IsKey(id)) return Unexpected("no UploadId");
  return std::string(id);
}

absl::StatusOr<S3Uploads> ParseS3Uploads(std::string_view body) {
  ASSIGN_OR_RETURN(const XmlElement root, ParseRoot(body, "ListMultipartUploadsResult"));
  S3Uploads uploads;
  for (const XmlElement& child : root.children) {
    if (child.name != "Upload") continue;
    const std::string_view key = child.TextOf("Key");
    const std::string_view id = child.TextOf("UploadId");
    const std::optional<base::Duration> initiated = ParseS3Time(child.TextOf("Initiated"));
    if (!IsKey(key) || !IsKey(id) || !initiated.has_value()) {
      return Unexpected("an upload without key, id or time");
    }
    uploads.uploads.push_back(
        {.key = std::string(key), .id = std::string(id), .initiated = *initiated});
  }
  ASSIGN_OR_RETURN(uploads.truncated, Truncated(root));
  uploads.next_key = root.TextOf("NextKeyMarker");
  uploads.next_id = root.TextOf("NextUploadIdMarker");
  if (uploads.truncated && !IsKey(uploads.next_key)) {
    return Unexpected("a truncated list that does not say how to go on");
  }
  return uploads;
}

absl::StatusOr<bool> ParseS3Versioning(std::string_view body) {
  ASSIGN_OR_RETURN(const XmlElement root, ParseRoot(body, "VersioningConfiguration"));
  return root.TextOf("Status") == "Enabled";
}

absl::StatusOr<bool> ParseS3ObjectLock(std::string_view body) {
  ASSIGN_OR_RETURN(const XmlElement root, ParseRoot(body, "ObjectLockConfiguration"));
  return root.TextOf("ObjectLockEnabled") == "Enabled";
}

std::optional<S3ContentRange> ParseS3ContentRange(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  const size_t dash = text.find('-');
  const size_t slash = text.find('/');
  if (!text.starts_with(kUnit) || dash == std::string_view::npos ||
      slash == std::string_view::npos || slash < dash) {
    return std::nullopt;
  }
  const auto first = ParseS3Number(text.substr(kUnit.size(), dash - kUnit.size()));
  const auto last = ParseS3Number(text.substr(dash + 1, slash - dash - 1));
  const auto total = ParseS3Number(text.substr(slash + 1));
  if (!first || !last || !total || *first > *last || *last >= *total) return std::nullopt;
  return S3ContentRange{.first = *first, .last = *last, .total = *total};
}

std::optional<base::Duration> ParseS3Time(std::string_view text) {
  // YYYY-MM-DDTHH:MM:SS, then perhaps a fraction, then Z.
  constexpr std::string_view kForm = "0000-00-00T00:00:00";
  if (text.size() <= kForm.size() || !text.ends_with('Z')) return std::nullopt;
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == '0' ? !digit : text[i] != kForm[i]) return std::nullopt;
  }
  const std::string_view fraction = text.substr(kForm.size(), text.size() - kForm.size() - 1);
  if (!fraction.empty() &&
      (fraction.size() < 2 || fraction[0] != '.' || !ParseS3Number(fraction.substr(1)))) {
    return std::nullopt;
  }
  const auto number = [&](size_t at, size_t n) {
    return static_cast<unsigned>(*ParseS3Number(text.substr(at, n)));
  };
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(number(0, 4))),
                                         std::chrono::month(number(5, 2)),
                                         std::chrono::day(number(8, 2))};
  const unsigned hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  // The years are those that nanoseconds in 64 bits can hold.
  if (!date.ok() || number(0, 4) < 1970 || number(0, 4) > 2261 || hour > 23 || minute > 59 ||
      second > 60) {
    return std::nullopt;
  }
  return std::chrono::sys_days(date).time_since_epoch() + std::chrono::hours(hour) +
         std::chrono::minutes(minute) + std::chrono::seconds(second);
}

}  // namespace stores
