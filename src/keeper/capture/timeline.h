// Whether a cluster still tells the history that was archived last. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "catalog/inventory.h"

namespace capture {

// What is remembered of the history, and what a member says now.
struct HistoryMark {
  uint64_t cluster_id = 0;
  int64_t revision = 0;     // the newest one, as a linearizable read tells it
  uint64_t raft_index = 0;  // the leader's; 0: unknown
};

// Why history is another one; empty when nothing speaks against it. A living cluster never lowers
// its revision or its raft index, and never changes its id; a restored one starts its log anew even
// when it was given the same token, which makes the same id.
std::string WhyAnotherHistory(const HistoryMark& remembered, const HistoryMark& now);

}  // namespace capture
