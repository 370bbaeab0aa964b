// One multipart upload: begun, its parts sent in parallel, completed or aborted. Used by one
// thread, which starts others for the parts and waits for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "stores/content.h"
#include "stores/deadline.h"
#include "stores/s3_client.h"

namespace stores {

// The digests of a content's parts. DataLoss unless all of it has the digest it says.
absl::StatusOr<std::vector<base::Digest>> HashParts(const Content& content, uint64_t part_bytes,
                                                    const base::Clock& clock,
                                                    const Deadline& deadline);

// The smallest size of a part, in whole MiB, that makes no more parts than S3 allows.
uint64_t PartBytes(uint64_t content_bytes);

// How an object is sent: `headers` with the request that begins it, `conditions` with the one that
// makes it visible.
struct S3UploadPlan {
  std::string key;
  std::vector<std::string> headers;
  std::vector<std::string> conditions;
  uint64_t part_bytes = 0;
  int parallel = 4;
  base::Duration retry_delay{};
};

// Nothing of a failed upload stays on the server, as far as it can be reached; what stays is
// aborted by S3Store::Sweep.
absl::Status UploadInParts(S3Client& client, const Content& content, const S3UploadPlan& plan,
                           const base::Clock& clock, Sleeper& sleeper, const Deadline& deadline);

// Also where the upload is gone already.
absl::Status AbortUpload(S3Client& client, const std::string& key, const std::string& upload_id,
                         const Deadline& deadline);

}  // namespace stores
