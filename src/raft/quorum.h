// Majority and joint-quorum arithmetic (raft thesis §4.3). Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/functional/function_ref.h"
#include "raft/types.h"

namespace raft {

enum class VoteResult : uint8_t { kPending = 0, kLost = 1, kWon = 2 };

// What a voter has acknowledged; nullopt when nothing is known of it, which counts as 0.
using AckedFn = absl::FunctionRef<std::optional<Index>(NodeId)>;
// How a voter has voted; nullopt when it has not.
using VotedFn = absl::FunctionRef<std::optional<bool>(NodeId)>;

// The highest index a majority of `voters` has acknowledged; kNoLimit when there are none, so that
// an empty half of a joint configuration never holds anything up.
Index MajorityCommitted(std::span<const NodeId> voters, AckedFn acked);
// An empty set of voters has won.
VoteResult MajorityVote(std::span<const NodeId> voters, VotedFn voted);

// Both halves must agree.
Index JointCommitted(std::span<const NodeId> incoming, std::span<const NodeId> outgoing,
                     AckedFn acked);
VoteResult JointVote(std::span<const NodeId> incoming, std::span<const NodeId> outgoing,
                     VotedFn voted);

}  // namespace raft
