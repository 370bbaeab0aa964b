#include "mvcc/store.h"

#include <malloc.h>

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "base/status.h"
#include "mvcc/store_impl.h"
#include "mvcc/watch_hub.h"

namespace mvcc {
namespace {

// A shard of the start-up scan is worth a thread from this many revisions on.
constexpr int64_t kRevisionsPerThreadMin = 20000;

// The revision that a meta value names; -1 if it is absent.
absl::StatusOr<int64_t> ReadMetaRevision(const Backend& backend, const ReadView& view,
                                         std::string_view key) {
  ASSIGN_OR_RETURN(const std::optional<std::string> value, view.Get(Bucket::kMeta, key));
  if (!value.has_value()) return -1;
  const std::optional<RevisionKey> revision = ParseRevisionKey(*value);
  if (!revision.has_value()) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "db file {}: meta/{}: expected a revision, found {} bytes",
                            backend.path(), key, value->size());
  }
  return revision->revision.main;
}

absl::Status RecordError(const Backend& backend, const Record& record, const absl::Status& why) {
  return base::MakeStatus(absl::StatusCode::kDataLoss, "db file {}: record {}_{}: {}",
                          backend.path(), record.revision.main, record.revision.sub,
                          base::Message(why));
}

// Feeds the records with from <= main < to into a shard.
absl::Status LoadShard(const Backend& backend, const ReadView& view, int64_t from, int64_t to,
                       KeyIndexLoader::Shard* shard) {
  absl::Status status;
  RETURN_IF_ERROR(view.Scan(Revision{from, 0}, [&](const Record& record) {
    if (record.revision.main >= to) return false;
    const absl::StatusOr<KeyValue> kv = DecodeKeyValue(record.value);
    if (!kv.ok()) {
      status = RecordError(backend, record, kv.status());
      return false;
    }
    if (record.tombstone) {
      shard->Tombstone(kv->key, record.revision);
    } else {
      shard->Put(kv->key, kv->create_revision, record.revision, kv->version, kv->lease);
    }
    return true;
  }));
  RETURN_IF_ERROR(status);
  shard->Sort();
  return absl::OkStatus();
}

struct Loaded {
  KeyIndex index;
  std::vector<std::pair<int64_t, std::string>> attachments;
  int64_t current = 1;
  int64_t compacted = -1;
  int64_t scheduled = -1;
};

absl::StatusOr<Loaded> LoadAll(const Backend& backend, int threads_wanted) {
  const ViewPtr view = backend.View();
  Loaded loaded;
  ASSIGN_OR_RETURN(loaded.compacted, ReadMetaRevision(backend, *view, "finishedCompactRev"));
  ASSIGN_OR_RETURN(loaded.scheduled, ReadMetaRevision(backend, *view, "scheduledCompactRev"));

  int64_t first = 0;
  RETURN_IF_ERROR(view->Scan(Revision{0, 0}, [&](const Record& record) {
    first = record.revision.main;
    return false;
  }));
  ASSIGN_OR_RETURN(const int64_t last, view->LastRevision());

  int threads =
      threads_wanted > 0 ? threads_wanted : static_cast<int>(std::thread::hardware_concurrency());
  const int64_t span = last - first + 1;
  threads =
      static_cast<int>(std::clamp<int64_t>(span / kRevisionsPerThreadMin, 1, std::max(1, threads)));
  std::vector<KeyIndexLoader::Shard> shards(static_cast<size_t>(threads));
  std::vector<absl::Status> results(static_cast<size_t>(threads));
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    const int64_t from = i == 0 ? 0 : first + span / threads * i;
    const int64_t to = i + 1 == threads ? INT64_MAX : first + span / threads * (i + 1);
    const auto slot = static_cast<size_t>(i);
    auto load = [&, slot, from, to] {
      results[slot] = LoadShard(backend, *view, from, to, &shards[slot]);
    };
    if (i + 1 == threads) {
      load();  // this thread takes a share
    } else {
      workers.emplace_back(load);
    }
  }
  for (std::thread& worker : workers) worker.join();
  for (const absl::Status& result : results) RETURN_IF_ERROR(result);
  absl::StatusOr<KeyIndex> index =
      KeyIndexLoader::Build(std::move(shards), [&](std::string_view key, int64_t lease) {
        loaded.attachments.emplace_back(lease, std::string(key));
      });
  if (!index.ok()) {
    return base::Annotate(index.status(), fmt::format("db file {}", backend.path()));
  }
  loaded.index = *std::move(index);
  loaded.current = std::max({int64_t{1}, last, loaded.compacted, loaded.scheduled});
#ifdef __GLIBC__
  malloc_trim(0);  // the loader's tables were large, and the workers' arenas would keep them
#endif
  return loaded;
}

}  // namespace

absl::Status CompactedError() {
  return absl::OutOfRangeError("etcdserver: mvcc: required revision has been compacted");
}
absl::Status FutureRevisionError() {
  return absl::OutOfRangeError("etcdserver: mvcc: required revision is a future revision");
}

Store::Store(Backend& backend, StoreOptions options)
    : backend_(backend), impl_(std::make_unique<Impl>()) {
  impl_->options = options;
}

Store::~Store() {
  CHECK(!impl_->writing);
  backend_.SetJob(nullptr);
  if (impl_->compaction != nullptr) {
    impl_->compaction->Cancel(absl::UnavailableError("etcdserver: server stopped"));
  }
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(Backend& backend, StoreOptions options) {
  std::unique_ptr<Store> store(new Store(backend, options));
  RETURN_IF_ERROR(store->Load());
  return store;
}

absl::Status Store::Load() {
  ASSIGN_OR_RETURN(Loaded loaded, LoadAll(backend_, impl_->options.load_threads));
  const bool resume = loaded.scheduled > loaded.compacted;
  const int64_t compacted = resume ? loaded.scheduled : loaded.compacted;
  KeyIndex old;
  {
    std::lock_guard lock(impl_->lock);
    old = std::exchange(impl_->index, std::move(loaded.index));
    impl_->count_changes.clear();
    impl_->count_from = loaded.current + 1;
    ++impl_->epoch;
    compact_revision_.store(compacted, std::memory_order_release);
    current_revision_.store(loaded.current, std::memory_order_release);
  }
  impl_->attachments = std::move(loaded.attachments);
  auto compaction =
      std::make_shared<CompactionJob>(backend_, impl_->lock, impl_->index, impl_->options);
  {
    std::lock_guard lock(impl_->lock);
    impl_->compaction.swap(compaction);
  }
  backend_.SetJob(impl_->compaction.get());
  if (resume) {
    impl_->compaction->Enqueue({.revision = loaded.scheduled,
                                .previous = loaded.compacted,
                                .resumed = true,
                                .ready = true,
                                .done = nullptr});
  }
  return absl::OkStatus();
}

absl::Status Store::Reload(const std::string& path) {
  CHECK(!impl_->writing);
  backend_.SetJob(nullptr);
  impl_->compaction->Cancel(absl::UnavailableError("compaction: the database was replaced"));
  RETURN_IF_ERROR(backend_.ReplaceFile(path));
  RETURN_IF_ERROR(Load());
  if (impl_->hub != nullptr) impl_->hub->Reset(current_revision());
  return absl::OkStatus();
}

std::vector<std::pair<int64_t, std::string>> Store::TakeAttachments() {
  return std::exchange(impl_->attachments, {});
}

// --- compaction ---

absl::Status Store::Compact(int64_t revision, CompactCallbacks callbacks) {
  CHECK(!impl_->writing);
  const int64_t previous = compact_revision();
  if (revision <= previous) return CompactedError();
  if (revision > current_revision()) return FutureRevisionError();
  {
    std::lock_guard lock(impl_->lock);
    compact_revision_.store(revision, std::memory_order_release);
  }
  backend_.Put(Bucket::kMeta, "scheduledCompactRev",
               RevisionKeyBytes(Revision{revision, 0}).view());
  impl_->compaction->Enqueue({.revision = revision,
                              .previous = previous,
                              .resumed = false,
                              .ready = false,
                              .done = std::move(callbacks.finished)});
  backend_.RequestCommit(
      [scheduled = std::move(callbacks.scheduled),
       job = std::weak_ptr<CompactionJob>(impl_->compaction)](const absl::Status& status) mutable {
        if (scheduled) scheduled(status);
        if (!status.ok()) return;
        if (const std::shared_ptr<CompactionJob> alive = job.lock()) alive->MarkReady();
      });
  return absl::OkStatus();
}

void Store::AfterCompactions(absl::AnyInvocable<void(const absl::Status&)> done) {
  impl_->compaction->WhenIdle(std::move(done));
}

std::vector<HashKv> Store::CompactionHashes() const { return impl_->Compaction()->hashes(); }

StoreStats Store::stats() const {
  StoreStats stats;
  stats.current_revision = current_revision();
  stats.compact_revision = compact_revision();
  std::shared_ptr<CompactionJob> compaction;
  {
    std::shared_lock lock(impl_->lock);
    compaction = impl_->compaction;
    stats.live_keys = static_cast<int64_t>(impl_->index.live_keys());
    stats.index_bytes = impl_->index.memory_bytes();
  }
  stats.puts = impl_->puts.load(std::memory_order_relaxed);
  stats.put_bytes = impl_->put_bytes.load(std::memory_order_relaxed);
  stats.deletes = impl_->deletes.load(std::memory_order_relaxed);
  stats.txns = impl_->txns.load(std::memory_order_relaxed);
  stats.ranges = impl_->ranges.load(std::memory_order_relaxed);
  stats.compactions_running = compaction->pending();
  stats.compacted_keys = compaction->removed();
  stats.compaction_total = compaction->total();
  return stats;
}

// --- counting ---

void Store::Impl::NoteCount(int64_t main, int delta, std::string_view key) {
  count_changes.push_back({main, delta, std::string(key)});
  if (count_changes.size() > options.count_window) {
    count_from = count_changes.front().main + 1;
    count_changes.pop_front();
  }
}

bool InInterval(std::string_view k, std::string_view key, std::string_view end) {
  if (end.empty()) return k == key;
  return k >= key && (end == std::string_view("\0", 1) || k < end);
}

std::optional<int64_t> Store::Impl::QuickCount(std::string_view key, std::string_view end,
                                               int64_t at_main) const {
  if (at_main + 1 < count_from) return std::nullopt;
  auto count = static_cast<int64_t>(index.CountNow(key, end));
  for (auto it = count_changes.rbegin(); it != count_changes.rend() && it->main > at_main; ++it) {
    if (InInterval(it->key, key, end)) count -= it->delta;
  }
  return count;
}

}  // namespace mvcc
