// What went wrong between us and an S3 server, in one line that says what to do. Pure functions,
// thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/clock.h"
#include "stores/s3_answers.h"

namespace stores {

struct S3Failure {
  std::string request;  // "PUT https://host/bucket/key"
  std::string bucket;
  std::string region;  // as configured
  long http_status = 0;
  S3Error error;
  std::optional<base::Duration> clock_skew;
};

// By the error's code where there is one, else by the HTTP status:
//
//   NotFound            NoSuchKey, NoSuchUpload, a 404 without a code
//   AlreadyExists       PreconditionFailed, 412
//   FailedPrecondition  NoSuchBucket, wrong region, clock skew, a wrong endpoint
//   PermissionDenied    AccessDenied, wrong or expired credentials
//   ResourceExhausted   quota, full
//   OutOfRange          InvalidRange, 416
//   Unavailable         SlowDown, 429, 5xx
//   Aborted             conflicts, damage on the way
//   Unimplemented       501
//   Internal            everything else
absl::Status ToStatus(const S3Failure& failure);

}  // namespace stores
