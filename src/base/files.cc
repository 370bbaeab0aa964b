#include "base/files.h"

#include "base/status.h"

namespace base {

absl::Status Files::RenameNew(const std::string& from, const std::string& to) {
  if (const auto info = Stat(to); info.ok() || !absl::IsNotFound(info.status())) {
    if (!info.ok()) return info.status();
    return MakeStatus(absl::StatusCode::kAlreadyExists, "rename {} {}: file exists", from, to);
  }
  return Rename(from, to);
}

bool Exists(Files& files, const std::string& path) { return files.Stat(path).ok(); }

absl::Status MakeDirectories(Files& files, const std::string& path, uint32_t mode) {
  const auto info = files.Stat(path);
  if (info.ok() && info->is_directory) return absl::OkStatus();
  const std::string parent = DirName(path);
  if (parent != path && !parent.empty()) RETURN_IF_ERROR(MakeDirectories(files, parent, mode));
  return files.MakeDirectory(path, mode);
}

absl::Status MakeDirectoriesDurably(Files& files, const std::string& path, uint32_t mode) {
  std::vector<std::string> missing;
  for (std::string at = path; !Exists(files, at); at = DirName(at)) {
    missing.push_back(at);
    if (DirName(at) == at) break;
  }
  RETURN_IF_ERROR(MakeDirectories(files, path, mode));
  for (const std::string& made : missing) RETURN_IF_ERROR(files.SyncDirectory(DirName(made)));
  return absl::OkStatus();
}

absl::Status RemoveTree(Files& files, const std::string& path) {
  const auto info = files.Stat(path);
  if (!info.ok()) return absl::IsNotFound(info.status()) ? absl::OkStatus() : info.status();
  if (info->is_directory) {
    ASSIGN_OR_RETURN(const auto names, files.List(path));
    for (const std::string& name : names) RETURN_IF_ERROR(RemoveTree(files, JoinPath(path, name)));
  }
  return files.Remove(path);
}

absl::StatusOr<std::string> ReadFile(Files& files, const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, files.Open(path, {}));
  ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  std::string data(size, '\0');
  ASSIGN_OR_RETURN(const size_t got, file->ReadAt(0, data.data(), data.size()));
  data.resize(got);
  return data;
}

absl::Status WriteFileAtomically(Files& files, const std::string& path, std::string_view data,
                                 uint32_t mode) {
  const std::string scratch = path + ".tmp";
  {
    ASSIGN_OR_RETURN(
        const auto file,
        files.Open(scratch, {.write = true, .create = true, .truncate = true, .mode = mode}));
    RETURN_IF_ERROR(file->WriteAt(0, data));
    RETURN_IF_ERROR(file->Sync());
  }
  RETURN_IF_ERROR(files.Rename(scratch, path));
  return files.SyncDirectory(DirName(path));
}

std::string JoinPath(std::string_view dir, std::string_view name) {
  std::string path(dir);
  if (!path.empty() && path.back() != '/') path.push_back('/');
  path.append(name);
  return path;
}

std::string DirName(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

std::string BaseName(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

}  // namespace base
