// A program started for a drill: its output goes to a file, and it ends with its owner. One thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"

namespace drill {

class Child {
 public:
  // `program` is a path, or a name to be found on PATH. NotFound when it cannot be started. It dies
  // with this process too, however that ends.
  static absl::StatusOr<std::unique_ptr<Child>> Start(const std::string& program,
                                                      const std::vector<std::string>& arguments,
                                                      const std::string& log_path);
  // SIGTERM, and SIGKILL when that takes too long.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Whether it still runs; if not, how it ended: "exited with 1".
  bool Running(std::string* how);
  // The end of what it wrote.
  std::string LastWords(base::Files& files) const;

 private:
  Child(pid_t pid, std::string log_path) : pid_(pid), log_path_(std::move(log_path)) {}

  pid_t pid_;  // 0 once it was waited for
  const std::string log_path_;
  std::string how_;
};

// A TCP port of the loopback address that nobody listens on at the moment.
absl::StatusOr<int> FreePort();

}  // namespace drill
