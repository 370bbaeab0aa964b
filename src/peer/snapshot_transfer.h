// A snapshot on its way between members: the sending thread of a RemoteMember, and a received body
// on its way into a file. Neither holds the database in memory.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "net/http.h"
#include "peer/link.h"
#include "peer/snapshot_frame.h"

namespace peer {

// Sends one snapshot at a time. Send and Interrupt: any thread, one at a time.
class SnapshotSender {
 public:
  SnapshotSender(const Link& link, raft::NodeId remote, UrlPicker& urls, Activity& activity)
      : link_(link), remote_(remote), urls_(urls), activity_(activity) {}
  // Waits for the thread.
  ~SnapshotSender();
  // Sends the state of now in place of the one in `message`. False when one is being sent already.
  bool Send(raft::Message message);
  void Interrupt() { interrupt_.Set(); }

 private:
  absl::Status Transfer(raft::Message message);

  const Link& link_;
  const raft::NodeId remote_;
  UrlPicker& urls_;
  Activity& activity_;
  net::Interrupt interrupt_;
  std::atomic<bool> running_{false};
  std::thread thread_;
};

// One request to POST /raft/snapshot, whose sender and method are checked already. The loop queues
// what arrives, a thread writes it.
class SnapshotReceiver : public std::enable_shared_from_this<SnapshotReceiver> {
 public:
  SnapshotReceiver(const Link& link, std::shared_ptr<net::HttpExchange> exchange);
  ~SnapshotReceiver();
  // Loop thread. The thread it starts needs the receiver to be owned by somebody until it is done()
  // or waited for.
  void Start();
  // Any thread: lets the thread end, soon.
  void Interrupt();
  // Waits for the thread's end. Not on the loop.
  void Wait();
  // Whether the thread has nothing left to do.
  bool done() const { return done_.load(); }

 private:
  struct Outcome {
    int status = 0;
    std::string body;
  };
  void ThreadMain();
  Outcome Receive();
  // The next piece of the body; nullopt at its end. Cancelled when it broke off.
  absl::StatusOr<std::optional<std::string>> NextPiece();
  void OnPiece(std::string_view piece, bool last);
  void Break();

  const Link& link_;
  net::Loop& loop_;
  std::shared_ptr<net::HttpExchange> exchange_;  // the loop's
  bool paused_ = false;                          // the loop's

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::string> pieces_;  // guarded by mutex_
  size_t pieces_bytes_ = 0;         // guarded by mutex_
  bool ended_ = false;              // guarded by mutex_
  bool broken_ = false;             // guarded by mutex_
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace peer
