// Raises or lowers the storage version of a stopped member's database. Blocking; any thread. The
// file is locked meanwhile.
#pragma once

#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "cluster/membership.h"

namespace snapshot {

struct MigrateOptions {
  std::string data_dir;
  cluster::Version target;  // the patch is 0
  bool force = false;       // write the version whatever stands against it
  base::Duration lock_timeout{0};
};

// Told on the calling thread what happens.
class MigrateObserver {
 public:
  virtual ~MigrateObserver() = default;
  virtual void UpToDate(const cluster::Version&) {}
  virtual void Updated(const cluster::Version&) {}  // once for each minor version on the way
  virtual void Forcing(const absl::Status& /*why*/) {}
  virtual void Forced(const cluster::Version&) {}  // 3.5: the mark was removed
};

// Only meta.storageVersion changes: 3.5 has none. FailedPrecondition with etcd's texts: a version
// this program does not know, another major version, or a log that holds entries which the target
// could not read.
absl::Status Migrate(base::Files& files, base::Clock& clock, const MigrateOptions& options,
                     MigrateObserver& observer);

}  // namespace snapshot
