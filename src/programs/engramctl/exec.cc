#include "exec.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "text.h"

extern char** environ;

namespace engramctl {

ProgramResult RunProgram(const std::vector<std::string>& command,
                         std::span<const std::string> environment) {
  if (command.empty()) return {};
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.push_back(*entry);
  for (const std::string& entry : environment) {
    variables.push_back(const_cast<char*>(entry.c_str()));
  }
  variables.push_back(nullptr);
  // The child gets signals that this program blocks to wait for them.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, arguments[0], nullptr, &attributes, arguments.data(), variables.data());
  posix_spawnattr_destroy(&attributes);
  if (error == ENOENT && command[0].find('/') == std::string::npos) {
    return {1, fmt::format("exec: {}: executable file not found in $PATH", Quote(command[0]))};
  }
  if (error != 0) {
    return {1, fmt::format("fork/exec {}: {}", command[0], ToLower(std::strerror(error)))};
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return {128 + signal, fmt::format("signal: {}", ToLower(strsignal(signal)))};
  }
  const int code = WEXITSTATUS(status);
  if (code == 0) return {};
  return {code, fmt::format("exit status {}", code)};
}

}  // namespace engramctl
