// The queue behind `lock` and `elect`, kept by clients alone: each contender holds one key under a
// common prefix, bound to a lease it keeps alive; the oldest key owns. Main thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "client/client.h"
#include "client/lease.h"
#include "client/watch.h"

namespace engramctl {

// SIGINT and SIGTERM as an event instead of an end. Blocks both signals in the calling thread and
// all it starts later, so create it before the first thread (before a client is built).
class SignalWaiter {
 public:
  SignalWaiter();
  // Runs `action` once, on a thread of its own, when a signal or Raise() comes first. At most one
  // action.
  void OnSignal(std::function<void()> action);
  // Waits for a signal or Raise().
  void Wait();
  // Ends the waiting without a signal.
  void Raise();
  // Raise(), then waits until the action has run. What the action refers to must live until then.
  void Finish();
  ~SignalWaiter();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class Contender {
 public:
  // `client` outlives it.
  explicit Contender(client::Client& client) : client_(client) {}
  ~Contender();

  // Grants the lease and keeps it alive; `on_lost` is called from another thread when it is gone.
  absl::Status Start(int64_t ttl_seconds, std::function<void()> on_lost);
  // Enters the queue `prefix`/ with `value`, and waits until the own key is the oldest. Cancelled
  // after Stop().
  absl::Status Acquire(std::string_view prefix, std::string_view value);
  // Makes a waiting Acquire() return; any thread.
  void Stop();
  // Deletes the key and revokes the lease.
  absl::Status Release();

  const std::string& key() const { return key_; }
  // Revision of the transaction that entered the queue.
  int64_t revision() const { return revision_; }

 private:
  absl::Status WaitForOlder(const std::string& prefix);
  absl::Status WaitForDeletion(const std::string& key, int64_t revision);

  client::Client& client_;
  int64_t lease_ = 0;
  std::unique_ptr<client::LeaseKeeper> keeper_;
  std::string key_;
  int64_t revision_ = 0;
  std::mutex mutex_;
  bool stopped_ = false;                      // guarded by mutex_
  std::unique_ptr<client::Watcher> watcher_;  // guarded by mutex_
};

}  // namespace engramctl
