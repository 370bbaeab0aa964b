#include "net/server.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "net/connection.h"
#include "net/loop.h"
#include "net/sockets.h"
#include "net/tls.h"

namespace net {
namespace {

constexpr int kAcceptsPerTurn = 64;
constexpr base::Duration kAcceptPause = std::chrono::milliseconds(100);
constexpr uint64_t kReservedFiles = 150;

uint32_t DefaultConnectionsMax() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  const uint64_t files = limit.rlim_cur;
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(files > kReservedFiles ? files - kReservedFiles : 16, 16, 10'000'000));
}

// Calls that block, away from the loops: name look-ups of client certificates. Few and rare, so one
// thread does.
class BlockingRunner {
 public:
  ~BlockingRunner() { Stop(); }

  void Run(absl::AnyInvocable<void()> work) {
    std::lock_guard lock(mutex_);
    if (stopping_ || queue_.size() >= kQueueMax) return;
    queue_.push_back(std::move(work));
    if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
    changed_.notify_one();
  }

  void Stop() {
    std::thread thread;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
      thread.swap(thread_);
      changed_.notify_one();
    }
    if (thread.joinable()) thread.join();
  }

 private:
  static constexpr size_t kQueueMax = 1024;

  void Loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      absl::AnyInvocable<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<absl::AnyInvocable<void()>> queue_;  // guarded by mutex_
  bool stopping_ = false;                         // guarded by mutex_
  std::thread thread_;                            // guarded by mutex_
};

// Runs `work` on the loop and waits for it. Not from a loop thread.
void RunOn(Loop& loop, absl::AnyInvocable<void()> work) {
  struct Done {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  auto done = std::make_shared<Done>();
  loop.Post([done, work = std::move(work)]() mutable {
    work();
    std::lock_guard lock(done->mutex);
    done->done = true;
    done->changed.notify_all();
  });
  std::unique_lock lock(done->mutex);
  done->changed.wait(lock, [&] { return done->done; });
}

}  // namespace

struct Server::Impl {
  explicit Impl(LoopPool& pool) : loops(pool) {}

  class ListenerImpl;
  struct PerLoop;

  void ConnectionGone() {
    std::lock_guard lock(mutex);
    --open;
    if (open == 0) none_left.notify_all();
  }

  LoopPool& loops;
  std::function<void(const RejectedConnection&)> on_rejected;
  std::vector<std::unique_ptr<ListenerImpl>> listeners;
  BlockingRunner blocking;
  bool shut_down = false;
  mutable std::mutex mutex;
  std::condition_variable none_left;
  uint32_t open =
      0;  // guarded by mutex: connections of all listeners, those on their way to a loop included
};

// The connections of one listener on one loop. Loop thread only.
struct Server::Impl::PerLoop final : public ConnectionOwner {
  PerLoop(Impl& server_impl, ListenerImpl& of, Loop& on)
      : impl(server_impl), listener(of), loop(on) {}

  void Adopt(Fd fd, std::string remote_address, std::string remote_ip, std::string local_address);
  const ListenerOptions& options() const override;
  void OnConnectionClosed(Connection* connection) override;
  void OnRejected(const RejectedConnection& rejected) override {
    if (impl.on_rejected) impl.on_rejected(rejected);
  }
  void OnUseful(Connection* connection) override {
    if (!connection->unfinished) return;
    connection->unfinished = false;
    unfinished.erase(connection->unfinished_position);
  }
  void RunBlocking(Loop& on, absl::AnyInvocable<bool()> work,
                   absl::AnyInvocable<void(bool)> done) override {
    impl.blocking.Run([&on, work = std::move(work), done = std::move(done)]() mutable {
      const bool result = work();
      on.Post([done = std::move(done), result]() mutable { done(result); });
    });
  }

  Impl& impl;
  ListenerImpl& listener;
  Loop& loop;
  std::vector<std::shared_ptr<Connection>> connections;
  std::list<Connection*> unfinished;  // oldest first
  bool closing = false;
};

class Server::Impl::ListenerImpl final : public Listener {
 public:
  ListenerImpl(Impl& impl, ListenerOptions options) : impl_(impl), options_(std::move(options)) {
    connections_max_ =
        options_.connections_max != 0 ? options_.connections_max : DefaultConnectionsMax();
    for (size_t i = 0; i < impl_.loops.size(); ++i) {
      per_loop_.push_back(std::make_unique<PerLoop>(impl_, *this, impl_.loops.at(i)));
    }
  }

  uint16_t port() const override { return acceptors_.front()->socket.port; }
  const std::string& address() const override { return acceptors_.front()->socket.address; }
  uint32_t connections() const override { return count_.load(std::memory_order_relaxed); }
  const ListenerOptions& options() const { return options_; }

  void Start(std::vector<ListeningSocket> sockets) {
    for (ListeningSocket& socket : sockets) {
      auto acceptor = std::make_unique<Acceptor>(*this, impl_.loops.Next(), std::move(socket));
      acceptors_.push_back(std::move(acceptor));
    }
    for (auto& acceptor : acceptors_) {
      acceptor->loop.Post([a = acceptor.get()] { a->Open(); });
    }
  }

  // Closes the listening sockets. Waits until no loop can accept any more.
  void StopAccepting() {
    for (auto& acceptor : acceptors_) {
      RunOn(acceptor->loop, [a = acceptor.get()] { a->Close(); });
    }
    if (!options_.address.path.empty() && !acceptors_.empty())
      ::unlink(options_.address.path.c_str());
  }

  void DrainAll() {
    for (auto& state : per_loop_) {
      RunOn(state->loop, [s = state.get()] {
        s->closing = true;
        // Draining may close connections, which changes the list.
        const std::vector<std::shared_ptr<Connection>> all = s->connections;
        for (const auto& connection : all) connection->Drain();
      });
    }
  }

  void CloseAll() {
    for (auto& state : per_loop_) {
      RunOn(state->loop, [s = state.get()] {
        s->closing = true;
        const std::vector<std::shared_ptr<Connection>> all = s->connections;
        for (const auto& connection : all) connection->Close();
      });
    }
  }

  void Gone() {
    const uint32_t before = count_.fetch_sub(1, std::memory_order_relaxed);
    if (before < connections_max_) return;
    for (auto& acceptor : acceptors_) {
      acceptor->loop.Post([a = acceptor.get()] { a->Resume(); });
    }
  }

 private:
  friend struct PerLoop;

  // One listening socket, on the loop that accepts from it.
  struct Acceptor final : public FdWatcher {
    Acceptor(ListenerImpl& of, Loop& on, ListeningSocket from)
        : listener(of), loop(on), socket(std::move(from)) {}

    void Open() {
      if (closed) return;
      const absl::Status status = loop.AddFd(socket.fd.get(), this, true, false);
      CHECK(status.ok());
      open = true;
    }
    void Close() {
      closed = true;
      loop.Cancel(&timer);
      if (open) loop.RemoveFd(socket.fd.get(), this);
      open = false;
      socket.fd.Reset();
    }
    void Pause() {
      if (paused || !open) return;
      paused = true;
      loop.UpdateFd(socket.fd.get(), this, false, false);
    }
    void Resume() {
      if (!paused || !open) return;
      paused = false;
      loop.UpdateFd(socket.fd.get(), this, true, false);
    }

    void OnFdReady(bool, bool, bool) override {
      for (int i = 0; i < kAcceptsPerTurn && open && !paused; ++i) {
        if (listener.count_.load(std::memory_order_relaxed) >= listener.connections_max_) {
          return Pause();
        }
        sockaddr_storage remote{};
        socklen_t length = sizeof remote;
        Fd fd(::accept4(socket.fd.get(), reinterpret_cast<sockaddr*>(&remote), &length,
                        SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (fd.get() >= 0) {
          listener.Accepted(std::move(fd), remote, length);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
          return;
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          // Out of files: trying again at once would spin.
          Pause();
          timer = loop.RunAfter(kAcceptPause, [this] {
            timer = TimerId{};
            Resume();
          });
          return;
        }
        // Anything else concerns the one connection that was lost, not the listener.
      }
    }

    ListenerImpl& listener;
    Loop& loop;
    ListeningSocket socket;
    bool open = false;
    bool closed = false;
    bool paused = false;
    TimerId timer;
  };

  void Accepted(Fd fd, const sockaddr_storage& remote, socklen_t length) {
    {
      std::lock_guard lock(impl_.mutex);
      ++impl_.open;
    }
    count_.fetch_add(1, std::memory_order_relaxed);
    sockaddr_storage local{};
    socklen_t local_length = sizeof local;
    if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &local_length) != 0) {
      local.ss_family = AF_UNIX;
    }
    Loop& loop = impl_.loops.Next();
    PerLoop* state = per_loop_[loop.index()].get();
    loop.Post([state, fd = std::move(fd), remote_address = AddressText(remote, length),
               remote_ip = AddressIp(remote),
               local_address = AddressText(local, local_length)]() mutable {
      state->Adopt(std::move(fd), std::move(remote_address), std::move(remote_ip),
                   std::move(local_address));
    });
  }

  Impl& impl_;
  const ListenerOptions options_;
  uint32_t connections_max_ = 0;
  std::atomic<uint32_t> count_{0};
  std::vector<std::unique_ptr<PerLoop>> per_loop_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
};

const ListenerOptions& Server::Impl::PerLoop::options() const { return listener.options(); }

void Server::Impl::PerLoop::Adopt(Fd fd, std::string remote_address, std::string remote_ip,
                                  std::string local_address) {
  if (closing) {
    fd.Reset();
    listener.Gone();
    return impl.ConnectionGone();
  }
  auto connection =
      std::make_shared<Connection>(loop, *this, fd.Release(), std::move(remote_address),
                                   std::move(remote_ip), std::move(local_address));
  connection->registry_index = connections.size();
  connections.push_back(connection);
  connection->unfinished = true;
  connection->unfinished_position = unfinished.insert(unfinished.end(), connection.get());
  if (!connection->Open()) return connection->Close();
  const size_t unfinished_max =
      std::max<size_t>(1, options().unfinished_connections_max / impl.loops.size());
  if (unfinished.size() > unfinished_max) unfinished.front()->Abort();
}

void Server::Impl::PerLoop::OnConnectionClosed(Connection* connection) {
  OnUseful(connection);
  const size_t index = connection->registry_index;
  if (index + 1 != connections.size()) {
    connections[index] = std::move(connections.back());
    connections[index]->registry_index = index;
  }
  connections.pop_back();
  listener.Gone();
  impl.ConnectionGone();
}

Server::Server(LoopPool& loops) : impl_(std::make_shared<Impl>(loops)) {}

Server::~Server() { Shutdown(base::Duration::zero()); }

void Server::set_on_rejected(std::function<void(const RejectedConnection&)> fn) {
  impl_->on_rejected = std::move(fn);
}

absl::StatusOr<Listener*> Server::Listen(ListenerOptions options) {
  CHECK(options.grpc != nullptr || options.http != nullptr);
  CHECK(options.plain || options.tls != nullptr);
  if (impl_->shut_down) return absl::FailedPreconditionError("the server is shut down");
  ASSIGN_OR_RETURN(std::vector<ListeningSocket> sockets,
                   ListenOn(options.address, options.reuse_port));
  auto listener = std::make_unique<Impl::ListenerImpl>(*impl_, std::move(options));
  listener->Start(std::move(sockets));
  impl_->listeners.push_back(std::move(listener));
  return impl_->listeners.back().get();
}

void Server::Shutdown(base::Duration grace) {
  Impl& impl = *impl_;
  if (impl.shut_down) return;
  impl.shut_down = true;
  for (auto& listener : impl.listeners) listener->StopAccepting();
  if (grace > base::Duration::zero()) {
    for (auto& listener : impl.listeners) listener->DrainAll();
    std::unique_lock lock(impl.mutex);
    impl.none_left.wait_for(lock, grace, [&] { return impl.open == 0; });
  }
  impl.blocking.Stop();
  for (auto& listener : impl.listeners) listener->CloseAll();
  {
    std::unique_lock lock(impl.mutex);
    impl.none_left.wait(lock, [&] { return impl.open == 0; });
  }
  // What the last connections posted to the loops refers to the listeners; once this ran, none of
  // it is left.
  for (size_t i = 0; i < impl.loops.size(); ++i) RunOn(impl.loops.at(i), [] {});
}

uint32_t Server::connections() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->open;
}

}  // namespace net
