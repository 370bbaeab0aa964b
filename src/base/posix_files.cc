#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/files.h"
#include "base/status.h"

namespace base {
namespace {

absl::Status ErrnoStatus(int error, std::string_view operation, std::string_view path) {
  absl::StatusCode code = absl::StatusCode::kInternal;
  switch (error) {
    case ENOENT:
      code = absl::StatusCode::kNotFound;
      break;
    case EEXIST:
      code = absl::StatusCode::kAlreadyExists;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = absl::StatusCode::kPermissionDenied;
      break;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
      code = absl::StatusCode::kResourceExhausted;
      break;
    case ENOTDIR:
    case EISDIR:
    case ENOTEMPTY:
      code = absl::StatusCode::kFailedPrecondition;
      break;
    default:
      break;
  }
  std::string text = std::generic_category().message(error);
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return MakeStatus(code, "{} {}: {}", operation, path, text);
}

class PosixMapping final : public Mapping {
 public:
  PosixMapping(void* address, uint64_t bytes) : address_(address), bytes_(bytes) {}
  ~PosixMapping() override { ::munmap(address_, bytes_); }
  PosixMapping(const PosixMapping&) = delete;
  PosixMapping& operator=(const PosixMapping&) = delete;
  const char* data() const override { return static_cast<const char*>(address_); }
  uint64_t reserved_bytes() const override { return bytes_; }

 private:
  void* const address_;
  const uint64_t bytes_;
};

class PosixFile final : public File {
 public:
  PosixFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PosixFile() override { ::close(fd_); }
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  const std::string& path() const override { return path_; }

  absl::StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t n) const override {
    size_t done = 0;
    while (done < n) {
      const ssize_t got = ::pread(fd_, out + done, n - done, static_cast<off_t>(offset + done));
      if (got < 0) {
        if (errno == EINTR) continue;
        return ErrnoStatus(errno, "read", path_);
      }
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

  absl::Status WriteAt(uint64_t offset, std::string_view data) override {
    while (!data.empty()) {
      const ssize_t put = ::pwrite(fd_, data.data(), data.size(), static_cast<off_t>(offset));
      if (put < 0) {
        if (errno == EINTR) continue;
        return ErrnoStatus(errno, "write", path_);
      }
      data.remove_prefix(static_cast<size_t>(put));
      offset += static_cast<uint64_t>(put);
    }
    return absl::OkStatus();
  }

  absl::Status Append(std::string_view data) override {
    ASSIGN_OR_RETURN(const uint64_t size, Size());
    return WriteAt(size, data);
  }

  absl::StatusOr<uint64_t> Size() const override {
    struct stat st {};
    if (::fstat(fd_, &st) != 0) return ErrnoStatus(errno, "stat", path_);
    return static_cast<uint64_t>(st.st_size);
  }

  absl::Status Truncate(uint64_t size) override {
    if (::ftruncate(fd_, static_cast<off_t>(size)) != 0)
      return ErrnoStatus(errno, "truncate", path_);
    return absl::OkStatus();
  }

  absl::Status Allocate(uint64_t size) override {
    if (::fallocate(fd_, 0, 0, static_cast<off_t>(size)) == 0) return absl::OkStatus();
    if (errno != EOPNOTSUPP && errno != ENOSYS) return ErrnoStatus(errno, "allocate", path_);
    ASSIGN_OR_RETURN(const uint64_t now, Size());
    return now < size ? Truncate(size) : absl::OkStatus();
  }

  absl::Status Sync() override {
    if (::fdatasync(fd_) != 0) return ErrnoStatus(errno, "fdatasync", path_);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Mapping>> Map(uint64_t reserve_bytes) override {
    void* address = ::mmap(nullptr, reserve_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd_, 0);
    if (address == MAP_FAILED) return ErrnoStatus(errno, "mmap", path_);
    return std::make_unique<PosixMapping>(address, reserve_bytes);
  }

  absl::StatusOr<bool> TryLock(LockKind kind) override {
    int result = 0;
    if (kind == LockKind::kOfdWrite) {
      struct flock range {};
      range.l_type = F_WRLCK;
      range.l_whence = SEEK_SET;
      result = ::fcntl(fd_, F_OFD_SETLK, &range);
    } else {
      result = ::flock(fd_, (kind == LockKind::kFlockShared ? LOCK_SH : LOCK_EX) | LOCK_NB);
    }
    if (result == 0) return true;
    if (errno == EWOULDBLOCK || errno == EACCES) return false;
    return ErrnoStatus(errno, "lock", path_);
  }

 private:
  const std::string path_;
  const int fd_;
};

class PosixFilesImpl final : public Files {
 public:
  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path,
                                             const OpenOptions& options) override {
    int flags = O_CLOEXEC | (options.write ? O_RDWR : O_RDONLY);
    if (options.create) flags |= O_CREAT;
    if (options.exclusive) flags |= O_EXCL;
    if (options.truncate) flags |= O_TRUNC;
    const int fd = ::open(path.c_str(), flags, static_cast<mode_t>(options.mode));
    if (fd < 0) return ErrnoStatus(errno, "open", path);
    return std::make_unique<PosixFile>(path, fd);
  }

  absl::StatusOr<FileInfo> Stat(const std::string& path) override {
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0) return ErrnoStatus(errno, "stat", path);
    return FileInfo{.size_bytes = static_cast<uint64_t>(st.st_size),
                    .mode = static_cast<uint32_t>(st.st_mode & 07777),
                    .is_directory = S_ISDIR(st.st_mode),
                    .device = static_cast<uint64_t>(st.st_dev)};
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& dir) override {
    DIR* handle = ::opendir(dir.c_str());
    if (handle == nullptr) return ErrnoStatus(errno, "open", dir);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(handle)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    const int error = errno;
    ::closedir(handle);
    if (error != 0) return ErrnoStatus(error, "readdir", dir);
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status MakeDirectory(const std::string& path, uint32_t mode) override {
    if (::mkdir(path.c_str(), static_cast<mode_t>(mode)) == 0) return absl::OkStatus();
    const int error = errno;
    if (error == EEXIST) {
      const auto info = Stat(path);
      if (info.ok() && info->is_directory) return absl::OkStatus();
      return ErrnoStatus(ENOTDIR, "mkdir", path);
    }
    return ErrnoStatus(error, "mkdir", path);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0)
      return ErrnoStatus(errno, "rename", from + " " + to);
    return absl::OkStatus();
  }

  absl::Status RenameNew(const std::string& from, const std::string& to) override {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0)
      return absl::OkStatus();
    // NFS and others cannot, but a link never replaces anything either.
    if (errno == EINVAL || errno == ENOSYS) {
      if (::link(from.c_str(), to.c_str()) == 0) return Remove(from);
    }
    return ErrnoStatus(errno, "rename", from + " " + to);
  }

  absl::Status Remove(const std::string& path) override {
    if (::remove(path.c_str()) != 0) return ErrnoStatus(errno, "remove", path);
    return absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& dir) override {
    const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return ErrnoStatus(errno, "open", dir);
    const int result = ::fsync(fd);
    const int error = errno;
    ::close(fd);
    if (result != 0) return ErrnoStatus(error, "fsync", dir);
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> FreeBytes(const std::string& path) override {
    struct statvfs st {};
    if (::statvfs(path.c_str(), &st) != 0) return ErrnoStatus(errno, "statvfs", path);
    return static_cast<uint64_t>(st.f_bavail) * st.f_frsize;
  }
};

}  // namespace

Files& PosixFiles() {
  static auto* const files = new PosixFilesImpl;
  return *files;
}

}  // namespace base
