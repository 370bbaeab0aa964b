// The files of one simulated process, over a simulated disk that outlives it: nothing gets through
// once the process is dead, and a process may be broken on purpose. One thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"

namespace sim {

// A mistake that a build could contain; the simulation must find each.
enum class Breakage {
  kNone,
  // Syncs of files do nothing and say that all is well.
  kNoFsync,
  // A commit of the db file makes its meta page durable before the pages it refers to.
  kMetaFirst,
  // A commit of the db file claims to hold one raft entry more than it does.
  kIndexEarly,
};

class SimFiles final : public base::Files {
 public:
  SimFiles(base::Files& disk, Breakage breakage) : disk_(disk), breakage_(breakage) {}

  absl::StatusOr<std::unique_ptr<base::File>> Open(const std::string& path,
                                                   const base::OpenOptions& options) override;
  absl::StatusOr<base::FileInfo> Stat(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& dir) override;
  absl::Status MakeDirectory(const std::string& path, uint32_t mode) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& dir) override;
  absl::StatusOr<uint64_t> FreeBytes(const std::string& path) override;

  // The process has ended: what its remains still ask for fails.
  void Kill() { dead_ = true; }
  // Whether the db file holds writes that were not synced: a commit is under way.
  bool InCommit() const;

 private:
  friend class SimFile;
  absl::Status Alive() const;

  base::Files& disk_;
  const Breakage breakage_;
  bool dead_ = false;
  // By the path under which they were opened, or renamed to.
  std::map<std::string, std::shared_ptr<bool>> unsynced_;
};

}  // namespace sim
