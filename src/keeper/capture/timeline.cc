#include "capture/timeline.h"

#include <fmt/format.h>

namespace capture {

std::string WhyAnotherHistory(const HistoryMark& remembered, const HistoryMark& now) {
  if (remembered.cluster_id != now.cluster_id) {
    return fmt::format("the cluster id changed from {:x} to {:x}", remembered.cluster_id,
                       now.cluster_id);
  }
  if (now.revision < remembered.revision) {
    return fmt::format("the revision fell from {} to {}", remembered.revision, now.revision);
  }
  if (now.raft_index != 0 && now.raft_index < remembered.raft_index) {
    return fmt::format("the raft log began anew: its index fell from {} to {}",
                       remembered.raft_index, now.raft_index);
  }
  return {};
}

}  // namespace capture
