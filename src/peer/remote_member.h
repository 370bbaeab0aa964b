// Another member, as the transport reaches it: the streams in both directions, the pipeline and the
// snapshot sender. Thread-safe; the destructor waits for the threads, Interrupt() does not.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "peer/incoming_stream.h"
#include "peer/link.h"
#include "peer/outgoing_stream.h"
#include "peer/pipeline.h"
#include "peer/snapshot_transfer.h"

namespace peer {

class RemoteMember {
 public:
  // `link` outlives it. A member not known yet (`pipeline_only`) is only posted to, so that it gets
  // answers.
  RemoteMember(const Link& link, raft::NodeId id, const std::vector<std::string>& urls,
               bool pipeline_only);
  ~RemoteMember();

  void Send(raft::Message message);
  void Update(const std::vector<std::string>& urls) { urls_.Update(urls); }
  // A stream it asked for takes the place of an earlier one. Loop thread of the exchange.
  void Attach(std::shared_ptr<net::HttpExchange> exchange, StreamKind kind);
  void Interrupt();
  std::optional<base::Duration> active_since() const { return activity_->since(); }
  PeerFacts facts() const {
    return {.id = id_,
            .active = activity_->since().has_value(),
            .sent_bytes = activity_->sent_bytes(),
            .received_bytes = activity_->received_bytes()};
  }
  void CountReceived(uint64_t bytes) { activity_->CountReceived(bytes); }
  bool pipeline_only() const { return incoming_[0] == nullptr; }

 private:
  std::shared_ptr<OutgoingStream> StreamFor(raft::MessageType type) const;

  const Link& link_;
  const raft::NodeId id_;
  UrlPicker urls_;
  const std::shared_ptr<Activity> activity_;  // outgoing streams may outlive this
  Pipeline pipeline_;
  SnapshotSender snapshots_;

  mutable std::mutex mutex_;
  std::shared_ptr<OutgoingStream> outgoing_[2];  // by StreamKind; guarded by mutex_
  bool interrupted_ = false;                     // guarded by mutex_
  std::unique_ptr<IncomingStream> incoming_[2];  // last: their threads use what stands above
};

}  // namespace peer
