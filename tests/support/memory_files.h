// A simulated disk below base::Files: files in memory, with power cuts, injected errors, a capacity
// and counters, all deterministic from a base::Random that the caller seeds. For tests and the
// simulation only.
//
// Threads. MemoryFiles and its Files are guarded by one mutex each disk has, so they may be used
// from many threads; a run is reproducible only if the order of the calls is.
//
// What is durable. A file's bytes are what was synced last; each write, truncation or allocation
// since then Crash() keeps or loses by itself, and tears writes at 512-byte sectors. A creation,
// rename or removal is durable once its directory is synced; before that Crash() keeps a random
// prefix of each directory's pending changes (a journaling file system keeps their order), a rename
// always as a whole. Sync of a file makes its data durable, not its name.
//
// Directories exist explicitly, "/" always does. Paths are absolute, without "." or ".." or links.
// A mapping covers whole 4 KiB pages up to the end of the file; a touch beyond is a fault, as it is
// on a real disk.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "base/random.h"

namespace test_support {

class MemoryFiles final : public base::Files {
 public:
  // What an operation is, for counters and injected errors.
  enum class Operation {
    kOpen,
    kRead,
    kWrite,
    kTruncate,
    kAllocate,
    kSync,
    kMap,
    kLock,
    kRename,
    kRemove,
    kMakeDirectory,
    kSyncDirectory
  };
  static constexpr int kOperationCount = 12;

  struct Counters {
    uint64_t of[kOperationCount] = {};
    uint64_t written_bytes = 0;
    uint64_t operator[](Operation operation) const { return of[static_cast<int>(operation)]; }
  };

  MemoryFiles();
  ~MemoryFiles() override;

  absl::StatusOr<std::unique_ptr<base::File>> Open(const std::string& path,
                                                   const base::OpenOptions& options) override;
  absl::StatusOr<base::FileInfo> Stat(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& dir) override;
  absl::Status MakeDirectory(const std::string& path, uint32_t mode) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RenameNew(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& dir) override;
  absl::StatusOr<uint64_t> FreeBytes(const std::string& path) override;

  // --- faults ---

  // Cuts the power: decides by `random` what of the unsynced state survives, drops all locks, and
  // makes every File opened before it answer Unavailable "power is off" (mappings stay readable, as
  // they were, so that their owners may be destroyed). The disk is usable again at once. Also
  // forgets FailAt, and the capacity stays.
  void Crash(base::Random& random);
  // The same, with everything unsynced lost (`keep` false) or kept (true).
  void CrashAll(bool keep);
  // How many writes to the file at `path` the last power cut tore: some of their sectors survived,
  // others did not.
  uint64_t TornWrites(const std::string& path) const;

  // Makes the n-th *changing* operation from now (1 = the next: write, truncate, allocate, sync,
  // rename, remove, create, make directory, sync directory) and all after it fail with `error`; 0
  // turns it off. A failing write still writes half of its data, down to the last border of a
  // sector of the file; a failing sync leaves what it should have synced undecided.
  void FailAt(uint64_t n, absl::Status error, bool only_once = false);
  // How many changing operations were begun since FailAt was called last, or since the disk was
  // made.
  uint64_t ChangesSinceFailAt() const;
  // Whether FailAt's operation has been reached.
  bool failure_reached() const;

  // Bytes the disk holds, unlimited at first; a write or allocation beyond yields
  // ResourceExhausted. What counts for a file are its 4 KiB pages ever written, or what was
  // allocated if that is more.
  void SetCapacity(uint64_t bytes);
  uint64_t used_bytes() const;

  Counters counters() const;

  // --- direct access for tests ---
  absl::StatusOr<std::string> Contents(const std::string& path) const;
  // Creates or replaces a file, durable at once, with the missing directories.
  void Put(const std::string& path, std::string_view contents);
  // Every file and directory, sorted.
  std::vector<std::string> AllPaths() const;

  struct Disk;  // implementation

 private:
  const std::shared_ptr<Disk> disk_;
};

}  // namespace test_support
