#include "raft/read_queue.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "raft/quorum.h"

namespace raft {
namespace {
constexpr size_t kContextBytes = 8;
// A leader that has lost its quorum answers nothing; it must not collect requests without end
// either.
constexpr size_t kReadsMax = 1 << 16;
}  // namespace

bool ReadQueue::full() const { return reads_.size() >= kReadsMax; }

void ReadQueue::Add(Message request, Index index) {
  CHECK(!full());
  reads_.push_back({.request = std::move(request), .index = index});
}

Buffer ReadQueue::Context() const {
  if (reads_.empty()) return {};
  char bytes[kContextBytes];
  base::StoreLe<uint64_t>(bytes, newest());
  return Buffer::Copy({bytes, sizeof bytes});
}

bool ReadQueue::Acknowledge(NodeId from, const Buffer& context) {
  if (context.size() < kContextBytes) return false;
  const auto number = base::LoadLe<uint64_t>(context.view().data());
  if (number > newest()) return false;
  uint64_t& acknowledged = acknowledged_[from];
  acknowledged = std::max(acknowledged, number);
  return true;
}

void ReadQueue::AcknowledgeAll(NodeId self) { acknowledged_[self] = newest(); }

std::vector<ReadQueue::Read> ReadQueue::TakeConfirmed(const Configuration& config) {
  const Index quorum =
      JointCommitted(config.incoming, config.outgoing, [this](NodeId id) -> std::optional<Index> {
        const auto it = acknowledged_.find(id);
        if (it == acknowledged_.end()) return std::nullopt;
        return it->second;
      });
  std::vector<Read> taken;
  while (confirmed_ < quorum && !reads_.empty()) {
    taken.push_back(std::move(reads_.front()));
    reads_.pop_front();
    ++confirmed_;
  }
  return taken;
}

}  // namespace raft
