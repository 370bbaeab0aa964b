// Makes the db of one moment out of a full and segments, in a private file, and proves it before
// anything else is done with it. Blocking; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "catalog/inventory.h"
#include "restore/fetch.h"
#include "snapshot/replay.h"

namespace restore {

struct Materials {
  catalog::Object base;                    // a full
  std::vector<catalog::Object> segments;   // in order; what they share is taken once
  int64_t revision = 0;                    // the moment wanted
  int64_t lease_ttl_default_seconds = 60;  // of leases whose TTL could not be asked for
};

// A HashKV that the file was found to have, as the log said it must.
struct HashProof {
  int64_t revision = 0;
  int64_t compact_revision = 0;
  uint32_t hash = 0;
};

// How the text of an error begins that is about the proof, not about the bytes.
inline constexpr std::string_view kProofFailed = "proof failed";

struct BuildObserver {
  // Bytes fetched so far and in all, of everything.
  std::function<void(uint64_t done, uint64_t total)> fetched = {};
  std::function<void(uint64_t rows)> replayed = {};
};

struct BuiltDb {
  std::string path;
  snapshot::Bounds bounds;  // bounds.revision is the moment wanted
  snapshot::ReplayStats replay;
  std::optional<HashProof> proof;  // nothing when the log states no HashKV of the base
  int64_t chained_from = 0;        // up to the moment wanted: proven by the archive's hash chain
  std::vector<std::string> notes;  // what the reader should know, a line each
  base::Duration fetch_time{0}, replay_time{0}, proof_time{0};
};

// Builds `path`. Errors: Fetcher's; DataLoss, saying where, when materials do not fit together or
// the HashKV is not the one that was proven. The file is removed then.
absl::StatusOr<BuiltDb> BuildDb(base::Files& files, base::Clock& clock, Fetcher& fetcher,
                                const Materials& materials, const std::string& path,
                                const BuildObserver& observer);

}  // namespace restore
