#include "bolt/db.h"

#include <time.h>

#include <cerrno>
#include <utility>

#include "base/status.h"
#include "bolt/store.h"

namespace bolt {
namespace {

constexpr base::Duration kLockInterval = std::chrono::milliseconds(50);

void SleepFor(base::Duration duration) {
  timespec left{.tv_sec = duration.count() / 1'000'000'000,
                .tv_nsec = duration.count() % 1'000'000'000};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

absl::Status Lock(base::File& file, Options& options, base::Clock& clock) {
  const base::LockKind kind =
      options.read_only ? base::LockKind::kFlockShared : base::LockKind::kFlockExclusive;
  const base::Duration start = clock.Monotonic();
  while (true) {
    ASSIGN_OR_RETURN(const bool locked, file.TryLock(kind));
    if (locked) return absl::OkStatus();
    const base::Duration waited = clock.Monotonic() - start;
    if (options.lock_timeout.count() > 0 && waited >= options.lock_timeout) {
      return base::MakeStatus(absl::StatusCode::kDeadlineExceeded, "db file {}: timeout",
                              file.path());
    }
    if (options.on_lock_wait) options.on_lock_wait(waited);
    if (options.sleep) {
      options.sleep(kLockInterval);
    } else {
      SleepFor(kLockInterval);
    }
  }
}

// A file that a crash left in the midst of being made: no longer than a fresh one, and each byte
// either as in a fresh one or still zero. It has never held anything, so it may be made again.
absl::StatusOr<bool> IsUnfinished(const base::File& file, uint64_t file_bytes,
                                  std::string_view fresh) {
  if (file_bytes > fresh.size()) return false;
  std::string found(static_cast<size_t>(file_bytes), '\0');
  ASSIGN_OR_RETURN(const size_t got, file.ReadAt(0, found.data(), found.size()));
  if (got != found.size()) return false;
  bool whole = file_bytes == fresh.size();
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == fresh[i]) continue;
    if (found[i] != 0) return false;
    whole = false;
  }
  return !whole;
}

absl::Status InitializeIfFresh(base::Files& files, base::File& file, const Options& options,
                               bool created) {
  const std::string fresh =
      FreshImage(options.page_bytes == 0 ? kPageBytesDefault : options.page_bytes);
  ASSIGN_OR_RETURN(const uint64_t file_bytes, file.Size());
  ASSIGN_OR_RETURN(const bool unfinished, IsUnfinished(file, file_bytes, fresh));
  if (unfinished) {
    RETURN_IF_ERROR(file.WriteAt(0, fresh));
    if (!options.no_sync) RETURN_IF_ERROR(file.Sync());
  }
  // The name, too, has to survive a crash before anything is committed into the file.
  if ((created || unfinished) && !options.no_sync)
    return files.SyncDirectory(base::DirName(file.path()));
  return absl::OkStatus();
}

}  // namespace

DB::DB(std::shared_ptr<internal::Store> store) : store_(std::move(store)) {}

DB::~DB() = default;

absl::StatusOr<std::unique_ptr<DB>> DB::Open(base::Files& files, const std::string& path,
                                             Options options, base::Clock& clock) {
  if (options.page_bytes != 0 &&
      (options.page_bytes < kPageBytesMin || options.page_bytes > kPageBytesMax ||
       (options.page_bytes & (options.page_bytes - 1)) != 0)) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "page size {}: expected a power of two from {} to {}",
                            options.page_bytes, kPageBytesMin, kPageBytesMax);
  }
  const bool create = !options.read_only && !options.existing_only;
  const bool missing = create && !base::Exists(files, path);
  ASSIGN_OR_RETURN(std::unique_ptr<base::File> file,
                   files.Open(path, {.write = !options.read_only, .create = create, .mode = 0600}));
  RETURN_IF_ERROR(Lock(*file, options, clock));
  if (create) RETURN_IF_ERROR(InitializeIfFresh(files, *file, options, missing));
  auto store = std::make_shared<internal::Store>(std::move(file), std::move(options), clock);
  RETURN_IF_ERROR(store->Start());
  std::unique_ptr<DB> db(new DB(store));
  if (store->NeedsFreelist()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<WriteTx> tx, db->BeginWrite());
    RETURN_IF_ERROR(tx->Commit().status());
  }
  return db;
}

std::unique_ptr<ReadTx> DB::BeginRead() { return store_->BeginRead(); }
absl::StatusOr<std::unique_ptr<WriteTx>> DB::BeginWrite() { return store_->BeginWrite(); }
DbStats DB::stats() const { return store_->stats(); }
uint32_t DB::page_bytes() const { return store_->page_bytes(); }
const std::string& DB::path() const { return store_->path(); }
absl::Status DB::failure() const { return store_->failure(); }

}  // namespace bolt
