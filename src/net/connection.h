// One accepted socket: reads, writes, TLS, and the choice of the protocol by the first bytes. Lives
// on one loop; loop thread only. Owned by the server's registry of that loop; callbacks in flight
// keep it by shared_ptr.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "net/loop.h"
#include "net/output_queue.h"
#include "net/protocol.h"
#include "net/server.h"
#include "net/sockets.h"

namespace net {

class Connection;
class TlsStream;

// What the connections of one listener on one loop have in common. Outlives them.
class ConnectionOwner {
 public:
  virtual const ListenerOptions& options() const = 0;
  virtual void OnConnectionClosed(Connection* connection) = 0;
  virtual void OnRejected(const RejectedConnection& rejected) = 0;
  // The connection has become useful, or is closed: it leaves the list of unfinished ones.
  virtual void OnUseful(Connection* connection) = 0;
  // Runs `work` on a helper thread and `done` with its result on the loop, unless the server ends
  // before.
  virtual void RunBlocking(Loop& loop, absl::AnyInvocable<bool()> work,
                           absl::AnyInvocable<void(bool)> done) = 0;

 protected:
  ~ConnectionOwner() = default;
};

class Connection final : public FdWatcher,
                         public TurnEndHook,
                         public ProtocolHost,
                         public std::enable_shared_from_this<Connection> {
 public:
  // Takes over `fd`, which is non-blocking.
  Connection(Loop& loop, ConnectionOwner& owner, int fd, std::string remote_address,
             std::string remote_ip, std::string local_address);
  ~Connection();

  // Begins to read. False when the loop cannot watch the socket.
  bool Open();
  // Closes at once, with all that lives on it. Safe at any time on the loop thread.
  void Close();
  // Finish what runs, then close.
  void Drain();

  // --- FdWatcher, TurnEndHook ---
  void OnFdReady(bool readable, bool writable, bool hung_up) override;
  void OnTurnEnd() override;

  // --- ProtocolHost ---
  Loop& loop() override { return loop_; }
  const std::shared_ptr<const ConnectionInfo>& info() const override { return info_; }
  OutputQueue& output() override { return output_; }
  void WantFlush() override {
    if (!closed_) loop_.AtTurnEnd(this);
  }
  void CloseAfterFlush() override;
  void Abort() override;
  void PauseInput(bool paused) override;
  void MarkUseful() override;

  // Position in the owner's lists; theirs to use.
  size_t registry_index = 0;
  std::list<Connection*>::iterator unfinished_position;
  bool unfinished = false;

 private:
  enum class Phase : uint8_t {
    kFirstBytes,    // nothing received yet on a port that serves plain connections
    kHandshake,     // TLS, possibly without a first byte
    kCheckingPeer,  // the client certificate's names are being resolved
    kChoosing,      // HTTP/1 or HTTP/2?
    kServing,
    kLingering,  // all sent, our side shut; waiting for the client to close its side
  };

  void Read();
  void OnRaw(std::string_view bytes);
  void OnTlsRaw(std::string_view bytes);
  void OnPlain(std::string_view bytes);
  void OnEof();
  void StartTls();
  void OnHandshakeDone();
  void OnPeerChecked(bool good);
  void FinishHandshake();
  // Picks the protocol by what the client sent first; true when decided.
  bool Choose(std::string_view bytes);
  void StartHttp2();
  void StartHttp1();
  void Reject(std::string_view error);
  // Ends our side once all is sent. False when the connection was closed.
  bool Linger();
  // Writes what the socket takes. False when the connection was closed.
  bool Flush();
  void UpdateInterest();
  void ArmStallTimer();

  Loop& loop_;
  ConnectionOwner& owner_;
  int fd_;
  Phase phase_ = Phase::kFirstBytes;
  std::shared_ptr<const ConnectionInfo> info_;
  std::unique_ptr<TlsStream> tls_;
  std::unique_ptr<Protocol> protocol_;
  std::string first_bytes_;  // received before the protocol was chosen; a few dozen bytes
  OutputQueue output_;       // plain bytes for the peer
  OutputQueue raw_output_;   // encrypted ones
  bool closed_ = false;
  bool aborting_ = false;
  bool close_after_flush_ = false;
  bool close_notified_ = false;
  bool input_paused_ = false;
  bool draining_ = false;
  bool eof_ = false;
  bool reading_ = true;      // the interest registered with the loop
  bool want_write_ = false;  // the socket is full: wait until it is writable
  bool writing_ = false;     // the interest registered with the loop
  uint64_t written_bytes_ = 0;
  uint64_t stall_mark_ = 0;  // written_bytes_ when the stall timer was set
  TimerId phase_timer_;
  TimerId stall_timer_;
};

}  // namespace net
