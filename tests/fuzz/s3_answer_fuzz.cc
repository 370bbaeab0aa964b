// Arbitrary bytes as what an S3 server answers, as names of objects and as a file of credentials.
// Whatever is accepted keeps the bounds that the store relies on.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "stores/names.h"
#include "stores/s3_answers.h"
#include "stores/s3_client.h"
#include "stores/s3_credentials.h"
#include "stores/s3_errors.h"
#include "stores/xml.h"

namespace {

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

size_t CountElements(const stores::XmlElement& element, size_t depth) {
  CHECK_OP(depth, <=, stores::kXmlDepthMax);
  size_t count = 1;
  for (const stores::XmlElement& child : element.children) count += CountElements(child, depth + 1);
  return count;
}

void ReadDocument(std::string_view body) {
  const auto root = stores::ParseXml(body);
  if (root.ok()) {
    CHECK_OP(CountElements(*root, 1), <=, stores::kXmlElementsMax);
    // Text that was taken out can be put in again.
    const auto again = stores::ParseXml("<a>" + stores::EscapeXml(root->text) + "</a>");
    CHECK(again.ok() && again->text == root->text);
  }
  const auto listing = stores::ParseS3Listing(body);
  if (listing.ok()) {
    CHECK(!listing->truncated || !listing->next.empty());
    for (const auto& object : listing->objects) CHECK(!object.key.empty());
  }
  const auto uploads = stores::ParseS3Uploads(body);
  if (uploads.ok()) {
    CHECK(!uploads->truncated || !uploads->next_key.empty());
    for (const auto& upload : uploads->uploads) CHECK(!upload.key.empty() && !upload.id.empty());
  }
  const auto id = stores::ParseS3UploadId(body);
  if (id.ok()) CHECK(!id->empty());
  stores::ParseS3Versioning(body).status().IgnoreError();
  stores::ParseS3ObjectLock(body).status().IgnoreError();

  const stores::S3Error error = stores::ParseS3Error(body);
  if (!error.code.empty()) CHECK(stores::IsS3Error(body));
  for (const long status : {301L, 403L, 404L, 503L}) {
    const absl::Status failure = stores::ToStatus({.request = "GET https://host/bucket",
                                                   .bucket = "bucket",
                                                   .region = "region",
                                                   .http_status = status,
                                                   .error = error});
    CHECK(!failure.ok());
    CHECK(IsPrintable({failure.message().data(), failure.message().size()}));
  }
}

void ReadHeaders(std::string_view text) {
  const auto range = stores::ParseS3ContentRange(text);
  if (range.has_value()) CHECK(range->first <= range->last && range->last < range->total);
  const auto time = stores::ParseS3Time(text);
  if (time.has_value()) CHECK(time->count() >= 0);
}

void ReadNames(std::string_view text) {
  const bool name = stores::CheckName(text).ok();
  if (name) {
    CHECK(stores::CheckPrefix(text).ok());
    CHECK(text.find("..") == std::string_view::npos || text.find("/..") == std::string_view::npos);
    CHECK(!text.starts_with('/') && !text.starts_with('.') && !text.ends_with('/'));
  }
  const std::string encoded = stores::PercentEncode(text, true);
  CHECK(IsPrintable(encoded) && encoded.find(' ') == std::string::npos);
}

void ReadCredentials(std::string_view text) {
  const auto credentials = stores::ParseS3Credentials(text);
  if (!credentials.ok()) return;
  CHECK(!credentials->access_key.empty() && IsPrintable(credentials->access_key));
  CHECK(!credentials->secret_key.empty() && IsPrintable(credentials->secret_key.view()));
  CHECK(IsPrintable(credentials->session_token.view()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      ReadDocument(rest);
      break;
    case 1:
      ReadHeaders(rest);
      break;
    case 2:
      ReadNames(rest);
      break;
    default:
      ReadCredentials(rest);
  }
  return 0;
}
