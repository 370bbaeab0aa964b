// A store in a bucket of any S3-compatible service. Thread-safe.
//
// An object is one PUT, or, beyond kPartBytes, a multipart upload whose parts go in parallel; both
// carry `If-None-Match: *`, so the server itself refuses a second one. The object's sha256 is kept
// in its metadata (x-amz-meta-sha256), which is how a Put whose answer was lost is recognised.
// Every byte is sent under a hash that the server checks.
//
// The credentials need s3:PutObject, s3:GetObject and s3:ListBucket; s3:DeleteObject only where
// Delete is used, s3:AbortMultipartUpload and s3:ListBucketMultipartUploads for Sweep.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "stores/s3_client.h"
#include "stores/store.h"

namespace stores {

inline constexpr uint64_t kPartBytesMin = uint64_t{16} << 20;
inline constexpr uint64_t kPartsMax = 10'000;  // S3's

struct S3StoreOptions {
  S3Endpoint endpoint;
  std::string prefix;  // "" or a name: objects are below "prefix/"
  // Few S3 services lack If-None-Match; without it, Put looks before it writes, and two writers of
  // one name are not kept apart.
  bool conditional_writes = true;
  int parts_in_parallel = 4;
  // Pauses between the attempts to send one part.
  base::Duration part_retry_delay = std::chrono::seconds(1);
};

class S3Store final : public Store {
 public:
  // Connects to nothing yet. References outlive the store.
  static absl::StatusOr<std::unique_ptr<S3Store>> Open(const base::Clock& clock, Sleeper& sleeper,
                                                       S3StoreOptions options,
                                                       S3CredentialsSource credentials);

  absl::Status Put(std::string_view name, const Content& content,
                   const Deadline& deadline) override;
  absl::Status Replace(std::string_view name, std::string_view bytes,
                       const Deadline& deadline) override;
  absl::Status Get(std::string_view name, uint64_t offset, uint64_t length, vault::Sink& sink,
                   const Deadline& deadline) override;
  absl::StatusOr<uint64_t> Stat(std::string_view name, const Deadline& deadline) override;
  absl::StatusOr<std::vector<ObjectInfo>> List(const ListRequest& request,
                                               const Deadline& deadline) override;
  absl::Status Delete(std::string_view name, const Deadline& deadline) override;
  absl::StatusOr<Description> Describe(const Deadline& deadline) override;
  absl::StatusOr<uint64_t> Sweep(base::Duration older_than, const Deadline& deadline) override;

 private:
  struct Head {
    uint64_t bytes = 0;
    std::string sha256;  // "" when the object does not say
  };

  S3Store(const base::Clock& clock, Sleeper& sleeper, S3StoreOptions options,
          std::unique_ptr<S3Client> client);
  std::string KeyOf(std::string_view name) const;
  absl::StatusOr<Head> HeadOf(std::string_view name, const Deadline& deadline);
  absl::Status PutWhole(const std::string& key, const Content& content, const Deadline& deadline);
  // What a Put does that finds its name taken.
  absl::Status PutAgain(std::string_view name, const Content& content, const Deadline& deadline);
  // Whether the service itself refuses a second Put; asks it once.
  absl::StatusOr<bool> ProbeWriteOnce(const Deadline& deadline);
  // Answers that may be refused to us without the store being unusable: nothing then.
  absl::StatusOr<std::optional<bool>> AskBucket(const std::string& question,
                                                absl::StatusOr<bool> (*parse)(std::string_view),
                                                const Deadline& deadline);

  const base::Clock& clock_;
  Sleeper& sleeper_;
  const S3StoreOptions options_;
  const std::string key_prefix_;  // "" or "prefix/"
  const std::unique_ptr<S3Client> client_;
  std::atomic<bool> bucket_seen_{false};
  std::atomic<int> write_once_{-1};  // -1: not known yet
};

}  // namespace stores
