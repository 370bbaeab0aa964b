// How a process that may not write a cluster's part of the state directory asks the one that may,
// the daemon, for a full: files in a folder of the state directory, which only the keeper's user
// can reach. Blocking; any thread.
//
//   <id>          somebody asks
//   <id>.answer   what came of it, as JSON; removed by who asked
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "service/guard.h"

namespace service {

class Requests {
 public:
  Requests(base::Files& files, std::string dir) : files_(files), dir_(std::move(dir)) {}

  // Asks, unless `id` is asked for or answered already.
  absl::Status Ask(const std::string& id);
  // The answer, once: nothing while there is none. An error is the other process's.
  absl::StatusOr<std::optional<BackupResult>> TakeAnswer(const std::string& id);
  void Withdraw(const std::string& id);

  // For who answers: the requests that are open now.
  std::vector<std::string> Open() const;
  void Answer(const std::vector<std::string>& ids, const absl::StatusOr<BackupResult>& result);
  // What processes that are gone left behind.
  void Clear();

 private:
  std::string PathOf(const std::string& name) const;

  base::Files& files_;
  const std::string dir_;
};

}  // namespace service
