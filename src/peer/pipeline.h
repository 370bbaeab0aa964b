// Messages one by one over POST /raft, for when there is no stream: a thread with a bounded queue
// and a connection that it keeps. Owned by its RemoteMember. Push and Interrupt: any thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "net/http_client.h"
#include "peer/link.h"

namespace peer {

class Pipeline {
 public:
  // All references outlive the pipeline. The thread starts with the first message.
  Pipeline(const Link& link, raft::NodeId remote, UrlPicker& urls, Activity& activity);
  // Waits for the thread.
  ~Pipeline();
  // False, with the message dropped, when too many are waiting.
  bool Push(raft::Message message);
  void Interrupt();

 private:
  void ThreadMain();
  absl::Status Post(const raft::Message& message);
  absl::Status PostOn(const base::Url& url, const net::HttpRequest& request);

  const Link& link_;
  const raft::NodeId remote_;
  UrlPicker& urls_;
  Activity& activity_;
  net::Interrupt interrupt_;
  std::unique_ptr<net::HttpClient> client_;  // the thread's

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<raft::Message> queue_;  // guarded by mutex_
  bool stopping_ = false;            // guarded by mutex_
  std::thread thread_;               // guarded by mutex_ until it runs
};

}  // namespace peer
