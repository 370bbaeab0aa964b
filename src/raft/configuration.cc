#include "raft/configuration.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace raft {
namespace {

bool Contains(const std::vector<NodeId>& set, NodeId id) {
  return std::binary_search(set.begin(), set.end(), id);
}

void Insert(std::vector<NodeId>* set, NodeId id) {
  const auto at = std::lower_bound(set->begin(), set->end(), id);
  if (at == set->end() || *at != id) set->insert(at, id);
}

void Erase(std::vector<NodeId>* set, NodeId id) {
  const auto at = std::lower_bound(set->begin(), set->end(), id);
  if (at != set->end() && *at == id) set->erase(at);
}

bool Intersect(const std::vector<NodeId>& a, const std::vector<NodeId>& b) {
  return std::any_of(a.begin(), a.end(), [&](NodeId id) { return Contains(b, id); });
}

absl::Status Refused(std::string_view why) {
  return absl::Status(absl::StatusCode::kInvalidArgument, base::ToAbsl(why));
}

Progress NewProgress(const NewMember& member, bool learner) {
  Progress progress(0, std::max<Index>(member.last_index, 1), learner,
                    Inflights(member.max_inflight_msgs, member.max_inflight_bytes));
  // A new member counts as alive, or a leader that adds it might step down before it had a chance
  // to answer.
  progress.recent_active = true;
  return progress;
}

// Applies single changes to a copy of a group.
class Changer {
 public:
  Changer(const Group& group, const NewMember& member) : group_(group), member_(member) {}

  absl::Status Apply(std::span<const ConfChangeSingle> changes) {
    for (const ConfChangeSingle& change : changes) {
      // etcd zeroes the id of a change it refuses, to carry the entry through all the same.
      if (change.node_id == kNoNode) continue;
      if (change.node_id >= kApplyThread)
        return Refused("configuration change names a reserved id");
      switch (change.type) {
        case ConfChangeType::kAddNode:
          MakeVoter(change.node_id);
          break;
        case ConfChangeType::kAddLearnerNode:
          MakeLearner(change.node_id);
          break;
        case ConfChangeType::kRemoveNode:
          Remove(change.node_id);
          break;
        case ConfChangeType::kUpdateNode:
          break;
      }
    }
    if (config().incoming.empty()) return Refused("removed all voters");
    return absl::OkStatus();
  }

  Configuration& config() { return group_.config; }
  Group Take() { return std::move(group_); }

 private:
  void MakeVoter(NodeId id) {
    const auto [it, added] = group_.progress.try_emplace(id, NewProgress(member_, false));
    it->second.is_learner = false;
    Erase(&config().learners, id);
    Erase(&config().learners_next, id);
    Insert(&config().incoming, id);
  }

  void MakeLearner(NodeId id) {
    const auto [it, added] = group_.progress.try_emplace(id, NewProgress(member_, true));
    Erase(&config().incoming, id);
    // A voter of the outgoing half stays one until the joint configuration is left.
    if (Contains(config().outgoing, id)) {
      Insert(&config().learners_next, id);
    } else {
      it->second.is_learner = true;
      Insert(&config().learners, id);
    }
  }

  void Remove(NodeId id) {
    Erase(&config().incoming, id);
    Erase(&config().learners, id);
    Erase(&config().learners_next, id);
    if (!Contains(config().outgoing, id)) group_.progress.erase(id);
  }

  Group group_;
  const NewMember& member_;
};

}  // namespace

bool Configuration::IsVoter(NodeId id) const {
  return Contains(incoming, id) || Contains(outgoing, id);
}

std::vector<NodeId> Configuration::Voters() const {
  std::vector<NodeId> all;
  std::set_union(incoming.begin(), incoming.end(), outgoing.begin(), outgoing.end(),
                 std::back_inserter(all));
  return all;
}

ConfState Configuration::ToConfState() const {
  return {.voters = incoming,
          .learners = learners,
          .voters_outgoing = outgoing,
          .learners_next = learners_next,
          .auto_leave = auto_leave};
}

absl::StatusOr<Group> MakeGroup(const ConfState& state, const NewMember& member) {
  Group group;
  Configuration& config = group.config;
  config = {.incoming = state.voters,
            .outgoing = state.voters_outgoing,
            .learners = state.learners,
            .learners_next = state.learners_next,
            .auto_leave = state.auto_leave};
  for (std::vector<NodeId>* set :
       {&config.incoming, &config.outgoing, &config.learners, &config.learners_next}) {
    std::sort(set->begin(), set->end());
    if (Contains(*set, kNoNode)) return Refused("configuration has a member with id 0");
    if (!set->empty() && set->back() >= kApplyThread) {
      return Refused("configuration has a member with a reserved id");
    }
    if (std::adjacent_find(set->begin(), set->end()) != set->end()) {
      return Refused("configuration names a member twice");
    }
  }
  if (config.incoming.empty() && !(config.outgoing.empty() && config.learners.empty())) {
    return Refused("configuration has no voters");
  }
  if (Intersect(config.learners, config.Voters())) {
    return Refused("configuration has a member that is both voter and learner");
  }
  for (const NodeId id : config.learners_next) {
    if (!Contains(config.outgoing, id) || Contains(config.incoming, id)) {
      return Refused("configuration has a next learner that is no outgoing voter");
    }
  }
  if (!config.joint() && config.auto_leave) {
    return Refused("configuration is to be left but not joint");
  }
  for (const NodeId id : config.Voters()) group.progress.emplace(id, NewProgress(member, false));
  for (const NodeId id : config.learners) group.progress.emplace(id, NewProgress(member, true));
  return group;
}

absl::StatusOr<Group> ChangeSimply(const Group& group, std::span<const ConfChangeSingle> changes,
                                   const NewMember& member) {
  if (group.config.joint()) return Refused("can't apply simple config change in joint config");
  Changer changer(group, member);
  RETURN_IF_ERROR(changer.Apply(changes));
  std::vector<NodeId> changed;
  const std::vector<NodeId>& before = group.config.incoming;
  const std::vector<NodeId>& after = changer.config().incoming;
  std::set_symmetric_difference(before.begin(), before.end(), after.begin(), after.end(),
                                std::back_inserter(changed));
  // Majorities of sets that differ in one member overlap; with two they need not.
  if (changed.size() > 1) {
    return Refused("more than one voter changed without entering joint config");
  }
  return changer.Take();
}

absl::StatusOr<Group> EnterJoint(const Group& group, bool auto_leave,
                                 std::span<const ConfChangeSingle> changes,
                                 const NewMember& member) {
  if (group.config.joint()) return Refused("config is already joint");
  if (group.config.incoming.empty()) return Refused("can't make a zero-voter config joint");
  Changer changer(group, member);
  changer.config().outgoing = changer.config().incoming;
  changer.config().auto_leave = auto_leave;
  RETURN_IF_ERROR(changer.Apply(changes));
  return changer.Take();
}

absl::StatusOr<Group> LeaveJoint(const Group& group) {
  if (!group.config.joint()) return Refused("can't leave a non-joint config");
  Group after = group;
  Configuration& config = after.config;
  for (const NodeId id : config.learners_next) {
    Insert(&config.learners, id);
    after.progress.at(id).is_learner = true;
  }
  for (const NodeId id : config.outgoing) {
    if (!Contains(config.incoming, id) && !Contains(config.learners, id)) after.progress.erase(id);
  }
  config.outgoing.clear();
  config.learners_next.clear();
  config.auto_leave = false;
  return after;
}

absl::StatusOr<Group> Change(const Group& group, const ConfChangeV2& change,
                             const NewMember& member) {
  if (change.LeavesJoint()) return LeaveJoint(group);
  if (change.EntersJoint()) return EnterJoint(group, change.AutoLeave(), change.changes, member);
  return ChangeSimply(group, change.changes, member);
}

}  // namespace raft
