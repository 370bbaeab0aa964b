// Makes the data directory of one member of a new cluster out of a snapshot file, as `etcdutl
// snapshot restore` does. Blocking; any thread, one restore into a directory at a time (a second
// one is refused).
//
// The directory is built as <data-dir>/member.restoring and renamed to <data-dir>/member once
// everything in it is durable: a restore that fails or is killed leaves no member that a server
// would start on, and the next attempt clears what is left.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "cluster/membership.h"

namespace snapshot {

struct RestoreOptions {
  std::string snapshot_path;
  std::string name = "default";
  std::string data_dir;  // empty: <name>.etcd
  std::string wal_dir;   // empty: <data_dir>/member/wal
  // As on a command line: "m1=http://a:2380,m2=http://b:2380".
  std::string initial_cluster = "default=http://localhost:2380";
  std::string initial_advertise_peer_urls = "http://localhost:2380";
  std::string initial_cluster_token = "etcd-cluster";
  // Also takes a file without a SHA-256, or with one that does not fit. The pages are checked in
  // any case.
  bool skip_hash_check = false;
  // The snapshot is a file of the caller's own, on the data directory's file system and durable: it
  // is moved into place and gone afterwards, instead of copied. Needs skip_hash_check.
  bool take_snapshot = false;
  uint64_t map_reserve_bytes =
      uint64_t{10} << 30;  // of address space while the database is open; 0 = this default
  // Raises the newest revision by this much, so that revisions seen before the snapshot's loss are
  // not given out again; goes with mark_compacted only, which makes watchers from before start
  // anew.
  uint64_t bump_revision = 0;
  bool mark_compacted = false;
  // The IP address of a host name, to compare the two lists of own URLs; unset: they are compared
  // as texts.
  absl::AnyInvocable<absl::StatusOr<std::string>(const std::string& host)> resolve;
};

// Where everything goes and who is in the cluster.
struct RestorePlan {
  std::string snapshot_path;
  std::string data_dir;
  std::string wal_dir;
  std::string snap_dir;
  uint64_t map_reserve_bytes = 0;
  uint64_t cluster_id = 0;
  uint64_t local_id = 0;
  std::map<uint64_t, cluster::Member> members;  // the whole new cluster, by id
};

// Told what happens, on the restoring thread, for logs and progress bars.
class RestoreObserver {
 public:
  virtual ~RestoreObserver() = default;
  virtual void Started(const RestorePlan&) {}
  virtual void Copied(uint64_t /*done_bytes*/, uint64_t /*total_bytes*/) {}
  virtual void Trimming() {}
  virtual void Bumping(int64_t /*latest*/, uint64_t /*amount*/, int64_t /*bumped*/) {}
  virtual void MarkingCompacted(int64_t /*revision*/) {}
  virtual void AddedMember(const RestorePlan&, const cluster::Member&) {}
  virtual void Finished(const RestorePlan&) {}
};

// Checks the options and that the directories may be filled. Reads nothing of the snapshot.
// InvalidArgument and FailedPrecondition with etcd's texts.
absl::StatusOr<RestorePlan> PlanRestore(base::Files& files, RestoreOptions& options);

// Restores. After an error what was made is removed again. Errors of PlanRestore; NotFound for a
// missing snapshot; DataLoss for a damaged one; DataLoss "snapshot missing hash but
// --skip-hash-check=false".
absl::StatusOr<RestorePlan> Restore(base::Files& files, base::Clock& clock, RestoreOptions options,
                                    RestoreObserver& observer);

}  // namespace snapshot
