// The online defragmentation of the db file, as steps of the backend's loop:
//
//   copy     the pages of one read transaction go into db.tmp.<random>, a step with a sync of its
//   own at a time; commits
//            of batches to the old file go on between the steps, and the batches are kept
//   replay   kept batches are committed to the new file, one at a time
//   swap     once a commit to the old file leaves nothing pending at a border: the last batches are
//   replayed, the new file
//            (synced and locked) is renamed over the old one, and becomes what readers pin
//
// Until the rename the old file is whole and in use; the new one is then equal to it.
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "mvcc/bolt_backend.h"

namespace mvcc {
namespace {

// Batches kept for the replay; a writer that outruns the copy beyond this ends the defragmentation.
constexpr uint64_t kReplayBytesMax = 512u << 20;
// A replaced file is cut by this much at a time, since freeing much at once stalls the file
// system's journal.
constexpr uint64_t kRetireStepBytes = 16u << 20;
constexpr base::Duration kRetirePause = std::chrono::milliseconds(10);
// What a file grows by beyond need, and so the least room to ask for.
constexpr uint64_t kGrowthBytes = 16u << 20;

}  // namespace

absl::Status BoltBackend::Defragment() {
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<absl::Status> result;
  StartDefragment([&](const absl::Status& status) {
    std::lock_guard lock(mutex);
    result = status;
    ended.notify_one();
  });
  while (true) {
    {
      std::unique_lock lock(mutex);
      if (result.has_value()) return *result;
      bool threaded = false;
      {
        std::lock_guard state(mutex_);
        threaded = threaded_;
      }
      if (threaded) {
        ended.wait(lock, [&] { return result.has_value(); });
        return *result;
      }
    }
    {
      std::lock_guard step(step_mutex_);
      defragmentation_due_ = base::Duration::min();  // nobody to make room for
      job_due_ = base::Duration::min();
    }
    RunOnce();
  }
}

void BoltBackend::StartDefragment(Done done) {
  absl::Status refused;
  {
    std::lock_guard lock(mutex_);
    if (!fatal_.ok()) {
      refused = fatal_;
    } else if (defragmenting_) {
      refused = absl::AbortedError("defragmentation: one is running already");
    } else if (stopping_) {
      refused = absl::AbortedError("defragmentation: the server stops");
    } else {
      defragmenting_ = true;
      defragment_requests_.push_back(std::move(done));
      WakeLocked();
      return;
    }
  }
  done(refused);
}

absl::Status BoltBackend::BeginDefragmentation(base::Duration now) {
  auto job = std::make_unique<Defragmentation>();
  job->started = now;
  const uint64_t needed = db_->db->in_use_bytes() + kGrowthBytes;
  ASSIGN_OR_RETURN(const uint64_t free, options_.files->FreeBytes(base::DirName(options_.path)));
  if (free < needed) {
    return base::MakeStatus(absl::StatusCode::kResourceExhausted,
                            "defragmentation: the copy of {} needs {} bytes, {} are free",
                            options_.path, needed, free);
  }
  job->path = options_.path + ".tmp." + base::IdToHex(options_.random->Next());
  bolt::Options options;
  options.store_freelist = options_.store_freelist;
  options.map_reserve_bytes = options_.map_reserve_bytes;
  options.no_sync = options_.no_sync;
  options.page_bytes = db_->db->page_bytes();
  job->target = std::make_shared<OpenDb>();
  absl::StatusOr<std::unique_ptr<bolt::DB>> target =
      bolt::DB::Open(*options_.files, job->path, std::move(options), *options_.clock);
  if (!target.ok()) {
    options_.files->Remove(job->path).IgnoreError();  // perhaps it was not even made
    return target.status();
  }
  job->target->db = *std::move(target);
  job->source = db_->db->BeginRead();
  job->copier = std::make_unique<bolt::CompactCopier>(*job->source, *job->target->db);
  defragmentation_ = std::move(job);
  return absl::OkStatus();
}

// One step. What goes wrong with the copy ends the defragmentation, not the server; only a failure
// of the file in use is returned.
absl::Status BoltBackend::StepDefragmentation(base::Duration now) {
  absl::Status status;
  if (defragmentation_ == nullptr) {
    // From here on each committed batch is kept for the replay.
    RETURN_IF_ERROR(CommitSealed());
    status = BeginDefragmentation(now);
  } else if (defragmentation_->copier != nullptr) {
    const absl::StatusOr<bool> done =
        defragmentation_->copier->Step(options_.defragment_step_bytes);
    status = done.status();
    if (done.ok() && *done) {
      defragmentation_->copier.reset();
      defragmentation_->source.reset();
    }
  } else if (!defragmentation_->replay.empty() && defragmentation_->rounds < 1000) {
    status = ReplayOnce();
  } else {
    ++defragmentation_->rounds;
    RETURN_IF_ERROR(CommitSealed());
    // A large remainder is replayed in paced steps first; a small one now, so that the two files
    // are equal.
    if (defragmentation_->replay_bytes <= options_.defragment_step_bytes ||
        defragmentation_->rounds >= 1000) {
      while (status.ok() && !defragmentation_->replay.empty()) status = ReplayOnce();
      if (status.ok()) {
        RETURN_IF_ERROR(SwapFiles());
        EndDefragmentation(absl::OkStatus());
        return absl::OkStatus();
      }
    }
  }
  if (status.ok() && defragmentation_->replay_bytes > kReplayBytesMax) {
    status = base::MakeStatus(absl::StatusCode::kResourceExhausted,
                              "defragmentation: more than {} bytes were written during the copy",
                              kReplayBytesMax);
  }
  if (!status.ok()) {
    EndDefragmentation(status);
    return absl::OkStatus();
  }
  defragmentation_due_ = options_.clock->Monotonic() + options_.defragment_pause;
  return absl::OkStatus();
}

absl::Status BoltBackend::ReplayOnce() {
  Defragmentation& job = *defragmentation_;
  const std::vector<std::shared_ptr<const Batch>> batches{job.replay.front()};
  uint64_t operations = 0;
  RETURN_IF_ERROR(WriteBatches(*job.target->db, batches, &operations).status());
  job.replay_bytes -= batches.front()->bytes();
  job.replay.pop_front();
  return absl::OkStatus();
}

// The new file holds what the old one holds. From the rename on only the new one counts, so a
// failure is final.
absl::Status BoltBackend::SwapFiles() {
  Defragmentation& job = *defragmentation_;
  Retired retired;
  absl::StatusOr<std::unique_ptr<base::File>> old_file =
      options_.files->Open(options_.path, {.write = true});
  if (old_file.ok()) retired.file = *std::move(old_file);  // else it is freed at once
  RETURN_IF_ERROR(options_.files->Rename(job.path, options_.path));
  RETURN_IF_ERROR(options_.files->SyncDirectory(base::DirName(options_.path)));
  job.path.clear();
  ASSIGN_OR_RETURN(std::shared_ptr<const CommittedState> state, CommittedState::Begin(job.target));
  retired.readers = db_;
  ViewPtr old_view;
  {
    std::lock_guard lock(mutex_);
    db_ = job.target;
    old_view = PublishViewLocked(std::move(state));
  }
  if (retired.file != nullptr) retired_.push_back(std::move(retired));
  return absl::OkStatus();
}

void BoltBackend::EndDefragmentation(const absl::Status& status) {
  base::Duration total{};
  if (defragmentation_ != nullptr) {
    total = options_.clock->Monotonic() - defragmentation_->started;
    const std::string scratch = defragmentation_->path;
    defragmentation_.reset();
    // What cannot be removed now is removed at the next start.
    if (!scratch.empty()) options_.files->Remove(scratch).IgnoreError();
  }
  if (options_.observer != nullptr) options_.observer->OnDefragment(total, status);
  std::vector<Done> requests;
  {
    std::lock_guard lock(mutex_);
    requests.swap(defragment_requests_);
    defragmenting_ = false;
  }
  for (Done& done : requests) done(status);
}

// Cuts replaced files that nobody reads any more; returns when to look again.
base::Duration BoltBackend::StepRetired(base::Duration now) {
  if (retired_.empty()) return base::Duration::max();
  if (now < retired_due_) return retired_due_;
  Retired& retired = retired_.front();
  if (retired.readers.expired()) {
    const absl::StatusOr<uint64_t> size = retired.file->Size();
    // An error here costs nothing but the pacing: closing the file frees the rest.
    if (!size.ok() || *size <= kRetireStepBytes ||
        !retired.file->Truncate(*size - kRetireStepBytes).ok()) {
      retired_.erase(retired_.begin());
    }
  }
  if (retired_.empty()) return base::Duration::max();
  retired_due_ = now + kRetirePause;
  return retired_due_;
}

}  // namespace mvcc
