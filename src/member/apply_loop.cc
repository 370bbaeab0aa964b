#include "member/apply_loop.h"

#include "base/status.h"
#include "member/errors.h"

namespace member {
namespace {
thread_local bool t_in_batch = false;
}  // namespace

bool ApplyLoop::InBatch() { return t_in_batch; }

void PendingProposals::Add(ProposalPtr proposal) {
  const std::lock_guard lock(mutex_);
  const uint64_t id = proposal->request_id;
  map_[id] = std::move(proposal);
}

ProposalPtr PendingProposals::Take(uint64_t request_id) {
  const std::lock_guard lock(mutex_);
  const auto it = map_.find(request_id);
  if (it == map_.end()) return nullptr;
  ProposalPtr proposal = std::move(it->second);
  map_.erase(it);
  return proposal;
}

std::vector<ProposalPtr> PendingProposals::TakeOlder(base::Duration started_before) {
  std::vector<ProposalPtr> old;
  const std::lock_guard lock(mutex_);
  for (auto it = map_.begin(); it != map_.end();) {
    if (it->second->started < started_before) {
      old.push_back(std::move(it->second));
      map_.erase(it++);
    } else {
      ++it;
    }
  }
  return old;
}

std::vector<ProposalPtr> PendingProposals::TakeAll() {
  std::vector<ProposalPtr> all;
  const std::lock_guard lock(mutex_);
  for (auto& [id, proposal] : map_) all.push_back(std::move(proposal));
  map_.clear();
  return all;
}

size_t PendingProposals::size() const {
  const std::lock_guard lock(mutex_);
  return map_.size();
}

ApplyLoop::ApplyLoop(Applier& applier, PendingProposals& pending, uint64_t applied_index,
                     Callbacks callbacks)
    : applier_(applier),
      pending_(pending),
      callbacks_(std::move(callbacks)),
      applied_index_(applied_index) {}

ApplyLoop::~ApplyLoop() { Stop(); }

void ApplyLoop::Start() {
  thread_ = std::thread([this] { ThreadMain(); });
}

void ApplyLoop::Stop() {
  {
    const std::lock_guard lock(queue_mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  FailWaiters(StoppedError());
}

void ApplyLoop::Push(std::vector<raft::Entry> entries) {
  const std::lock_guard lock(queue_mutex_);
  queued_entries_ += entries.size();
  queue_.push_back(std::move(entries));
}

void ApplyLoop::TryRun(size_t entries_max) {
  bool small = false;
  {
    const std::lock_guard lock(queue_mutex_);
    if (queue_.empty() && tasks_.empty()) return;
    small = queued_entries_ <= entries_max;
  }
  if (small || !thread_.joinable()) {
    std::unique_lock run(run_mutex_, std::try_to_lock);
    if (run.owns_lock()) {
      RunLocked();
      return;
    }
  }
  wake_.notify_one();
}

void ApplyLoop::Drain() {
  const std::lock_guard run(run_mutex_);
  RunLocked();
}

absl::Status ApplyLoop::Install(uint64_t index, uint64_t term,
                                absl::FunctionRef<absl::Status()> install) {
  const std::lock_guard run(run_mutex_);
  RunLocked();
  if (failed_) return absl::InternalError("the entries before the snapshot could not be applied");
  RETURN_IF_ERROR(install());
  applied_term_.store(term);
  applied_index_.store(index);
  ReleaseWaiters();
  return absl::OkStatus();
}

std::vector<ApplyLoop::ConfChange> ApplyLoop::TakeConfChanges() {
  const std::lock_guard lock(queue_mutex_);
  return std::exchange(conf_changes_, {});
}

void ApplyLoop::WhenApplied(uint64_t index, absl::AnyInvocable<void(const absl::Status&)> done) {
  {
    const std::lock_guard lock(waiters_mutex_);
    has_waiters_.store(true);
    // Looked at after the flag is up: the applying thread raises the index first and looks at the
    // flag then.
    if (applied_index_.load() < index) {
      waiters_.emplace_back(index, std::move(done));
      return;
    }
  }
  done(absl::OkStatus());
}

void ApplyLoop::FailWaiters(const absl::Status& status) {
  decltype(waiters_) all;
  {
    const std::lock_guard lock(waiters_mutex_);
    all.swap(waiters_);
  }
  for (auto& [index, done] : all) done(status);
}

void ApplyLoop::ReleaseWaiters() {
  if (!has_waiters_.load()) return;
  const uint64_t applied = applied_index_.load();
  decltype(waiters_) ready;
  {
    const std::lock_guard lock(waiters_mutex_);
    for (size_t i = 0; i < waiters_.size();) {
      if (waiters_[i].first <= applied) {
        ready.push_back(std::move(waiters_[i]));
        waiters_[i] = std::move(waiters_.back());
        waiters_.pop_back();
      } else {
        ++i;
      }
    }
    has_waiters_.store(!waiters_.empty());
  }
  for (auto& [index, done] : ready) done(absl::OkStatus());
}

void ApplyLoop::PostTask(absl::AnyInvocable<void()> task) {
  {
    const std::lock_guard lock(queue_mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void ApplyLoop::ThreadMain() {
  while (true) {
    {
      std::unique_lock lock(queue_mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty() || !tasks_.empty(); });
      if (stopping_ && queue_.empty() && tasks_.empty()) return;
    }
    const std::lock_guard run(run_mutex_);
    RunLocked();
  }
}

void ApplyLoop::RunLocked() {
  while (true) {
    std::vector<raft::Entry> batch;
    std::vector<absl::AnyInvocable<void()>> tasks;
    {
      const std::lock_guard lock(queue_mutex_);
      tasks.swap(tasks_);
      if (!queue_.empty()) {
        batch = std::move(queue_.front());
        queue_.pop_front();
        queued_entries_ -= batch.size();
      }
    }
    if (tasks.empty() && batch.empty()) return;
    for (auto& task : tasks) task();
    if (failed_ || batch.empty()) continue;
    if (!ApplyBatch(batch)) failed_ = true;
  }
}

bool ApplyLoop::ApplyBatch(std::vector<raft::Entry>& batch) {
  t_in_batch = true;
  for (const raft::Entry& entry : batch) {
    absl::Status status;
    if (entry.type == raft::EntryType::kNormal) {
      RequestView request;
      ProposalPtr proposal;
      if (!entry.data.empty() && DecodeRequest(entry.data.view(), &request))
        proposal = pending_.Take(request.id);
      status = applier_.ApplyNormal(entry, std::move(proposal));
    } else {
      auto verdict = applier_.ApplyConfChange(entry);
      status = verdict.status();
      if (verdict.ok()) {
        // Answered before raft has heard of it; an answer leaves only after the batch, when both
        // have.
        if (ProposalPtr proposal = pending_.Take(verdict->change.id))
          proposal->Done({.status = verdict->status});
        const std::lock_guard lock(queue_mutex_);
        conf_changes_.push_back({.index = entry.index, .verdict = *std::move(verdict)});
      }
    }
    if (!status.ok()) {
      t_in_batch = false;
      callbacks_.fatal(status);
      return false;
    }
  }
  t_in_batch = false;
  applied_term_.store(batch.back().term);
  applied_index_.store(batch.back().index);
  callbacks_.batch_end(batch.back().index);
  ReleaseWaiters();
  return true;
}

}  // namespace member
