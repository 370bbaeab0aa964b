// What a member asks of the others before its first start in a cluster of several. Blocks for
// seconds; the starting thread. Source: reference raft-and-peers.md 4.6.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/membership.h"
#include "member/options.h"
#include "peer/transport.h"

namespace member {

struct JoinedCluster {
  uint64_t member_id = 0;  // this member's, as the cluster knows it
  uint64_t cluster_id = 0;
  std::vector<cluster::Member> others;
};

// The cluster that the others of options.initial_cluster form, in which this member must have been
// added already. FailedPrecondition with etcd's text when they cannot be reached, name other
// members, or run versions that do not fit.
absl::StatusOr<JoinedCluster> JoinCluster(const MemberOptions& options, peer::Transport& transport);

// FailedPrecondition when the others know this new member as one that has served clients: its data
// were lost, and a start from nothing would break promises that it made.
absl::Status CheckNotBootstrapped(const MemberOptions& options, uint64_t member_id,
                                  peer::Transport& transport);

// The three versions a member says it has; fields that it leaves out are empty.
struct MemberVersions {
  std::string server;
  std::string cluster;
};
absl::StatusOr<MemberVersions> AskVersions(peer::Transport& transport,
                                           const std::vector<std::string>& urls,
                                           base::Duration timeout);

}  // namespace member
