// Watches: the hub takes each finished revision from the apply thread once; each I/O thread has a
// WatcherGroup that hands it to the watchers living there.
//
//   apply thread   Store::WriteTxn::End -> WatchHub::Publish -> window of recent revisions, one
//   wake per group and batch I/O thread     wake -> WatcherGroup::Drain -> matching ->
//   WatchSink::OnEvents -> streams
//
// A watcher is in one of three states: caught up (gets each revision as it is drained), catching up
// (reads the window or the db from where it is, in slices, within Drain), blocked (its sink said it
// is full; nothing is held for it but the revision it needs next). WatchHub is thread-safe; a
// WatcherGroup, its watchers and their sinks belong to one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mvcc/backend.h"
#include "mvcc/interval_tree.h"

namespace mvcc {

class Store;
class WatcherGroup;

// One change as watchers get it. The views live as long as the EventBatch.
struct Event {
  std::string_view key;
  int64_t mod_revision = 0;
  bool tombstone = false;
  // Payload of a WatchResponse.events element (field 11; tag and length are the sink's to write)
  // without and with prev_kv. Equal where there is no previous value, or where it is compacted.
  std::string_view body;
  std::string_view body_with_prev;
};

// Immutable once published; shared by all groups.
struct EventBatch {
  int64_t first_revision = 0;  // a live batch is one revision; a batch of history may hold many
  int64_t last_revision = 0;
  bool has_previous = false;  // body_with_prev was looked up
  std::vector<Event> events;  // in (main, sub) order
  std::string buffer;         // what the views point into
};

struct WatchSpec {
  std::string key{};           // as normalised by the API: never empty
  std::string range_end{};     // empty = single key, "\0" = from key on
  int64_t start_revision = 0;  // 0 = after the current one; never negative
  bool no_put = false;
  bool no_delete = false;
  bool prev_kv = false;
};

class Watcher;
struct WatchCohort;

// One response's worth of events for one watcher.
struct WatchDelivery {
  int64_t header_revision = 0;
  // Not empty; whole revisions, ascending: one when live, up to 1,000 of history. Valid during the
  // call; to keep the events, hold the batches they live in and copy the pointers.
  std::span<const Event* const> events;
  std::span<const std::shared_ptr<const EventBatch>> batches;
};

class WatchSink {
 public:
  virtual ~WatchSink() = default;
  // Whether the stream can take a delivery now. Asked before each: where many watchers share one
  // stream, those before may have filled it. When false the watcher is blocked until Unblock().
  virtual bool HasRoom() = 0;
  // Takes what is given, in order; false when the stream is full: the watcher is then blocked until
  // Unblock().
  virtual bool OnEvents(Watcher& watcher, const WatchDelivery& delivery) = 0;
  // The watcher needs revisions that are compacted. It is gone from the group when this returns; no
  // event follows.
  virtual void OnCompacted(Watcher& watcher, int64_t compact_revision) = 0;
  // History could not be read (damage, a failed disk). The watcher is gone as above.
  virtual void OnFailed(Watcher& watcher, const absl::Status& status) = 0;
};

// Owned by its group; the pointer is void after Remove, OnCompacted or OnFailed.
class Watcher {
 public:
  const WatchSpec& spec() const { return spec_; }
  WatchSink& sink() { return *sink_; }
  // For the owner of the sink.
  int64_t id = 0;
  void* user = nullptr;

 private:
  friend class WatcherGroup;
  friend struct WatchCohort;
  enum class State : uint8_t { kCaughtUp, kCatchingUp, kBlocked, kGone };
  WatchSpec spec_;
  WatchSink* sink_ = nullptr;
  State state_ = State::kCaughtUp;
  // Revisions below are delivered or known not to matter. Exact when blocked; a lower bound when
  // caught up (the group's position counts); when catching up the cohort knows it.
  int64_t next_revision_ = 0;
  WatchCohort* cohort_ = nullptr;  // when catching up
  IntervalId interval_;     // in the group's live tree or in its cohort's, according to state_
  size_t slot_ = 0;         // place in the group's list
  size_t cohort_slot_ = 0;  // place in the cohort's list
  uint32_t pending_ = 0;    // while a batch is matched: 1 + index of its list of events
};

struct WatchHubOptions {
  size_t window_revisions = 20000;
  uint64_t window_bytes = 8u << 20;
};

struct WatchStats {
  uint64_t watchers = 0;
  uint64_t slow_watchers = 0;  // catching up or blocked
  uint64_t events = 0;         // published, in all
  uint64_t delivered = 0;      // (event, watcher) pairs handed to sinks
  int64_t max_lag = 0;         // revisions that the slowest watcher is behind
  uint64_t window_revisions = 0;
  uint64_t window_bytes = 0;
};

class WatchHub {
 public:
  // Registers with the store; create it before the first write and destroy it after the last one.
  WatchHub(Store& store, WatchHubOptions options);
  ~WatchHub();

  // --- any thread ---
  WatchStats stats() const;

  // --- apply thread, called by Store ---
  // Whether anybody could want events at all, and whether with previous values. A group counts
  // itself in before it reads the store's revision, the store looks here after it has set the
  // revision: one of them sees the other.
  bool wanted() const { return groups_with_watchers_.load(std::memory_order_seq_cst) > 0; }
  bool previous_wanted() const { return prev_kv_watchers_.load(std::memory_order_relaxed) > 0; }
  // Of one revision.
  void Publish(std::shared_ptr<const EventBatch> batch);
  // A revision whose events were not collected, since nobody wanted any when it began; groups read
  // it from the db.
  void Skip(int64_t revision);
  // The database was replaced.
  void Reset(int64_t current_revision);

 private:
  friend class WatcherGroup;
  struct Taken {
    std::vector<std::shared_ptr<const EventBatch>> batches;
    int64_t last = 0;    // the hub's last revision
    bool gap = false;    // some revisions >= from have left the window (then there are no batches)
    uint64_t epoch = 0;  // counts Reset
  };
  // Up to `max` batches with revision >= from.
  void Take(int64_t from, size_t max, Taken* taken) const;
  void Join(WatcherGroup* group);
  void Leave(WatcherGroup* group);
  void WakeAllLocked();

  Store& store_;
  const WatchHubOptions options_;
  std::atomic<int> groups_with_watchers_{0};
  std::atomic<int> prev_kv_watchers_{0};
  std::atomic<uint64_t> events_{0};

  mutable std::mutex mutex_;  // leaf, but for a group's wake; guards what follows
  std::deque<std::shared_ptr<const EventBatch>> window_;
  int64_t window_first_ = 0;  // all events with revision >= this are in the window
  int64_t last_ = 0;          // last published or skipped revision
  uint64_t window_bytes_ = 0;
  uint64_t epoch_ = 0;  // counts Reset
  std::vector<WatcherGroup*> groups_;
};

class WatcherGroup {
 public:
  // `wake` is called on the apply thread when there is something to drain and the group has not
  // been woken since its last Drain; it must make the owner call Drain() soon. The hub is borrowed.
  WatcherGroup(WatchHub& hub, absl::AnyInvocable<void()> wake);
  // All watchers must be gone; may not run beside Publish's wake of this group, which it waits for.
  ~WatcherGroup();

  // --- the owner's thread ---
  struct Added {
    Watcher* watcher = nullptr;
    int64_t current_revision = 0;  // for the created answer
  };
  // Events may arrive from the next Drain() on, never within Add. Call Drain() soon after Add and
  // Unblock: history comes without a wake.
  Added Add(WatchSpec spec, WatchSink* sink, int64_t id, void* user);
  void Remove(Watcher* watcher);
  // The sink of a blocked watcher has room again. No-op if it is not blocked.
  void Unblock(Watcher* watcher);

  // Delivers what is new, then does one slice of catching up: about `history_records` records of
  // the db are looked at. True when there is more to do at once: call it again after other work of
  // the loop. A sink may call Remove (of any watcher) and Unblock from within its calls, but not
  // Add or Drain.
  bool Drain(size_t history_records = 1000);

  // All events with revision <= revision() have been handed to each watcher that is synced.
  int64_t revision() const { return position_; }
  // Caught up, and its start revision is not in the future: it may be told of progress at
  // revision().
  bool IsSynced(const Watcher* watcher) const;
  bool IsBlocked(const Watcher* watcher) const;
  size_t size() const { return watchers_.size(); }

 private:
  friend class WatchHub;
  struct Impl;

  WatchHub& hub_;
  absl::AnyInvocable<void()> wake_;
  std::atomic<bool> woken_{false};
  int64_t position_ = 0;  // drained up to here
  std::vector<std::unique_ptr<Watcher>> watchers_;
  std::unique_ptr<Impl> impl_;

  // For WatchHub::stats().
  std::atomic<uint64_t> stat_watchers_{0};
  std::atomic<uint64_t> stat_slow_{0};
  std::atomic<uint64_t> stat_delivered_{0};
  std::atomic<int64_t> stat_lowest_next_{INT64_MAX};
};

}  // namespace mvcc
