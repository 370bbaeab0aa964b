// What a connection and the protocol spoken on it owe each other. Loop thread only. The protocol
// sees bytes in and an output queue, never a socket, so tests and fuzzers drive sessions with a
// host of their own.
#pragma once

#include <memory>
#include <string_view>

#include "base/clock.h"
#include "net/http.h"
#include "net/output_queue.h"

namespace net {

class Loop;

// The connection, as its protocol sees it.
class ProtocolHost {
 public:
  virtual Loop& loop() = 0;
  virtual const std::shared_ptr<const ConnectionInfo>& info() const = 0;
  // Bytes for the peer. The host writes them at the end of the turn after it called
  // Protocol::Produce.
  virtual OutputQueue& output() = 0;
  // Asks for Produce and a write at the end of this turn.
  virtual void WantFlush() = 0;
  // Closes once the output has left (or stalled too long). No more input is delivered.
  virtual void CloseAfterFlush() = 0;
  // Closes at the end of this turn, output or not.
  virtual void Abort() = 0;
  // Stops reading from the socket.
  virtual void PauseInput(bool paused) = 0;
  // The first request (or the HTTP/2 preface) is complete: the connection no longer counts as
  // unfinished.
  virtual void MarkUseful() = 0;

 protected:
  ~ProtocolHost() = default;
};

class Protocol {
 public:
  virtual ~Protocol() = default;
  virtual void OnInput(std::string_view bytes) = 0;
  // The peer closed its sending side.
  virtual void OnInputEnd() = 0;
  // Moves what is ready to be sent into output(), up to a fair amount. Called at the end of a turn
  // and whenever the socket took output.
  virtual void Produce() = 0;
  // The connection is closed; the last call before destruction. Requests in progress learn of it
  // here.
  virtual void OnClosed() = 0;
  // Finish running requests, accept no new ones, then CloseAfterFlush.
  virtual void Drain() = 0;
};

// Output beyond this in the connection's queue stops Produce; streams then keep their bytes
// themselves.
inline constexpr size_t kProduceBytesMax = 256 << 10;

}  // namespace net
