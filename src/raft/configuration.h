// Who belongs to the group, and the changes it may go through (raft thesis §4). Values and pure
// functions; a value belongs to one thread.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "raft/progress.h"
#include "raft/types.h"

namespace raft {

// All lists are sorted and free of duplicates.
struct Configuration {
  std::vector<NodeId> incoming;       // the voters; of a joint configuration the new half
  std::vector<NodeId> outgoing;       // the old half; not empty iff joint
  std::vector<NodeId> learners;       // in neither half
  std::vector<NodeId> learners_next;  // in outgoing but not in incoming; become learners on leaving
  bool auto_leave = false;            // only when joint

  bool joint() const { return !outgoing.empty(); }
  bool IsVoter(NodeId id) const;
  // Voters of both halves, ascending.
  std::vector<NodeId> Voters() const;
  ConfState ToConfState() const;

  friend bool operator==(const Configuration&, const Configuration&) = default;
};

// Ordered, so that messages leave in the same order everywhere.
using ProgressMap = std::map<NodeId, Progress>;

// A configuration with the progress of each of its members: non-learner progress for the voters of
// both halves, learner progress for the learners.
struct Group {
  Configuration config;
  ProgressMap progress;
};

// How new members start out.
struct NewMember {
  Index last_index = 0;  // of the log that is changing; a new member is first probed just below it
  size_t max_inflight_msgs = 0;
  uint64_t max_inflight_bytes = 0;
};

// The group that `state` describes, all members new. kInvalidArgument when it contradicts itself.
// Empty is allowed: a member that has not learnt of its cluster yet.
absl::StatusOr<Group> MakeGroup(const ConfState& state, const NewMember& member);

// Each gives the group after the change, or kInvalidArgument with etcd's text and no change.
// A change of at most one voter (others may come and go as learners), directly.
absl::StatusOr<Group> ChangeSimply(const Group& group, std::span<const ConfChangeSingle> changes,
                                   const NewMember& member);
absl::StatusOr<Group> EnterJoint(const Group& group, bool auto_leave,
                                 std::span<const ConfChangeSingle> changes,
                                 const NewMember& member);
absl::StatusOr<Group> LeaveJoint(const Group& group);
// Whichever of these three `change` asks for.
absl::StatusOr<Group> Change(const Group& group, const ConfChangeV2& change,
                             const NewMember& member);

}  // namespace raft
