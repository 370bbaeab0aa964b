// One stream on which this member writes messages to another, which asked for it by GET: the body
// of a response that never ends. Push and Close: any thread; the rest happens on the loop of the
// exchange.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "absl/functional/any_invocable.h"
#include "net/http.h"
#include "net/loop.h"
#include "peer/link.h"
#include "peer/stream_codec.h"
#include "raft/types.h"

namespace peer {

class OutgoingStream : public std::enable_shared_from_this<OutgoingStream> {
 public:
  // Takes the exchange over. Loop thread; call Start() next.
  OutgoingStream(std::shared_ptr<net::HttpExchange> exchange, StreamKind kind,
                 std::shared_ptr<Activity> activity);
  // Sends the head. `on_end` is called once, on the loop thread, when the stream is over;
  // `lost` says whether messages were waiting.
  void Start(absl::AnyInvocable<void(bool lost)> on_end);

  // False, with the message dropped, when too much is waiting or the stream is over.
  bool Push(raft::Message message);
  bool closed() const;
  // Ends the stream; on_end is called.
  void Close();

 private:
  void Drain();
  void Beat();
  void End();

  net::Loop& loop_;
  const std::shared_ptr<Activity> activity_;
  // Loop thread.
  std::shared_ptr<net::HttpExchange> exchange_;
  StreamEncoder encoder_;
  absl::AnyInvocable<void(bool)> on_end_;
  bool waiting_for_room_ = false;

  mutable std::mutex mutex_;
  std::deque<raft::Message> queue_;  // guarded by mutex_
  uint64_t queue_bytes_ = 0;         // guarded by mutex_
  bool posted_ = false;              // guarded by mutex_: Drain is on its way
  bool closed_ = false;              // guarded by mutex_
};

}  // namespace peer
