#include "drill/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/status.h"

namespace drill {
namespace {

constexpr base::Duration kTermGrace = std::chrono::seconds(10);
constexpr base::Duration kPoll = std::chrono::milliseconds(20);
constexpr size_t kLastWordsBytes = 400;

std::string HowItEnded(int status) {
  if (WIFEXITED(status)) return fmt::format("exited with {}", WEXITSTATUS(status));
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return "ended";
}

// In the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void Become(char* const* argv, int log_fd, int error_fd, pid_t parent) {
  // The default mask and dispositions: the daemon blocks what it waits for.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  ::dup2(log_fd, STDOUT_FILENO);
  ::dup2(log_fd, STDERR_FILENO);
  ::execvp(argv[0], argv);
  const int error = errno;
  // Nothing is left to be done if this fails.
  [[maybe_unused]] const ssize_t n = ::write(error_fd, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Start(const std::string& program,
                                                    const std::vector<std::string>& arguments,
                                                    const std::string& log_path) {
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int log_fd = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log_fd < 0) {
    return base::MakeStatus(absl::StatusCode::kInternal, "open {}: {}", log_path,
                            std::strerror(errno));
  }
  int errors[2];
  if (::pipe2(errors, O_CLOEXEC) != 0) {
    ::close(log_fd);
    return base::MakeStatus(absl::StatusCode::kInternal, "pipe: {}", std::strerror(errno));
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) Become(argv.data(), log_fd, errors[1], parent);
  ::close(log_fd);
  ::close(errors[1]);
  int error = pid < 0 ? errno : 0;
  // The pipe closes with exec; a number comes only when that failed.
  if (pid > 0 && ::read(errors[0], &error, sizeof error) != ssize_t{sizeof error}) error = 0;
  ::close(errors[0]);
  if (error == 0) return std::unique_ptr<Child>(new Child(pid, log_path));
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  return base::MakeStatus(absl::StatusCode::kNotFound, "{} cannot be started: {}", program,
                          std::strerror(error));
}

bool Child::Running(std::string* how) {
  if (pid_ != 0) {
    int status = 0;
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == 0) return true;
    how_ = ended == pid_ ? HowItEnded(status) : "is gone";
    pid_ = 0;
  }
  *how = how_;
  return false;
}

std::string Child::LastWords(base::Files& files) const {
  const auto log = base::ReadFile(files, log_path_);
  if (!log.ok()) return "";
  return log->substr(log->size() > kLastWordsBytes ? log->size() - kLastWordsBytes : 0);
}

Child::~Child() {
  std::string how;
  if (!Running(&how)) return;
  ::kill(pid_, SIGTERM);
  for (base::Duration waited{0}; waited < kTermGrace; waited += kPoll) {
    if (!Running(&how)) return;
    std::this_thread::sleep_for(kPoll);
  }
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

absl::StatusOr<int> FreePort() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool found = fd >= 0 && ::bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (found) return static_cast<int>(ntohs(address.sin_port));
  return base::MakeStatus(absl::StatusCode::kResourceExhausted, "no free port: {}",
                          std::strerror(error));
}

}  // namespace drill
