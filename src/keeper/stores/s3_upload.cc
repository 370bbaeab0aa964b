#include "stores/s3_upload.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "stores/s3_answers.h"
#include "stores/s3_store.h"
#include "stores/xml.h"

namespace stores {
namespace {

constexpr size_t kHashPieceBytes = size_t{256} << 10;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr int kPartAttempts = 3;
constexpr size_t kEtagBytesMax = 1024;
constexpr base::Duration kAbortTimeout = std::chrono::seconds(15);

struct Part {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  base::Digest sha256{};
  std::string etag;  // once it was sent
};

// Sends the parts of one upload on several threads. The first error stops the others.
class PartSender {
 public:
  PartSender(S3Client& client, const Content& content, const S3UploadPlan& plan,
             const std::string& upload_id, std::vector<Part>* parts, Sleeper& sleeper,
             const Deadline& deadline)
      : client_(client),
        content_(content),
        plan_(plan),
        upload_id_(upload_id),
        parts_(*parts),
        sleeper_(sleeper),
        deadline_(deadline) {}

  absl::Status Run() {
    const size_t count = std::min(parts_.size(), static_cast<size_t>(std::max(plan_.parallel, 1)));
    std::vector<std::thread> threads;
    for (size_t i = 1; i < count; ++i) threads.emplace_back([this] { SendSome(); });
    SendSome();
    for (std::thread& thread : threads) thread.join();
    std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  void SendSome() {
    while (!failed_.load()) {
      const size_t i = next_.fetch_add(1);
      if (i >= parts_.size()) return;
      const absl::Status status = SendWithRetries(i);
      if (status.ok()) continue;
      std::lock_guard lock(mutex_);
      if (failure_.ok()) failure_ = status;
      failed_.store(true);
    }
  }

  absl::Status SendWithRetries(size_t i) {
    base::Duration delay = plan_.retry_delay;
    for (int attempt = 1;; ++attempt) {
      const absl::Status status = Send(i);
      const bool passing = absl::IsUnavailable(status) || absl::IsAborted(status);
      if (!passing || attempt == kPartAttempts || failed_.load()) return status;
      sleeper_.Sleep(delay, deadline_);
      delay *= 2;
    }
  }

  absl::Status Send(size_t i) {
    Part& part = parts_[i];
    S3Request request{.method = "PUT",
                      .key = plan_.key,
                      .query = {{"partNumber", fmt::format("{}", i + 1)}, {"uploadId", upload_id_}},
                      .headers = {S3ChecksumHeader(part.sha256)},
                      .content = &content_,
                      .offset = part.offset,
                      .bytes = part.bytes,
                      .sha256 = part.sha256};
    ASSIGN_OR_RETURN(const S3Answer answer, client_.SendOk(request, deadline_));
    part.etag = answer.Header("etag");
    if (part.etag.empty() || part.etag.size() > kEtagBytesMax) {
      return base::MakeStatus(absl::StatusCode::kInternal,
                              "the server's answer: part {} has no ETag", i + 1);
    }
    return absl::OkStatus();
  }

  S3Client& client_;
  const Content& content_;
  const S3UploadPlan& plan_;
  const std::string& upload_id_;
  std::vector<Part>& parts_;  // each is touched by the thread that took its number
  Sleeper& sleeper_;
  const Deadline& deadline_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;  // leaf; guards what follows
  absl::Status failure_;
};

absl::StatusOr<std::string> Begin(S3Client& client, const S3UploadPlan& plan,
                                  const Deadline& deadline) {
  const S3Request request{
      .method = "POST", .key = plan.key, .query = {{"uploads", ""}}, .headers = plan.headers};
  ASSIGN_OR_RETURN(const S3Answer answer, client.SendOk(request, deadline));
  return ParseS3UploadId(answer.body);
}

absl::Status Complete(S3Client& client, const S3UploadPlan& plan, const std::string& upload_id,
                      const std::vector<Part>& parts, const Deadline& deadline) {
  std::string body = "<CompleteMultipartUpload>";
  for (size_t i = 0; i < parts.size(); ++i) {
    body += fmt::format(
        "<Part><PartNumber>{}</PartNumber><ETag>{}</ETag><ChecksumSHA256>{}</ChecksumSHA256></"
        "Part>",
        i + 1, EscapeXml(parts[i].etag), S3Checksum(parts[i].sha256));
  }
  body += "</CompleteMultipartUpload>";
  S3Request request{.method = "POST",
                    .key = plan.key,
                    .query = {{"uploadId", upload_id}},
                    .headers = plan.conditions,
                    .bytes = body.size(),
                    .body = body,
                    .sha256 = base::Sha256(body)};
  request.headers.push_back("content-type: application/xml");
  ASSIGN_OR_RETURN(const S3Answer answer, client.SendOk(request, deadline));
  // The status was sent before the server knew how it would end.
  if (!IsS3Error(answer.body)) return absl::OkStatus();
  return client.ErrorOf(request, answer);
}

}  // namespace

uint64_t PartBytes(uint64_t content_bytes) {
  const uint64_t least = (content_bytes + kPartsMax - 1) / kPartsMax;
  return std::max(kPartBytesMin, (least + kMiB - 1) / kMiB * kMiB);
}

absl::StatusOr<std::vector<base::Digest>> HashParts(const Content& content, uint64_t part_bytes,
                                                    const base::Clock& clock,
                                                    const Deadline& deadline) {
  std::vector<base::Digest> digests;
  base::Sha256Stream whole;
  std::vector<char> piece(kHashPieceBytes);
  uint64_t at = 0;
  do {
    base::Sha256Stream part;
    const uint64_t end = std::min(content.bytes(), at + part_bytes);
    while (at < end) {
      RETURN_IF_ERROR(deadline.Check(clock));
      const auto wanted = static_cast<size_t>(std::min<uint64_t>(piece.size(), end - at));
      ASSIGN_OR_RETURN(const size_t n, content.ReadAt(at, piece.data(), wanted));
      if (n == 0) {
        return base::MakeStatus(absl::StatusCode::kDataLoss,
                                "what is to be stored ends at {} of {} bytes", at, content.bytes());
      }
      part.Update({piece.data(), n});
      whole.Update({piece.data(), n});
      at += n;
    }
    digests.push_back(part.Finish());
  } while (at < content.bytes());
  if (whole.Finish() != content.sha256()) {
    return absl::DataLossError("what is to be stored does not have the sha256 it should");
  }
  return digests;
}

absl::Status UploadInParts(S3Client& client, const Content& content, const S3UploadPlan& plan,
                           const base::Clock& clock, Sleeper& sleeper, const Deadline& deadline) {
  ASSIGN_OR_RETURN(const std::vector<base::Digest> digests,
                   HashParts(content, plan.part_bytes, clock, deadline));
  CHECK_OP(digests.size(), <=, kPartsMax);
  std::vector<Part> parts;
  for (const base::Digest& digest : digests) {
    const uint64_t offset = parts.size() * plan.part_bytes;
    parts.push_back({.offset = offset,
                     .bytes = std::min(plan.part_bytes, content.bytes() - offset),
                     .sha256 = digest});
  }
  ASSIGN_OR_RETURN(const std::string upload_id, Begin(client, plan, deadline));
  absl::Status status =
      PartSender(client, content, plan, upload_id, &parts, sleeper, deadline).Run();
  if (status.ok()) status = Complete(client, plan, upload_id, parts, deadline);
  if (!status.ok()) {
    // Also when the time is over or the call was cancelled; the first error is what counts.
    AbortUpload(client, plan.key, upload_id, Deadline::In(clock, kAbortTimeout)).IgnoreError();
  }
  return status;
}

absl::Status AbortUpload(S3Client& client, const std::string& key, const std::string& upload_id,
                         const Deadline& deadline) {
  const S3Request request{.method = "DELETE", .key = key, .query = {{"uploadId", upload_id}}};
  const absl::Status status = client.SendOk(request, deadline).status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace stores
