#include "stores/s3_store.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "stores/names.h"
#include "stores/s3_answers.h"
#include "stores/s3_upload.h"

namespace stores {
namespace {

constexpr std::string_view kSha256Header = "x-amz-meta-sha256";
constexpr std::string_view kIfAbsent = "if-none-match: *";
// Not a name (names.h), so no listing shows it.
constexpr std::string_view kProbeName = ".write-once-probe";
constexpr size_t kPageMax = 1'000;  // S3's

std::string Sha256Header(const base::Digest& digest) {
  return fmt::format("{}: {}", kSha256Header, base::DigestToHex(digest));
}

class NullSink final : public vault::Sink {
 public:
  absl::Status Write(std::string_view) override { return absl::OkStatus(); }
  absl::Status Finish() override { return absl::OkStatus(); }
};

// Whether the answer's body is the range that was asked for.
absl::Status CheckRange(const S3Answer& answer, uint64_t offset, uint64_t length) {
  const auto range = ParseS3ContentRange(answer.Header("content-range"));
  if (answer.status != 206 || !range.has_value() || range->first != offset) {
    return absl::InternalError("the server did not answer with the range that was asked for");
  }
  const uint64_t end = length == kToTheEnd ? range->total : offset + length;
  if (end > range->total) {
    return base::MakeStatus(absl::StatusCode::kOutOfRange,
                            "the object has {} bytes, fewer than asked for", range->total);
  }
  if (range->last + 1 != end) {
    return absl::UnavailableError("the server answered with a part of the range");
  }
  return absl::OkStatus();
}

}  // namespace

S3Store::S3Store(const base::Clock& clock, Sleeper& sleeper, S3StoreOptions options,
                 std::unique_ptr<S3Client> client)
    : clock_(clock),
      sleeper_(sleeper),
      options_(std::move(options)),
      key_prefix_(options_.prefix.empty() ? "" : options_.prefix + "/"),
      client_(std::move(client)) {}

absl::StatusOr<std::unique_ptr<S3Store>> S3Store::Open(const base::Clock& clock, Sleeper& sleeper,
                                                       S3StoreOptions options,
                                                       S3CredentialsSource credentials) {
  if (!options.prefix.empty()) RETURN_IF_ERROR(CheckName(options.prefix));
  ASSIGN_OR_RETURN(auto client, S3Client::Open(clock, options.endpoint, std::move(credentials)));
  return std::unique_ptr<S3Store>(
      new S3Store(clock, sleeper, std::move(options), std::move(client)));
}

std::string S3Store::KeyOf(std::string_view name) const {
  return fmt::format("{}{}", key_prefix_, name);
}

absl::StatusOr<S3Store::Head> S3Store::HeadOf(std::string_view name, const Deadline& deadline) {
  const auto answer = client_->SendOk({.method = "HEAD", .key = KeyOf(name)}, deadline);
  if (absl::IsNotFound(answer.status()) && !bucket_seen_.load()) {
    // The answer to HEAD has no body, so it may be the bucket that is missing; a list tells.
    ListRequest any;
    any.limit = 1;
    RETURN_IF_ERROR(List(any, deadline).status());
  }
  RETURN_IF_ERROR(answer.status());
  bucket_seen_.store(true);
  const auto bytes = ParseS3Number(answer->Header("content-length"));
  if (!bytes.has_value()) {
    return base::MakeStatus(absl::StatusCode::kInternal,
                            "the server's answer: no length of object {}", name);
  }
  return Head{.bytes = *bytes, .sha256 = std::string(answer->Header(kSha256Header))};
}

absl::Status S3Store::PutWhole(const std::string& key, const Content& content,
                               const Deadline& deadline) {
  RETURN_IF_ERROR(HashParts(content, kToTheEnd / 2, clock_, deadline).status());
  S3Request request{.method = "PUT",
                    .key = key,
                    .headers = {Sha256Header(content.sha256()), S3ChecksumHeader(content.sha256())},
                    .content = &content,
                    .bytes = content.bytes(),
                    .sha256 = content.sha256()};
  if (options_.conditional_writes) request.headers.emplace_back(kIfAbsent);
  return client_->SendOk(request, deadline).status();
}

absl::Status S3Store::Put(std::string_view name, const Content& content, const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  const bool in_parts = content.bytes() > kPartBytesMin;
  const bool trusted = options_.conditional_writes && write_once_.load() != 0;
  // Looked for first where sending in vain would cost much, or where the server would not refuse.
  if (in_parts || !trusted) {
    const absl::Status found = HeadOf(name, deadline).status();
    if (found.ok()) return PutAgain(name, content, deadline);
    // Some policies let nobody look: the server's own check remains.
    if (!absl::IsNotFound(found) && !(trusted && absl::IsPermissionDenied(found))) return found;
  }
  absl::Status status;
  if (in_parts) {
    S3UploadPlan plan{
        .key = KeyOf(name),
        .headers = {Sha256Header(content.sha256()), "x-amz-checksum-algorithm: SHA256"},
        .part_bytes = PartBytes(content.bytes()),
        .parallel = options_.parts_in_parallel,
        .retry_delay = options_.part_retry_delay};
    if (options_.conditional_writes) plan.conditions.emplace_back(kIfAbsent);
    status = UploadInParts(*client_, content, plan, clock_, sleeper_, deadline);
  } else {
    status = PutWhole(KeyOf(name), content, deadline);
  }
  return absl::IsAlreadyExists(status) ? PutAgain(name, content, deadline) : status;
}

absl::Status S3Store::PutAgain(std::string_view name, const Content& content,
                               const Deadline& deadline) {
  ASSIGN_OR_RETURN(const Head head, HeadOf(name, deadline));
  bool same = head.bytes == content.bytes();
  if (same && head.sha256.empty()) {
    // Put there by something else: only its bytes can tell.
    NullSink null;
    vault::HashingSink hash(null);
    RETURN_IF_ERROR(Get(name, 0, kToTheEnd, hash, deadline));
    RETURN_IF_ERROR(hash.Finish());
    same = hash.digest() == content.sha256();
  } else if (same) {
    same = head.sha256 == base::DigestToHex(content.sha256());
  }
  if (same) return absl::OkStatus();
  return base::MakeStatus(absl::StatusCode::kAlreadyExists,
                          "{}/{}: exists with other content, and objects are written once",
                          client_->where(), KeyOf(name));
}

absl::Status S3Store::Replace(std::string_view name, std::string_view bytes,
                              const Deadline& deadline) {
  RETURN_IF_ERROR(CheckReplace(name, bytes));
  const base::Digest sha256 = base::Sha256(bytes);
  return client_
      ->SendOk({.method = "PUT",
                .key = KeyOf(name),
                .headers = {Sha256Header(sha256), S3ChecksumHeader(sha256)},
                .bytes = bytes.size(),
                .body = std::string(bytes),
                .sha256 = sha256},
               deadline)
      .status();
}

absl::Status S3Store::Get(std::string_view name, uint64_t offset, uint64_t length,
                          vault::Sink& sink, const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  // No range names no bytes, and none begins at the end.
  const auto nothing = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Head head, HeadOf(name, deadline));
    const bool inside = offset <= head.bytes && (length == kToTheEnd || length == 0);
    if (inside && (length == 0 || offset == head.bytes)) return absl::OkStatus();
    return base::MakeStatus(absl::StatusCode::kOutOfRange, "{}: has {} bytes, fewer than asked for",
                            name, head.bytes);
  };
  if (length == 0) return nothing();
  S3Request request{.method = "GET", .key = KeyOf(name), .sink = &sink};
  const bool whole = offset == 0 && length == kToTheEnd;
  if (!whole) {
    if (length != kToTheEnd && length > kToTheEnd - offset) {
      return absl::OutOfRangeError("the range ends beyond any object");
    }
    request.headers.push_back(length == kToTheEnd
                                  ? fmt::format("range: bytes={}-", offset)
                                  : fmt::format("range: bytes={}-{}", offset, offset + length - 1));
    request.before_body = [offset, length](const S3Answer& answer) {
      return CheckRange(answer, offset, length);
    };
  } else {
    // Without its length, a body that was cut off looks whole.
    request.before_body = [](const S3Answer& answer) {
      return ParseS3Number(answer.Header("content-length")).has_value()
                 ? absl::OkStatus()
                 : absl::InternalError("the server did not say how long the object is");
    };
  }
  const auto answer = client_->SendOk(request, deadline);
  if (absl::IsOutOfRange(answer.status()) && length == kToTheEnd) return nothing();
  return answer.status();
}

absl::StatusOr<uint64_t> S3Store::Stat(std::string_view name, const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  ASSIGN_OR_RETURN(const Head head, HeadOf(name, deadline));
  return head.bytes;
}

absl::StatusOr<std::vector<ObjectInfo>> S3Store::List(const ListRequest& request,
                                                      const Deadline& deadline) {
  RETURN_IF_ERROR(CheckListRequest(request));
  std::vector<ObjectInfo> objects;
  S3Request page{.method = "GET", .query = {{"list-type", "2"}, {"prefix", KeyOf(request.prefix)}}};
  if (!request.after.empty()) page.query["start-after"] = KeyOf(request.after);
  while (true) {
    page.query["max-keys"] = fmt::format("{}", std::min(kPageMax, request.limit - objects.size()));
    ASSIGN_OR_RETURN(const S3Answer answer, client_->SendOk(page, deadline));
    ASSIGN_OR_RETURN(S3Listing listing, ParseS3Listing(answer.body));
    bucket_seen_.store(true);
    for (const S3Listing::Object& object : listing.objects) {
      if (!object.key.starts_with(key_prefix_)) continue;
      std::string name = object.key.substr(key_prefix_.size());
      // What others keep in the bucket may be called anything.
      if (!CheckName(name).ok() || name <= request.after) continue;
      if (!objects.empty() && name <= objects.back().name) {
        return absl::InternalError("the server's answer: a list that is not in order");
      }
      objects.push_back({.name = std::move(name), .bytes = object.bytes});
    }
    if (!listing.truncated || objects.size() >= request.limit) return objects;
    page.query["continuation-token"] = std::move(listing.next);
  }
}

absl::Status S3Store::Delete(std::string_view name, const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  const absl::Status status =
      client_->SendOk({.method = "DELETE", .key = KeyOf(name)}, deadline).status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::optional<bool>> S3Store::AskBucket(
    const std::string& question, absl::StatusOr<bool> (*parse)(std::string_view),
    const Deadline& deadline) {
  const auto answer = client_->SendOk({.method = "GET", .query = {{question, ""}}}, deadline);
  if (!answer.ok()) {
    // Not configured, not known to this service, or not for us to know.
    if (absl::IsNotFound(answer.status())) return std::optional<bool>(false);
    if (absl::IsPermissionDenied(answer.status()) || absl::IsUnimplemented(answer.status()) ||
        absl::IsInternal(answer.status())) {
      return std::optional<bool>();
    }
    return answer.status();
  }
  ASSIGN_OR_RETURN(const bool value, parse(answer->body));
  return std::optional<bool>(value);
}

absl::StatusOr<bool> S3Store::ProbeWriteOnce(const Deadline& deadline) {
  if (const int known = write_once_.load(); known >= 0) return known == 1;
  const auto put = [&](std::string_view body) {
    const S3Request request{
        .method = "PUT",
        .key = KeyOf(kProbeName),
        .headers = {std::string(kIfAbsent), S3ChecksumHeader(base::Sha256(body))},
        .bytes = body.size(),
        .body = std::string(body),
        .sha256 = base::Sha256(body)};
    return client_->SendOk(request, deadline).status();
  };
  // The first makes sure that there is something to refuse the second for.
  absl::Status status = put("first");
  if (status.ok()) status = put("second");
  const bool refused = absl::IsAlreadyExists(status);
  if (!status.ok() && !refused && !absl::IsUnimplemented(status)) return status;
  write_once_.store(refused ? 1 : 0);
  return refused;
}

absl::StatusOr<Description> S3Store::Describe(const Deadline& deadline) {
  Description description{.where = fmt::format("{}/{}", client_->where(), key_prefix_)};
  ListRequest any;
  any.limit = 1;
  RETURN_IF_ERROR(List(any, deadline).status());
  ASSIGN_OR_RETURN(description.versioning, AskBucket("versioning", &ParseS3Versioning, deadline));
  ASSIGN_OR_RETURN(description.object_lock, AskBucket("object-lock", &ParseS3ObjectLock, deadline));
  if (options_.conditional_writes) {
    const absl::StatusOr<bool> write_once = ProbeWriteOnce(deadline);
    if (write_once.ok()) {
      description.write_once = *write_once;
    } else if (absl::IsPermissionDenied(write_once.status())) {
      description.warnings.push_back(
          fmt::format("these credentials may only read: {}", base::Message(write_once.status())));
    } else {
      return write_once.status();
    }
  } else {
    description.write_once = false;
  }
  if (description.write_once == false) {
    description.warnings.push_back(
        "the service does not refuse to overwrite an object: let one keeper only write here");
  }
  if (client_->where().starts_with("http://")) {
    description.warnings.push_back("plain http: whoever is in between can read and delay");
  }
  description.clock_skew = client_->clock_skew();
  return description;
}

absl::StatusOr<uint64_t> S3Store::Sweep(base::Duration older_than, const Deadline& deadline) {
  const base::Duration oldest = clock_.Wall() - older_than;
  uint64_t swept = 0;
  S3Request page{.method = "GET", .query = {{"prefix", key_prefix_}, {"uploads", ""}}};
  while (true) {
    ASSIGN_OR_RETURN(const S3Answer answer, client_->SendOk(page, deadline));
    ASSIGN_OR_RETURN(const S3Uploads uploads, ParseS3Uploads(answer.body));
    for (const S3Uploads::Upload& upload : uploads.uploads) {
      if (!upload.key.starts_with(key_prefix_) || upload.initiated > oldest) continue;
      RETURN_IF_ERROR(AbortUpload(*client_, upload.key, upload.id, deadline));
      ++swept;
    }
    if (!uploads.truncated) return swept;
    page.query["key-marker"] = uploads.next_key;
    page.query["upload-id-marker"] = uploads.next_id;
  }
}

}  // namespace stores
