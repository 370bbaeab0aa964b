// One stream on which another member writes messages to this one: a thread that asks for it, reads
// it until it breaks, and asks again. Owned by its RemoteMember; Interrupt() from any thread.
#pragma once

#include <atomic>
#include <thread>

#include "net/http_client.h"
#include "peer/link.h"
#include "peer/stream_codec.h"

namespace peer {

class IncomingStream {
 public:
  // All references outlive the stream. Starts the thread.
  IncomingStream(const Link& link, raft::NodeId remote, StreamKind kind, UrlPicker& urls,
                 Activity& activity);
  // Waits for the thread.
  ~IncomingStream();
  // Lets the thread end, soon.
  void Interrupt() { interrupt_.Set(); }

 private:
  void ThreadMain();
  // One stream from its request to its end. Never OK.
  absl::Status Run(const base::Url& url);
  absl::Status CheckAnswer(const net::HttpResponseHead& head);
  void Deliver(raft::Message message);

  const Link& link_;
  const raft::NodeId remote_;
  const StreamKind kind_;
  UrlPicker& urls_;
  Activity& activity_;
  net::Interrupt interrupt_;
  bool working_ = false;  // the thread's: a stream was established and has not been lost since
  std::thread thread_;
};

}  // namespace peer
