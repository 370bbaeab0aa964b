#include "stores/file_store.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "stores/names.h"

namespace stores {
namespace {

constexpr size_t kPieceBytes = size_t{256} << 10;
constexpr uint32_t kFileMode = 0600;
constexpr uint32_t kDirectoryMode = 0700;
constexpr size_t kKnownDirectoriesMax = 10'000;
constexpr std::string_view kIncoming = ".incoming";
constexpr size_t kTimeDigits = 16;  // an incoming file's name begins with its time, in hex

// The first `limit` of the names it is shown.
class FirstObjects {
 public:
  explicit FirstObjects(size_t limit) : limit_(limit) {}
  void Add(ObjectInfo object) {
    if (heap_.size() == limit_ && object.name >= heap_.front().name) return;
    if (heap_.size() == limit_) {
      std::pop_heap(heap_.begin(), heap_.end(), ByName);
      heap_.pop_back();
    }
    heap_.push_back(std::move(object));
    std::push_heap(heap_.begin(), heap_.end(), ByName);
  }
  std::vector<ObjectInfo> Take() {
    std::sort_heap(heap_.begin(), heap_.end(), ByName);
    return std::move(heap_);
  }

 private:
  static bool ByName(const ObjectInfo& a, const ObjectInfo& b) { return a.name < b.name; }
  const size_t limit_;
  std::vector<ObjectInfo> heap_;  // the largest name in front
};

class Walk {
 public:
  Walk(base::Files& files, const base::Clock& clock, const std::string& root,
       const ListRequest& request, const Deadline& deadline)
      : files_(files),
        clock_(clock),
        root_(root),
        request_(request),
        deadline_(deadline),
        found_(request.limit) {}

  // `directory` is the part of a name that leads there, "" or ending in '/'.
  absl::Status Visit(const std::string& directory) {
    RETURN_IF_ERROR(deadline_.Check(clock_));
    const auto names = files_.List(base::JoinPath(root_, directory));
    // Gone since it was seen, which a list may miss, or a file: nothing is below it.
    if (absl::IsNotFound(names.status()) || absl::IsFailedPrecondition(names.status())) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(names.status());
    for (const std::string& entry : *names) {
      const std::string name = directory + entry;
      if (!MayMatter(name)) continue;
      const auto info = files_.Stat(base::JoinPath(root_, name));
      if (absl::IsNotFound(info.status())) continue;
      RETURN_IF_ERROR(info.status());
      if (info->is_directory) {
        RETURN_IF_ERROR(Visit(name + "/"));
      } else if (name.starts_with(request_.prefix) && name > request_.after) {
        found_.Add({.name = name, .bytes = info->size_bytes});
      }
    }
    return absl::OkStatus();
  }
  std::vector<ObjectInfo> Take() { return found_.Take(); }

 private:
  // Not ours, or nothing at or below it can be asked for.
  bool MayMatter(const std::string& name) const {
    if (!CheckName(name).ok()) return false;
    const std::string below = name + "/";
    // Everything below sorts before what was asked for.
    if (request_.after > below && !request_.after.starts_with(below)) return false;
    const std::string_view prefix = request_.prefix;
    return name.starts_with(prefix) || prefix.starts_with(below) || below.starts_with(prefix);
  }

  base::Files& files_;
  const base::Clock& clock_;
  const std::string& root_;
  const ListRequest& request_;
  const Deadline& deadline_;
  FirstObjects found_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileStore>> FileStore::Open(base::Files& files,
                                                           const base::Clock& clock,
                                                           base::Random& random,
                                                           FileStoreOptions options) {
  while (options.root.size() > 1 && options.root.ends_with('/')) options.root.pop_back();
  const auto info = files.Stat(options.root);
  if (!info.ok() || !info->is_directory) {
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition,
                            "store folder {}: {}; mount its disk or create it", options.root,
                            info.ok() ? "not a folder" : base::Message(info.status()));
  }
  return std::unique_ptr<FileStore>(new FileStore(files, clock, random, std::move(options)));
}

std::string FileStore::NewIncomingPath() {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(clock_.Wall()).count();
  std::lock_guard lock(mutex_);
  return base::JoinPath(PathOf(kIncoming), fmt::format("{:016x}-{:016x}", seconds, random_.Next()));
}

absl::Status FileStore::EnsureDirectory(const std::string& path) {
  if (path == options_.root || path.size() < options_.root.size()) return absl::OkStatus();
  {
    std::lock_guard lock(mutex_);
    if (directories_.contains(path)) return absl::OkStatus();
  }
  const std::string parent = base::DirName(path);
  RETURN_IF_ERROR(EnsureDirectory(parent));
  RETURN_IF_ERROR(files_.MakeDirectory(path, kDirectoryMode));
  // Also when it was there: whoever made it may not have come this far.
  RETURN_IF_ERROR(files_.SyncDirectory(parent));
  std::lock_guard lock(mutex_);
  if (directories_.size() >= kKnownDirectoriesMax) directories_.clear();
  directories_.insert(path);
  return absl::OkStatus();
}

absl::Status FileStore::WriteIncoming(const std::string& path, const Content& content,
                                      const Deadline& deadline) {
  const auto file =
      files_.Open(path, {.write = true, .create = true, .exclusive = true, .mode = kFileMode});
  RETURN_IF_ERROR(Explain(file.status()));
  ContentSource source(content);
  base::Sha256Stream hash;
  std::vector<char> piece(
      static_cast<size_t>(std::min<uint64_t>(kPieceBytes, content.bytes() + 1)));
  for (uint64_t at = 0;;) {
    RETURN_IF_ERROR(deadline.Check(clock_));
    ASSIGN_OR_RETURN(const size_t n, source.Read(piece.data(), piece.size()));
    if (n == 0) break;
    hash.Update({piece.data(), n});
    RETURN_IF_ERROR(Explain((*file)->WriteAt(at, {piece.data(), n})));
    at += n;
  }
  if (hash.Finish() != content.sha256()) {
    return absl::DataLossError("what is to be stored does not have the sha256 it should");
  }
  return Explain((*file)->Sync());
}

absl::Status FileStore::Publish(const std::string& path, const Content& content, bool replace,
                                const Deadline& deadline) {
  RETURN_IF_ERROR(Explain(EnsureDirectory(PathOf(kIncoming))));
  RETURN_IF_ERROR(Explain(EnsureDirectory(base::DirName(path))));
  const std::string incoming = NewIncomingPath();
  absl::Status status = WriteIncoming(incoming, content, deadline);
  if (status.ok()) {
    status = Explain(replace ? files_.Rename(incoming, path) : files_.RenameNew(incoming, path));
  }
  if (!status.ok()) {
    // The error that counts is the first; what cannot be removed now is Sweep's.
    files_.Remove(incoming).IgnoreError();
    return status;
  }
  return Explain(files_.SyncDirectory(base::DirName(path)));
}

absl::Status FileStore::PublishAnew(const std::string& path, const Content& content, bool replace,
                                    const Deadline& deadline) {
  absl::Status status = Publish(path, content, replace, deadline);
  if (absl::IsNotFound(status)) {
    {
      std::lock_guard lock(mutex_);
      directories_.clear();
    }
    status = Publish(path, content, replace, deadline);
  }
  if (absl::IsNotFound(status)) {
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition,
                            "store folder {} is gone ({}); mount its disk or create it",
                            options_.root, base::Message(status));
  }
  return status;
}

absl::Status FileStore::Put(std::string_view name, const Content& content,
                            const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  RETURN_IF_ERROR(deadline.Check(clock_));
  const std::string path = PathOf(name);
  if (base::Exists(files_, path)) return PutAgain(name, content, deadline);
  const absl::Status status = PublishAnew(path, content, false, deadline);
  return absl::IsAlreadyExists(status) ? PutAgain(name, content, deadline) : status;
}

absl::Status FileStore::PutAgain(std::string_view name, const Content& content,
                                 const Deadline& deadline) {
  const std::string path = PathOf(name);
  const auto same = [&]() -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const base::FileInfo info, files_.Stat(path));
    if (info.is_directory || info.size_bytes != content.bytes()) return false;
    ASSIGN_OR_RETURN(const auto file, files_.Open(path, {.write = true}));
    base::Sha256Stream hash;
    std::vector<char> piece(kPieceBytes);
    for (uint64_t at = 0; at < info.size_bytes;) {
      RETURN_IF_ERROR(deadline.Check(clock_));
      ASSIGN_OR_RETURN(const size_t n, file->ReadAt(at, piece.data(), piece.size()));
      if (n == 0) return false;
      hash.Update({piece.data(), n});
      at += n;
    }
    if (hash.Finish() != content.sha256()) return false;
    // The Put before may have failed just before its name was durable.
    RETURN_IF_ERROR(file->Sync());
    RETURN_IF_ERROR(EnsureDirectory(base::DirName(path)));
    RETURN_IF_ERROR(files_.SyncDirectory(base::DirName(path)));
    return true;
  }();
  RETURN_IF_ERROR(Explain(same.status()));
  if (*same) return absl::OkStatus();
  return base::MakeStatus(absl::StatusCode::kAlreadyExists,
                          "{}: exists with other content, and objects are written once", path);
}

absl::Status FileStore::Replace(std::string_view name, std::string_view bytes,
                                const Deadline& deadline) {
  RETURN_IF_ERROR(CheckReplace(name, bytes));
  RETURN_IF_ERROR(deadline.Check(clock_));
  return PublishAnew(PathOf(name), BytesContent(bytes), true, deadline);
}

absl::Status FileStore::Get(std::string_view name, uint64_t offset, uint64_t length,
                            vault::Sink& sink, const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  ASSIGN_OR_RETURN(const uint64_t size, Stat(name, deadline));
  if (offset > size || (length != kToTheEnd && length > size - offset)) {
    return base::MakeStatus(absl::StatusCode::kOutOfRange, "{}: has {} bytes, fewer than asked for",
                            PathOf(name), size);
  }
  const auto file = files_.Open(PathOf(name), {});
  RETURN_IF_ERROR(Explain(file.status()));
  vault::FileSource source(**file, offset, length == kToTheEnd ? size - offset : length);
  std::vector<char> piece(kPieceBytes);
  while (true) {
    RETURN_IF_ERROR(deadline.Check(clock_));
    ASSIGN_OR_RETURN(const size_t n, source.Read(piece.data(), piece.size()));
    if (n == 0) return absl::OkStatus();
    RETURN_IF_ERROR(sink.Write({piece.data(), n}));
  }
}

absl::StatusOr<uint64_t> FileStore::Stat(std::string_view name, const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  RETURN_IF_ERROR(deadline.Check(clock_));
  const auto info = files_.Stat(PathOf(name));
  // A folder is no object, nor is anything below a file (FailedPrecondition).
  if (info.ok() ? info->is_directory : absl::IsFailedPrecondition(info.status())) {
    return base::MakeStatus(absl::StatusCode::kNotFound, "{}: no such object", PathOf(name));
  }
  RETURN_IF_ERROR(Explain(info.status()));
  return info->size_bytes;
}

absl::StatusOr<std::vector<ObjectInfo>> FileStore::List(const ListRequest& request,
                                                        const Deadline& deadline) {
  RETURN_IF_ERROR(CheckListRequest(request));
  // A root that is gone is no empty store.
  RETURN_IF_ERROR(Explain(files_.Stat(options_.root).status()));
  Walk walk(files_, clock_, options_.root, request, deadline);
  const size_t slash = request.prefix.rfind('/');
  RETURN_IF_ERROR(
      Explain(walk.Visit(slash == std::string::npos ? "" : request.prefix.substr(0, slash + 1))));
  return walk.Take();
}

absl::Status FileStore::Delete(std::string_view name, const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  RETURN_IF_ERROR(deadline.Check(clock_));
  const std::string path = PathOf(name);
  const auto info = files_.Stat(path);
  const bool nothing = absl::IsNotFound(info.status()) || absl::IsFailedPrecondition(info.status());
  if (nothing || (info.ok() && info->is_directory)) return absl::OkStatus();
  RETURN_IF_ERROR(Explain(info.status()));
  const absl::Status removed = files_.Remove(path);
  if (!absl::IsNotFound(removed)) RETURN_IF_ERROR(Explain(removed));
  return Explain(files_.SyncDirectory(base::DirName(path)));
}

absl::StatusOr<Description> FileStore::Describe(const Deadline& deadline) {
  RETURN_IF_ERROR(deadline.Check(clock_));
  Description description{
      .where = options_.root, .write_once = true, .versioning = false, .object_lock = false};
  const auto root = files_.Stat(options_.root);
  RETURN_IF_ERROR(Explain(root.status()));
  const auto free = files_.FreeBytes(options_.root);
  RETURN_IF_ERROR(Explain(free.status()));
  description.free_bytes = *free;
  // Only trying tells whether it can be written to.
  RETURN_IF_ERROR(Explain(EnsureDirectory(PathOf(kIncoming))));
  const std::string probe = NewIncomingPath();
  RETURN_IF_ERROR(WriteIncoming(probe, BytesContent("probe"), deadline));
  RETURN_IF_ERROR(Explain(files_.Remove(probe)));
  for (const std::string& path : options_.apart_from) {
    const auto other = files_.Stat(path);
    if (other.ok() && other->device == root->device) {
      description.warnings.push_back(fmt::format(
          "store {} is on the same disk as {}: one broken disk takes both", options_.root, path));
    }
  }
  return description;
}

absl::StatusOr<uint64_t> FileStore::Sweep(base::Duration older_than, const Deadline& deadline) {
  const std::string incoming = PathOf(kIncoming);
  const auto names = files_.List(incoming);
  if (absl::IsNotFound(names.status())) return 0;
  RETURN_IF_ERROR(Explain(names.status()));
  const auto oldest =
      std::chrono::duration_cast<std::chrono::seconds>(clock_.Wall() - older_than).count();
  uint64_t swept = 0;
  for (const std::string& name : *names) {
    RETURN_IF_ERROR(deadline.Check(clock_));
    uint64_t written = 0;
    if (!base::ParseHexId(name.substr(0, kTimeDigits), &written)) continue;
    if (oldest < 0 || written > static_cast<uint64_t>(oldest)) continue;
    const absl::Status removed = files_.Remove(base::JoinPath(incoming, name));
    if (absl::IsNotFound(removed)) continue;  // its Put went on after all
    RETURN_IF_ERROR(Explain(removed));
    ++swept;
  }
  return swept;
}

absl::Status FileStore::Explain(const absl::Status& status) const {
  const auto with = [&](std::string_view advice) {
    return base::MakeStatus(status.code(), "{}; {}", base::Message(status), advice);
  };
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return with(fmt::format("free space on the disk of {}, or let prune remove old backups",
                              options_.root));
    case absl::StatusCode::kPermissionDenied:
      return with(fmt::format("let the keeper's user write to {} (is it mounted read-only?)",
                              options_.root));
    case absl::StatusCode::kInternal:
      return with(
          fmt::format("the disk of {} may be failing: see the kernel's log", options_.root));
    default:
      return status;
  }
}

}  // namespace stores
