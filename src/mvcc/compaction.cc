#include "mvcc/compaction.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "mvcc/rw_lock.h"

namespace mvcc {
namespace {

constexpr size_t kHashesMax = 10;
// Keys looked at per hold of the index lock, a few dozen microseconds.
constexpr size_t kKeysPerSlice = 32;
// Records looked at between two looks at the clock.
constexpr size_t kRecordsPerTick = 128;

// Sorted in a few hundred microseconds.
constexpr size_t kNotesPerPiece = 4096;

}  // namespace

DropList::Note DropList::ToNote(const RevisionKey& key) {
  return {key.revision.main,
          static_cast<uint64_t>(key.revision.sub) << 1 | static_cast<uint64_t>(key.tombstone)};
}

void DropList::Add(const RevisionKey& key) {
  notes_.push_back(ToNote(key));
  if (notes_.size() - sorted_ == kNotesPerPiece) EndPiece();
}

void DropList::EndPiece() {
  if (sorted_ == notes_.size()) return;
  std::sort(notes_.begin() + static_cast<std::ptrdiff_t>(sorted_), notes_.end());
  pieces_.push_back({sorted_, notes_.size()});
  sorted_ = notes_.size();
}

bool DropList::Later(const Piece& a, const Piece& b) const {
  return notes_[b.next] < notes_[a.next];
}

void DropList::Close() {
  EndPiece();
  std::make_heap(pieces_.begin(), pieces_.end(), std::bind_front(&DropList::Later, this));
}

bool DropList::Goes(const RevisionKey& key) {
  const Note note = ToNote(key);
  const auto later = std::bind_front(&DropList::Later, this);
  while (!pieces_.empty() && notes_[pieces_.front().next] < note) {
    std::pop_heap(pieces_.begin(), pieces_.end(), later);
    if (++pieces_.back().next == pieces_.back().end) {
      pieces_.pop_back();
    } else {
      std::push_heap(pieces_.begin(), pieces_.end(), later);
    }
  }
  return !pieces_.empty() && notes_[pieces_.front().next] == note;
}

CompactionJob::CompactionJob(Backend& backend, RwLock& lock, KeyIndex& index,
                             const StoreOptions& options)
    : backend_(backend), lock_(lock), index_(index), options_(options) {}

base::Duration CompactionJob::Now() const {
  return options_.clock != nullptr ? options_.clock->Monotonic() : base::Duration::zero();
}

void CompactionJob::Enqueue(Request request) {
  {
    std::lock_guard lock(mutex_);
    // A hash is stored only if the compaction before was complete when this one was scheduled.
    if (!last_finished_) request.resumed = true;
    last_finished_ = false;
    queue_.push_back(std::move(request));
  }
  backend_.WakeJob();
}

void CompactionJob::MarkReady() {
  {
    std::lock_guard lock(mutex_);
    for (Request& request : queue_) request.ready = true;
  }
  backend_.WakeJob();
}

void CompactionJob::Cancel(const absl::Status& status) {
  std::vector<Done> ended;
  {
    std::lock_guard lock(mutex_);
    if (running_ && current_.done) ended.push_back(std::move(current_.done));
    for (Request& request : queue_) {
      if (request.done) ended.push_back(std::move(request.done));
    }
    for (Done& done : idle_waiters_) ended.push_back(std::move(done));
    queue_.clear();
    idle_waiters_.clear();
    running_ = false;
  }
  phase_ = Phase::kIdle;
  drops_ = {};
  ForgetBatch();
  for (Done& done : ended) done(status);
}

void CompactionJob::WhenIdle(Done done) {
  {
    std::lock_guard lock(mutex_);
    if (running_ || !queue_.empty()) {
      idle_waiters_.push_back(std::move(done));
      return;
    }
  }
  done(absl::OkStatus());
}

size_t CompactionJob::pending() const {
  std::lock_guard lock(mutex_);
  return queue_.size() + (running_ ? 1 : 0);
}

std::vector<HashKv> CompactionJob::hashes() const {
  std::lock_guard lock(mutex_);
  return hashes_;
}

std::optional<HashKv> CompactionJob::FindHash(int64_t revision) const {
  std::lock_guard lock(mutex_);
  for (const HashKv& hash : hashes_) {
    if (hash.hash_revision == revision) return hash;
  }
  return std::nullopt;
}

bool CompactionJob::TakeNext() {
  {
    std::lock_guard lock(mutex_);
    if (queue_.empty() || !queue_.front().ready) return false;
    current_ = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
  }
  started_ = Now();
  phase_ = Phase::kIndex;
  hashing_ = !current_.resumed;
  resume_key_.clear();
  drops_ = {};
  any_kept_ = false;
  from_ = {};
  hash_ = base::Crc32c(0, BucketName(Bucket::kKey));
  return true;
}

absl::StatusOr<std::optional<base::Duration>> CompactionJob::Step() {
  if (phase_ == Phase::kIdle && !TakeNext()) return std::nullopt;
  switch (phase_) {
    case Phase::kIdle:
      break;
    case Phase::kIndex:
      StepIndex();
      break;
    case Phase::kFile: {
      ASSIGN_OR_RETURN(const bool finished, StepFile());
      if (finished) Finish();
      break;
    }
  }
  return options_.compaction_pause;
}

void CompactionJob::StepIndex() {
  const base::Duration end = Now() + options_.compaction_slice;
  const auto record = [this](const RevisionKey& change, bool kept) {
    if (kept) {
      any_kept_ = true;
    } else {
      drops_.Add(change);
    }
  };
  do {
    KeyIndex::Slice slice;
    {
      std::lock_guard lock(lock_);
      slice = index_.Compact(current_.revision, resume_key_, kKeysPerSlice, record);
    }
    if (slice.done) {
      drops_.Close();
      phase_ = Phase::kFile;
      return;
    }
    resume_key_ = std::move(slice.resume_key);
  } while (options_.clock != nullptr && Now() < end);
}

// The walk meets each record of the file up to the revision, in order, and knows from the list
// which go. The hash follows HashKV's rules with the compact revision before this one.
absl::StatusOr<bool> CompactionJob::StepFile() {
  const base::Duration end = Now() + options_.compaction_slice;
  size_t looked_at = 0;
  bool over = true;  // the walk has met the end
  Revision resume = from_;
  const auto visit = [&](const Record& record) {
    if (record.revision.main > current_.revision) return false;
    if (++looked_at % kRecordsPerTick == 0 && options_.clock != nullptr && Now() >= end) {
      over = false;
    }
    if (removing_ >= options_.compaction_batch_records) over = false;
    if (!over) {
      resume = record.revision;
      return false;
    }
    const RevisionKey key{record.revision, record.tombstone};
    const bool goes = drops_.Goes(key);
    if (hashing_ && !(record.revision.main <= current_.previous && any_kept_ && goes) &&
        !(record.revision.main == current_.previous && record.tombstone)) {
      hash_ = base::Crc32c(
          base::Crc32c(hash_, RevisionKeyBytes(record.revision, record.tombstone).view()),
          record.value);
    }
    if (!goes) {
      in_run_ = false;
      return true;
    }
    if (in_run_) {
      runs_.back().last = key;
    } else {
      runs_.push_back({key, key});
    }
    in_run_ = true;
    ++removing_;
    return true;
  };
  RETURN_IF_ERROR(backend_.ScanCommitted(from_, visit));
  from_ = resume;
  // A commit syncs, and every put that is written at that moment waits for it: few and large ones.
  if (!over && removing_ < options_.compaction_batch_records) return false;
  Backend::Deletion deletion;
  deletion.runs = runs_;
  const RevisionKeyBytes finished(Revision{current_.revision, 0});
  if (over) {
    deletion.meta_key = "finishedCompactRev";
    deletion.meta_value = finished.view();
  }
  RETURN_IF_ERROR(backend_.CommitDeletion(deletion));
  removed_.fetch_add(removing_, std::memory_order_relaxed);
  ForgetBatch();
  return over;
}

void CompactionJob::ForgetBatch() {
  runs_.clear();
  in_run_ = false;
  removing_ = 0;
}

void CompactionJob::Finish() {
  phase_ = Phase::kIdle;
  drops_ = {};
  total_ns_.fetch_add((Now() - started_).count(), std::memory_order_relaxed);
  std::vector<Done> idle;
  {
    std::lock_guard lock(mutex_);
    running_ = false;
    if (queue_.empty()) {
      last_finished_ = true;
      idle.swap(idle_waiters_);
    }
    if (hashing_) {
      hashes_.push_back({.hash = hash_,
                         .hash_revision = current_.revision,
                         .compact_revision = current_.previous,
                         .current_revision = 0});
      std::sort(hashes_.begin(), hashes_.end(),
                [](const HashKv& a, const HashKv& b) { return a.hash_revision > b.hash_revision; });
      if (hashes_.size() > kHashesMax) hashes_.resize(kHashesMax);
    }
  }
  if (current_.done) current_.done(absl::OkStatus());
  for (Done& done : idle) done(absl::OkStatus());
}

}  // namespace mvcc
