// A write on its way through the log, and what applying it gave. A Proposal is made by the API,
// owned by the member until Done() is called, and then destroyed. Done() may be called on any
// thread of the member; it must not block.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "raft/types.h"

namespace member {

struct ApplyResult {
  absl::Status status;
  // header.revision of the answer.
  int64_t revision = 0;
  // The fields of the response message other than its header, encoded.
  std::string body;
};

class Proposal {
 public:
  virtual ~Proposal() = default;
  // Exactly once.
  virtual void Done(ApplyResult result) = 0;

  // --- the member's ---
  uint64_t request_id = 0;
  raft::Buffer data;         // the encoded InternalRaftRequest; taken over when it is proposed
  base::Duration started{};  // monotonic
};
using ProposalPtr = std::unique_ptr<Proposal>;

}  // namespace member
