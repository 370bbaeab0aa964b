#include "mvcc/watch_hub.h"

#include <algorithm>

#include "base/check.h"
#include "mvcc/store.h"
#include "mvcc/store_impl.h"

namespace mvcc {

WatchHub::WatchHub(Store& store, WatchHubOptions options)
    : store_(store),
      options_(options),
      window_first_(store.current_revision() + 1),
      last_(store.current_revision()) {
  CHECK(store_.impl_->hub == nullptr);
  store_.impl_->hub = this;
}

WatchHub::~WatchHub() {
  CHECK(groups_.empty());
  store_.impl_->hub = nullptr;
}

void WatchHub::Join(WatcherGroup* group) {
  std::lock_guard lock(mutex_);
  groups_.push_back(group);
}

void WatchHub::Leave(WatcherGroup* group) {
  std::lock_guard lock(mutex_);
  groups_.erase(std::find(groups_.begin(), groups_.end(), group));
}

void WatchHub::WakeAllLocked() {
  for (WatcherGroup* group : groups_) {
    if (!group->woken_.exchange(true, std::memory_order_seq_cst)) group->wake_();
  }
}

void WatchHub::Publish(std::shared_ptr<const EventBatch> batch) {
  events_.fetch_add(batch->events.size(), std::memory_order_relaxed);
  // What leaves the window is freed after the lock.
  std::vector<std::shared_ptr<const EventBatch>> dropped;
  std::lock_guard lock(mutex_);
  const int64_t revision = batch->first_revision;
  if (revision != last_ + 1) {
    // Revisions that nobody wanted passed unseen: the window begins anew.
    std::move(window_.begin(), window_.end(), std::back_inserter(dropped));
    window_.clear();
    window_bytes_ = 0;
    window_first_ = revision;
  }
  last_ = revision;
  window_bytes_ += batch->buffer.size() + batch->events.size() * sizeof(Event) + sizeof(EventBatch);
  window_.push_back(std::move(batch));
  while (window_.size() > 1 &&
         (window_.size() > options_.window_revisions || window_bytes_ > options_.window_bytes)) {
    const EventBatch& oldest = *window_.front();
    window_bytes_ -=
        oldest.buffer.size() + oldest.events.size() * sizeof(Event) + sizeof(EventBatch);
    window_first_ = oldest.last_revision + 1;
    dropped.push_back(std::move(window_.front()));
    window_.pop_front();
  }
  WakeAllLocked();
}

void WatchHub::Skip(int64_t revision) {
  std::lock_guard lock(mutex_);
  window_.clear();
  window_bytes_ = 0;
  window_first_ = revision + 1;
  last_ = revision;
  WakeAllLocked();
}

void WatchHub::Reset(int64_t current_revision) {
  std::lock_guard lock(mutex_);
  window_.clear();
  window_bytes_ = 0;
  window_first_ = current_revision + 1;
  last_ = current_revision;
  ++epoch_;
  WakeAllLocked();
}

void WatchHub::Take(int64_t from, size_t max, Taken* taken) const {
  taken->batches.clear();
  taken->gap = false;
  std::lock_guard lock(mutex_);
  taken->last = last_;
  taken->epoch = epoch_;
  if (from > last_) return;
  if (from < window_first_) {
    taken->gap = true;
    return;
  }
  // The window holds every revision from window_first_ to last_ once.
  const auto skip = static_cast<size_t>(from - window_first_);
  for (size_t i = skip; i < window_.size() && taken->batches.size() < max; ++i) {
    taken->batches.push_back(window_[i]);
  }
}

WatchStats WatchHub::stats() const {
  WatchStats stats;
  int64_t lowest = INT64_MAX;
  {
    std::lock_guard lock(mutex_);
    for (const WatcherGroup* group : groups_) {
      stats.watchers += group->stat_watchers_.load(std::memory_order_relaxed);
      stats.slow_watchers += group->stat_slow_.load(std::memory_order_relaxed);
      stats.delivered += group->stat_delivered_.load(std::memory_order_relaxed);
      lowest = std::min(lowest, group->stat_lowest_next_.load(std::memory_order_relaxed));
    }
    stats.window_revisions = window_.size();
    stats.window_bytes = window_bytes_;
  }
  stats.events = events_.load(std::memory_order_relaxed);
  const int64_t current = store_.current_revision();
  if (lowest <= current) stats.max_lag = current - lowest + 1;
  return stats;
}

}  // namespace mvcc
