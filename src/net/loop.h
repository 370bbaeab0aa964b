// Event loops. A Loop is one queue of events (sockets, timers, tasks) that exactly one thread runs;
// everything that lives on it (connections, streams, calls, watchers) is touched by that thread
// alone. Other threads only Post().
//
// One turn of a loop: wait for events, run the ready sockets, the due timers and the posted tasks,
// then run the end-of-turn hooks once. Connections flush their output in such a hook, so all
// answers of one turn leave in one write per connection.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/clock.h"

namespace net {

using Task = absl::AnyInvocable<void()>;

// Names a timer of one loop; a default-constructed one names none.
struct TimerId {
  uint32_t slot = 0;
  uint32_t generation = 0;  // 0: no timer
};

// What a loop calls for a file descriptor that is ready. Loop thread.
class FdWatcher {
 public:
  virtual void OnFdReady(bool readable, bool writable, bool hung_up) = 0;

 protected:
  ~FdWatcher() = default;
};

// Something that wants to run once at the end of the current turn. Loop thread. The hook must stay
// alive until it ran or was removed with Loop::RemoveTurnEndHook.
class TurnEndHook {
 public:
  virtual void OnTurnEnd() = 0;

 protected:
  ~TurnEndHook() = default;

 private:
  friend class Loop;
  bool queued_ = false;
};

class Loop {
 public:
  // `index` is the loop's number in its pool; services use it to keep state per loop.
  explicit Loop(size_t index = 0);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // --- any thread ---

  // Runs `task` on the loop thread, in the order posted by this thread. Wakes the loop at most once
  // per batch of posts. Tasks that are still queued when the loop ends are destroyed without being
  // run.
  void Post(Task task);
  // Like Post, but false (and the task dropped) when `posted_max` tasks already wait. For producers
  // that outside events drive without a bound of their own.
  bool TryPost(Task task, size_t posted_max = 65536);
  // Whether the calling thread is the one inside Run(). Before Run() every thread counts as the
  // loop thread.
  bool InLoopThread() const;
  size_t index() const { return index_; }
  // Ends Run() after the current turn.
  void Stop();

  // --- the thread that owns the loop ---

  // Runs turns until Stop().
  void Run();
  // One turn, waiting for an event at most `wait`. For tests that drive a loop by hand.
  void RunOnce(base::Duration wait);
  // Runs `task` once after `delay`. The timer is gone when it fires or is cancelled.
  TimerId RunAfter(base::Duration delay, Task task);
  // Cancels and clears *id; harmless when it names no timer or one that fired.
  void Cancel(TimerId* id);
  // Monotonic time read at the beginning of this turn; costs nothing.
  base::Duration Now() const { return now_; }
  // Queues `hook` to run once at the end of this turn; harmless when already queued.
  void AtTurnEnd(TurnEndHook* hook) {
    if (hook->queued_) return;
    hook->queued_ = true;
    hooks_.push_back(hook);
  }
  void RemoveTurnEndHook(TurnEndHook* hook);
  // Destroys or calls something at the very end of the turn, when none of its functions is on the
  // stack any more.
  void Defer(Task task) { deferred_.push_back(std::move(task)); }

  // Watches `fd` (level-triggered). Readable is reported when `read`, writable when `write`;
  // hang-ups always.
  absl::Status AddFd(int fd, FdWatcher* watcher, bool read, bool write);
  void UpdateFd(int fd, FdWatcher* watcher, bool read, bool write);
  // Also drops events of this turn that were already fetched for `watcher`.
  void RemoveFd(int fd, FdWatcher* watcher);

 private:
  struct Timer {
    base::Duration due{};
    Task task;
    uint32_t generation = 1;
    uint32_t heap_position = 0;
  };
  struct Event {
    FdWatcher* watcher;
    uint32_t bits;
  };

  void Turn(base::Duration wait);
  void Wake();
  void RunPosted();
  void RunDueTimers();
  void RunTurnEnd();
  bool TimerLess(uint32_t a, uint32_t b) const { return timers_[a].due < timers_[b].due; }
  void SiftUp(size_t position);
  void SiftDown(size_t position);
  void HeapRemove(size_t position);
  void ReleaseTimer(uint32_t slot);

  const size_t index_;
  int epoll_fd_ = -1;
  int wake_fd_ = -1;
  base::Duration now_{};
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> owner_{0};  // pthread id of the thread in Run(), 0 before

  std::mutex posted_mutex_;
  std::vector<Task> posted_;   // guarded by posted_mutex_
  bool wake_pending_ = false;  // guarded by posted_mutex_: a wake is on its way, or the loop will
                               // look before it sleeps
  std::vector<Task> running_;  // the batch being run; kept for its capacity

  std::vector<Timer> timers_;          // slots
  std::vector<uint32_t> free_timers_;  // slots not in use
  std::vector<uint32_t> heap_;         // slots in use, a binary heap by due time

  std::vector<TurnEndHook*> hooks_;
  std::vector<TurnEndHook*> running_hooks_;
  std::vector<Task> deferred_;
  std::vector<Event> events_;  // fetched in this turn, those of removed watchers nulled
};

// N loops with a thread each. Thread-safe, except Stop and the destructor, which the owner calls
// once from outside of the loops.
class LoopPool {
 public:
  // Starts `count` >= 1 threads named "<name><index>".
  explicit LoopPool(size_t count, const char* name = "io");
  ~LoopPool();
  size_t size() const { return loops_.size(); }
  Loop& at(size_t index) { return *loops_[index]; }
  // Round-robin.
  Loop& Next();
  // Ends all loops and joins their threads. What lives on a loop must have been taken down before.
  void Stop();

 private:
  struct Threads;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::unique_ptr<Threads> threads_;
  std::atomic<size_t> next_{0};
};

// A bounded queue of T from any thread into one loop, drained in batches with one wake a batch.
// Construct and destroy it on the loop thread or while the loop does not run; Push from any thread.
template <typename T>
class Mailbox {
 public:
  // `drain` gets everything queued; it may move the elements out, the vector is cleared after it.
  Mailbox(Loop& loop, size_t items_max, absl::AnyInvocable<void(std::vector<T>&)> drain)
      : state_(std::make_shared<State>(loop, items_max, std::move(drain))) {}
  ~Mailbox() { state_->drain = nullptr; }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // False, with the item dropped, when `items_max` are waiting.
  bool Push(T item) {
    {
      std::lock_guard lock(state_->mutex);
      if (state_->items.size() >= state_->items_max) return false;
      state_->items.push_back(std::move(item));
      if (state_->posted) return true;
      state_->posted = true;
    }
    state_->loop.Post([state = state_] { state->Drain(); });
    return true;
  }

 private:
  struct State {
    State(Loop& l, size_t max, absl::AnyInvocable<void(std::vector<T>&)> d)
        : loop(l), items_max(max), drain(std::move(d)) {}
    void Drain() {
      {
        std::lock_guard lock(mutex);
        posted = false;
        batch.swap(items);
      }
      if (drain) drain(batch);
      batch.clear();
    }
    Loop& loop;
    const size_t items_max;
    absl::AnyInvocable<void(std::vector<T>&)> drain;  // loop thread; empty once the mailbox is gone
    std::vector<T> batch;                             // loop thread
    std::mutex mutex;
    std::vector<T> items;  // guarded by mutex
    bool posted = false;   // guarded by mutex
  };
  std::shared_ptr<State> state_;
};

}  // namespace net
