#include "sim/runner.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace sim {
namespace {

// What a child sends for each task: this, then text_bytes of text.
struct Frame {
  uint64_t number = 0;
  uint64_t digest = 0;
  Counters counters;
  uint64_t text_bytes = 0;
};

// A task that takes longer hangs; SIGALRM ends it and its child.
constexpr unsigned kTaskSecondsMax = 300;

bool WriteAll(int fd, const void* data, size_t n) {
  const char* at = static_cast<const char*>(data);
  while (n > 0) {
    const ssize_t written = ::write(fd, at, n);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    n -= static_cast<size_t>(written);
  }
  return true;
}

bool ReadAll(int fd, void* data, size_t n) {
  char* at = static_cast<char*>(data);
  while (n > 0) {
    const ssize_t got = ::read(fd, at, n);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    n -= static_cast<size_t>(got);
  }
  return true;
}

struct Child {
  pid_t pid = -1;
  int fd = -1;
  uint64_t next = 0;  // the task it works on
};

// Works on tasks next, next + step, ... below end.
Child Spawn(uint64_t next, uint64_t end, uint64_t step,
            const std::function<Outcome(uint64_t)>& task) {
  int fds[2];
  CHECK(::pipe(fds) == 0);
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  CHECK(pid >= 0);
  if (pid > 0) {
    ::close(fds[1]);
    return {.pid = pid, .fd = fds[0], .next = next};
  }
  ::close(fds[0]);
  for (uint64_t number = next; number < end; number += step) {
    ::alarm(kTaskSecondsMax);
    const Outcome outcome = task(number);
    const Frame frame{.number = number,
                      .digest = outcome.digest,
                      .counters = outcome.counters,
                      .text_bytes = outcome.text.size()};
    if (!WriteAll(fds[1], &frame, sizeof(frame)) ||
        !WriteAll(fds[1], outcome.text.data(), outcome.text.size())) {
      break;  // nobody wants to know any more
    }
  }
  std::fflush(nullptr);
  ::_exit(0);
}

std::string Reap(const Child& child) {
  int status = 0;
  ::close(child.fd);
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    return fmt::format("the process died of signal {} ({})", WTERMSIG(status),
                       ::strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0)
    return fmt::format("the process ended with {}", WEXITSTATUS(status));
  return {};
}

}  // namespace

void RunTasks(uint64_t first, uint64_t count, int jobs,
              const std::function<Outcome(uint64_t)>& task,
              const std::function<bool(uint64_t, const Outcome&)>& each) {
  ::signal(SIGPIPE, SIG_IGN);
  const uint64_t end = first + count;
  const auto step = static_cast<uint64_t>(jobs);
  std::vector<Child> children;
  children.reserve(step);
  for (uint64_t i = 0; i < step && i < count; ++i)
    children.push_back(Spawn(first + i, end, step, task));
  bool go_on = true;
  while (!children.empty() && go_on) {
    std::vector<pollfd> polls;
    polls.reserve(children.size());
    for (const Child& child : children)
      polls.push_back({.fd = child.fd, .events = POLLIN, .revents = 0});
    if (::poll(polls.data(), polls.size(), -1) < 0) continue;
    for (size_t i = children.size(); i-- > 0 && go_on;) {
      if (polls[i].revents == 0) continue;
      Child& child = children[i];
      Frame frame;
      Outcome outcome;
      if (ReadAll(child.fd, &frame, sizeof(frame))) {
        outcome.text.resize(frame.text_bytes);
        if (!ReadAll(child.fd, outcome.text.data(), outcome.text.size())) outcome.text = "cut off";
        outcome.counters = frame.counters;
        outcome.digest = frame.digest;
        child.next = frame.number + step;
        go_on = each(frame.number, outcome);
        continue;
      }
      // It is through, or it died of its task; then another one takes over.
      outcome.text = Reap(child);
      const uint64_t died_of = child.next;
      children.erase(children.begin() + static_cast<ptrdiff_t>(i));
      if (outcome.text.empty()) continue;
      go_on = each(died_of, outcome);
      if (go_on && died_of + step < end) children.push_back(Spawn(died_of + step, end, step, task));
    }
  }
  for (const Child& child : children) {
    ::kill(child.pid, SIGKILL);
    Reap(child);
  }
}

}  // namespace sim
