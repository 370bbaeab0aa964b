// One signed request to an S3 server at a time per thread, over libcurl: URLs, signing, deadlines,
// bounds of what is received, and errors in our words. Thread-safe.
//
// libcurl 7.88 signs (CURLOPT_AWS_SIGV4) what it is given: the query must come sorted and
// percent-encoded, "uploads=" with its '=', and the hash of the body in a header of ours.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "stores/content.h"
#include "stores/deadline.h"
#include "stores/s3_credentials.h"
#include "vault/stream.h"

namespace stores {

struct S3Endpoint {
  std::string url;  // "https://s3.example.org" or with a port; no path
  std::string bucket;
  std::string region = "us-east-1";
  std::string ca_file;     // empty: what the system trusts
  bool path_style = true;  // else the bucket is part of the host name
};

struct S3Request {
  std::string method;
  std::string key;  // empty: the bucket itself
  std::map<std::string, std::string> query;
  std::vector<std::string> headers;  // "name: value"
  // The body: some bytes of a content, or `body`. The digest is that of the bytes sent.
  const Content* content = nullptr;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string body;
  base::Digest sha256 = base::Sha256("");
  // Where the body of a successful answer goes; null: into S3Answer::body.
  vault::Sink* sink = nullptr;
  // Asked before the first byte goes to the sink.
  std::function<absl::Status(const struct S3Answer&)> before_body;
};

struct S3Answer {
  long status = 0;
  std::map<std::string, std::string, std::less<>> headers;  // names in lower case
  std::string body;
  bool ok() const { return status >= 200 && status < 300; }
  std::string_view Header(std::string_view name) const;
};

class S3Client {
 public:
  // InvalidArgument when the endpoint or the bucket is not what it should be.
  static absl::StatusOr<std::unique_ptr<S3Client>> Open(const base::Clock& clock,
                                                        S3Endpoint endpoint,
                                                        S3CredentialsSource credentials);
  ~S3Client();

  // An answer of whatever status, or why there is none: Unavailable when it may come another time,
  // FailedPrecondition for certificates, DeadlineExceeded, Cancelled; an error of the content, the
  // sink or `before_body` as it is.
  absl::StatusOr<S3Answer> Send(const S3Request& request, const Deadline& deadline);

  // Send, where an answer that is not 2xx becomes an error (s3_errors.h).
  absl::StatusOr<S3Answer> SendOk(const S3Request& request, const Deadline& deadline);

  // What an answer says went wrong.
  absl::Status ErrorOf(const S3Request& request, const S3Answer& answer) const;

  const S3Endpoint& endpoint() const { return endpoint_; }
  // "https://host/bucket", for messages.
  const std::string& where() const { return base_url_; }
  // How far the server's wall clock is ahead of ours, by its last answer.
  std::optional<base::Duration> clock_skew() const;

 private:
  struct Handle;
  S3Client(const base::Clock& clock, S3Endpoint endpoint, std::string base_url,
           S3CredentialsSource credentials);
  std::unique_ptr<Handle> TakeHandle();
  void GiveBack(std::unique_ptr<Handle> handle);
  std::string UrlOf(const S3Request& request) const;
  void NoteDate(const S3Answer& answer);

  const base::Clock& clock_;
  const S3Endpoint endpoint_;
  const std::string base_url_;
  mutable std::mutex mutex_;                   // leaf; guards what follows
  std::vector<std::unique_ptr<Handle>> idle_;  // with their connections
  std::optional<base::Duration> clock_skew_;
  std::mutex credentials_mutex_;  // guards what follows
  S3CredentialsSource credentials_;
};

// The header "x-amz-checksum-sha256" of bytes with that digest. Buckets with an object lock take no
// object without a checksum; others keep it.
std::string S3ChecksumHeader(const base::Digest& sha256);
// Its value.
std::string S3Checksum(const base::Digest& sha256);

// Everything but letters, digits, and "-._~" as %XX; slashes stay where `keep_slashes`.
std::string PercentEncode(std::string_view text, bool keep_slashes);
// The sorted query, each name with '='.
std::string EncodeQuery(const std::map<std::string, std::string>& query);

}  // namespace stores
