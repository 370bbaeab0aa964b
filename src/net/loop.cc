#include "net/loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "base/status.h"

namespace net {
namespace {

// Events fetched by one wait. More that are ready come in the next turn, so a turn has an end.
constexpr int kEventsPerTurn = 256;

uint64_t ThisThread() { return static_cast<uint64_t>(pthread_self()); }

}  // namespace

Loop::Loop(size_t index) : index_(index) {
  epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  CHECK_OP(epoll_fd_, >=, 0);
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  CHECK_OP(wake_fd_, >=, 0);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;  // the wake-up is the one event without a watcher
  CHECK_OP(::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event), ==, 0);
  now_ = base::SystemClock().Monotonic();
}

Loop::~Loop() {
  // What tasks own may post or defer again while it is destroyed; those go the same way.
  for (;;) {
    std::vector<Task> rest;
    {
      std::lock_guard lock(posted_mutex_);
      rest.swap(posted_);
      wake_pending_ = true;
    }
    for (Task& task : deferred_) rest.push_back(std::move(task));
    deferred_.clear();
    if (rest.empty()) break;
  }
  ::close(wake_fd_);
  ::close(epoll_fd_);
}

void Loop::Wake() {
  const uint64_t one = 1;
  ssize_t written = 0;
  do {
    written = ::write(wake_fd_, &one, sizeof one);
  } while (written < 0 && errno == EINTR);
  // EAGAIN means that the counter is at its maximum: the loop is awake already.
}

void Loop::Post(Task task) {
  bool wake = false;
  {
    std::lock_guard lock(posted_mutex_);
    posted_.push_back(std::move(task));
    wake = !wake_pending_;
    wake_pending_ = true;
  }
  if (wake) Wake();
}

bool Loop::TryPost(Task task, size_t posted_max) {
  bool wake = false;
  {
    std::lock_guard lock(posted_mutex_);
    if (posted_.size() >= posted_max) return false;
    posted_.push_back(std::move(task));
    wake = !wake_pending_;
    wake_pending_ = true;
  }
  if (wake) Wake();
  return true;
}

bool Loop::InLoopThread() const {
  const uint64_t owner = owner_.load(std::memory_order_relaxed);
  return owner == 0 || owner == ThisThread();
}

void Loop::Stop() {
  stop_.store(true, std::memory_order_release);
  Wake();
}

void Loop::Run() {
  owner_.store(ThisThread(), std::memory_order_relaxed);
  while (!stop_.load(std::memory_order_acquire)) Turn(base::Duration::max());
  owner_.store(0, std::memory_order_relaxed);
}

void Loop::RunOnce(base::Duration wait) { Turn(wait); }

void Loop::Turn(base::Duration wait) {
  {
    // Looked at without a wake-up: whoever posts from now on finds wake_pending_ false and writes
    // to the eventfd.
    std::lock_guard lock(posted_mutex_);
    wake_pending_ = !posted_.empty();
    if (wake_pending_) wait = base::Duration::zero();
  }
  if (!heap_.empty() && wait > base::Duration::zero()) {
    const base::Duration left = timers_[heap_[0]].due - base::SystemClock().Monotonic();
    wait = std::clamp(left, base::Duration::zero(), wait);
  }
  int timeout_ms = -1;
  if (wait != base::Duration::max()) {
    // Rounded up, lest the loop spins through the last millisecond before a timer.
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
    timeout_ms = static_cast<int>(std::min<int64_t>(ms, 3600 * 1000));
  }
  epoll_event ready[kEventsPerTurn];
  const int count = ::epoll_wait(epoll_fd_, ready, kEventsPerTurn, timeout_ms);
  CHECK(count >= 0 || errno == EINTR);
  now_ = base::SystemClock().Monotonic();

  events_.clear();
  for (int i = 0; i < count; ++i) {
    if (ready[i].data.ptr == nullptr) {
      uint64_t drained = 0;
      while (::read(wake_fd_, &drained, sizeof drained) < 0 && errno == EINTR) {
      }
      continue;
    }
    events_.push_back({static_cast<FdWatcher*>(ready[i].data.ptr), ready[i].events});
  }
  for (size_t i = 0; i < events_.size(); ++i) {
    const Event event = events_[i];
    if (event.watcher == nullptr) continue;
    events_[i].watcher = nullptr;
    event.watcher->OnFdReady((event.bits & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) != 0,
                             (event.bits & (EPOLLOUT | EPOLLERR)) != 0,
                             (event.bits & (EPOLLERR | EPOLLHUP)) != 0);
  }
  RunDueTimers();
  RunPosted();
  RunTurnEnd();
}

void Loop::RunPosted() {
  {
    std::lock_guard lock(posted_mutex_);
    running_.swap(posted_);
    // The next turn looks at posted_ before it sleeps, so posts made by the tasks themselves need
    // no wake-up.
    wake_pending_ = true;
  }
  for (Task& task : running_) {
    task();
    task = nullptr;
  }
  running_.clear();
}

void Loop::RunTurnEnd() {
  // A hook may queue hooks and defer tasks again; both belong to this turn. The bound keeps a pair
  // of hooks that queue each other from holding the loop; what is left then runs in the next turn.
  for (int round = 0; round < 8 && (!hooks_.empty() || !deferred_.empty()); ++round) {
    running_hooks_.swap(hooks_);
    for (size_t i = 0; i < running_hooks_.size(); ++i) {
      TurnEndHook* hook = running_hooks_[i];
      if (hook == nullptr) continue;
      running_hooks_[i] = nullptr;
      hook->queued_ = false;
      hook->OnTurnEnd();
    }
    running_hooks_.clear();
    std::vector<Task> tasks;
    tasks.swap(deferred_);
    for (Task& task : tasks) task();
  }
  if (!hooks_.empty() || !deferred_.empty()) Post([] {});
}

void Loop::RemoveTurnEndHook(TurnEndHook* hook) {
  if (!hook->queued_) return;
  hook->queued_ = false;
  for (auto* list : {&hooks_, &running_hooks_}) {
    for (TurnEndHook*& queued : *list) {
      if (queued == hook) queued = nullptr;
    }
  }
}

absl::Status Loop::AddFd(int fd, FdWatcher* watcher, bool read, bool write) {
  epoll_event event{};
  event.events = (read ? EPOLLIN | EPOLLRDHUP : 0U) | (write ? EPOLLOUT : 0U);
  event.data.ptr = watcher;
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
    return base::MakeStatus(absl::StatusCode::kResourceExhausted, "epoll_ctl add: {}",
                            std::generic_category().message(errno));
  }
  return absl::OkStatus();
}

void Loop::UpdateFd(int fd, FdWatcher* watcher, bool read, bool write) {
  epoll_event event{};
  event.events = (read ? EPOLLIN | EPOLLRDHUP : 0U) | (write ? EPOLLOUT : 0U);
  event.data.ptr = watcher;
  CHECK_OP(::epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event), ==, 0);
}

void Loop::RemoveFd(int fd, FdWatcher* watcher) {
  ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  for (Event& event : events_) {
    if (event.watcher == watcher) event.watcher = nullptr;
  }
}

TimerId Loop::RunAfter(base::Duration delay, Task task) {
  uint32_t slot = 0;
  if (free_timers_.empty()) {
    slot = static_cast<uint32_t>(timers_.size());
    timers_.emplace_back();
  } else {
    slot = free_timers_.back();
    free_timers_.pop_back();
  }
  Timer& timer = timers_[slot];
  const base::Duration now = base::SystemClock().Monotonic();
  timer.due = delay < base::Duration::max() - now ? now + delay : base::Duration::max();
  timer.task = std::move(task);
  heap_.push_back(slot);
  timer.heap_position = static_cast<uint32_t>(heap_.size() - 1);
  SiftUp(heap_.size() - 1);
  return {slot, timer.generation};
}

void Loop::Cancel(TimerId* id) {
  const TimerId gone = *id;
  *id = TimerId{};
  if (gone.generation == 0 || gone.slot >= timers_.size()) return;
  if (timers_[gone.slot].generation != gone.generation) return;
  HeapRemove(timers_[gone.slot].heap_position);
  ReleaseTimer(gone.slot);
}

void Loop::ReleaseTimer(uint32_t slot) {
  Timer& timer = timers_[slot];
  if (++timer.generation == 0) timer.generation = 1;
  Task task = std::move(timer.task);
  timer.task = nullptr;
  free_timers_.push_back(slot);
  // `task` dies here, after the slot is in order: what it owns may use the timers.
}

void Loop::RunDueTimers() {
  // Timers started by these tasks wait for the next turn, even with no delay.
  const base::Duration limit = now_;
  while (!heap_.empty() && timers_[heap_[0]].due <= limit) {
    const uint32_t slot = heap_[0];
    Task task = std::move(timers_[slot].task);
    HeapRemove(0);
    ReleaseTimer(slot);
    task();
  }
}

void Loop::SiftUp(size_t position) {
  while (position > 0) {
    const size_t parent = (position - 1) / 2;
    if (!TimerLess(heap_[position], heap_[parent])) break;
    std::swap(heap_[position], heap_[parent]);
    timers_[heap_[position]].heap_position = static_cast<uint32_t>(position);
    position = parent;
  }
  timers_[heap_[position]].heap_position = static_cast<uint32_t>(position);
}

void Loop::SiftDown(size_t position) {
  for (;;) {
    size_t least = position;
    for (size_t child = 2 * position + 1; child <= 2 * position + 2; ++child) {
      if (child < heap_.size() && TimerLess(heap_[child], heap_[least])) least = child;
    }
    if (least == position) break;
    std::swap(heap_[position], heap_[least]);
    timers_[heap_[position]].heap_position = static_cast<uint32_t>(position);
    position = least;
  }
  timers_[heap_[position]].heap_position = static_cast<uint32_t>(position);
}

void Loop::HeapRemove(size_t position) {
  const uint32_t last = heap_.back();
  heap_.pop_back();
  if (position == heap_.size()) return;
  heap_[position] = last;
  timers_[last].heap_position = static_cast<uint32_t>(position);
  SiftUp(position);
  SiftDown(timers_[last].heap_position);
}

struct LoopPool::Threads {
  std::vector<std::thread> list;
};

LoopPool::LoopPool(size_t count, const char* name) : threads_(std::make_unique<Threads>()) {
  CHECK_OP(count, >=, 1U);
  for (size_t i = 0; i < count; ++i) loops_.push_back(std::make_unique<Loop>(i));
  for (size_t i = 0; i < count; ++i) {
    const std::string thread_name = (name + std::to_string(i)).substr(0, 15);
    threads_->list.emplace_back([loop = loops_[i].get(), thread_name] {
      pthread_setname_np(pthread_self(), thread_name.c_str());
      loop->Run();
    });
  }
}

LoopPool::~LoopPool() { Stop(); }

Loop& LoopPool::Next() {
  return *loops_[next_.fetch_add(1, std::memory_order_relaxed) % loops_.size()];
}

void LoopPool::Stop() {
  for (auto& loop : loops_) loop->Stop();
  for (std::thread& thread : threads_->list) thread.join();
  threads_->list.clear();
}

}  // namespace net
