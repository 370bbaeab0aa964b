#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "base/sha256.h"
#include "base/status.h"
#include "ledger/log.h"
#include "ledger/merge.h"
#include "ledger/names.h"

namespace ledger {
namespace {

// A chunk is read whole; one of this size takes a moment.
constexpr uint64_t kChunkBytes = uint64_t{4} << 20;
constexpr MergeRules kMergeRules{.bytes_max = kChunkBytes};
constexpr int kMergesAtOnce = 256;
constexpr base::Duration kLockTimeout = std::chrono::seconds(30);
constexpr base::Duration kLockRetry = std::chrono::milliseconds(2);
constexpr size_t kHeadBytesMax = size_t{64} << 10;

// A log's file is called after its timeline, between these two.
std::string FileBegin(const std::string& cluster) { return cluster + "."; }
std::string FileEnd(const std::string& writer) { return "." + writer + ".jsonl"; }

// Holds the log against other processes.
class FileLock {
 public:
  static absl::StatusOr<FileLock> Take(base::Files& files, base::Clock& clock,
                                       const std::string& path) {
    const base::Duration began = clock.Monotonic();
    while (true) {
      // Opened anew each time: the lock goes with the file.
      ASSIGN_OR_RETURN(auto file, files.Open(path, {.write = true, .create = true}));
      ASSIGN_OR_RETURN(const bool taken, file->TryLock(base::LockKind::kFlockExclusive));
      if (taken) return FileLock(std::move(file));
      if (clock.Monotonic() - began > kLockTimeout) {
        return base::MakeStatus(absl::StatusCode::kDeadlineExceeded,
                                "{} is held by another process for {} s", path,
                                kLockTimeout / std::chrono::seconds(1));
      }
      std::this_thread::sleep_for(kLockRetry);
    }
  }

 private:
  explicit FileLock(std::unique_ptr<base::File> file) : file_(std::move(file)) {}
  std::unique_ptr<base::File> file_;
};

}  // namespace

struct LogWriter::State {
  // How far one store has the log.
  struct Shipping {
    std::mutex mutex;  // one shipment to a store at a time; taken before State::mutex
    std::optional<uint64_t> seq;
  };

  State(base::Files& f, base::Clock& c, const Place& p, const vault::SigningKey& k)
      : files(f), clock(c), place(p), key(k) {}

  base::Files& files;
  base::Clock& clock;
  const Place place;
  const vault::SigningKey key;
  std::string path;

  std::mutex mutex;  // of what follows
  std::unique_ptr<base::File> file;
  absl::Status failure;        // the first one of the disk; final
  std::vector<uint64_t> ends;  // where each record's line ends in the file: ends[seq - 1]
  std::string last_sha256 = std::string(kNoPrevious);
  std::map<std::string, std::unique_ptr<Shipping>> shipping;

  uint64_t size() const { return ends.empty() ? 0 : ends.back(); }

  // Reads what other processes appended, or everything at the start.
  absl::Status Refresh() {
    RETURN_IF_ERROR(failure);
    ASSIGN_OR_RETURN(const uint64_t file_size, file->Size());
    if (file_size == size()) return absl::OkStatus();
    if (file_size < size()) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "{} became shorter while it was in use",
                              path);
    }
    std::string bytes(file_size - size(), '\0');
    ASSIGN_OR_RETURN(const size_t n, file->ReadAt(size(), bytes.data(), bytes.size()));
    bytes.resize(n);
    const std::string folder = place.Folder();
    uint64_t offset = size();
    for (size_t at = 0; at < bytes.size();) {
      const size_t end = bytes.find('\n', at);
      if (end == std::string::npos) {
        // The process that wrote it was killed before the sync that would have made it a record.
        return file->Truncate(offset);
      }
      const std::string_view line(bytes.data() + at, end - at);
      const auto record = DecodeLine(line, folder);
      // Each record is synced before the next is written, so a power cut tears the last one only.
      if (!record.ok() && end + 1 == bytes.size()) return file->Truncate(offset);
      if (!record.ok()) return base::Annotate(record.status(), path);
      if (record->seq != ends.size() + 1 || record->previous != last_sha256) {
        return base::MakeStatus(absl::StatusCode::kDataLoss,
                                "{}: record {} does not follow the one before it", path,
                                record->seq);
      }
      Take({bytes.data() + at, end - at + 1});
      at = end + 1;
      offset = size();
    }
    // Whoever wrote these lines may have been killed before its own sync: what is shipped must not
    // be lost here, or another record would take its number.
    failure = file->Sync();
    return failure;
  }

  void Take(std::string_view line) {
    last_sha256 = base::DigestToHex(base::Sha256(line));
    ends.push_back(size() + line.size());
  }

  absl::Status Append(const std::vector<Fact>& facts) {
    const std::lock_guard lock(mutex);
    ASSIGN_OR_RETURN(const FileLock held, FileLock::Take(files, clock, path + ".lock"));
    RETURN_IF_ERROR(Refresh());
    for (const Fact& fact : facts) RETURN_IF_ERROR(AppendOne(fact));
    return absl::OkStatus();
  }

  absl::Status AppendOne(const Fact& fact) {
    const std::string line = EncodeLine(
        {.seq = ends.size() + 1, .previous = last_sha256, .at = clock.Wall(), .fact = fact});
    // Nobody knows what of it is on the disk after a failure: then this log takes nothing more
    // until it is opened anew.
    failure = file->WriteAt(size(), line);
    if (failure.ok()) failure = file->Sync();
    if (failure.ok()) Take(line);
    return failure;
  }

  // The lines from record `first` on, at most a chunk, and the number and digest of the last one.
  struct Lines {
    std::string bytes;
    uint64_t last_seq = 0;
    std::string last_sha256;
  };
  absl::StatusOr<Lines> LinesFrom(uint64_t first) {
    const std::lock_guard lock(mutex);
    const uint64_t begin = first == 1 ? 0 : ends[first - 2];
    uint64_t last = first;
    while (last < ends.size() && ends[last] - begin <= kChunkBytes) ++last;
    return ReadLines(first, last);
  }
  // The lines of these records, which are there; with mutex held.
  absl::StatusOr<Lines> ReadLines(uint64_t first, uint64_t last) {
    Lines lines;
    const uint64_t begin = first == 1 ? 0 : ends[first - 2];
    lines.bytes.resize(ends[last - 1] - begin);
    ASSIGN_OR_RETURN(const size_t n, file->ReadAt(begin, lines.bytes.data(), lines.bytes.size()));
    if (n < lines.bytes.size()) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "{} is shorter than it was", path);
    }
    lines.last_seq = last;
    const size_t last_line = lines.bytes.rfind('\n', lines.bytes.size() - 2);
    lines.last_sha256 = base::DigestToHex(base::Sha256(
        std::string_view(lines.bytes).substr(last_line == std::string::npos ? 0 : last_line + 1)));
    return lines;
  }

  Shipping& ShippingTo(const std::string& name) {
    const std::lock_guard lock(mutex);
    std::unique_ptr<Shipping>& entry = shipping[name];
    if (entry == nullptr) entry = std::make_unique<Shipping>();
    return *entry;
  }

  absl::StatusOr<uint64_t> FindShipped(stores::Store& store,
                                       const stores::Deadline& deadline) const {
    uint64_t shipped = 0;
    RETURN_IF_ERROR(stores::ForEachObject(store, LogFolder(place), deadline,
                                          [&](const stores::ObjectInfo& object) {
                                            const auto range = ChunkRange(object.name);
                                            if (range.has_value()) {
                                              shipped = std::max(shipped, range->last);
                                            }
                                            return absl::OkStatus();
                                          }));
    return shipped;
  }

  absl::Status ShipLocked(Shipping& to, stores::Store& store, const stores::Deadline& deadline) {
    {
      const std::lock_guard lock(mutex);
      ASSIGN_OR_RETURN(const FileLock held, FileLock::Take(files, clock, path + ".lock"));
      RETURN_IF_ERROR(Refresh());
    }
    if (!to.seq.has_value()) {
      ASSIGN_OR_RETURN(to.seq, FindShipped(store, deadline));
      // A store that has more than we is another log under our name.
      if (*to.seq > last_seq()) {
        return base::MakeStatus(
            absl::StatusCode::kDataLoss,
            "the store has {} records of {} and the state directory {}: it was put back from a "
            "copy; remove it, so that a new writer begins",
            *to.seq, place.Folder(), last_seq());
      }
    }
    while (*to.seq < last_seq()) {
      const uint64_t first = *to.seq + 1;
      ASSIGN_OR_RETURN(const Lines lines, LinesFrom(first));
      const std::string bytes =
          EncodeChunk(place, first, lines.last_seq, lines.bytes, lines.last_sha256, key);
      RETURN_IF_ERROR(store.Put(ChunkName(place, {first, lines.last_seq}),
                                stores::BytesContent(bytes), deadline));
      to.seq = lines.last_seq;
    }
    return absl::OkStatus();
  }

  uint64_t last_seq() {
    const std::lock_guard lock(mutex);
    return ends.size();
  }

  absl::Status ForEachRecord(uint64_t first, absl::FunctionRef<absl::Status(const Record&)> visit) {
    {
      const std::lock_guard lock(mutex);
      ASSIGN_OR_RETURN(const FileLock held, FileLock::Take(files, clock, path + ".lock"));
      RETURN_IF_ERROR(Refresh());
    }
    const std::string folder = place.Folder();
    while (first <= last_seq()) {
      ASSIGN_OR_RETURN(const Lines lines, LinesFrom(first));
      std::string_view left = lines.bytes;
      while (!left.empty()) {
        const size_t end = left.find('\n');
        ASSIGN_OR_RETURN(const Record record, DecodeLine(left.substr(0, end), folder));
        RETURN_IF_ERROR(visit(record));
        left.remove_prefix(end + 1);
      }
      first = lines.last_seq + 1;
    }
    return absl::OkStatus();
  }

  // A chunk as this log would ship it.
  absl::StatusOr<std::string> ChunkBytes(const SeqRange& range) {
    const std::lock_guard lock(mutex);
    if (range.last > ends.size()) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "{} speaks of records beyond {}",
                              ChunkName(place, range), ends.size());
    }
    ASSIGN_OR_RETURN(const Lines lines, ReadLines(range.first, range.last));
    return EncodeChunk(place, range.first, range.last, lines.bytes, lines.last_sha256, key);
  }

  // Deletes chunks whose records another one holds, which is read back first.
  absl::Status DeleteCovered(const std::vector<StoredChunk>& chunks, stores::Store& store,
                             stores::Store& pruning, const stores::Deadline& deadline) {
    uint64_t checked = 0;  // the first record of the covering chunk that was read back
    for (const Covered& covered : CoveredChunks(chunks)) {
      if (covered.in.first != checked) {
        const std::string name = ChunkName(place, covered.in);
        ASSIGN_OR_RETURN(const std::string wanted, ChunkBytes(covered.in));
        ASSIGN_OR_RETURN(const std::string found,
                         stores::GetBytes(store, name, wanted.size() + 1, deadline));
        if (found != wanted) {
          return base::MakeStatus(absl::StatusCode::kDataLoss,
                                  "{} is not what the log in the state directory holds", name);
        }
        checked = covered.in.first;
      }
      RETURN_IF_ERROR(pruning.Delete(ChunkName(place, covered.chunk), deadline));
    }
    return absl::OkStatus();
  }

  // Whether the chunks that a store lists hold every record up to the newest of theirs.
  absl::Status CheckWhole(const std::vector<StoredChunk>& chunks) const {
    std::map<uint64_t, uint64_t> last_of;  // by the first record
    for (const StoredChunk& chunk : chunks) {
      uint64_t& last = last_of[chunk.range.first];
      last = std::max(last, chunk.range.last);
    }
    uint64_t have = 0;
    for (const auto& [first, last] : last_of) {
      if (first > have + 1) {
        return base::MakeStatus(absl::StatusCode::kDataLoss,
                                "{}: the store lists no chunk with record {}", place.Folder(),
                                have + 1);
      }
      have = std::max(have, last);
    }
    return absl::OkStatus();
  }

  absl::Status MergeChunks(stores::Store& store, stores::Store& pruning,
                           const stores::Deadline& deadline) {
    std::vector<StoredChunk> chunks;
    RETURN_IF_ERROR(stores::ForEachObject(store, LogFolder(place), deadline,
                                          [&](const stores::ObjectInfo& object) {
                                            const auto range = ChunkRange(object.name);
                                            if (range.has_value()) {
                                              chunks.push_back({*range, object.bytes});
                                            }
                                            return absl::OkStatus();
                                          }));
    RETURN_IF_ERROR(CheckWhole(chunks));
    RETURN_IF_ERROR(DeleteCovered(chunks, store, pruning, deadline));
    // What is planned next takes what was made for what it holds.
    for (int made = 0; made < kMergesAtOnce; ++made) {
      const std::optional<SeqRange> merge = NextMerge(chunks, kMergeRules);
      if (!merge.has_value()) break;
      ASSIGN_OR_RETURN(const std::string bytes, ChunkBytes(*merge));
      const std::string name = ChunkName(place, *merge);
      // Where nothing may be deleted, nothing is merged: it would only be there twice.
      if (made == 0) RETURN_IF_ERROR(stores::ProbeDelete(pruning, LogFolder(place), deadline));
      RETURN_IF_ERROR(store.Put(name, stores::BytesContent(bytes), deadline));
      chunks.push_back({*merge, bytes.size()});
    }
    return absl::OkStatus();
  }
};

LogWriter::LogWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
LogWriter::~LogWriter() = default;

absl::StatusOr<std::unique_ptr<LogWriter>> LogWriter::Open(base::Files& files, base::Clock& clock,
                                                           const std::string& dir,
                                                           const Place& place,
                                                           const vault::SigningKey& key) {
  auto state = std::make_unique<State>(files, clock, place, key);
  RETURN_IF_ERROR(base::MakeDirectoriesDurably(files, dir, 0700));
  state->path =
      base::JoinPath(dir, FileBegin(place.cluster) + place.timeline.Name() + FileEnd(place.writer));
  ASSIGN_OR_RETURN(const FileLock held, FileLock::Take(files, clock, state->path + ".lock"));
  const bool is_new = !base::Exists(files, state->path);
  ASSIGN_OR_RETURN(state->file, files.Open(state->path, {.write = true, .create = true}));
  if (is_new) RETURN_IF_ERROR(files.SyncDirectory(dir));
  RETURN_IF_ERROR(state->Refresh());
  return std::unique_ptr<LogWriter>(new LogWriter(std::move(state)));
}

absl::StatusOr<std::vector<catalog::Timeline>> LogWriter::TimelinesIn(base::Files& files,
                                                                      const std::string& dir,
                                                                      const std::string& cluster,
                                                                      const std::string& writer) {
  const std::string begin = FileBegin(cluster), end = FileEnd(writer);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(dir));
  std::vector<catalog::Timeline> timelines;
  for (const std::string& name : names) {
    const bool ours =
        name.size() >= begin.size() + end.size() && name.starts_with(begin) && name.ends_with(end);
    if (!ours) continue;
    const auto timeline = catalog::Timeline::Parse(
        name.substr(begin.size(), name.size() - begin.size() - end.size()));
    if (timeline.has_value()) timelines.push_back(*timeline);
  }
  return timelines;
}

absl::Status LogWriter::Append(const std::vector<Fact>& facts) { return state_->Append(facts); }

absl::Status LogWriter::Ship(const std::string& name, stores::Store& store,
                             const stores::Deadline& deadline) {
  State::Shipping& to = state_->ShippingTo(name);
  const std::lock_guard lock(to.mutex);
  return base::Annotate(state_->ShipLocked(to, store, deadline),
                        fmt::format("log to store {}", name));
}

absl::Status LogWriter::MergeChunks(stores::Store& store, stores::Store& pruning,
                                    const stores::Deadline& deadline) {
  return base::Annotate(state_->MergeChunks(store, pruning, deadline), "merging chunks of the log");
}

absl::Status LogWriter::SignHead(const std::string& name, stores::Store& store,
                                 const Watched& watched, const stores::Deadline& deadline) {
  State::Shipping& to = state_->ShippingTo(name);
  const std::lock_guard lock(to.mutex);
  RETURN_IF_ERROR(base::Annotate(state_->ShipLocked(to, store, deadline),
                                 fmt::format("log to store {}", name)));
  Head head{.at = state_->clock.Wall(), .watched = watched};
  if (watched.revision == 0) {
    // Who does not watch leaves standing what another process of this writer has seen.
    const auto bytes = stores::GetBytes(store, HeadName(state_->place), kHeadBytesMax, deadline);
    if (bytes.ok()) {
      const auto before = DecodeHead(state_->place, *bytes, {state_->key.verifying_key()});
      if (before.ok()) head.watched = before->watched;
    }
  }
  {
    const std::lock_guard state_lock(state_->mutex);
    head.seq = state_->ends.size();
    head.sha256 = state_->last_sha256;
  }
  // Records that came in between are shipped before a head speaks of them.
  if (head.seq > *to.seq) RETURN_IF_ERROR(state_->ShipLocked(to, store, deadline));
  return base::Annotate(store.Replace(HeadName(state_->place),
                                      EncodeHead(state_->place, head, state_->key), deadline),
                        fmt::format("log to store {}", name));
}

absl::Status LogWriter::ForEachRecord(uint64_t first,
                                      absl::FunctionRef<absl::Status(const Record&)> visit) {
  return state_->ForEachRecord(first, visit);
}

uint64_t LogWriter::last_seq() { return state_->last_seq(); }
const Place& LogWriter::place() const { return state_->place; }

}  // namespace ledger
