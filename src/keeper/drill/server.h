// A server on a restored data directory, on loopback, for drills and for looking at the past.
// Blocking; one thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "client/client.h"
#include "drill/child.h"
#include "restore/restore.h"

namespace drill {

class RestoredServer {
 public:
  // Starts `program`, any etcd-compatible server, as the member that was restored, and waits until
  // it leads its cluster of one and raises no alarm. Unavailable, with its last words, when it
  // ends; DeadlineExceeded after `timeout`; NotFound when there is no such program.
  static absl::StatusOr<std::unique_ptr<RestoredServer>> Start(
      base::Files& files, base::Clock& clock, const std::string& program,
      const restore::Report& restored, const std::string& endpoint, const std::string& log_path,
      base::Duration timeout);

  client::Client& client() { return *client_; }
  // The etcd version that it says it is.
  const std::string& version() const { return version_; }

 private:
  RestoredServer() = default;

  std::unique_ptr<Child> child_;
  std::unique_ptr<client::Client> client_;  // goes before the child
  std::string version_;
};

}  // namespace drill
