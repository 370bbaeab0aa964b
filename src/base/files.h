// The one door to the file system. Production code uses PosixFiles(); tests put a simulated disk
// below the same interface. Files is thread-safe; a File may be read (ReadAt, Size, a Mapping) from
// any thread while one thread writes.
//
// Errors carry the path and the system's text: NotFound (ENOENT), AlreadyExists (EEXIST),
// PermissionDenied (EACCES, EPERM, EROFS), ResourceExhausted (ENOSPC, EDQUOT, EMFILE, ENFILE),
// FailedPrecondition (ENOTDIR, EISDIR, ENOTEMPTY), else Internal. Message form: "open /x/y: no such
// file or directory", as etcd's programs print it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace base {

// A read-only shared mapping. The pages that lie beyond the end of the file must not be touched.
class Mapping {
 public:
  virtual ~Mapping() = default;
  // Address of file offset 0. Stays the same however the file grows within the reserved length.
  virtual const char* data() const = 0;
  virtual uint64_t reserved_bytes() const = 0;
};

enum class LockKind {
  kFlockShared,     // flock(LOCK_SH): read-only openers of a db file
  kFlockExclusive,  // flock(LOCK_EX): the writer of a db file
  kOfdWrite,        // fcntl(F_OFD_SETLK, F_WRLCK) over the whole file: WAL segments
};

class File {
 public:
  virtual ~File() = default;  // closes, which drops the locks

  virtual const std::string& path() const = 0;
  // Reads up to n bytes; fewer only at the end of the file.
  virtual absl::StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t n) const = 0;
  // Writes all of data; the file grows as needed. Not durable before Sync().
  virtual absl::Status WriteAt(uint64_t offset, std::string_view data) = 0;
  // Writes at the end of the file.
  virtual absl::Status Append(std::string_view data) = 0;
  virtual absl::StatusOr<uint64_t> Size() const = 0;
  virtual absl::Status Truncate(uint64_t size) = 0;
  // Reserves disk space up to `size` and extends the file to it (fallocate mode 0; where the file
  // system cannot, the file is extended sparsely).
  virtual absl::Status Allocate(uint64_t size) = 0;
  // fdatasync: data, and the size where it changed. A failed Sync is final: the kernel may have
  // dropped the pages, so the caller must stop using the file.
  virtual absl::Status Sync() = 0;
  // Maps the file read-only and reserves `reserve_bytes` of address space for its growth.
  virtual absl::StatusOr<std::unique_ptr<Mapping>> Map(uint64_t reserve_bytes) = 0;
  // Tries once; false when somebody else holds a conflicting lock.
  virtual absl::StatusOr<bool> TryLock(LockKind kind) = 0;
};

struct OpenOptions {
  bool write = false;      // else read-only
  bool create = false;     // create when missing
  bool exclusive = false;  // with create: AlreadyExists when present
  bool truncate = false;
  uint32_t mode = 0600;
};

struct FileInfo {
  uint64_t size_bytes = 0;
  uint32_t mode = 0;  // permission bits
  bool is_directory = false;
  uint64_t device = 0;  // equal for what lies on one file system
};

class Files {
 public:
  virtual ~Files() = default;

  virtual absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path,
                                                     const OpenOptions& options) = 0;
  virtual absl::StatusOr<FileInfo> Stat(const std::string& path) = 0;
  // Names (not paths) in the directory, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& dir) = 0;
  // Creates one directory; OK when it exists as a directory.
  virtual absl::Status MakeDirectory(const std::string& path, uint32_t mode) = 0;
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Renames a file unless `to` exists: AlreadyExists then, however many try at once. The default
  // looks first, which is as good only where one thread uses the disk.
  virtual absl::Status RenameNew(const std::string& from, const std::string& to);
  // Removes a file or an empty directory.
  virtual absl::Status Remove(const std::string& path) = 0;
  // fsync of a directory: makes creations, renames and removals in it durable.
  virtual absl::Status SyncDirectory(const std::string& dir) = 0;
  // Bytes an unprivileged writer can still add to the file system that holds `path`.
  virtual absl::StatusOr<uint64_t> FreeBytes(const std::string& path) = 0;
};

// The real file system. Never destroyed.
Files& PosixFiles();

// --- conveniences over any Files ---
bool Exists(Files& files, const std::string& path);
// Creates `path` and its missing parents (parents too with `mode`).
absl::Status MakeDirectories(Files& files, const std::string& path, uint32_t mode);
// The same, and what was created survives a power cut.
absl::Status MakeDirectoriesDurably(Files& files, const std::string& path, uint32_t mode);
// Removes a tree; OK when it is missing.
absl::Status RemoveTree(Files& files, const std::string& path);
absl::StatusOr<std::string> ReadFile(Files& files, const std::string& path);
// Writes beside, syncs, renames over `path`, syncs the directory.
absl::Status WriteFileAtomically(Files& files, const std::string& path, std::string_view data,
                                 uint32_t mode);
std::string JoinPath(std::string_view dir, std::string_view name);
std::string DirName(std::string_view path);
std::string BaseName(std::string_view path);

}  // namespace base
