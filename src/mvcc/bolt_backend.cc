#include "mvcc/bolt_backend.h"

#include <algorithm>
#include <future>

#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/status.h"

namespace mvcc {
namespace {

constexpr base::Duration kNever = base::Duration::max();
constexpr double kKeyFillPercent = 0.9;  // as etcd: the bucket is only appended to

std::string Encode64(uint64_t v) {
  std::string bytes(8, '\0');
  base::StoreBe64(bytes.data(), v);
  return bytes;
}

absl::StatusOr<uint64_t> ReadMeta64(const CommittedState& state, std::string_view key) {
  const bolt::Bucket* meta = state.bucket(Bucket::kMeta);
  if (meta == nullptr) return 0;
  ASSIGN_OR_RETURN(const std::optional<std::string_view> value, meta->Get(key));
  if (!value.has_value()) return 0;
  if (value->size() != 8) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "db file {}: meta/{}: expected 8 bytes, found {}", state.tx().path(),
                            key, value->size());
  }
  return base::LoadBe64(value->data());
}

class BoltImage final : public BackendImage {
 public:
  BoltImage(std::shared_ptr<const CommittedState> state, uint64_t index, uint64_t term,
            std::string storage_version)
      : state_(std::move(state)),
        index_(index),
        term_(term),
        storage_version_(std::move(storage_version)) {}
  uint64_t size_bytes() const override { return state_->tx().ImageSize(); }
  uint64_t consistent_index() const override { return index_; }
  uint64_t term() const override { return term_; }
  const std::string& storage_version() const override { return storage_version_; }
  absl::Status Read(uint64_t offset, char* out, size_t n) const override {
    return state_->tx().ReadImage(offset, out, n);
  }
  absl::Status ForEach(
      Bucket bucket,
      absl::FunctionRef<bool(std::string_view, std::string_view)> visit) const override {
    const bolt::Bucket* stored = state_->bucket(bucket);
    if (stored == nullptr) return absl::OkStatus();
    bolt::Cursor cursor = stored->cursor();
    ASSIGN_OR_RETURN(bool found, cursor.First());
    while (found && visit(cursor.key(), cursor.value())) {
      ASSIGN_OR_RETURN(found, cursor.Next());
    }
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<const CommittedState> state_;
  const uint64_t index_;
  const uint64_t term_;
  const std::string storage_version_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> Backend::Open(BackendOptions options) {
  CHECK(options.files != nullptr && options.clock != nullptr && options.random != nullptr);
  auto backend = std::make_unique<BoltBackend>(std::move(options));
  RETURN_IF_ERROR(backend->Init());
  return std::unique_ptr<Backend>(std::move(backend));
}

BoltBackend::BoltBackend(BackendOptions options)
    : options_(std::move(options)), active_(std::make_shared<Batch>(1)) {}

BoltBackend::~BoltBackend() {
  Stop().IgnoreError();  // whoever wants to know calls Stop() first
}

absl::Status BoltBackend::Init() {
  std::lock_guard step(step_mutex_);
  RemoveScratchFiles();
  ASSIGN_OR_RETURN(std::shared_ptr<OpenDb> db, OpenFile(options_.path, options_.existing_only));
  return Adopt(std::move(db));
}

absl::StatusOr<std::shared_ptr<OpenDb>> BoltBackend::OpenFile(const std::string& path,
                                                              bool existing_only) {
  bolt::Options options;
  options.existing_only = existing_only;
  options.store_freelist = options_.store_freelist;
  options.map_reserve_bytes = options_.map_reserve_bytes;
  options.no_sync = options_.no_sync;
  options.lock_timeout = options_.lock_timeout;
  bool told = false;
  options.on_lock_wait = [this, told](base::Duration waited) mutable {
    if (told || waited < std::chrono::seconds(10) || !options_.on_lock_wait) return;
    told = true;
    options_.on_lock_wait();
  };
  auto db = std::make_shared<OpenDb>();
  ASSIGN_OR_RETURN(db->db,
                   bolt::DB::Open(*options_.files, path, std::move(options), *options_.clock));
  ASSIGN_OR_RETURN(const std::shared_ptr<const CommittedState> state, CommittedState::Begin(db));
  for (int i = 0; i < kBucketCount; ++i) {
    if (state->bucket(static_cast<Bucket>(i)) != nullptr) continue;
    ASSIGN_OR_RETURN(const std::unique_ptr<bolt::WriteTx> tx, db->db->BeginWrite());
    for (int j = 0; j < kBucketCount; ++j) {
      RETURN_IF_ERROR(tx->CreateBucketIfMissing(BucketName(static_cast<Bucket>(j))).status());
    }
    RETURN_IF_ERROR(tx->Commit().status());
    break;
  }
  return db;
}

// Takes `db` for the current file, with nothing pending.
absl::Status BoltBackend::Adopt(std::shared_ptr<OpenDb> db) {
  ASSIGN_OR_RETURN(std::shared_ptr<const CommittedState> state, CommittedState::Begin(db));
  ASSIGN_OR_RETURN(const uint64_t index, ReadMeta64(*state, "consistent_index"));
  ASSIGN_OR_RETURN(const uint64_t term, ReadMeta64(*state, "term"));
  ViewPtr old_view;
  std::lock_guard lock(mutex_);
  db_ = std::move(db);
  sealed_.clear();
  sealed_bytes_ = 0;
  active_ = std::make_shared<Batch>(active_->number() + 1);
  index_.store(index, std::memory_order_release);
  term_.store(term, std::memory_order_release);
  durable_index_.store(index, std::memory_order_release);
  old_view = PublishViewLocked(std::move(state));
  return absl::OkStatus();
}

void BoltBackend::RemoveScratchFiles() {
  const std::string dir = base::DirName(options_.path);
  const std::string prefix = base::BaseName(options_.path) + ".tmp.";
  const absl::StatusOr<std::vector<std::string>> names = options_.files->List(dir);
  if (!names.ok()) return;  // opening the db reports what is wrong with the directory
  for (const std::string& name : *names) {
    // What cannot be removed does no harm: a new scratch file gets another name.
    if (name.starts_with(prefix)) {
      options_.files->Remove(base::JoinPath(dir, name)).IgnoreError();
    }
  }
}

// --- entries ---

absl::Status BoltBackend::BeginEntry() {
  std::unique_lock lock(mutex_);
  CHECK(!in_entry_);
  while (fatal_.ok() && sealed_bytes_ + active_->bytes() >= options_.pending_bytes_max) {
    commit_now_ = true;
    if (threaded_) {
      WakeLocked();
      room_.wait(lock);
    } else {
      lock.unlock();
      RunOnce();
      lock.lock();
    }
  }
  if (!fatal_.ok()) return fatal_;
  in_entry_ = true;
  writing_ = active_.get();
  return absl::OkStatus();
}

void BoltBackend::EndEntry(uint64_t index, uint64_t term) {
  std::lock_guard lock(mutex_);
  CHECK(in_entry_);
  in_entry_ = false;
  writing_ = nullptr;
  if (index != 0) {
    active_->index = index;
    active_->term = term;
    index_.store(index, std::memory_order_release);
    term_.store(term, std::memory_order_release);
  }
  const uint64_t operations = active_->operation_count();
  if (operations > 0 && commit_due_ == kNever) {
    commit_due_ = options_.clock->Monotonic() + options_.batch_interval;
    WakeLocked();
  }
  if (!commit_now_ && (operations >= options_.batch_operations_max || active_->deletes())) {
    commit_now_ = true;
    WakeLocked();
  }
  if (seal_wanted_) {
    SealLocked();
    WakeLocked();
  }
}

char* BoltBackend::AppendRecord(Revision revision, bool tombstone, size_t size) {
  CHECK(writing_ != nullptr);
  return writing_->AppendRecord(revision, tombstone, size);
}

void BoltBackend::Put(Bucket bucket, std::string_view key, std::string_view value) {
  if (writing_ != nullptr) return writing_->Put(bucket, key, value);
  if (!BeginEntry().ok()) return;  // the fatal status is known to everybody by then
  writing_->Put(bucket, key, value);
  EndEntry(0, 0);
}

void BoltBackend::Delete(Bucket bucket, std::string_view key) {
  if (writing_ != nullptr) return writing_->Put(bucket, key, std::nullopt);
  if (!BeginEntry().ok()) return;
  writing_->Put(bucket, key, std::nullopt);
  EndEntry(0, 0);
}

void BoltBackend::SetConsistentIndex(uint64_t index, uint64_t term) {
  std::lock_guard lock(mutex_);
  CHECK(!in_entry_);
  active_->index = index;
  active_->term = term;
  index_.store(index, std::memory_order_release);
  term_.store(term, std::memory_order_release);
  // The file's index may be above; whatever is asked to be durable from now on is this one.
  durable_index_.store(std::min(index, durable_index_.load(std::memory_order_relaxed)),
                       std::memory_order_release);
  active_->Put(Bucket::kMeta, "consistent_index", Encode64(index));
  active_->Put(Bucket::kMeta, "term", Encode64(term));
  commit_now_ = true;
  WakeLocked();
}

void BoltBackend::RequestCommit(Done done) {
  absl::Status fatal;
  {
    std::lock_guard lock(mutex_);
    if (fatal_.ok()) {
      if (done) waiters_.push_back({active_->number(), std::move(done)});
      commit_now_ = true;
      if (in_entry_) {
        seal_wanted_ = true;  // so that the commit does not have to wait for a border of its own
      }
      WakeLocked();
      return;
    }
    fatal = fatal_;
  }
  if (done) done(fatal);
}

void BoltBackend::SealLocked() {
  seal_wanted_ = false;
  sealed_bytes_ += active_->bytes();
  const uint64_t number = active_->number();
  sealed_.push_back(std::move(active_));
  active_ = std::make_shared<Batch>(number + 1);
  commit_due_ = kNever;
  PublishViewLocked(committed_);  // the new view holds all that the old one held
}

ViewPtr BoltBackend::PublishViewLocked(std::shared_ptr<const CommittedState> committed) {
  committed_ = std::move(committed);
  std::vector<std::shared_ptr<const Batch>> batches(sealed_.begin(), sealed_.end());
  batches.push_back(active_);
  ViewPtr view = std::make_shared<BoltView>(committed_, std::move(batches));
  std::lock_guard lock(view_mutex_);
  view_.swap(view);
  return view;
}

ViewPtr BoltBackend::View() const {
  std::lock_guard lock(view_mutex_);
  return view_;
}

// --- the loop ---

void BoltBackend::WakeLocked() {
  if (woken_) return;
  woken_ = true;
  loop_wake_.notify_one();
}

bool BoltBackend::CommitDueLocked(base::Duration now) const {
  return commit_now_ || !sealed_.empty() || now >= commit_due_;
}

void BoltBackend::Start() {
  {
    std::lock_guard lock(mutex_);
    CHECK(!threaded_);
    threaded_ = true;
    stopping_ = false;
  }
  thread_ = std::thread([this] { ThreadMain(); });
}

void BoltBackend::ThreadMain() {
  while (true) {
    const base::Duration wait = RunOnce();
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return woken_ || stopping_; };
    if (wait == kNever) {
      loop_wake_.wait(lock, ready);
    } else {
      loop_wake_.wait_for(lock, wait, ready);
    }
    woken_ = false;
    if (stopping_) return;
  }
}

absl::Status BoltBackend::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    loop_wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  std::vector<Done> requests;
  {
    std::lock_guard lock(mutex_);
    threaded_ = false;
    requests.swap(defragment_requests_);
  }
  const absl::Status stopped(absl::StatusCode::kAborted, "defragmentation: the server stops");
  {
    std::lock_guard step(step_mutex_);
    if (defragmentation_ != nullptr) EndDefragmentation(stopped);
    retired_.clear();
  }
  for (Done& done : requests) done(stopped);
  if (db_ == nullptr) return absl::OkStatus();
  return ForceCommit();
}

base::Duration BoltBackend::RunOnce() {
  std::lock_guard step(step_mutex_);
  base::Duration next = kNever;
  const base::Duration now = options_.clock->Monotonic();
  if (const absl::Status status = StepLocked(now, &next); !status.ok()) {
    Fail(status);
    return kNever;
  }
  if (next == kNever) return kNever;
  return std::max(base::Duration::zero(), next - options_.clock->Monotonic());
}

absl::Status BoltBackend::StepLocked(base::Duration now, base::Duration* next) {
  bool commit = false;
  bool job_woken = false;
  bool defragment = false;
  {
    std::lock_guard lock(mutex_);
    if (!fatal_.ok()) return absl::OkStatus();  // reported already; nothing is ever due again
    commit = CommitDueLocked(now);
    job_woken = std::exchange(job_woken_, false);
    defragment = defragmentation_ != nullptr || !defragment_requests_.empty();
  }
  if (commit) RETURN_IF_ERROR(CommitSealed());

  // The copy must not miss deletions, so a compaction that runs ends first, and one that comes
  // waits.
  if (job_woken) job_active_ = true;
  if (job_ != nullptr && job_active_ && defragmentation_ == nullptr && now >= job_due_) {
    ASSIGN_OR_RETURN(const std::optional<base::Duration> pause, job_->Step());
    job_active_ = pause.has_value();
    if (pause.has_value()) job_due_ = options_.clock->Monotonic() + *pause;
  }
  if (defragment && (defragmentation_ != nullptr || !job_active_ || job_ == nullptr)) {
    if (defragmentation_ == nullptr || now >= defragmentation_due_) {
      RETURN_IF_ERROR(StepDefragmentation(now));
    }
  }
  const base::Duration retired_due = StepRetired(now);

  std::lock_guard lock(mutex_);
  *next = std::min(retired_due, commit_due_);
  if (defragmentation_ != nullptr) {
    *next = std::min(*next, defragmentation_due_);
  } else if (job_ != nullptr && job_active_) {
    *next = std::min(*next, job_due_);
  } else if (!defragment_requests_.empty()) {
    *next = now;
  }
  // Inside an entry the border is awaited: EndEntry wakes the loop.
  if ((commit_now_ && !in_entry_) || !sealed_.empty()) *next = now;
  if (in_entry_ && commit_due_ <= now) {
    seal_wanted_ = true;
    if (*next == commit_due_) *next = kNever;
  }
  return absl::OkStatus();
}

// Seals what is at a border and commits all sealed batches in one bolt transaction.
absl::Status BoltBackend::CommitSealed() {
  std::vector<std::shared_ptr<const Batch>> batches;
  std::vector<Waiter> done;
  {
    std::lock_guard lock(mutex_);
    const bool something = active_->operation_count() > 0 || active_->index != 0;
    if (in_entry_) {
      if (something || commit_now_) seal_wanted_ = true;
    } else {
      commit_now_ = false;
      if (something) {
        SealLocked();
      } else {
        commit_due_ = kNever;
      }
    }
    batches = sealed_;
  }
  if (!batches.empty()) {
    const base::Duration start = options_.clock->Monotonic();
    BackendObserver::Commit facts;
    ASSIGN_OR_RETURN(const bolt::CommitStats stats,
                     WriteBatches(*db_->db, batches, &facts.operations));
    ASSIGN_OR_RETURN(std::shared_ptr<const CommittedState> state, CommittedState::Begin(db_));
    if (defragmentation_ != nullptr) {
      for (const auto& batch : batches) {
        defragmentation_->replay.push_back(batch);
        defragmentation_->replay_bytes += batch->bytes();
      }
    }
    ViewPtr old_view;
    {
      std::lock_guard lock(mutex_);
      sealed_.erase(sealed_.begin(), sealed_.begin() + static_cast<std::ptrdiff_t>(batches.size()));
      for (const auto& batch : batches) {
        sealed_bytes_ -= batch->bytes();
        if (batch->index != 0) {
          durable_index_.store(batch->index, std::memory_order_release);
        }
      }
      old_view = PublishViewLocked(std::move(state));
      room_.notify_all();
    }
    if (options_.observer != nullptr) {
      facts.total = options_.clock->Monotonic() - start;
      facts.rebalance = stats.rebalance;
      facts.spill = stats.spill;
      facts.write = stats.write;
      options_.observer->OnCommit(facts);
    }
  }
  {
    std::lock_guard lock(mutex_);
    // An untouched active batch promises nothing beyond the ones before it.
    const bool idle =
        sealed_.empty() && !in_entry_ && active_->operation_count() == 0 && active_->index == 0;
    const uint64_t durable =
        !sealed_.empty() ? sealed_.front()->number() - 1 : active_->number() - (idle ? 0 : 1);
    const auto ready = std::stable_partition(
        waiters_.begin(), waiters_.end(),
        [durable](const Waiter& waiter) { return waiter.batch_number > durable; });
    std::move(ready, waiters_.end(), std::back_inserter(done));
    waiters_.erase(ready, waiters_.end());
  }
  for (Waiter& waiter : done) waiter.done(absl::OkStatus());
  return absl::OkStatus();
}

absl::StatusOr<bolt::CommitStats> BoltBackend::WriteBatches(
    bolt::DB& db, const std::vector<std::shared_ptr<const Batch>>& batches, uint64_t* operations) {
  ASSIGN_OR_RETURN(const std::unique_ptr<bolt::WriteTx> tx, db.BeginWrite());
  ASSIGN_OR_RETURN(bolt::WriteBucket* const records, tx->bucket(BucketName(Bucket::kKey)));
  records->set_fill_percent(kKeyFillPercent);
  uint64_t index = 0;
  uint64_t term = 0;
  for (const auto& batch : batches) {
    const size_t count = batch->record_count();
    for (size_t i = 0; i < count; ++i) {
      const Batch::Entry& entry = batch->record(i);
      RETURN_IF_ERROR(records->PutBorrowed(entry.storage_key(), entry.value()));
    }
    for (int b = 0; b < kBucketCount; ++b) {
      const Batch::Operations& changes = batch->operations(static_cast<Bucket>(b));
      if (changes.empty()) continue;
      ASSIGN_OR_RETURN(bolt::WriteBucket* const bucket,
                       tx->bucket(BucketName(static_cast<Bucket>(b))));
      for (const auto& [key, value] : changes) {
        if (value.has_value()) {
          RETURN_IF_ERROR(bucket->Put(key, *value));
        } else {
          RETURN_IF_ERROR(bucket->Delete(key).status());
        }
      }
    }
    *operations += batch->operation_count();
    if (batch->index != 0) {
      index = batch->index;
      term = batch->term;
    }
  }
  if (index != 0) {
    ASSIGN_OR_RETURN(bolt::WriteBucket* const meta, tx->bucket(BucketName(Bucket::kMeta)));
    RETURN_IF_ERROR(meta->Put("consistent_index", Encode64(index)));
    if (term > 0) RETURN_IF_ERROR(meta->Put("term", Encode64(term)));
  }
  return tx->Commit();
}

// After a commit that concerned no batch: the new pages become what readers pin, the old ones can
// be freed.
absl::Status BoltBackend::RefreshView() {
  ASSIGN_OR_RETURN(std::shared_ptr<const CommittedState> state, CommittedState::Begin(db_));
  ViewPtr old_view;
  std::lock_guard lock(mutex_);
  old_view = PublishViewLocked(std::move(state));
  return absl::OkStatus();
}

void BoltBackend::Fail(const absl::Status& status) {
  std::vector<Waiter> waiters;
  std::vector<Done> requests;
  {
    std::lock_guard lock(mutex_);
    if (!fatal_.ok()) return;
    fatal_ = base::Annotate(status, "db file");
    waiters.swap(waiters_);
    requests.swap(defragment_requests_);
    defragmenting_ = false;
    room_.notify_all();
  }
  for (Waiter& waiter : waiters) waiter.done(fatal_);
  for (Done& done : requests) done(fatal_);
  if (options_.on_fatal) options_.on_fatal(fatal_);
}

absl::Status BoltBackend::fatal_status() const {
  std::lock_guard lock(mutex_);
  return fatal_;
}

// --- waiting calls ---

absl::Status BoltBackend::ForceCommit() {
  bool threaded = false;
  {
    std::lock_guard lock(mutex_);
    threaded = threaded_;
    if (!threaded) CHECK(!in_entry_);
  }
  std::promise<absl::Status> promise;
  std::future<absl::Status> future = promise.get_future();
  RequestCommit([&promise](const absl::Status& status) { promise.set_value(status); });
  if (!threaded) {
    std::lock_guard step(step_mutex_);
    const absl::Status status = fatal_status().ok() ? CommitSealed() : absl::OkStatus();
    if (!status.ok()) Fail(status);
  }
  return future.get();
}

absl::StatusOr<std::unique_ptr<BackendImage>> BoltBackend::Image() {
  RETURN_IF_ERROR(ForceCommit());
  std::shared_ptr<const CommittedState> state;
  {
    std::lock_guard lock(mutex_);
    state = committed_;
  }
  ASSIGN_OR_RETURN(const uint64_t index, ReadMeta64(*state, "consistent_index"));
  ASSIGN_OR_RETURN(const uint64_t term, ReadMeta64(*state, "term"));
  std::string version;
  if (const bolt::Bucket* meta = state->bucket(Bucket::kMeta); meta != nullptr) {
    ASSIGN_OR_RETURN(const std::optional<std::string_view> value, meta->Get("storageVersion"));
    if (value.has_value()) version = *value;
  }
  return std::unique_ptr<BackendImage>(
      std::make_unique<BoltImage>(std::move(state), index, term, std::move(version)));
}

absl::StatusOr<uint32_t> BoltBackend::Hash() {
  RETURN_IF_ERROR(ForceCommit());
  std::shared_ptr<const CommittedState> state;
  {
    std::lock_guard lock(mutex_);
    state = committed_;
  }
  uint32_t hash = 0;
  bolt::Cursor buckets = state->tx().root().cursor();
  ASSIGN_OR_RETURN(bool found, buckets.First());
  while (found) {
    if (buckets.is_bucket()) {
      hash = base::Crc32c(hash, buckets.key());
      const bool is_meta = buckets.key() == BucketName(Bucket::kMeta);
      ASSIGN_OR_RETURN(const bolt::Bucket bucket, state->tx().bucket(buckets.key()));
      bolt::Cursor pairs = bucket.cursor();
      ASSIGN_OR_RETURN(bool pair, pairs.First());
      while (pair) {
        const bool local = is_meta && (pairs.key() == "consistent_index" || pairs.key() == "term" ||
                                       pairs.key() == "storageVersion");
        if (!local) hash = base::Crc32c(base::Crc32c(hash, pairs.key()), pairs.value());
        ASSIGN_OR_RETURN(pair, pairs.Next());
      }
    }
    ASSIGN_OR_RETURN(found, buckets.Next());
  }
  return hash;
}

BackendSizes BoltBackend::sizes() const {
  std::shared_ptr<OpenDb> db;
  BackendSizes sizes;
  {
    std::lock_guard lock(mutex_);
    db = db_;
    sizes.pending_bytes = sealed_bytes_ + active_->bytes();
    sizes.defragmenting = defragmenting_;
  }
  const bolt::DbStats stats = db->db->stats();
  sizes.file_bytes = stats.size_bytes;
  sizes.in_use_bytes = stats.in_use_bytes;
  sizes.live_bytes = stats.in_use_bytes - stats.pending_pages * db->db->page_bytes();
  sizes.open_readers = static_cast<int>(stats.open_readers);
  return sizes;
}

absl::Status BoltBackend::ReplaceFile(const std::string& path) {
  std::lock_guard step(step_mutex_);
  {
    std::lock_guard lock(mutex_);
    CHECK(!in_entry_);
    if (!fatal_.ok()) return fatal_;
  }
  if (defragmentation_ != nullptr) {
    EndDefragmentation(
        absl::AbortedError("defragmentation: the database is replaced by a received one"));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<OpenDb> db, OpenFile(path, true));
  RETURN_IF_ERROR(options_.files->Rename(path, options_.path));
  RETURN_IF_ERROR(options_.files->SyncDirectory(base::DirName(options_.path)));
  std::vector<Waiter> waiters;
  RETURN_IF_ERROR(Adopt(std::move(db)));
  {
    std::lock_guard lock(mutex_);
    commit_now_ = false;
    commit_due_ = kNever;
    waiters.swap(waiters_);
    room_.notify_all();
  }
  for (Waiter& waiter : waiters) waiter.done(absl::OkStatus());
  return absl::OkStatus();
}

// --- the store's job ---

void BoltBackend::SetJob(BackendJob* job) {
  std::lock_guard step(step_mutex_);
  job_ = job;
  job_active_ = false;
}

void BoltBackend::WakeJob() {
  std::lock_guard lock(mutex_);
  job_woken_ = true;
  WakeLocked();
}

absl::Status BoltBackend::ScanCommitted(Revision from,
                                        absl::FunctionRef<bool(const Record&)> visit) const {
  std::shared_ptr<const CommittedState> state;
  {
    std::lock_guard lock(mutex_);
    state = committed_;
  }
  bool stopped = false;
  return state->Scan(from, visit, &stopped);
}

absl::Status BoltBackend::CommitDeletion(const Deletion& deletion) {
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<bolt::WriteTx> tx, db_->db->BeginWrite());
    ASSIGN_OR_RETURN(bolt::WriteBucket* const records, tx->bucket(BucketName(Bucket::kKey)));
    records->set_fill_percent(kKeyFillPercent);
    for (const RecordRun& run : deletion.runs) {
      const RevisionKeyBytes first(run.first.revision, run.first.tombstone);
      if (run.first == run.last) {
        RETURN_IF_ERROR(records->Delete(first.view()).status());
        continue;
      }
      // The end is exclusive: the last key and one zero byte.
      std::string end(RevisionKeyBytes(run.last.revision, run.last.tombstone).view());
      end.push_back('\0');
      RETURN_IF_ERROR(records->DeleteRange(first.view(), end).status());
    }
    if (!deletion.meta_key.empty()) {
      ASSIGN_OR_RETURN(bolt::WriteBucket* const meta, tx->bucket(BucketName(Bucket::kMeta)));
      RETURN_IF_ERROR(meta->Put(deletion.meta_key, deletion.meta_value));
    }
    RETURN_IF_ERROR(tx->Commit().status());
  }
  return RefreshView();
}

}  // namespace mvcc
