#include "raft/quorum.h"

#include <algorithm>
#include <array>
#include <vector>

namespace raft {
namespace {

// The index at the majority's position of the sorted acknowledgements: n/2 + 1 of them are at least
// as high.
Index MajorityElement(std::span<Index> acks) {
  const size_t position = (acks.size() - 1) / 2;
  std::nth_element(acks.begin(), acks.begin() + static_cast<std::ptrdiff_t>(position), acks.end());
  return acks[position];
}

}  // namespace

Index MajorityCommitted(std::span<const NodeId> voters, AckedFn acked) {
  if (voters.empty()) return kNoLimit;
  // Clusters are small: the usual case stays off the heap.
  std::array<Index, 9> few;
  std::vector<Index> many;
  std::span<Index> acks(few.data(), std::min(voters.size(), few.size()));
  if (voters.size() > few.size()) {
    many.resize(voters.size());
    acks = many;
  }
  for (size_t i = 0; i < voters.size(); ++i) acks[i] = acked(voters[i]).value_or(0);
  return MajorityElement(acks);
}

VoteResult MajorityVote(std::span<const NodeId> voters, VotedFn voted) {
  if (voters.empty()) return VoteResult::kWon;
  size_t granted = 0;
  size_t missing = 0;
  for (const NodeId id : voters) {
    const std::optional<bool> vote = voted(id);
    if (!vote) {
      ++missing;
    } else if (*vote) {
      ++granted;
    }
  }
  const size_t quorum = voters.size() / 2 + 1;
  if (granted >= quorum) return VoteResult::kWon;
  if (granted + missing >= quorum) return VoteResult::kPending;
  return VoteResult::kLost;
}

Index JointCommitted(std::span<const NodeId> incoming, std::span<const NodeId> outgoing,
                     AckedFn acked) {
  return std::min(MajorityCommitted(incoming, acked), MajorityCommitted(outgoing, acked));
}

VoteResult JointVote(std::span<const NodeId> incoming, std::span<const NodeId> outgoing,
                     VotedFn voted) {
  const VoteResult a = MajorityVote(incoming, voted);
  const VoteResult b = MajorityVote(outgoing, voted);
  if (a == VoteResult::kLost || b == VoteResult::kLost) return VoteResult::kLost;
  if (a == VoteResult::kPending || b == VoteResult::kPending) return VoteResult::kPending;
  return VoteResult::kWon;
}

}  // namespace raft
