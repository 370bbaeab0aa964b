#include "bundle/extract.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "base/status.h"
#include "bundle/descriptor.h"

namespace bundle {
namespace {

using absl::StatusCode;

constexpr mode_t kParentMode = 0755;
// A set-uid bit in a bundle of keys is nothing anybody meant.
constexpr uint32_t kModeMask = 01777;
constexpr size_t kNamed = 10;

absl::Status SystemError(const std::string& path, std::string_view what) {
  const int error = errno;
  const StatusCode code = error == EACCES || error == EPERM || error == EROFS
                              ? StatusCode::kPermissionDenied
                          : error == ENOSPC || error == EDQUOT ? StatusCode::kResourceExhausted
                                                               : StatusCode::kInternal;
  return base::MakeStatus(code, "{}: {}: {}", what, path, std::strerror(error));
}

timespec TimeOf(const Entry& entry) {
  const int64_t second = 1'000'000'000;
  const int64_t fraction = ((entry.mtime_ns % second) + second) % second;
  return {.tv_sec = (entry.mtime_ns - fraction) / second, .tv_nsec = fraction};
}

// All that is in the tar, by path, or why it must not be extracted as a whole.
absl::StatusOr<std::map<std::string, Entry>> Survey(std::string_view tar) {
  std::map<std::string, Entry> entries;
  RETURN_IF_ERROR(ReadTar(tar, [&](const Entry& entry, std::string_view) {
    return entries.emplace(entry.path, entry).second
               ? absl::OkStatus()
               : base::MakeStatus(StatusCode::kInvalidArgument, "{}: is in the tar twice",
                                  entry.path);
  }));
  for (const auto& [path, entry] : entries) {
    for (size_t slash = path.find('/'); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      const auto above = entries.find(path.substr(0, slash));
      if (above != entries.end() && above->second.type != Entry::Type::kFolder) {
        return base::MakeStatus(StatusCode::kInvalidArgument,
                                "{}: lies below {}, which is no folder", path, above->first);
      }
    }
  }
  return entries;
}

class Extractor {
 public:
  Extractor(Descriptor root, const ExtractOptions& options)
      : root_(std::move(root)), options_(options), owners_(::geteuid() == 0) {}

  absl::Status Compare(const Entry& entry, std::string_view content);
  absl::Status RefuseConflicts() const;
  absl::Status Write(const Entry& entry, std::string_view content);
  // Last, since a folder's own mode may forbid writing into it.
  absl::Status SettleFolders(const std::map<std::string, Entry>& entries);
  Extracted Result() {
    result_.owners_kept = owners_;
    return std::move(result_);
  }

 private:
  struct Place {
    Descriptor folder;  // not open: a folder on the way is missing
    std::string name;
  };
  absl::StatusOr<Place> Find(const std::string& path, bool make);
  absl::StatusOr<bool> Same(const Place& place, const Entry& entry, std::string_view content) const;
  absl::Status WriteFile(const Place& place, const Entry& entry, std::string_view content);
  absl::Status PutInPlace(const Place& place, const Entry& entry, const std::string& beside) const;
  absl::Status SetAttributes(int fd, const Entry& entry) const;

  const Descriptor root_;
  const ExtractOptions& options_;
  const bool owners_;
  std::set<std::string> made_;       // folders
  std::set<std::string> unchanged_;  // entries
  std::vector<std::string> conflicts_;
  int counter_ = 0;
  Extracted result_;
};

// Walks from the root part by part and never through a link.
absl::StatusOr<Extractor::Place> Extractor::Find(const std::string& path, bool make) {
  Place place{.folder = Descriptor(::fcntl(root_.get(), F_DUPFD_CLOEXEC, 0))};
  size_t begin = 0;
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', begin)) {
    const std::string part = path.substr(begin, slash - begin);
    const std::string so_far = path.substr(0, slash);
    if (make && ::mkdirat(place.folder.get(), part.c_str(), kParentMode) == 0) made_.insert(so_far);
    Descriptor next(::openat(place.folder.get(), part.c_str(),
                             O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next.open()) {
      if (errno == ENOENT && !make) return Place{.folder = Descriptor(), .name = ""};
      if (errno == ELOOP || errno == ENOTDIR) {
        return base::MakeStatus(StatusCode::kFailedPrecondition,
                                "{}: {} is a link or no folder there, and links are not followed",
                                path, so_far);
      }
      return SystemError(so_far, "open");
    }
    place.folder = std::move(next);
    begin = slash + 1;
  }
  place.name = path.substr(begin);
  return place;
}

// Whether the entry is there already as it should be. Requires that something is there.
absl::StatusOr<bool> Extractor::Same(const Place& place, const Entry& entry,
                                     std::string_view content) const {
  struct stat info {};
  if (::fstatat(place.folder.get(), place.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return SystemError(entry.path, "stat");
  }
  if (entry.type == Entry::Type::kLink) {
    std::string target(entry.target.size() + 1, '\0');
    const ssize_t n =
        ::readlinkat(place.folder.get(), place.name.c_str(), target.data(), target.size());
    return n == static_cast<ssize_t>(entry.target.size()) && target.starts_with(entry.target);
  }
  if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != content.size()) return false;
  const Descriptor file(
      ::openat(place.folder.get(), place.name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.open()) return SystemError(entry.path, "open");
  std::string there(content.size(), '\0');
  size_t done = 0;
  while (done < there.size()) {
    const ssize_t n = ::read(file.get(), there.data() + done, there.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(entry.path, "read");
    if (n == 0) return false;
    done += static_cast<size_t>(n);
  }
  return there == content;
}

absl::Status Extractor::Compare(const Entry& entry, std::string_view content) {
  ASSIGN_OR_RETURN(const Place place, Find(entry.path, false));
  if (!place.folder.open()) return absl::OkStatus();
  struct stat info {};
  if (::fstatat(place.folder.get(), place.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? absl::OkStatus() : SystemError(entry.path, "stat");
  }
  if (entry.type == Entry::Type::kFolder || S_ISDIR(info.st_mode)) {
    if (entry.type != Entry::Type::kFolder || !S_ISDIR(info.st_mode)) {
      return base::MakeStatus(StatusCode::kFailedPrecondition,
                              "{}: {} there, and is never replaced by the other", entry.path,
                              S_ISDIR(info.st_mode) ? "is a folder" : "is no folder");
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool same, Same(place, entry, content));
  if (same) {
    unchanged_.insert(entry.path);
  } else if (!options_.overwrite) {
    conflicts_.push_back(entry.path);
  }
  return absl::OkStatus();
}

absl::Status Extractor::RefuseConflicts() const {
  if (conflicts_.empty()) return absl::OkStatus();
  std::string names;
  for (size_t i = 0; i < std::min(conflicts_.size(), kNamed); ++i) {
    names += (i == 0 ? "" : ", ") + conflicts_[i];
  }
  if (conflicts_.size() > kNamed) names += fmt::format(" and {} more", conflicts_.size() - kNamed);
  return base::MakeStatus(StatusCode::kAlreadyExists,
                          "there with another content: {}; nothing was written", names);
}

absl::Status Extractor::SetAttributes(int fd, const Entry& entry) const {
  // The owner first: giving a file away clears bits of its mode.
  if (owners_ && ::fchown(fd, static_cast<uid_t>(entry.uid), static_cast<gid_t>(entry.gid)) != 0) {
    return SystemError(entry.path, "chown");
  }
  if (::fchmod(fd, entry.mode & kModeMask) != 0) return SystemError(entry.path, "chmod");
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, TimeOf(entry)};
  if (::futimens(fd, times) != 0) return SystemError(entry.path, "set times of");
  return absl::OkStatus();
}

absl::Status Extractor::PutInPlace(const Place& place, const Entry& entry,
                                   const std::string& beside) const {
  const int fd = place.folder.get();
  // Without `overwrite` also what came after the comparison is left alone.
  const unsigned flags = options_.overwrite ? 0 : RENAME_NOREPLACE;
  if (::renameat2(fd, beside.c_str(), fd, place.name.c_str(), flags) == 0) return absl::OkStatus();
  const absl::Status failed = SystemError(entry.path, "rename to");
  ::unlinkat(fd, beside.c_str(), 0);
  return failed;
}

absl::Status Extractor::WriteFile(const Place& place, const Entry& entry,
                                  std::string_view content) {
  const std::string beside = fmt::format(".engram-{}-{}", ::getpid(), counter_++);
  const Descriptor file(::openat(place.folder.get(), beside.c_str(),
                                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.open()) return SystemError(entry.path, "create");
  const auto write_all = [&]() -> absl::Status {
    while (!content.empty()) {
      const ssize_t n = ::write(file.get(), content.data(), content.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return SystemError(entry.path, "write");
      content.remove_prefix(static_cast<size_t>(n));
    }
    RETURN_IF_ERROR(SetAttributes(file.get(), entry));
    return ::fsync(file.get()) == 0 ? absl::OkStatus() : SystemError(entry.path, "sync");
  };
  if (const absl::Status written = write_all(); !written.ok()) {
    ::unlinkat(place.folder.get(), beside.c_str(), 0);
    return written;
  }
  return PutInPlace(place, entry, beside);
}

absl::Status Extractor::Write(const Entry& entry, std::string_view content) {
  if (unchanged_.contains(entry.path)) {
    result_.unchanged.push_back(entry.path);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Place place, Find(entry.path, true));
  const int folder = place.folder.get();
  switch (entry.type) {
    case Entry::Type::kFolder:
      if (::mkdirat(folder, place.name.c_str(), 0700) == 0) {
        made_.insert(entry.path);
      } else if (errno != EEXIST) {
        return SystemError(entry.path, "make folder");
      }
      return absl::OkStatus();
    case Entry::Type::kFile:
      RETURN_IF_ERROR(WriteFile(place, entry, content));
      break;
    case Entry::Type::kLink: {
      const std::string beside = fmt::format(".engram-{}-{}", ::getpid(), counter_++);
      if (::symlinkat(entry.target.c_str(), folder, beside.c_str()) != 0) {
        return SystemError(entry.path, "make link");
      }
      if (owners_ && ::fchownat(folder, beside.c_str(), static_cast<uid_t>(entry.uid),
                                static_cast<gid_t>(entry.gid), AT_SYMLINK_NOFOLLOW) != 0) {
        const absl::Status failed = SystemError(entry.path, "chown");
        ::unlinkat(folder, beside.c_str(), 0);
        return failed;
      }
      RETURN_IF_ERROR(PutInPlace(place, entry, beside));
      break;
    }
  }
  if (::fsync(folder) != 0) return SystemError(entry.path, "sync the folder of");
  result_.written.push_back(entry.path);
  return absl::OkStatus();
}

absl::Status Extractor::SettleFolders(const std::map<std::string, Entry>& entries) {
  for (auto it = entries.rbegin(); it != entries.rend(); ++it) {
    const Entry& entry = it->second;
    if (entry.type != Entry::Type::kFolder || !made_.contains(entry.path)) continue;
    ASSIGN_OR_RETURN(const Place place, Find(entry.path, false));
    const Descriptor folder(::openat(place.folder.get(), place.name.c_str(),
                                     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder.open()) return SystemError(entry.path, "open");
    RETURN_IF_ERROR(SetAttributes(folder.get(), entry));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Extracted> Extract(std::string_view tar, const ExtractOptions& options) {
  if (!options.into.starts_with('/')) {
    return base::MakeStatus(StatusCode::kInvalidArgument, "`{}` is a relative path", options.into);
  }
  ASSIGN_OR_RETURN(const auto entries, Survey(tar));
  if (::mkdir(options.into.c_str(), 0700) != 0 && errno != EEXIST) {
    return SystemError(options.into, "make folder");
  }
  Descriptor root(::open(options.into.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.open()) return SystemError(options.into, "open");
  Extractor extractor(std::move(root), options);
  RETURN_IF_ERROR(ReadTar(tar, [&](const Entry& entry, std::string_view content) {
    return extractor.Compare(entry, content);
  }));
  RETURN_IF_ERROR(extractor.RefuseConflicts());
  RETURN_IF_ERROR(ReadTar(tar, [&](const Entry& entry, std::string_view content) {
    return extractor.Write(entry, content);
  }));
  RETURN_IF_ERROR(extractor.SettleFolders(entries));
  return extractor.Result();
}

}  // namespace bundle
