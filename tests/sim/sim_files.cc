#include "sim/sim_files.h"

#include <cstring>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace sim {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr std::string_view kIndexKey = "consistent_index";

bool IsDb(const std::string& path) { return base::BaseName(path).starts_with("db"); }

// Adds one to each consistent index that stands in the pages: the key with its 8 bytes behind it.
std::string WithIndexEarly(std::string_view pages) {
  std::string changed(pages);
  for (size_t at = changed.find(kIndexKey); at != std::string::npos;
       at = changed.find(kIndexKey, at + 1)) {
    char* const value = changed.data() + at + kIndexKey.size();
    if (at + kIndexKey.size() + 8 > changed.size()) break;
    base::StoreBe64(value, base::LoadBe64(value) + 1);
  }
  return changed;
}

}  // namespace

class SimFile final : public base::File {
 public:
  SimFile(SimFiles& files, std::unique_ptr<base::File> file, std::shared_ptr<bool> unsynced)
      : files_(files),
        file_(std::move(file)),
        unsynced_(std::move(unsynced)),
        is_db_(IsDb(file_->path())) {}

  const std::string& path() const override { return file_->path(); }
  absl::StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t n) const override {
    RETURN_IF_ERROR(files_.Alive());
    return file_->ReadAt(offset, out, n);
  }
  absl::Status WriteAt(uint64_t offset, std::string_view data) override {
    RETURN_IF_ERROR(files_.Alive());
    *unsynced_ = true;
    if (is_db_ && files_.breakage_ == Breakage::kIndexEarly)
      return file_->WriteAt(offset, WithIndexEarly(data));
    if (is_db_ && files_.breakage_ == Breakage::kMetaFirst) return WriteMetaFirst(offset, data);
    return file_->WriteAt(offset, data);
  }
  absl::Status Append(std::string_view data) override {
    RETURN_IF_ERROR(files_.Alive());
    *unsynced_ = true;
    return file_->Append(data);
  }
  absl::StatusOr<uint64_t> Size() const override { return file_->Size(); }
  absl::Status Truncate(uint64_t size) override {
    RETURN_IF_ERROR(files_.Alive());
    *unsynced_ = true;
    return file_->Truncate(size);
  }
  absl::Status Allocate(uint64_t size) override {
    RETURN_IF_ERROR(files_.Alive());
    return file_->Allocate(size);
  }
  absl::Status Sync() override {
    RETURN_IF_ERROR(files_.Alive());
    if (files_.breakage_ == Breakage::kNoFsync) return absl::OkStatus();
    if (!held_back_.empty()) return absl::OkStatus();  // the sync before the meta page
    absl::Status synced = file_->Sync();
    if (synced.ok()) *unsynced_ = false;
    return synced;
  }
  absl::StatusOr<std::unique_ptr<base::Mapping>> Map(uint64_t reserve_bytes) override {
    RETURN_IF_ERROR(files_.Alive());
    return file_->Map(reserve_bytes);
  }
  absl::StatusOr<bool> TryLock(base::LockKind kind) override {
    RETURN_IF_ERROR(files_.Alive());
    return file_->TryLock(kind);
  }

 private:
  // Data pages are held back until the meta page that refers to them is written and synced.
  absl::Status WriteMetaFirst(uint64_t offset, std::string_view data) {
    const bool meta = offset < 2 * kPageBytes && data.size() == kPageBytes;
    if (!meta && offset >= 2 * kPageBytes) {
      held_back_.emplace_back(offset, data);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(file_->WriteAt(offset, data));
    if (!meta) return absl::OkStatus();
    RETURN_IF_ERROR(file_->Sync());
    for (const auto& [at, pages] : std::exchange(held_back_, {}))
      RETURN_IF_ERROR(file_->WriteAt(at, pages));
    return absl::OkStatus();
  }

  SimFiles& files_;
  const std::unique_ptr<base::File> file_;
  const std::shared_ptr<bool> unsynced_;
  const bool is_db_;
  std::vector<std::pair<uint64_t, std::string>> held_back_;
};

absl::Status SimFiles::Alive() const {
  return dead_ ? absl::UnavailableError("the process is dead") : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<base::File>> SimFiles::Open(const std::string& path,
                                                           const base::OpenOptions& options) {
  RETURN_IF_ERROR(Alive());
  ASSIGN_OR_RETURN(auto file, disk_.Open(path, options));
  // Read-only handles, and a second one for writing, do not start anew.
  std::shared_ptr<bool>& unsynced = unsynced_[path];
  if (unsynced == nullptr) unsynced = std::make_shared<bool>(false);
  return std::make_unique<SimFile>(*this, std::move(file), unsynced);
}

absl::StatusOr<base::FileInfo> SimFiles::Stat(const std::string& path) {
  RETURN_IF_ERROR(Alive());
  return disk_.Stat(path);
}

absl::StatusOr<std::vector<std::string>> SimFiles::List(const std::string& dir) {
  RETURN_IF_ERROR(Alive());
  return disk_.List(dir);
}

absl::Status SimFiles::MakeDirectory(const std::string& path, uint32_t mode) {
  RETURN_IF_ERROR(Alive());
  return disk_.MakeDirectory(path, mode);
}

absl::Status SimFiles::Rename(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(Alive());
  RETURN_IF_ERROR(disk_.Rename(from, to));
  if (const auto moved = unsynced_.extract(from)) unsynced_[to] = moved.mapped();
  return absl::OkStatus();
}

absl::Status SimFiles::Remove(const std::string& path) {
  RETURN_IF_ERROR(Alive());
  RETURN_IF_ERROR(disk_.Remove(path));
  unsynced_.erase(path);
  return absl::OkStatus();
}

absl::Status SimFiles::SyncDirectory(const std::string& dir) {
  RETURN_IF_ERROR(Alive());
  return disk_.SyncDirectory(dir);
}

absl::StatusOr<uint64_t> SimFiles::FreeBytes(const std::string& path) {
  RETURN_IF_ERROR(Alive());
  return disk_.FreeBytes(path);
}

bool SimFiles::InCommit() const {
  for (const auto& [path, unsynced] : unsynced_) {
    if (base::BaseName(path) == "db" && *unsynced) return true;
  }
  return false;
}

}  // namespace sim
