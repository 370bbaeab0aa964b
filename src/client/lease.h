// Keeps a lease alive from a thread of its own, a third of its life apart, over lost connections.
// Thread rule: the owner creates and destroys it; `on_lost` is called at most once, from the
// keeper's thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "base/clock.h"
#include "client/client.h"

namespace etcdserverpb {
class LeaseKeepAliveResponse;
}

namespace client {

// One keep-alive round trip: sends it on `stream` and waits for the answer, whose TTL is 0 when the
// lease is gone. DeadlineExceeded when no answer comes in time.
absl::Status KeepLeaseAliveOnce(Stream& stream, int64_t id, base::Duration timeout,
                                etcdserverpb::LeaseKeepAliveResponse* response);

class LeaseKeeper {
 public:
  // `client` outlives the keeper.
  LeaseKeeper(Client& client, int64_t id, int64_t ttl_seconds, std::function<void()> on_lost);
  ~LeaseKeeper();  // stops at once; the lease is not revoked
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

 private:
  void Run(int64_t ttl_seconds);
  // True when stopped before `pause` is over.
  bool WaitStopped(base::Duration pause);

  Client& client_;
  const int64_t id_;
  const std::function<void()> on_lost_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;            // guarded by mutex_
  std::unique_ptr<Stream> stream_;  // guarded by mutex_, replaced by the thread alone
  std::thread thread_;
};

}  // namespace client
