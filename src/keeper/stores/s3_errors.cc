#include "stores/s3_errors.h"

#include <chrono>

#include "base/status.h"

namespace stores {
namespace {

using Code = absl::StatusCode;

struct Rule {
  std::string_view error;
  Code code;
  std::string_view advice;
};

// A server refuses what was signed at a time that is 15 minutes off. With so much of it a refusal
// without a word is put down to the clock.
constexpr base::Duration kSkewMax = std::chrono::minutes(10);

// The advice may name {bucket} and {region}.
constexpr Rule kRules[] = {
    {"NoSuchKey", Code::kNotFound, ""},
    {"NoSuchUpload", Code::kNotFound, ""},
    {"ObjectLockConfigurationNotFoundError", Code::kNotFound, ""},
    {"NoSuchBucket", Code::kFailedPrecondition,
     "create the bucket {bucket}, or correct the store's bucket or endpoint"},
    {"InvalidBucketName", Code::kFailedPrecondition, "correct the store's bucket {bucket}"},
    {"PreconditionFailed", Code::kAlreadyExists, ""},
    {"ConditionalRequestConflict", Code::kAborted, ""},
    {"OperationAborted", Code::kAborted, ""},
    {"AccessDenied", Code::kPermissionDenied,
     "allow it to this access key in the policy of the bucket {bucket}"},
    {"AllAccessDisabled", Code::kPermissionDenied, "the bucket {bucket} is disabled"},
    {"InvalidAccessKeyId", Code::kPermissionDenied, "correct the store's access key"},
    {"XAdminUserNotFound", Code::kPermissionDenied, "correct the store's access key"},
    {"SignatureDoesNotMatch", Code::kPermissionDenied,
     "correct the store's secret key, or its region {region}"},
    {"ExpiredToken", Code::kPermissionDenied, "renew the store's temporary credentials"},
    {"InvalidToken", Code::kPermissionDenied, "correct the store's session token"},
    {"RequestTimeTooSkewed", Code::kFailedPrecondition, "set this machine's clock"},
    {"RequestExpired", Code::kFailedPrecondition, "set this machine's clock"},
    {"AuthorizationHeaderMalformed", Code::kFailedPrecondition,
     "correct the store's region {region}"},
    {"PermanentRedirect", Code::kFailedPrecondition, "correct the store's region or endpoint"},
    {"TemporaryRedirect", Code::kUnavailable, ""},
    {"InvalidRange", Code::kOutOfRange, ""},
    {"QuotaExceeded", Code::kResourceExhausted,
     "free space there, or let prune remove old backups"},
    {"XMinioStorageFull", Code::kResourceExhausted,
     "free space there, or let prune remove old backups"},
    {"InsufficientCapacity", Code::kResourceExhausted,
     "free space there, or let prune remove old backups"},
    {"BadDigest", Code::kAborted, ""},
    {"XAmzContentSHA256Mismatch", Code::kAborted, ""},
    {"IncompleteBody", Code::kAborted, ""},
    {"RequestTimeout", Code::kUnavailable, ""},
    {"SlowDown", Code::kUnavailable, ""},
    {"TooManyRequests", Code::kUnavailable, ""},
    {"ServiceUnavailable", Code::kUnavailable, ""},
    {"InternalError", Code::kUnavailable, ""},
    {"NotImplemented", Code::kUnimplemented, ""},
};

struct Verdict {
  Code code;
  std::string advice;
};

Verdict ByHttpStatus(long status, bool named) {
  switch (status) {
    case 404:
      // What is not found may be anything, and only an object may be missing quietly.
      if (named) return {Code::kFailedPrecondition, "check the store's endpoint and bucket"};
      return {Code::kNotFound, ""};
    case 412:
      return {Code::kAlreadyExists, ""};
    case 409:
      return {Code::kAborted, ""};
    case 416:
      return {Code::kOutOfRange, ""};
    case 401:
    case 403:
      return {Code::kPermissionDenied, "check the store's credentials and the bucket's policy"};
    case 408:
    case 429:
      return {Code::kUnavailable, ""};
    case 507:
      return {Code::kResourceExhausted, "free space there, or let prune remove old backups"};
    case 501:
      return {Code::kUnimplemented, ""};
    default:
      break;
  }
  if (status >= 500) return {Code::kUnavailable, ""};
  if (status >= 300 && status < 400) {
    return {Code::kFailedPrecondition, "correct the store's region or endpoint"};
  }
  return {Code::kInternal, ""};
}

std::string Fill(std::string_view advice, const S3Failure& failure) {
  std::string text(advice);
  for (const auto& [name, value] :
       {std::pair<std::string_view, const std::string&>("{bucket}", failure.bucket),
        {"{region}", failure.region}}) {
    const size_t at = text.find(name);
    if (at != std::string::npos) text.replace(at, name.size(), value);
  }
  return text;
}

Verdict Judge(const S3Failure& failure) {
  for (const Rule& rule : kRules) {
    if (failure.error.code != rule.error) continue;
    Verdict verdict{rule.code, Fill(rule.advice, failure)};
    if (!failure.error.region.empty() && failure.error.region != failure.region) {
      verdict.advice += fmt::format("; the server names region {}", failure.error.region);
    }
    return verdict;
  }
  return ByHttpStatus(failure.http_status, !failure.error.code.empty());
}

}  // namespace

absl::Status ToStatus(const S3Failure& failure) {
  Verdict verdict = Judge(failure);
  // The answer to a HEAD has no body that could say so.
  const bool silent = failure.error.code.empty() && failure.http_status == 403 &&
                      std::chrono::abs(failure.clock_skew.value_or(base::Duration(0))) >= kSkewMax;
  const bool skewed = silent || failure.error.code == "RequestTimeTooSkewed" ||
                      failure.error.code == "RequestExpired";
  if (silent) verdict = {absl::StatusCode::kFailedPrecondition, "set this machine's clock"};
  if (skewed && failure.clock_skew.has_value()) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(*failure.clock_skew).count();
    verdict.advice += fmt::format(": the server's is {} s {} it", std::abs(seconds),
                                  seconds < 0 ? "behind" : "ahead of");
  }
  std::string text = fmt::format("{}: ", failure.request);
  if (failure.error.code.empty()) {
    text += fmt::format("HTTP status {}", failure.http_status);
  } else {
    text += failure.error.code;
    if (!failure.error.message.empty()) text += fmt::format(": {}", failure.error.message);
  }
  if (!failure.error.request_id.empty()) {
    text += fmt::format(" (request {})", failure.error.request_id);
  }
  if (!verdict.advice.empty()) text += fmt::format("; {}", verdict.advice);
  return absl::Status(verdict.code, text);
}

}  // namespace stores
