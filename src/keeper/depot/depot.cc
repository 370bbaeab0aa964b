#include "depot/depot.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/sha256.h"
#include "base/status.h"

namespace depot {
namespace {

constexpr std::string_view kFactsEnding = ".facts";
// A call may take this long, and longer the more it moves: a slow store is not a dead one.
constexpr base::Duration kCallTimeout = std::chrono::seconds(60);
constexpr uint64_t kSlowestBytesPerSecond = 256 << 10;

base::Duration PutTimeout(uint64_t bytes) {
  return kCallTimeout + std::chrono::seconds(bytes / kSlowestBytesPerSecond);
}

}  // namespace

class Depot::Impl {
 public:
  Impl(base::Files& files, base::Clock& clock, Options options, ledger::LogWriter& log)
      : files_(files), clock_(clock), options_(std::move(options)), log_(log) {}

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      cancelled_ = true;
      changed_.notify_all();
    }
    for (const auto& worker : workers_) worker->thread.join();
  }

  absl::Status Start(std::vector<NamedStore> stores) {
    RETURN_IF_ERROR(base::MakeDirectoriesDurably(files_, options_.spool_dir, 0700));
    for (NamedStore& store : stores) {
      workers_.push_back(std::make_unique<Worker>(std::move(store)));
    }
    RETURN_IF_ERROR(TakeUpSpool());
    for (const auto& worker : workers_) {
      worker->thread = std::thread([this, w = worker.get()] { Work(*w); });
    }
    return absl::OkStatus();
  }

  std::string NewPath(const std::string& object_name) const {
    return base::JoinPath(options_.spool_dir, base::BaseName(object_name));
  }

  absl::Status Submit(catalog::Object object, const std::string& path) {
    {
      const std::lock_guard lock(mutex_);
      if (spool_bytes_ + object.stored_bytes > options_.spool_bytes_max) {
        return base::MakeStatus(absl::StatusCode::kResourceExhausted,
                                "the spool {} is full ({} of {} bytes): the stores are down or too "
                                "slow",
                                options_.spool_dir, spool_bytes_, options_.spool_bytes_max);
      }
    }
    object.stores.clear();
    const std::string facts = ledger::EncodeObject(object) + "\n";
    RETURN_IF_ERROR(
        base::WriteFileAtomically(files_, path + std::string(kFactsEnding), facts, 0600));
    const std::lock_guard lock(mutex_);
    Enqueue(std::move(object), path);
    return absl::OkStatus();
  }

  absl::Status Note(const std::vector<ledger::Fact>& facts) {
    RETURN_IF_ERROR(log_.Append(facts));
    absl::Status first_failure;
    bool shipped = false;
    for (const auto& worker : workers_) {
      const absl::Status status = log_.Ship(worker->store.name, *worker->store.store, Soon());
      if (status.ok()) {
        shipped = true;
      } else if (first_failure.ok()) {
        first_failure = status;
      }
    }
    // One store that has it makes it known; the others get it with the next object or head.
    return shipped ? absl::OkStatus() : first_failure;
  }

  absl::Status WaitStored(const std::string& name, size_t copies, base::Duration timeout) {
    std::unique_lock lock(mutex_);
    const size_t wanted = copies == 0 ? workers_.size() : std::min(copies, workers_.size());
    const auto there = [&] {
      const auto at = items_.find(name);
      return at == items_.end() || at->second->stores.size() >= wanted;
    };
    if (changed_.wait_for(lock, timeout, there)) return absl::OkStatus();
    std::string missing;
    for (const auto& worker : workers_) {
      if (items_.at(name)->stores.contains(worker->store.name)) continue;
      missing += fmt::format("{}{}: {}", missing.empty() ? "" : "; ", worker->store.name,
                             worker->error.empty() ? "not done yet" : worker->error);
    }
    return base::MakeStatus(absl::StatusCode::kDeadlineExceeded, "stored in {} of {}: {}",
                            items_.at(name)->stores.size(), workers_.size(), missing);
  }

  void WaitIdle(base::Duration timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] {
      return std::all_of(workers_.begin(), workers_.end(), [](const auto& worker) {
        return worker->queue.empty() || !worker->error.empty();
      });
    });
  }

  void SetWatched(const ledger::Watched& watched) {
    const std::lock_guard lock(mutex_);
    watched_ = watched;
  }

  void SignHeads() {
    for (const auto& worker : workers_) {
      const absl::Status status =
          log_.SignHead(worker->store.name, *worker->store.store, watched(), Soon());
      Report(*worker, status);
    }
  }

  std::vector<StoreState> states() const {
    const std::lock_guard lock(mutex_);
    std::vector<StoreState> states;
    for (const auto& worker : workers_) {
      StoreState state{.name = worker->store.name,
                       .up = worker->error.empty(),
                       .error = worker->error,
                       .objects_waiting = worker->queue.size()};
      for (const auto& item : worker->queue) {
        state.behind = std::max(state.behind, clock_.Monotonic() - item->submitted);
      }
      states.push_back(std::move(state));
    }
    return states;
  }

  uint64_t spool_bytes() const {
    const std::lock_guard lock(mutex_);
    return spool_bytes_;
  }

 private:
  struct Item {
    catalog::Object object;
    std::string path;
    base::Duration submitted{0};
    std::set<std::string> stores;  // that have it; guarded by mutex_
  };
  struct Worker {
    explicit Worker(NamedStore s) : store(std::move(s)) {}
    const NamedStore store;
    std::deque<std::shared_ptr<Item>> queue;  // guarded by mutex_, as is error
    std::string error;                        // of the last attempt
    bool head_signed = false;                 // by the worker's own thread, which alone uses this
    std::thread thread;
  };

  ledger::Watched watched() const {
    const std::lock_guard lock(mutex_);
    return watched_;
  }

  stores::Deadline Soon() const { return stores::Deadline::In(clock_, kCallTimeout, &cancelled_); }

  // Takes up what an earlier process left. Bytes without facts were never submitted.
  absl::Status TakeUpSpool() {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.List(options_.spool_dir));
    const std::set<std::string> present(names.begin(), names.end());
    for (const std::string& name : names) {
      const std::string path = base::JoinPath(options_.spool_dir, name);
      if (!name.ends_with(kFactsEnding)) {
        if (!present.contains(name + std::string(kFactsEnding))) {
          RETURN_IF_ERROR(files_.Remove(path));
        }
        continue;
      }
      const std::string bytes_path = path.substr(0, path.size() - kFactsEnding.size());
      ASSIGN_OR_RETURN(std::string line, base::ReadFile(files_, path));
      if (!line.empty() && line.back() == '\n') line.pop_back();
      auto object = ledger::DecodeObject(line, log_.place().Folder());
      if (!object.ok()) continue;  // of another timeline, whose depot takes it up
      if (!base::Exists(files_, bytes_path)) {
        // Everybody has it, and only the facts were not removed yet.
        RETURN_IF_ERROR(files_.Remove(path));
        continue;
      }
      const std::lock_guard lock(mutex_);
      Enqueue(*std::move(object), bytes_path);
    }
    return absl::OkStatus();
  }

  // With mutex_ held.
  void Enqueue(catalog::Object object, const std::string& path) {
    auto item = std::make_shared<Item>();
    spool_bytes_ += object.stored_bytes;
    item->object = std::move(object);
    item->path = path;
    item->submitted = clock_.Monotonic();
    items_[item->object.name] = item;
    for (const auto& worker : workers_) worker->queue.push_back(item);
    changed_.notify_all();
  }

  void Work(Worker& worker) {
    base::Duration pause = options_.retry_min;
    while (true) {
      std::shared_ptr<Item> item;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || !worker.queue.empty(); });
        if (stopping_) return;
        item = worker.queue.front();
      }
      const absl::Status status = Bring(worker, *item);
      if (Report(worker, status)) {
        pause = options_.retry_min;
        Done(worker, item);
        continue;
      }
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, pause, [&] { return stopping_; })) return;
      pause = std::min(pause * 2, options_.retry_max);
      // What fails for a reason of its own must not hold up what stands behind it.
      worker.queue.push_back(worker.queue.front());
      worker.queue.pop_front();
    }
  }

  absl::Status Bring(Worker& worker, Item& item) {
    base::Digest digest;
    if (!base::ParseDigest(item.object.stored_sha256, &digest)) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "{}: its facts state no digest",
                              item.path);
    }
    ASSIGN_OR_RETURN(const auto file, files_.Open(item.path, {}));
    const stores::FileContent content(*file, item.object.stored_bytes, digest);
    stores::Store& store = *worker.store.store;
    RETURN_IF_ERROR(
        store.Put(item.object.name, content,
                  stores::Deadline::In(clock_, PutTimeout(item.object.stored_bytes), &cancelled_)));
    RETURN_IF_ERROR(NoteStored(worker.store.name, item));
    if (worker.head_signed) return log_.Ship(worker.store.name, store, Soon());
    // A log without a head looks like one whose tail was cut.
    RETURN_IF_ERROR(log_.SignHead(worker.store.name, store, watched(), Soon()));
    worker.head_signed = true;
    return absl::OkStatus();
  }

  // The object's own record comes before that of any copy.
  absl::Status NoteStored(const std::string& store, Item& item) {
    const std::lock_guard noting(note_mutex_);
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      if (item.stores.contains(store)) return absl::OkStatus();  // noted, but not shipped
      first = item.stores.empty();
    }
    if (first) {
      catalog::Object object = item.object;
      object.stores = {store};
      RETURN_IF_ERROR(log_.Append({ledger::Stored{std::move(object)}}));
    } else {
      RETURN_IF_ERROR(log_.Append({ledger::Copied{.name = item.object.name, .store = store}}));
    }
    const std::lock_guard lock(mutex_);
    item.stores.insert(store);
    return absl::OkStatus();
  }

  void Done(Worker& worker, const std::shared_ptr<Item>& item) {
    {
      const std::lock_guard lock(mutex_);
      std::erase(worker.queue, item);
      changed_.notify_all();
      const bool everywhere =
          std::none_of(workers_.begin(), workers_.end(), [&](const auto& other) {
            return std::find(other->queue.begin(), other->queue.end(), item) != other->queue.end();
          });
      if (!everywhere) return;
    }
    // The bytes go first: facts without bytes say that everybody has the object, and are cleared
    // away by the next start.
    for (const std::string& path : {item->path, item->path + std::string(kFactsEnding)}) {
      const absl::Status removed = files_.Remove(path);
      if (!removed.ok()) LOG_WARN("the spool cannot be cleared", {"error", removed});
    }
    const std::lock_guard lock(mutex_);
    items_.erase(item->object.name);
    spool_bytes_ -= item->object.stored_bytes;
    changed_.notify_all();
  }

  // Notes how an attempt went; whether it succeeded.
  bool Report(Worker& worker, const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      if (!worker.error.empty()) LOG_INFO("a store is back", {"store", worker.store.name});
      worker.error.clear();
      return true;
    }
    if (absl::IsCancelled(status) && stopping_) return false;
    if (worker.error.empty()) {
      LOG_WARN("a store failed; its copies wait in the spool", {"store", worker.store.name},
               {"error", status});
    }
    worker.error = base::Message(status);
    changed_.notify_all();
    return false;
  }

  base::Files& files_;
  base::Clock& clock_;
  const Options options_;
  ledger::LogWriter& log_;
  std::vector<std::unique_ptr<Worker>> workers_;

  std::mutex note_mutex_;  // taken before mutex_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<Item>> items_;  // that are not everywhere yet
  uint64_t spool_bytes_ = 0;
  ledger::Watched watched_;
  bool stopping_ = false;
  std::atomic<bool> cancelled_ = false;
};

Depot::Depot(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Depot::~Depot() = default;

absl::StatusOr<std::unique_ptr<Depot>> Depot::Open(base::Files& files, base::Clock& clock,
                                                   const Options& options,
                                                   std::vector<NamedStore> stores,
                                                   ledger::LogWriter& log) {
  auto impl = std::make_unique<Impl>(files, clock, options, log);
  RETURN_IF_ERROR(impl->Start(std::move(stores)));
  return std::unique_ptr<Depot>(new Depot(std::move(impl)));
}

std::string Depot::NewPath(const std::string& object_name) const {
  return impl_->NewPath(object_name);
}
absl::Status Depot::Submit(catalog::Object object, const std::string& path) {
  return impl_->Submit(std::move(object), path);
}
absl::Status Depot::Note(const std::vector<ledger::Fact>& facts) { return impl_->Note(facts); }
absl::Status Depot::WaitStored(const std::string& name, size_t copies, base::Duration timeout) {
  return impl_->WaitStored(name, copies, timeout);
}
void Depot::WaitIdle(base::Duration timeout) { impl_->WaitIdle(timeout); }
void Depot::SetWatched(const ledger::Watched& watched) { impl_->SetWatched(watched); }
void Depot::SignHeads() { impl_->SignHeads(); }
std::vector<StoreState> Depot::states() const { return impl_->states(); }
uint64_t Depot::spool_bytes() const { return impl_->spool_bytes(); }

}  // namespace depot
