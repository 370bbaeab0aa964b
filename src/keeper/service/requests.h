// How a process that may not write a cluster's part of the state directory asks the one that may,
// the daemon, for a full or a bundle: files in a folder of the state directory, which only the
// keeper's user can reach. Blocking; any thread.
//
//   <id>          somebody asks: "full" or "bundle"
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

enum class Wanted { kFull, kBundle };

class Requests {
 public:
  struct Asked {
    std::string id;
    Wanted wanted = Wanted::kFull;
  };

  Requests(base::Files& files, std::string dir) : files_(files), dir_(std::move(dir)) {}

  // Asks, unless `id` is asked for or answered already.
  absl::Status Ask(const Asked& asked);
  // The answer, once: nothing while there is none. An error is the other process's.
  absl::StatusOr<std::optional<BackupResult>> TakeFull(const std::string& id);
  absl::StatusOr<std::optional<BundleResult>> TakeBundle(const std::string& id);
  void Withdraw(const std::string& id);

  // For who answers: the requests that are open now.
  std::vector<Asked> Open() const;
  // Answers those of `asked` that want it.
  void Answer(const std::vector<Asked>& asked, const absl::StatusOr<BackupResult>& result);
  void Answer(const std::vector<Asked>& asked, const absl::StatusOr<BundleResult>& result);
  // What processes that are gone left behind.
  void Clear();

 private:
  absl::StatusOr<std::optional<std::string>> TakeText(const std::string& id);
  void AnswerText(const std::vector<Asked>& asked, Wanted wanted, const std::string& text);
  std::string PathOf(const std::string& name) const;

  base::Files& files_;
  const std::string dir_;
};

}  // namespace service
