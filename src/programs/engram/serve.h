// The server as a whole: from a Config to a running member with its listeners, until Stop. Owner:
// the main thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "config.h"

namespace engram {

class Server {
 public:
  // `fatal` is called, on any thread, when the process must end at once; the member acknowledges
  // nothing after it. `removed` is called, on any thread, when the member is no longer one of its
  // cluster and the process should end in an orderly way.
  Server(Config config, std::vector<std::string> command_line,
         std::function<void(const absl::Status&)> fatal, std::function<void()> removed);
  ~Server();

  // Returns once clients are served. Errors have etcd's texts; nothing is left running.
  absl::Status Start();
  // Ends listeners, lets calls finish, commits everything. Idempotent.
  void Stop();
  // Whether Stop was asked for from outside while starting.
  void Interrupt() { interrupted_.store(true); }

 private:
  struct Parts;
  absl::Status StartPeerListeners();
  absl::Status StartClientListeners();
  Config config_;
  const std::vector<std::string> command_line_;
  const std::function<void(const absl::Status&)> fatal_;
  const std::function<void()> removed_;
  std::atomic<bool> interrupted_{false};
  std::unique_ptr<Parts> parts_;
};

// The etcd version this program stands for.
inline constexpr const char* kEtcdVersion = "3.7.3";

}  // namespace engram
