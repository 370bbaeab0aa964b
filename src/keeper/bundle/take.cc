#include "bundle/take.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "base/status.h"
#include "bundle/descriptor.h"

namespace bundle {
namespace {

constexpr int kDepthMax = 64;

std::string SystemText(int error) { return std::strerror(error); }

int64_t Nanoseconds(const timespec& t) { return t.tv_sec * 1'000'000'000 + t.tv_nsec; }

bool SameState(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_size == b.st_size &&
         Nanoseconds(a.st_mtim) == Nanoseconds(b.st_mtim) &&
         Nanoseconds(a.st_ctim) == Nanoseconds(b.st_ctim);
}

const char* KindText(mode_t mode) {
  if (S_ISSOCK(mode)) return "is a socket";
  if (S_ISFIFO(mode)) return "is a pipe";
  if (S_ISBLK(mode) || S_ISCHR(mode)) return "is a device";
  return "is no file, folder or link";
}

struct CloseFolder {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

// The whole of a descriptor; the error number where reading fails.
int ReadAll(int fd, uint64_t bytes_max, std::string* out) {
  out->clear();
  char buffer[65536];
  while (true) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return 0;
    out->append(buffer, static_cast<size_t>(n));
    if (out->size() > bytes_max) return EFBIG;
  }
}

class Walk {
 public:
  Walk(Sink sink, const TakeLimits& limits) : writer_(sink), limits_(limits) {}

  absl::Status Visit(const std::string& path, int depth);
  absl::StatusOr<Taken> Finish() {
    RETURN_IF_ERROR(writer_.Finish());
    return std::move(taken_);
  }

 private:
  absl::Status AddFile(const std::string& path);
  absl::Status AddFolder(const std::string& path, const struct stat& info, int depth);
  absl::Status AddLink(const std::string& path, const struct stat& info);
  absl::Status Add(const std::string& path, const struct stat& info, Entry entry,
                   std::string_view content);
  void Refuse(const std::string& path, std::string what) {
    taken_.refused.push_back({.path = path, .what = std::move(what)});
  }

  TarWriter writer_;
  const TakeLimits& limits_;
  std::set<std::string> seen_;  // a path may be listed twice, or lie in a listed folder
  Taken taken_;
};

absl::Status Walk::Add(const std::string& path, const struct stat& info, Entry entry,
                       std::string_view content) {
  entry.path = path.substr(1);
  entry.mode = info.st_mode & 07777;
  entry.uid = info.st_uid;
  entry.gid = info.st_gid;
  entry.mtime_ns = Nanoseconds(info.st_mtim);
  ++taken_.entries;
  taken_.bytes += content.size();
  if (taken_.entries > limits_.entries_max || taken_.bytes > limits_.bytes_max) {
    return base::MakeStatus(absl::StatusCode::kResourceExhausted,
                            "{}: the bundle passes {} files or {} MiB: list less", path,
                            limits_.entries_max, limits_.bytes_max >> 20);
  }
  return writer_.Add(entry, content);
}

absl::Status Walk::AddFile(const std::string& path) {
  std::string content;
  struct stat before {};
  for (int attempt = 1;; ++attempt) {
    // Not blocking: what was a file a moment ago may be a pipe by now.
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (!file.open() || ::fstat(file.get(), &before) != 0) {
      Refuse(path, "cannot be read: " + SystemText(errno));
      return absl::OkStatus();
    }
    if (!S_ISREG(before.st_mode)) {
      Refuse(path, KindText(before.st_mode));
      return absl::OkStatus();
    }
    const int error = ReadAll(file.get(), limits_.file_bytes_max, &content);
    if (error == EFBIG) {
      Refuse(path, fmt::format("is larger than {} MiB", limits_.file_bytes_max >> 20));
      return absl::OkStatus();
    }
    if (error != 0) {
      Refuse(path, "cannot be read: " + SystemText(error));
      return absl::OkStatus();
    }
    // The name is looked at again too: renaming over it is how files are replaced.
    struct stat after {};
    struct stat by_name {};
    if (::fstat(file.get(), &after) == 0 && ::lstat(path.c_str(), &by_name) == 0 &&
        SameState(before, after) && SameState(before, by_name) &&
        content.size() == static_cast<uint64_t>(before.st_size)) {
      break;
    }
    if (attempt < limits_.tries) continue;
    taken_.changed.push_back({.path = path, .what = "changed while it was read"});
    break;
  }
  return Add(path, before, {.type = Entry::Type::kFile}, content);
}

absl::Status Walk::AddLink(const std::string& path, const struct stat& info) {
  char target[4096];
  const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
  if (n <= 0 || n == sizeof target) {
    Refuse(path, n < 0 ? "cannot be read: " + SystemText(errno) : "its target is too long");
    return absl::OkStatus();
  }
  return Add(path, info,
             {.type = Entry::Type::kLink, .target = std::string(target, static_cast<size_t>(n))},
             "");
}

absl::Status Walk::AddFolder(const std::string& path, const struct stat& info, int depth) {
  if (depth == kDepthMax) {
    Refuse(path, "is nested too deep");
    return absl::OkStatus();
  }
  const std::unique_ptr<DIR, CloseFolder> dir(::opendir(path.c_str()));
  if (dir == nullptr) {
    Refuse(path, "cannot be read: " + SystemText(errno));
    return absl::OkStatus();
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* item = ::readdir(dir.get())) {
    const std::string name = item->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) {
    Refuse(path, "cannot be read to its end: " + SystemText(errno));
    return absl::OkStatus();
  }
  std::sort(names.begin(), names.end());
  RETURN_IF_ERROR(Add(path, info, {.type = Entry::Type::kFolder}, ""));
  for (const std::string& name : names) RETURN_IF_ERROR(Visit(path + "/" + name, depth + 1));
  return absl::OkStatus();
}

absl::Status Walk::Visit(const std::string& path, int depth) {
  if (const std::string fault = PathFault(path.empty() ? path : path.substr(1)); !fault.empty()) {
    Refuse(path, "this path " + fault);
    return absl::OkStatus();
  }
  if (!seen_.insert(path).second) return absl::OkStatus();
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    Refuse(path, errno == ENOENT ? "does not exist" : "cannot be read: " + SystemText(errno));
    return absl::OkStatus();
  }
  if (S_ISDIR(info.st_mode)) return AddFolder(path, info, depth);
  if (S_ISLNK(info.st_mode)) return AddLink(path, info);
  if (S_ISREG(info.st_mode)) return AddFile(path);
  Refuse(path, KindText(info.st_mode));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Taken> Take(const std::vector<std::string>& paths, Sink sink,
                           const TakeLimits& limits) {
  Walk walk(sink, limits);
  for (std::string path : paths) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    if (!path.starts_with('/')) {
      return base::MakeStatus(absl::StatusCode::kInvalidArgument, "`{}` is a relative path", path);
    }
    RETURN_IF_ERROR(walk.Visit(path, 0));
  }
  return walk.Finish();
}

}  // namespace bundle
