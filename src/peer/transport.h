// How raft messages leave a member. The consensus thread calls it; implementations must not block
// and may drop messages.
#pragma once

#include <vector>

#include "raft/types.h"

namespace peer {

class Transport {
 public:
  virtual ~Transport() = default;
  // In order per receiver. What cannot be sent is dropped; raft asks again.
  virtual void Send(std::vector<raft::Message> messages) = 0;
};

}  // namespace peer
