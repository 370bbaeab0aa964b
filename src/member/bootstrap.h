// From a data directory (or none) to everything a member runs on: the open db file, the WAL with
// what it recovered, identity and membership. One call at start, on the starting thread. Source:
// reference on-disk.md 3.5, 4.4, 7.1, 7.2.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/membership.h"
#include "member/options.h"
#include "mvcc/backend.h"
#include "peer/transport.h"
#include "raft/types.h"
#include "wal/log.h"

namespace member {

struct DataPaths {
  std::string member_dir;
  std::string snap_dir;
  std::string wal_dir;
  std::string db;
};
DataPaths PathsOf(const MemberOptions& options);

struct Bootstrapped {
  DataPaths paths;
  uint64_t member_id = 0;
  uint64_t cluster_id = 0;
  bool is_new = false;
  std::unique_ptr<mvcc::Backend> backend;
  std::unique_ptr<wal::Log> log;
  cluster::Membership::View membership;
  raft::HardState hard_state;
  raft::ConfState conf_state;
  uint64_t start_index = 0;  // of the snapshot the log goes on from
  uint64_t start_term = 0;
  std::vector<raft::Entry> entries;  // after start_index
  // For a new cluster: the members whose addition opens the log, by id.
  std::vector<cluster::Member> bootstrap_members;
  // For a member that joins: the others, as they say; its own membership comes with the log.
  std::vector<cluster::Member> remote_members;
  // What a log line should say.
  std::vector<std::string> notes;
};

// `backend_options` carries the callbacks; paths and seams are filled in here. A first start in a
// cluster of several asks the others over `transport`.
absl::StatusOr<Bootstrapped> Bootstrap(const MemberOptions& options,
                                       mvcc::BackendOptions backend_options,
                                       peer::Transport& transport);

// The members, removed ones included, as `source` (an mvcc::Backend's view or image) holds them.
// DataLoss, naming `path`, for pairs that are none.
template <typename Source>
absl::StatusOr<cluster::Membership::View> LoadMembership(const Source& source,
                                                         const std::string& path);
// Whether a server of `own_version` may run on this membership's cluster version.
absl::Status CheckClusterVersion(const cluster::Membership::View& membership,
                                 const std::string& own_version);

}  // namespace member
