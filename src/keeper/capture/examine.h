// What the bytes of a full say of themselves, found before it is called a backup. Blocking; any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "capture/row_digests.h"
#include "snapshot/inspect.h"
#include "snapshot/replay.h"

namespace capture {

struct Examination {
  snapshot::Bounds bounds;
  snapshot::HashKv hash;  // at bounds.revision
  std::string storage_version;
  uint64_t key_count = 0;                         // live keys
  std::map<std::string, uint64_t> prefix_counts;  // of each top-level prefix
  RowDigests rows;                                // of (compact revision, revision]
  // How values of Kubernetes say that they are encrypted: "k8s:enc:aescbc:v1:key1:".
  std::set<std::string> encryptions;
};

struct ExamineOptions {
  // Whoever downloaded the file compared its SHA-256 already.
  bool digest_was_checked = false;
};
// Checks the SHA-256 at the end and every page, then reads all rows. DataLoss when the digest is
// missing or wrong, a page is damaged, or a revision above the compacted one is missing.
absl::StatusOr<Examination> Examine(base::Files& files, base::Clock& clock, const std::string& path,
                                    const ExamineOptions& options = {});

// "/registry/pods/" of "/registry/pods/shop/web-1"; "jobs/" of "jobs/7"; "" of "x".
std::string_view TopPrefix(std::string_view key);

// "k8s:enc:aescbc:v1:key1:" of a value that begins so; empty for any other.
std::string_view EncryptionOf(std::string_view value);

}  // namespace capture
