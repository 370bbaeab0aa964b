#include "support/memory_files.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace test_support {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kSectorBytes = 512;

uint64_t RoundUp(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Bytes of a file; pages never written are holes that read as zeros.
class SparseBytes {
 public:
  uint64_t size() const { return size_; }
  uint64_t stored_bytes() const { return pages_.size() * kPageBytes; }

  void Read(uint64_t offset, char* out, size_t n) const {
    while (n > 0) {
      const size_t part = Part(offset, n);
      const auto page = pages_.find(offset / kPageBytes);
      if (page == pages_.end()) {
        std::memset(out, 0, part);
      } else {
        std::memcpy(out, page->second->data() + offset % kPageBytes, part);
      }
      offset += part;
      out += part;
      n -= part;
    }
  }

  void Write(uint64_t offset, std::string_view data) {
    size_ = std::max<uint64_t>(size_, offset + data.size());
    while (!data.empty()) {
      const size_t part = Part(offset, data.size());
      auto& page = pages_[offset / kPageBytes];
      if (page == nullptr) page = std::make_unique<Page>();
      std::memcpy(page->data() + offset % kPageBytes, data.data(), part);
      offset += part;
      data.remove_prefix(part);
    }
  }

  void Resize(uint64_t size) {
    if (size < size_) {
      pages_.erase(pages_.lower_bound(RoundUp(size) / kPageBytes), pages_.end());
      if (const auto last = pages_.find(size / kPageBytes); last != pages_.end()) {
        std::fill(last->second->begin() + static_cast<ptrdiff_t>(size % kPageBytes),
                  last->second->end(), '\0');
      }
    }
    size_ = size;
  }

  void Assign(const SparseBytes& other) {
    pages_.clear();
    for (const auto& [index, page] : other.pages_) pages_[index] = std::make_unique<Page>(*page);
    size_ = other.size_;
  }

  template <typename Visit>
  void VisitStored(const Visit& visit) const {
    for (const auto& [index, page] : pages_)
      visit(index * kPageBytes, std::string_view(page->data(), page->size()));
  }

  // Pages that a write would have to store anew.
  uint64_t NewPages(uint64_t offset, uint64_t n) const {
    uint64_t count = 0;
    for (uint64_t page = offset / kPageBytes; n > 0 && page <= (offset + n - 1) / kPageBytes;
         ++page) {
      if (!pages_.contains(page)) ++count;
    }
    return count;
  }

 private:
  using Page = std::array<char, kPageBytes>;
  static size_t Part(uint64_t offset, size_t n) {
    return static_cast<size_t>(std::min<uint64_t>(n, kPageBytes - offset % kPageBytes));
  }
  std::map<uint64_t, std::unique_ptr<Page>> pages_;
  uint64_t size_ = 0;
};

// Memory that shows a file. Readable up to the end of the file's last page.
class Region final : public base::Mapping {
 public:
  static std::shared_ptr<Region> Make(uint64_t bytes) {
    void* const at = ::mmap(nullptr, RoundUp(bytes), PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    return std::shared_ptr<Region>(new Region(static_cast<char*>(at), bytes));
  }
  ~Region() override { ::munmap(data_, RoundUp(bytes_)); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const char* data() const override { return data_; }
  uint64_t reserved_bytes() const override { return bytes_; }

  // The file now has `size` bytes; what lies beyond in its last page is zero.
  void Resize(uint64_t size) {
    const uint64_t open = std::min(RoundUp(size), RoundUp(bytes_));
    if (open > open_) {
      CHECK(::mprotect(data_ + open_, open - open_, PROT_READ | PROT_WRITE) == 0);
    } else if (open < open_) {
      // Mapped anew, so that it is zero when the file grows again.
      CHECK(::mmap(data_ + open, open_ - open, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED);
    }
    open_ = open;
    if (size < open_) std::memset(data_ + size, 0, open_ - size);
  }
  void Write(uint64_t offset, std::string_view data) {
    if (offset >= open_) return;
    std::memcpy(data_ + offset, data.data(), std::min<uint64_t>(data.size(), open_ - offset));
  }
  // Once, while all is zero: touching what is a hole in the file would cost memory and time.
  void Fill(const SparseBytes& bytes) {
    bytes.VisitStored([this](uint64_t offset, std::string_view page) { Write(offset, page); });
  }

 private:
  Region(char* data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  char* const data_;
  const uint64_t bytes_;
  uint64_t open_ = 0;
};

// What File::Map hands out; the file keeps a weak reference to the region.
class MappingHandle final : public base::Mapping {
 public:
  explicit MappingHandle(std::shared_ptr<Region> region) : region_(std::move(region)) {}
  const char* data() const override { return region_->data(); }
  uint64_t reserved_bytes() const override { return region_->reserved_bytes(); }

 private:
  const std::shared_ptr<Region> region_;
};

struct Inode;
using InodePtr = std::shared_ptr<Inode>;

// A write since the last sync, or a change of length.
struct PendingWrite {
  uint64_t offset = 0;
  std::string data;
  std::optional<uint64_t> resize;
};

struct Inode {
  bool directory = false;
  uint32_t mode = 0;
  // Of a file.
  SparseBytes live;
  SparseBytes durable;
  std::vector<PendingWrite> pending;
  uint64_t allocated_bytes = 0;
  uint64_t torn_writes = 0;  // by the last power cut
  std::vector<std::weak_ptr<Region>> regions;
  std::map<uint64_t, base::LockKind> locks;  // by the holding File's number
  // Of a directory.
  std::map<std::string, InodePtr> entries;
  std::map<std::string, InodePtr> durable_entries;

  uint64_t used_bytes() const { return std::max(live.stored_bytes(), RoundUp(allocated_bytes)); }
};

// A change of names: all its parts happen or none.
struct NameChange {
  struct Part {
    InodePtr directory;
    std::string name;
    InodePtr target;  // null: removed
  };
  std::vector<Part> parts;
  bool Touches(const InodePtr& directory) const {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const Part& part) { return part.directory == directory; });
  }
  void MakeDurable() const {
    for (const Part& part : parts) {
      if (part.target == nullptr) {
        part.directory->durable_entries.erase(part.name);
      } else {
        part.directory->durable_entries[part.name] = part.target;
      }
    }
  }
};

void ApplyPending(const PendingWrite& write, SparseBytes* bytes) {
  if (write.resize) {
    bytes->Resize(*write.resize);
  } else {
    bytes->Write(write.offset, write.data);
  }
}

// Applies some of the sectors that a write covers; whether it were not all or none by chance.
bool ApplyTorn(const PendingWrite& write, base::Random& random, SparseBytes* bytes) {
  const std::string_view data = write.data;
  size_t kept = 0;
  for (size_t at = 0; at < data.size();) {
    const size_t part = static_cast<size_t>(
        std::min<uint64_t>(kSectorBytes - (write.offset + at) % kSectorBytes, data.size() - at));
    if (random.OneIn(2)) {
      bytes->Write(write.offset + at, data.substr(at, part));
      kept += part;
    }
    at += part;
  }
  return kept > 0 && kept < data.size();
}

absl::Status NotFound(std::string_view what, std::string_view path) {
  return base::MakeStatus(absl::StatusCode::kNotFound, "{} {}: no such file or directory", what,
                          path);
}

}  // namespace

struct MemoryFiles::Disk {
  std::mutex mutex;
  InodePtr root;
  std::vector<NameChange> name_changes;  // not yet durable, in order
  uint64_t generation = 0;               // counts power cuts
  uint64_t next_handle = 1;
  uint64_t capacity = ~uint64_t{0};
  Counters counters;
  uint64_t changes = 0;  // changing operations since FailAt
  uint64_t fail_at = 0;
  bool fail_once = false;
  absl::Status fail_error;

  static InodePtr NewDirectory(uint32_t mode) {
    auto inode = std::make_shared<Inode>();
    inode->directory = true;
    inode->mode = mode;
    return inode;
  }

  void Count(Operation operation) { ++counters.of[static_cast<int>(operation)]; }
  // Counts a changing operation; its injected error.
  absl::Status Change(Operation operation) {
    Count(operation);
    ++changes;
    if (fail_at == 0) return absl::OkStatus();
    return changes == fail_at || (changes > fail_at && !fail_once) ? fail_error : absl::OkStatus();
  }

  InodePtr Find(std::string_view path) const {
    InodePtr at = root;
    while (at != nullptr && !path.empty()) {
      const size_t slash = path.find('/');
      const std::string_view name = path.substr(0, slash);
      path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
      if (name.empty()) continue;
      if (!at->directory) return nullptr;
      const auto entry = at->entries.find(std::string(name));
      at = entry == at->entries.end() ? nullptr : entry->second;
    }
    return at;
  }

  absl::Status RenameLocked(const std::string& from, const std::string& to);
  void Rename(NameChange change) {
    for (const NameChange::Part& part : change.parts) {
      if (part.target == nullptr) {
        part.directory->entries.erase(part.name);
      } else {
        part.directory->entries[part.name] = part.target;
      }
    }
    name_changes.push_back(std::move(change));
  }

  template <typename Visit>
  static void VisitTree(const InodePtr& inode, const std::string& path, const Visit& visit) {
    visit(path, *inode);
    for (const auto& [name, child] : inode->entries)
      VisitTree(child, base::JoinPath(path, name), visit);
  }

  uint64_t UsedBytes() const {
    uint64_t used = 0;
    VisitTree(root, "/",
              [&used](const std::string&, const Inode& inode) { used += inode.used_bytes(); });
    return used;
  }
  absl::Status Reserve(uint64_t more_bytes, std::string_view operation,
                       std::string_view path) const {
    if (capacity == ~uint64_t{0}) return absl::OkStatus();
    const uint64_t used = UsedBytes();
    if (used <= capacity && more_bytes <= capacity - used) return absl::OkStatus();
    return base::MakeStatus(absl::StatusCode::kResourceExhausted, "{} {}: no space left on device",
                            operation, path);
  }

  // What a power cut leaves. `random` null: everything unsynced is kept or lost, as `keep` says.
  void Crash(base::Random* random, bool keep);
  static void CrashFile(Inode& inode, base::Random* random, bool keep);
  static void CrashTree(const InodePtr& inode, base::Random* random, bool keep,
                        std::vector<const Inode*>* done);
};

void MemoryFiles::Disk::CrashFile(Inode& inode, base::Random* random, bool keep) {
  inode.torn_writes = 0;
  for (const PendingWrite& write : inode.pending) {
    const uint64_t fate = random == nullptr ? (keep ? 0 : 1) : random->Below(3);
    if (fate == 0 || (fate == 2 && write.resize)) ApplyPending(write, &inode.durable);
    if (fate == 2 && !write.resize && ApplyTorn(write, *random, &inode.durable))
      ++inode.torn_writes;
  }
  inode.pending.clear();
  inode.live.Assign(inode.durable);
  inode.regions.clear();
  inode.locks.clear();
}

void MemoryFiles::Disk::CrashTree(const InodePtr& inode, base::Random* random, bool keep,
                                  std::vector<const Inode*>* done) {
  // A file may have two names when half of what moved it was kept.
  if (std::find(done->begin(), done->end(), inode.get()) != done->end()) return;
  done->push_back(inode.get());
  if (!inode->directory) {
    CrashFile(*inode, random, keep);
    return;
  }
  inode->entries = inode->durable_entries;
  for (const auto& [name, child] : inode->entries) CrashTree(child, random, keep, done);
}

void MemoryFiles::Disk::Crash(base::Random* random, bool keep) {
  ++generation;
  fail_at = 0;
  // For each directory, in the order in which they first appear: how many of its changes survive.
  std::vector<std::pair<InodePtr, uint64_t>> left;
  for (const NameChange& change : name_changes) {
    for (const NameChange::Part& part : change.parts) {
      if (std::none_of(left.begin(), left.end(),
                       [&](const auto& entry) { return entry.first == part.directory; })) {
        const auto count = static_cast<uint64_t>(
            std::count_if(name_changes.begin(), name_changes.end(),
                          [&](const NameChange& c) { return c.Touches(part.directory); }));
        left.emplace_back(part.directory,
                          random == nullptr ? (keep ? count : 0) : random->Below(count + 1));
      }
    }
  }
  for (const NameChange& change : name_changes) {
    bool survives = true;
    for (auto& [directory, count] : left) {
      if (!change.Touches(directory)) continue;
      if (count == 0) {
        survives = false;
      } else {
        --count;
      }
    }
    if (survives) {
      change.MakeDurable();
      continue;
    }
    // Order is kept: nothing behind a lost change survives in the directories it touches.
    for (auto& [directory, count] : left) {
      if (change.Touches(directory)) count = 0;
    }
  }
  name_changes.clear();
  std::vector<const Inode*> done;
  CrashTree(root, random, keep, &done);
}

namespace {

using Disk = MemoryFiles::Disk;
using Operation = MemoryFiles::Operation;

class MemoryFile final : public base::File {
 public:
  MemoryFile(std::shared_ptr<Disk> disk, InodePtr inode, std::string path, bool writable)
      : disk_(std::move(disk)),
        inode_(std::move(inode)),
        path_(std::move(path)),
        writable_(writable),
        generation_(disk_->generation),
        handle_(disk_->next_handle++) {}
  ~MemoryFile() override {
    std::lock_guard lock(disk_->mutex);
    if (generation_ == disk_->generation) inode_->locks.erase(handle_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const override { return path_; }

  absl::StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t n) const override {
    std::lock_guard lock(disk_->mutex);
    RETURN_IF_ERROR(Powered("read"));
    disk_->Count(Operation::kRead);
    const uint64_t size = inode_->live.size();
    if (offset >= size) return 0;
    const auto count = static_cast<size_t>(std::min<uint64_t>(n, size - offset));
    inode_->live.Read(offset, out, count);
    return count;
  }

  absl::Status WriteAt(uint64_t offset, std::string_view data) override {
    std::lock_guard lock(disk_->mutex);
    return Write(offset, data);
  }

  absl::Status Append(std::string_view data) override {
    std::lock_guard lock(disk_->mutex);
    return Write(inode_->live.size(), data);
  }

  absl::StatusOr<uint64_t> Size() const override {
    std::lock_guard lock(disk_->mutex);
    RETURN_IF_ERROR(Powered("stat"));
    return inode_->live.size();
  }

  absl::Status Truncate(uint64_t size) override {
    std::lock_guard lock(disk_->mutex);
    RETURN_IF_ERROR(Writable("truncate"));
    RETURN_IF_ERROR(disk_->Change(Operation::kTruncate));
    inode_->allocated_bytes = std::min(inode_->allocated_bytes, size);
    Resize(size);
    return absl::OkStatus();
  }

  absl::Status Allocate(uint64_t size) override {
    std::lock_guard lock(disk_->mutex);
    RETURN_IF_ERROR(Writable("allocate"));
    RETURN_IF_ERROR(disk_->Change(Operation::kAllocate));
    const uint64_t used = inode_->used_bytes();
    RETURN_IF_ERROR(
        disk_->Reserve(RoundUp(size) - std::min(RoundUp(size), used), "allocate", path_));
    inode_->allocated_bytes = std::max(inode_->allocated_bytes, size);
    if (size > inode_->live.size()) Resize(size);
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    std::lock_guard lock(disk_->mutex);
    RETURN_IF_ERROR(Writable("fdatasync"));
    RETURN_IF_ERROR(disk_->Change(Operation::kSync));
    for (const PendingWrite& write : inode_->pending) ApplyPending(write, &inode_->durable);
    inode_->pending.clear();
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<base::Mapping>> Map(uint64_t reserve_bytes) override {
    std::lock_guard lock(disk_->mutex);
    RETURN_IF_ERROR(Powered("mmap"));
    disk_->Count(Operation::kMap);
    const std::shared_ptr<Region> region = Region::Make(reserve_bytes);
    if (region == nullptr) {
      return base::MakeStatus(absl::StatusCode::kInternal, "mmap {}: cannot allocate memory",
                              path_);
    }
    region->Resize(inode_->live.size());
    region->Fill(inode_->live);
    std::erase_if(inode_->regions, [](const std::weak_ptr<Region>& old) { return old.expired(); });
    inode_->regions.push_back(region);
    return std::make_unique<MappingHandle>(region);
  }

  absl::StatusOr<bool> TryLock(base::LockKind kind) override {
    std::lock_guard lock(disk_->mutex);
    RETURN_IF_ERROR(Powered("lock"));
    disk_->Count(Operation::kLock);
    for (const auto& [handle, held] : inode_->locks) {
      if (handle == handle_) continue;
      // flock and OFD locks do not see each other.
      if ((held == base::LockKind::kOfdWrite) != (kind == base::LockKind::kOfdWrite)) continue;
      if (held != base::LockKind::kFlockShared || kind != base::LockKind::kFlockShared)
        return false;
    }
    inode_->locks[handle_] = kind;
    return true;
  }

 private:
  absl::Status Powered(std::string_view operation) const {
    if (generation_ == disk_->generation) return absl::OkStatus();
    return base::MakeStatus(absl::StatusCode::kUnavailable, "{} {}: power is off", operation,
                            path_);
  }
  absl::Status Writable(std::string_view operation) const {
    if (generation_ == disk_->generation && !writable_) {
      return base::MakeStatus(absl::StatusCode::kInternal, "{} {}: bad file descriptor", operation,
                              path_);
    }
    return Powered(operation);
  }

  absl::Status Write(uint64_t offset, std::string_view data) {
    RETURN_IF_ERROR(Writable("write"));
    if (absl::Status injected = disk_->Change(Operation::kWrite); !injected.ok()) {
      // Devices write whole sectors, wherever in one the data began.
      const uint64_t end = (offset + data.size() / 2) / kSectorBytes * kSectorBytes;
      if (end > offset) WriteBytes(offset, data.substr(0, static_cast<size_t>(end - offset)));
      return injected;
    }
    const uint64_t more = inode_->live.NewPages(offset, data.size()) * kPageBytes;
    const uint64_t reserved = inode_->used_bytes() - inode_->live.stored_bytes();
    RETURN_IF_ERROR(disk_->Reserve(more - std::min(more, reserved), "write", path_));
    WriteBytes(offset, data);
    return absl::OkStatus();
  }

  void WriteBytes(uint64_t offset, std::string_view data) {
    if (data.empty()) return;
    disk_->counters.written_bytes += data.size();
    const uint64_t size = inode_->live.size();
    inode_->live.Write(offset, data);
    ForEachRegion([&](Region& region) {
      if (inode_->live.size() != size) region.Resize(inode_->live.size());
      region.Write(offset, data);
    });
    inode_->pending.push_back(
        {.offset = offset, .data = std::string(data), .resize = std::nullopt});
  }

  void Resize(uint64_t size) {
    inode_->live.Resize(size);
    ForEachRegion([&](Region& region) { region.Resize(size); });
    inode_->pending.push_back({.offset = 0, .data = {}, .resize = size});
  }

  template <typename Visit>
  void ForEachRegion(const Visit& visit) {
    for (const std::weak_ptr<Region>& weak : inode_->regions) {
      if (const std::shared_ptr<Region> region = weak.lock()) visit(*region);
    }
  }

  const std::shared_ptr<Disk> disk_;
  const InodePtr inode_;
  const std::string path_;
  const bool writable_;
  const uint64_t generation_;
  const uint64_t handle_;
};

}  // namespace

MemoryFiles::MemoryFiles() : disk_(std::make_shared<Disk>()) {
  disk_->root = Disk::NewDirectory(0755);
}
MemoryFiles::~MemoryFiles() = default;

absl::StatusOr<std::unique_ptr<base::File>> MemoryFiles::Open(const std::string& path,
                                                              const base::OpenOptions& options) {
  std::lock_guard lock(disk_->mutex);
  disk_->Count(Operation::kOpen);
  InodePtr inode = disk_->Find(path);
  if (inode != nullptr && options.create && options.exclusive) {
    return base::MakeStatus(absl::StatusCode::kAlreadyExists, "open {}: file exists", path);
  }
  if (inode != nullptr && inode->directory) {
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition, "open {}: is a directory", path);
  }
  const bool fresh = inode == nullptr;
  if (fresh) {
    const InodePtr directory = disk_->Find(base::DirName(path));
    if (!options.create || directory == nullptr) return NotFound("open", path);
    if (!directory->directory) {
      return base::MakeStatus(absl::StatusCode::kFailedPrecondition, "open {}: not a directory",
                              path);
    }
    RETURN_IF_ERROR(disk_->Change(Operation::kOpen));
    --disk_->counters.of[static_cast<int>(Operation::kOpen)];  // counted above
    inode = std::make_shared<Inode>();
    inode->mode = options.mode;
    disk_->Rename(
        {.parts = {{.directory = directory, .name = base::BaseName(path), .target = inode}}});
  }
  if (!fresh && options.truncate && inode->live.size() > 0) {
    RETURN_IF_ERROR(disk_->Change(Operation::kTruncate));
    inode->live.Resize(0);
    inode->allocated_bytes = 0;
    for (const std::weak_ptr<Region>& weak : inode->regions) {
      if (const std::shared_ptr<Region> region = weak.lock()) region->Resize(0);
    }
    inode->pending.push_back({.offset = 0, .data = {}, .resize = 0});
  }
  // Last, since a file that an error above threw away would want the lock to close itself.
  return std::make_unique<MemoryFile>(disk_, inode, path, options.write);
}

absl::StatusOr<base::FileInfo> MemoryFiles::Stat(const std::string& path) {
  std::lock_guard lock(disk_->mutex);
  const InodePtr inode = disk_->Find(path);
  if (inode == nullptr) return NotFound("stat", path);
  return base::FileInfo{
      .size_bytes = inode->live.size(), .mode = inode->mode, .is_directory = inode->directory};
}

absl::StatusOr<std::vector<std::string>> MemoryFiles::List(const std::string& dir) {
  std::lock_guard lock(disk_->mutex);
  const InodePtr inode = disk_->Find(dir);
  if (inode == nullptr) return NotFound("open", dir);
  if (!inode->directory) {
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition, "open {}: not a directory", dir);
  }
  std::vector<std::string> names;
  for (const auto& [name, child] : inode->entries) names.push_back(name);
  return names;
}

absl::Status MemoryFiles::MakeDirectory(const std::string& path, uint32_t mode) {
  std::lock_guard lock(disk_->mutex);
  if (const InodePtr inode = disk_->Find(path)) {
    if (inode->directory) return absl::OkStatus();
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition, "mkdir {}: not a directory",
                            path);
  }
  const InodePtr parent = disk_->Find(base::DirName(path));
  if (parent == nullptr || !parent->directory) return NotFound("mkdir", path);
  RETURN_IF_ERROR(disk_->Change(Operation::kMakeDirectory));
  disk_->Rename({.parts = {{.directory = parent,
                            .name = base::BaseName(path),
                            .target = Disk::NewDirectory(mode)}}});
  return absl::OkStatus();
}

absl::Status MemoryFiles::Rename(const std::string& from, const std::string& to) {
  std::lock_guard lock(disk_->mutex);
  return disk_->RenameLocked(from, to);
}

absl::Status MemoryFiles::RenameNew(const std::string& from, const std::string& to) {
  std::lock_guard lock(disk_->mutex);
  if (disk_->Find(to) != nullptr) {
    return base::MakeStatus(absl::StatusCode::kAlreadyExists, "rename {} {}: file exists", from,
                            to);
  }
  return disk_->RenameLocked(from, to);
}

absl::Status MemoryFiles::Disk::RenameLocked(const std::string& from, const std::string& to) {
  const InodePtr inode = Find(from);
  const InodePtr to_directory = Find(base::DirName(to));
  if (inode == nullptr || to_directory == nullptr) return NotFound("rename", from + " " + to);
  const InodePtr target = Find(to);
  if (target == inode) return absl::OkStatus();
  if (target != nullptr && (target->directory != inode->directory || !target->entries.empty())) {
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition, "rename {} {}: {}", from, to,
                            target->directory ? "directory not empty" : "not a directory");
  }
  RETURN_IF_ERROR(Change(Operation::kRename));
  Rename({.parts = {{.directory = Find(base::DirName(from)),
                     .name = base::BaseName(from),
                     .target = nullptr},
                    {.directory = to_directory, .name = base::BaseName(to), .target = inode}}});
  return absl::OkStatus();
}

absl::Status MemoryFiles::Remove(const std::string& path) {
  std::lock_guard lock(disk_->mutex);
  const InodePtr inode = disk_->Find(path);
  if (inode == nullptr) return NotFound("remove", path);
  if (!inode->entries.empty()) {
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition, "remove {}: directory not empty",
                            path);
  }
  RETURN_IF_ERROR(disk_->Change(Operation::kRemove));
  disk_->Rename({.parts = {{.directory = disk_->Find(base::DirName(path)),
                            .name = base::BaseName(path),
                            .target = nullptr}}});
  return absl::OkStatus();
}

absl::Status MemoryFiles::SyncDirectory(const std::string& dir) {
  std::lock_guard lock(disk_->mutex);
  const InodePtr inode = disk_->Find(dir);
  if (inode == nullptr) return NotFound("open", dir);
  RETURN_IF_ERROR(disk_->Change(Operation::kSyncDirectory));
  std::vector<NameChange> left;
  for (NameChange& change : disk_->name_changes) {
    if (change.Touches(inode)) {
      change.MakeDurable();
    } else {
      left.push_back(std::move(change));
    }
  }
  disk_->name_changes = std::move(left);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> MemoryFiles::FreeBytes(const std::string& path) {
  std::lock_guard lock(disk_->mutex);
  if (disk_->Find(path) == nullptr) return NotFound("statvfs", path);
  const uint64_t used = disk_->UsedBytes();
  return disk_->capacity - std::min(used, disk_->capacity);
}

void MemoryFiles::Crash(base::Random& random) {
  std::lock_guard lock(disk_->mutex);
  disk_->Crash(&random, false);
}

void MemoryFiles::CrashAll(bool keep) {
  std::lock_guard lock(disk_->mutex);
  disk_->Crash(nullptr, keep);
}

uint64_t MemoryFiles::TornWrites(const std::string& path) const {
  std::lock_guard lock(disk_->mutex);
  const InodePtr inode = disk_->Find(path);
  return inode == nullptr ? 0 : inode->torn_writes;
}

void MemoryFiles::FailAt(uint64_t n, absl::Status error, bool only_once) {
  std::lock_guard lock(disk_->mutex);
  disk_->changes = 0;
  disk_->fail_at = n;
  disk_->fail_error = std::move(error);
  disk_->fail_once = only_once;
}

uint64_t MemoryFiles::ChangesSinceFailAt() const {
  std::lock_guard lock(disk_->mutex);
  return disk_->changes;
}

bool MemoryFiles::failure_reached() const {
  std::lock_guard lock(disk_->mutex);
  return disk_->fail_at != 0 && disk_->changes >= disk_->fail_at;
}

void MemoryFiles::SetCapacity(uint64_t bytes) {
  std::lock_guard lock(disk_->mutex);
  disk_->capacity = bytes;
}

uint64_t MemoryFiles::used_bytes() const {
  std::lock_guard lock(disk_->mutex);
  return disk_->UsedBytes();
}

MemoryFiles::Counters MemoryFiles::counters() const {
  std::lock_guard lock(disk_->mutex);
  return disk_->counters;
}

absl::StatusOr<std::string> MemoryFiles::Contents(const std::string& path) const {
  std::lock_guard lock(disk_->mutex);
  const InodePtr inode = disk_->Find(path);
  if (inode == nullptr || inode->directory) return NotFound("open", path);
  std::string contents(static_cast<size_t>(inode->live.size()), '\0');
  inode->live.Read(0, contents.data(), contents.size());
  return contents;
}

void MemoryFiles::Put(const std::string& path, std::string_view contents) {
  std::lock_guard lock(disk_->mutex);
  InodePtr directory = disk_->root;
  const std::string parent = base::DirName(path);
  std::string_view rest = parent;
  while (!rest.empty()) {
    const size_t slash = rest.find('/');
    const std::string name(rest.substr(0, slash));
    rest = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
    if (name.empty()) continue;
    InodePtr& child = directory->entries[name];
    if (child == nullptr) child = Disk::NewDirectory(0755);
    directory->durable_entries[name] = child;
    directory = child;
  }
  auto inode = std::make_shared<Inode>();
  inode->mode = 0600;
  inode->live.Write(0, contents);
  inode->durable.Write(0, contents);
  directory->entries[base::BaseName(path)] = inode;
  directory->durable_entries[base::BaseName(path)] = inode;
}

std::vector<std::string> MemoryFiles::AllPaths() const {
  std::lock_guard lock(disk_->mutex);
  std::vector<std::string> paths;
  Disk::VisitTree(disk_->root, "/",
                  [&paths](const std::string& path, const Inode&) { paths.push_back(path); });
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace test_support
