// The archive of one cluster: a watch on the whole keyspace, whose revisions are put into segments,
// each closed after an interval or at a size, sealed and handed on. Owned by one thread, which
// calls Run(); Stop() and state() may come from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/random.h"
#include "capture/cluster.h"
#include "capture/row_digests.h"
#include "catalog/inventory.h"
#include "events/segment.h"
#include "vault/seal.h"

namespace capture {

// How far an archive has come.
struct ArchivePosition {
  int64_t revision = 0;             // the newest one that is archived; 0: it has not begun
  std::optional<RowDigest> digest;  // of that one's rows, when it is known
  base::Duration at{0};             // when it was seen
  std::string previous_sha256;      // hex, of the segment that ends with it; empty: a new chain
};

struct ArchiverOptions {
  std::string cluster;  // its name
  catalog::Timeline timeline;
  std::string writer;  // 16 hex digits
  base::Duration segment_every = std::chrono::seconds(10);
  uint64_t segment_bytes_max = uint64_t{8} << 20;
  vault::SealOptions seal;
  std::string keeper_version;
  ArchivePosition position;  // where to go on
};

// What an archiver hands out, on the thread of Run().
class ArchiveSink {
 public:
  virtual ~ArchiveSink() = default;
  // A file for the sealed bytes of a segment.
  virtual std::string NewPath(const std::string& name) = 0;
  // A sealed segment whose file is durable. An error pauses the archive until it is tried again.
  virtual absl::Status Segment(catalog::Object object, const std::string& path) = 0;
  // The archive waits, and why: a segment cannot be stored, and is tried again. OK: it goes on.
  virtual void Waits(const absl::Status& why) = 0;
  // Every revision, as soon as it is whole.
  virtual void Seen(int64_t revision, const RowDigest& digest) = 0;
  // At `at` the newest revision was `revision`, and all up to it are archived.
  virtual void Watched(int64_t revision, base::Duration at) = 0;
};

// How Run() ended.
struct ArchiveEnd {
  enum class Why {
    kStopped,
    kCompacted,       // the next revision is compacted: up to `compact_revision` there is a hole
    kAnotherHistory,  // the cluster tells another history now
    kFailed,          // the watch ended or nothing can be stored; try again
  };
  Why why = Why::kStopped;
  int64_t compact_revision = 0;
  std::string text;
};

class Archiver {
 public:
  Archiver(Cluster& cluster, base::Files& files, base::Clock& clock, base::Random& random,
           ArchiverOptions options, ArchiveSink& sink);
  ~Archiver();

  // Watches until something ends it. What is whole by then is archived first.
  ArchiveEnd Run();
  void Stop();

  // Its position goes on with Run(); read it on the thread of Run() or after it returned.
  const ArchiverOptions& options() const;

 private:
  class Session;
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace capture
