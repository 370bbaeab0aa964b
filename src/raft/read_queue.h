// Linearizable reads that wait until a quorum confirms that the leader still leads (raft thesis
// §6.4). Part of a leader's state; owned by the machine, not thread-safe.
//
// Reads are numbered in the order they came in; heartbeats carry the number of the newest one as 8
// bytes, little-endian, and followers echo it. Acknowledgements therefore behave like acknowledged
// log indexes: what a quorum has acknowledged confirms all reads up to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "raft/configuration.h"
#include "raft/types.h"

namespace raft {

class ReadQueue {
 public:
  struct Read {
    Message request;  // the MsgReadIndex
    Index index = 0;  // the commit index when it came in
  };

  // Requires !full().
  void Add(Message request, Index index);
  bool full() const;
  // For heartbeats; empty when no read waits.
  Buffer Context() const;
  // `from` has echoed `context`. False when that says nothing: too short, or about reads that were
  // never asked here.
  bool Acknowledge(NodeId from, const Buffer& context);
  // This node counts as a member that acknowledges everything.
  void AcknowledgeAll(NodeId self);
  // Takes out the reads that a quorum of `config` has confirmed, oldest first.
  std::vector<Read> TakeConfirmed(const Configuration& config);

 private:
  uint64_t newest() const { return confirmed_ + reads_.size(); }

  uint64_t confirmed_ = 0;  // reads answered in this leadership; reads_ are those that follow
  std::deque<Read> reads_;
  std::map<NodeId, uint64_t> acknowledged_;
};

}  // namespace raft
