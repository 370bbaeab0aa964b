#include "vault/secret.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/status.h"

extern char** environ;

namespace vault {
namespace {

constexpr uint32_t kGroupAndOthers = 077;

absl::StatusOr<std::string> FromFile(base::Files& files, const std::string& path) {
  ASSIGN_OR_RETURN(const base::FileInfo info, files.Stat(path));
  if ((info.mode & kGroupAndOthers) != 0) {
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition,
                            "{}: its mode {:04o} lets others at the secret; chmod 0600 it", path,
                            info.mode);
  }
  if (info.size_bytes > kSecretBytesMax) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "{}: {} bytes are too many for a secret", path, info.size_bytes);
  }
  return base::ReadFile(files, path);
}

// A shell in a process group of its own, so that what it starts can be ended with it.
class ShellCommand {
 public:
  ShellCommand() = default;
  ~ShellCommand() {
    if (output_ >= 0) ::close(output_);
    if (pid_ > 0) {
      ::kill(-pid_, SIGKILL);
      Reap();
    }
  }
  ShellCommand(const ShellCommand&) = delete;
  ShellCommand& operator=(const ShellCommand&) = delete;

  absl::Status Start(const std::string& command) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return Failed("pipe", errno);
    output_ = ends[0];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    std::string shell = "sh", flag = "-c", text = command;
    char* const argv[] = {shell.data(), flag.data(), text.data(), nullptr};
    const int error = ::posix_spawn(&pid_, "/bin/sh", &actions, &attributes, argv, environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    ::close(ends[1]);
    if (error != 0) {
      pid_ = -1;
      return Failed("start", error);
    }
    return absl::OkStatus();
  }

  // Reads all output into `out`, whose memory is there beforehand so that no copy stays behind.
  absl::Status ReadAll(base::Duration timeout, std::string* out) {
    const base::Duration deadline = base::SystemClock().Monotonic() + timeout;
    out->resize(kSecretBytesMax + 1);
    size_t size = 0;
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - base::SystemClock().Monotonic());
      pollfd ready{.fd = output_, .events = POLLIN, .revents = 0};
      const int count =
          ::poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000)));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failed("poll", errno);
      if (count == 0) {
        return base::MakeStatus(
            absl::StatusCode::kDeadlineExceeded, "the command gave no answer in {} ms",
            std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
      }
      const ssize_t got = ::read(output_, out->data() + size, out->size() - size);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Failed("read", errno);
      if (got == 0) break;
      size += static_cast<size_t>(got);
      if (size > kSecretBytesMax) {
        return absl::InvalidArgumentError("the command prints too much for a secret");
      }
    }
    out->resize(size);
    return Ended();
  }

 private:
  static absl::Status Failed(std::string_view what, int error) {
    return base::MakeStatus(absl::StatusCode::kInternal, "{}: {}", what, std::strerror(error));
  }

  int Reap() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

  absl::Status Ended() {
    const int status = Reap();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
    return WIFEXITED(status)
               ? base::MakeStatus(absl::StatusCode::kFailedPrecondition,
                                  "the command ended with exit code {}", WEXITSTATUS(status))
               : base::MakeStatus(absl::StatusCode::kFailedPrecondition,
                                  "the command was ended by signal {}", WTERMSIG(status));
  }

  pid_t pid_ = -1;
  int output_ = -1;
};

absl::StatusOr<std::string> FromEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) {
    return base::MakeStatus(absl::StatusCode::kNotFound, "environment variable {} is not set",
                            name);
  }
  const std::string_view text = value;
  if (text.size() > kSecretBytesMax) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "environment variable {} is too long for a secret", name);
  }
  return std::string(text);
}

}  // namespace

void Wipe(void* data, size_t n) { ::sodium_memzero(data, n); }

Secret::Secret(std::string&& text) : text_(text) { Wipe(text.data(), text.size()); }

Secret::Secret(Secret&& other) noexcept { *this = std::move(other); }

Secret& Secret::operator=(Secret&& other) noexcept {
  // Short strings lie inside the object, so moving one leaves its bytes behind: swap, then wipe.
  if (this != &other) {
    text_.swap(other.text_);
    Wipe(other.text_.data(), other.text_.size());
    other.text_.clear();
  }
  return *this;
}

Secret::~Secret() { Wipe(text_.data(), text_.capacity()); }

absl::StatusOr<Secret> ReadSecret(base::Files& files, const SecretOrigin& origin) {
  const int given =
      int{!origin.file.empty()} + int{!origin.environment.empty()} + int{!origin.command.empty()};
  if (given != 1) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "a secret comes from a file, an environment variable or a command: "
                            "give one of them, not {}",
                            given);
  }
  std::string text;
  std::string named;
  if (!origin.file.empty()) {
    ASSIGN_OR_RETURN(text, FromFile(files, origin.file));
    named = origin.file;
  } else if (!origin.environment.empty()) {
    ASSIGN_OR_RETURN(text, FromEnvironment(origin.environment));
    named = fmt::format("environment variable {}", origin.environment);
  } else {
    ShellCommand command;
    absl::Status status = command.Start(origin.command);
    if (status.ok()) status = command.ReadAll(origin.command_timeout, &text);
    if (!status.ok()) {
      Wipe(text.data(), text.size());
      return base::Annotate(status, "the command for a secret");
    }
    named = "the command for a secret";
  }
  std::string_view kept = text;
  if (kept.ends_with('\n')) kept.remove_suffix(1);
  if (kept.ends_with('\r') && kept.size() < text.size()) kept.remove_suffix(1);
  Wipe(text.data() + kept.size(), text.size() - kept.size());
  text.resize(kept.size());
  if (text.empty()) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "{}: the secret is empty", named);
  }
  return Secret(std::move(text));
}

}  // namespace vault
