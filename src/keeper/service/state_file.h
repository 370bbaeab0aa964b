// What a keeper remembers of a cluster between two runs. Its loss costs a new timeline's name and a
// proof at most. Blocking; any thread.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "capture/archiver.h"
#include "capture/timeline.h"
#include "catalog/inventory.h"
#include "service/clock_watch.h"

namespace service {

// How the daemon's retention went the last time.
struct RetentionRun {
  catalog::Time at{0};  // 0: never
  uint64_t objects = 0;
  uint64_t bytes = 0;
  std::string stopped;  // why nothing was deleted, or a store kept its copies; empty: all is well
};

struct StateFile {
  catalog::Timeline timeline;
  capture::HistoryMark mark;  // the newest state of the cluster that was seen
  capture::ArchivePosition archive;
  catalog::Time watched_at{0};
  // The last full, whole facts; nothing before the first one.
  std::optional<catalog::Object> last_full;
  RetentionRun retention;
  ClockState clock;  // as the daemon saw it last
};

// Where it lies.
std::string StatePath(const std::string& state_dir, const std::string& cluster);

// NotFound when there is none; DataLoss when it is damaged.
absl::StatusOr<StateFile> LoadState(base::Files& files, const std::string& path);
absl::Status SaveState(base::Files& files, const std::string& path, const StateFile& state);

}  // namespace service
