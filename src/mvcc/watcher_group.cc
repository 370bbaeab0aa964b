// The watchers of one loop. Live revisions are matched against the tree of those that are caught
// up; the others form cohorts: all watchers of a cohort need the same revision next and share each
// scan of the history, and cohorts that meet become one.
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "mvcc/event_builder.h"
#include "mvcc/key_value.h"
#include "mvcc/store.h"
#include "mvcc/store_impl.h"
#include "mvcc/watch_hub.h"

namespace mvcc {
namespace {

// Live batches handled per Drain, so that one busy key cannot hold the loop.
constexpr size_t kLiveBatchesPerDrain = 256;
// Of one history response, as clients know it.
constexpr size_t kHistoryRevisions = 1000;
// Bytes of events after which a slice of history ends.
constexpr size_t kHistoryBytes = 1u << 20;
// Pairs of event and watcher after which a slice of history ends: where many watch the same keys,
// their stream is full after the first few, and what was matched for the others was in vain.
constexpr size_t kHistoryMatches = 8192;

}  // namespace

struct WatchCohort {
  int64_t next = 0;  // the revision that all members need next
  std::vector<Watcher*> members;
  IntervalTree<Watcher*> tree;
  size_t prev_kv = 0;  // members that want previous values

  void Add(Watcher* watcher) {
    watcher->state_ = Watcher::State::kCatchingUp;
    watcher->cohort_ = this;
    watcher->cohort_slot_ = members.size();
    watcher->interval_ = tree.Add(watcher->spec_.key, watcher->spec_.range_end, watcher);
    members.push_back(watcher);
    if (watcher->spec_.prev_kv) ++prev_kv;
  }
  void Remove(Watcher* watcher) {
    tree.Remove(watcher->interval_);
    members.back()->cohort_slot_ = watcher->cohort_slot_;
    members[watcher->cohort_slot_] = members.back();
    members.pop_back();
    if (watcher->spec_.prev_kv) --prev_kv;
    watcher->cohort_ = nullptr;
  }
};

struct WatcherGroup::Impl {
  explicit Impl(WatcherGroup& g) : group(g) {}

  using Batches = std::span<const std::shared_ptr<const EventBatch>>;
  using Cohorts = std::map<int64_t, std::unique_ptr<WatchCohort>>;

  void MakeCaughtUp(Watcher* watcher, int64_t next);
  void MakeCatchingUp(Watcher* watcher, int64_t next);
  void Resume(Watcher* watcher, int64_t next);
  void Block(Watcher* watcher, int64_t next);
  void Detach(Watcher* watcher);
  void Erase(Watcher* watcher);
  void FallBehind(int64_t last);
  bool DrainLive();
  void DeliverLive(const std::shared_ptr<const EventBatch>& batch);
  int64_t Match(const IntervalTree<Watcher*>& tree, Batches batches, int64_t up_to,
                size_t matches_max);
  void DeliverMatched(Batches batches, int64_t header_revision, int64_t next);
  void Deliver(Watcher* watcher, std::span<const Event* const> events, Batches batches,
               int64_t header_revision, int64_t next);
  void CatchUp(size_t history_records);
  void ReinsertCohort(std::unique_ptr<WatchCohort> cohort);
  void CancelCohort(WatchCohort* cohort, int64_t compact_revision, const absl::Status& status);
  bool FromWindow(WatchCohort* cohort, int64_t up_to);
  absl::Status FromDb(WatchCohort* cohort, int64_t up_to, size_t history_records, bool* compacted);
  void PublishStats();

  WatcherGroup& group;
  IntervalTree<Watcher*> live;
  Cohorts cohorts;                 // none is empty
  int64_t turn = 0;                // the next slice goes to the first cohort at or above
  std::multiset<int64_t> blocked;  // next revisions of blocked watchers
  size_t live_prev_kv = 0;
  uint64_t epoch = 0;
  uint64_t delivered = 0;
  bool in_drain = false;
  std::vector<std::unique_ptr<Watcher>>
      graveyard;  // removed during a Drain, which may still point to them

  // Scratch, reused.
  WatchHub::Taken taken;
  std::vector<Watcher*> matched;
  std::vector<std::vector<const Event*>> lists;  // of matched, by index
  EventBuilder builder;
};

// --- states ---

void WatcherGroup::Impl::MakeCaughtUp(Watcher* watcher, int64_t next) {
  watcher->state_ = Watcher::State::kCaughtUp;
  watcher->next_revision_ = next;
  watcher->interval_ = live.Add(watcher->spec_.key, watcher->spec_.range_end, watcher);
  if (watcher->spec_.prev_kv) ++live_prev_kv;
}

void WatcherGroup::Impl::MakeCatchingUp(Watcher* watcher, int64_t next) {
  watcher->next_revision_ = next;
  std::unique_ptr<WatchCohort>& cohort = cohorts[next];
  if (cohort == nullptr) {
    cohort = std::make_unique<WatchCohort>();
    cohort->next = next;
  }
  cohort->Add(watcher);
}

void WatcherGroup::Impl::Resume(Watcher* watcher, int64_t next) {
  if (next > group.position_) {
    MakeCaughtUp(watcher, next);
  } else {
    MakeCatchingUp(watcher, next);
  }
}

void WatcherGroup::Impl::Block(Watcher* watcher, int64_t next) {
  Detach(watcher);
  watcher->state_ = Watcher::State::kBlocked;
  watcher->next_revision_ = next;
  blocked.insert(next);
}

// Takes the watcher out of what its state put it into.
void WatcherGroup::Impl::Detach(Watcher* watcher) {
  switch (watcher->state_) {
    case Watcher::State::kCaughtUp:
      live.Remove(watcher->interval_);
      if (watcher->spec_.prev_kv) --live_prev_kv;
      break;
    case Watcher::State::kCatchingUp: {
      WatchCohort* const cohort = watcher->cohort_;
      cohort->Remove(watcher);
      // A cohort whose turn it is has left the map, and its slice looks after it.
      const auto it = cohorts.find(cohort->next);
      if (cohort->members.empty() && it != cohorts.end() && it->second.get() == cohort) {
        cohorts.erase(it);
      }
      break;
    }
    case Watcher::State::kBlocked:
      blocked.erase(blocked.find(watcher->next_revision_));
      break;
    case Watcher::State::kGone:
      CHECK(false);
  }
}

void WatcherGroup::Impl::Erase(Watcher* watcher) {
  Detach(watcher);
  watcher->state_ = Watcher::State::kGone;
  auto& watchers = group.watchers_;
  const size_t slot = watcher->slot_;
  std::unique_ptr<Watcher> owned = std::move(watchers[slot]);
  if (slot + 1 != watchers.size()) {
    watchers[slot] = std::move(watchers.back());
    watchers[slot]->slot_ = slot;
  }
  watchers.pop_back();
  if (owned->spec_.prev_kv) {
    group.hub_.prev_kv_watchers_.fetch_sub(1, std::memory_order_relaxed);
  }
  if (watchers.empty()) {
    group.hub_.groups_with_watchers_.fetch_sub(1, std::memory_order_seq_cst);
  }
  if (in_drain) graveyard.push_back(std::move(owned));
}

// Revisions up to `last` cannot be had live any more: everybody who may need some reads them from
// the history.
void WatcherGroup::Impl::FallBehind(int64_t last) {
  const int64_t old_position = std::exchange(group.position_, last);
  for (const std::unique_ptr<Watcher>& watcher : group.watchers_) {
    if (watcher->state_ != Watcher::State::kCaughtUp) continue;
    const int64_t next = std::max(watcher->next_revision_, old_position + 1);
    if (next > last) {
      watcher->next_revision_ = next;
      continue;
    }
    Detach(watcher.get());
    MakeCatchingUp(watcher.get(), next);
  }
}

// --- live ---

// True when there is more.
bool WatcherGroup::Impl::DrainLive() {
  group.woken_.store(false, std::memory_order_seq_cst);
  group.hub_.Take(group.position_ + 1, kLiveBatchesPerDrain, &taken);
  if (taken.epoch != epoch || taken.gap) {
    epoch = taken.epoch;
    FallBehind(taken.last);
    return false;
  }
  for (const std::shared_ptr<const EventBatch>& batch : taken.batches) {
    // First, so that a watcher unblocked by a sink meanwhile does not count on getting this batch
    // live.
    group.position_ = batch->last_revision;
    DeliverLive(batch);
  }
  taken.batches.clear();
  return group.position_ < taken.last;
}

void WatcherGroup::Impl::DeliverLive(const std::shared_ptr<const EventBatch>& batch) {
  const int64_t revision = batch->last_revision;
  if (!batch->has_previous && live_prev_kv > 0) {
    // The transaction had begun before anybody wanted previous values: who does reads this one from
    // the db.
    std::vector<Watcher*> without;
    for (const Event& event : batch->events) {
      live.Stab(event.key, [&](Watcher* watcher) {
        if (watcher->spec_.prev_kv && watcher->next_revision_ <= revision) {
          without.push_back(watcher);
        }
      });
    }
    for (Watcher* const watcher : without) {
      if (watcher->state_ != Watcher::State::kCaughtUp) continue;  // there twice
      Detach(watcher);
      MakeCatchingUp(watcher, revision);
    }
  }
  if (batch->events.size() == 1) {
    const Event* const event = batch->events.data();
    matched.clear();
    live.Stab(event->key, [&](Watcher* watcher) { matched.push_back(watcher); });
    const Batches batches(&batch, 1);
    for (Watcher* const watcher : matched) {
      if (watcher->state_ != Watcher::State::kCaughtUp || watcher->next_revision_ > revision ||
          (event->tombstone ? watcher->spec_.no_delete : watcher->spec_.no_put)) {
        continue;
      }
      Deliver(watcher, {&event, 1}, batches, revision, revision + 1);
    }
    return;
  }
  Match(live, {&batch, 1}, revision, SIZE_MAX);
  DeliverMatched({&batch, 1}, revision, revision + 1);
}

// Gathers, per watcher, the events it gets, in whole revisions up to `up_to` and until there are
// `matches_max` or a few more. Returns the last revision dealt with.
int64_t WatcherGroup::Impl::Match(const IntervalTree<Watcher*>& tree, Batches batches,
                                  int64_t up_to, size_t matches_max) {
  matched.clear();
  size_t matches = 0;
  int64_t revision = 0;
  for (const auto& batch : batches) {
    for (const Event& event : batch->events) {
      if (event.mod_revision > up_to) return up_to;
      if (event.mod_revision != revision && matches >= matches_max) return revision;
      revision = event.mod_revision;
      tree.Stab(event.key, [&](Watcher* watcher) {
        if (watcher->next_revision_ > event.mod_revision ||
            (event.tombstone ? watcher->spec_.no_delete : watcher->spec_.no_put)) {
          return;
        }
        if (watcher->pending_ == 0) {
          matched.push_back(watcher);
          watcher->pending_ = static_cast<uint32_t>(matched.size());
          if (lists.size() < matched.size()) lists.emplace_back();
        }
        lists[watcher->pending_ - 1].push_back(&event);
        ++matches;
      });
    }
  }
  return up_to;
}

void WatcherGroup::Impl::DeliverMatched(Batches batches, int64_t header_revision, int64_t next) {
  for (Watcher* const watcher : matched) watcher->pending_ = 0;
  for (size_t i = 0; i < matched.size(); ++i) {
    Watcher* const watcher = matched[i];
    if (watcher->state_ == Watcher::State::kCaughtUp ||
        watcher->state_ == Watcher::State::kCatchingUp) {
      Deliver(watcher, lists[i], batches, header_revision, next);
    }
    lists[i].clear();
  }
}

void WatcherGroup::Impl::Deliver(Watcher* watcher, std::span<const Event* const> events,
                                 Batches batches, int64_t header_revision, int64_t next) {
  if (!watcher->sink_->HasRoom()) return Block(watcher, events.front()->mod_revision);
  delivered += events.size();
  const bool room = watcher->sink_->OnEvents(
      *watcher, {.header_revision = header_revision, .events = events, .batches = batches});
  if (watcher->state_ == Watcher::State::kGone) return;
  if (!room) Block(watcher, next);
}

// --- history ---

void WatcherGroup::Impl::CatchUp(size_t history_records) {
  auto it = cohorts.lower_bound(turn);
  if (it == cohorts.end()) it = cohorts.begin();
  // Out of the map for its turn, since sinks may remove watchers or let others catch up meanwhile.
  std::unique_ptr<WatchCohort> cohort = std::move(it->second);
  const auto after = cohorts.erase(it);
  const int64_t up_to =
      std::min(group.position_,
               after == cohorts.end() ? std::numeric_limits<int64_t>::max() : after->first - 1);

  const int64_t compacted = group.hub_.store_.compact_revision();
  if (cohort->next < compacted) {
    CancelCohort(cohort.get(), compacted, absl::OkStatus());
    return;
  }
  if (cohort->next <= group.position_ && !FromWindow(cohort.get(), up_to)) {
    bool passed = false;
    const absl::Status status = FromDb(cohort.get(), up_to, history_records, &passed);
    if (!status.ok() || passed) {
      CancelCohort(cohort.get(), group.hub_.store_.compact_revision(), status);
      return;
    }
  }
  turn = cohort->next;
  ReinsertCohort(std::move(cohort));
}

void WatcherGroup::Impl::ReinsertCohort(std::unique_ptr<WatchCohort> cohort) {
  if (cohort->members.empty()) return;
  if (cohort->next > group.position_) {
    for (Watcher* const watcher : cohort->members) {
      watcher->cohort_ = nullptr;
      MakeCaughtUp(watcher, cohort->next);
    }
    return;
  }
  std::unique_ptr<WatchCohort>& there = cohorts[cohort->next];
  if (there == nullptr) {
    there = std::move(cohort);
    return;
  }
  if (there->members.size() < cohort->members.size()) there.swap(cohort);
  for (Watcher* const watcher : cohort->members) there->Add(watcher);
}

// The members need what is compacted, or what cannot be read: they end.
void WatcherGroup::Impl::CancelCohort(WatchCohort* cohort, int64_t compact_revision,
                                      const absl::Status& status) {
  while (!cohort->members.empty()) {
    Watcher* const watcher = cohort->members.back();
    Erase(watcher);  // its memory stays until the end of the Drain
    if (status.ok()) {
      watcher->sink_->OnCompacted(*watcher, compact_revision);
    } else {
      watcher->sink_->OnFailed(*watcher, status);
    }
  }
}

// Serves the cohort from the window of recent revisions; false when that does not reach back far
// enough.
bool WatcherGroup::Impl::FromWindow(WatchCohort* cohort, int64_t up_to) {
  const size_t revisions = kHistoryMatches / cohort->members.size() + 1;
  group.hub_.Take(cohort->next, std::min(revisions, kHistoryRevisions), &taken);
  if (taken.gap || taken.batches.empty()) return false;
  if (cohort->prev_kv > 0) {
    for (const auto& batch : taken.batches) {
      if (!batch->has_previous) return false;
    }
  }
  const std::vector<std::shared_ptr<const EventBatch>> batches = std::move(taken.batches);
  const int64_t last =
      Match(cohort->tree, batches, std::min(batches.back()->last_revision, up_to), kHistoryMatches);
  cohort->next = last + 1;
  DeliverMatched(batches, group.hub_.store_.current_revision(), last + 1);
  return true;
}

// Reads whole revisions up to `up_to` from the db, about `history_records` records.
absl::Status WatcherGroup::Impl::FromDb(WatchCohort* cohort, int64_t up_to, size_t history_records,
                                        bool* compacted) {
  const Store& store = group.hub_.store_;
  const Store::Impl& impl = *store.impl_;
  // Pinned before the compact revision is looked at: nothing that a compaction from then on removes
  // is missing.
  const ViewPtr view = store.backend().View();
  if (cohort->next < store.compact_revision()) {
    *compacted = true;
    return absl::OkStatus();
  }
  int64_t end = up_to;
  int64_t revision = 0;
  int64_t matched_revision = 0;
  size_t looked_at = 0;
  size_t revisions = 0;
  size_t bytes = 0;
  absl::Status status;
  // The key's stored bytes as they were before `main`, if that is not compacted.
  const auto previous = [&](std::string_view key,
                            int64_t main) -> absl::StatusOr<std::optional<std::string_view>> {
    std::optional<KeyState> state;
    {
      std::shared_lock lock(impl.lock);
      if (main - 1 < store.compact_revision()) return std::nullopt;
      state = impl.index.Get(key, main - 1);
    }
    if (!state.has_value()) return std::nullopt;
    return view->Find(state->mod);
  };
  const auto visit = [&](const Record& record) {
    const int64_t main = record.revision.main;
    if (main > up_to) return false;
    if (main != revision) {
      if (looked_at >= history_records || revisions >= kHistoryRevisions ||
          bytes >= kHistoryBytes) {
        end = main - 1;
        return false;
      }
      revision = main;
    }
    ++looked_at;
    const absl::StatusOr<KeyValue> kv = DecodeKeyValue(record.value);
    if (!kv.ok()) {
      status = kv.status();
      return false;
    }
    if (!cohort->tree.Any(kv->key)) return true;
    std::optional<std::string_view> before;
    if (cohort->prev_kv > 0 && (record.tombstone || kv->create_revision != main)) {
      absl::StatusOr<std::optional<std::string_view>> found = previous(kv->key, main);
      if (!found.ok()) {
        status = found.status();
        return false;
      }
      before = *found;
    }
    builder.Add(record.revision, record.tombstone, kv->key, record.value, before);
    bytes += record.value.size() + (before.has_value() ? before->size() : 0);
    if (main != matched_revision) {
      matched_revision = main;
      ++revisions;
    }
    return true;
  };
  absl::Status scanned = view->Scan(Revision{cohort->next, 0}, visit);
  if (scanned.ok()) scanned = status;
  if (!scanned.ok()) {
    builder.Clear();
    return scanned;
  }
  const int64_t first = std::exchange(cohort->next, end + 1);
  if (builder.empty()) return absl::OkStatus();
  const std::shared_ptr<const EventBatch> batch = builder.Build(first, end, cohort->prev_kv > 0);
  end = Match(cohort->tree, {&batch, 1}, end, kHistoryMatches);
  cohort->next = end + 1;
  DeliverMatched({&batch, 1}, store.current_revision(), end + 1);
  return absl::OkStatus();
}

void WatcherGroup::Impl::PublishStats() {
  int64_t lowest =
      group.watchers_.empty() ? std::numeric_limits<int64_t>::max() : group.position_ + 1;
  if (!cohorts.empty()) lowest = std::min(lowest, cohorts.begin()->first);
  if (!blocked.empty()) lowest = std::min(lowest, *blocked.begin());
  group.stat_watchers_.store(group.watchers_.size(), std::memory_order_relaxed);
  group.stat_slow_.store(group.watchers_.size() - live.size(), std::memory_order_relaxed);
  group.stat_delivered_.store(delivered, std::memory_order_relaxed);
  group.stat_lowest_next_.store(lowest, std::memory_order_relaxed);
}

// --- the class ---

WatcherGroup::WatcherGroup(WatchHub& hub, absl::AnyInvocable<void()> wake)
    : hub_(hub), wake_(std::move(wake)), impl_(std::make_unique<Impl>(*this)) {
  hub_.Take(0, 0, &impl_->taken);
  impl_->epoch = impl_->taken.epoch;
  position_ = impl_->taken.last;
  hub_.Join(this);
}

WatcherGroup::~WatcherGroup() {
  hub_.Leave(this);
  CHECK(watchers_.empty());
}

WatcherGroup::Added WatcherGroup::Add(WatchSpec spec, WatchSink* sink, int64_t id, void* user) {
  CHECK(!impl_->in_drain);
  CHECK(!spec.key.empty());
  const bool first = watchers_.empty();
  if (spec.prev_kv) hub_.prev_kv_watchers_.fetch_add(1, std::memory_order_relaxed);
  if (first) hub_.groups_with_watchers_.fetch_add(1, std::memory_order_seq_cst);
  const int64_t current = hub_.store_.current_revision_.load(std::memory_order_seq_cst);
  // A group without watchers does not follow what it is not told of.
  if (first && position_ < current) position_ = current;

  auto watcher = std::make_unique<Watcher>();
  watcher->spec_ = std::move(spec);
  watcher->sink_ = sink;
  watcher->id = id;
  watcher->user = user;
  watcher->slot_ = watchers_.size();
  Watcher* const added = watcher.get();
  watchers_.push_back(std::move(watcher));
  const int64_t start = added->spec_.start_revision;
  impl_->Resume(added, start == 0 ? current + 1 : start);
  impl_->PublishStats();
  return {added, current};
}

void WatcherGroup::Remove(Watcher* watcher) {
  impl_->Erase(watcher);
  if (!impl_->in_drain) impl_->PublishStats();
}

void WatcherGroup::Unblock(Watcher* watcher) {
  if (watcher->state_ != Watcher::State::kBlocked) return;
  impl_->Detach(watcher);
  impl_->Resume(watcher, watcher->next_revision_);
}

bool WatcherGroup::Drain(size_t history_records) {
  CHECK(!impl_->in_drain);
  impl_->in_drain = true;
  const bool more_live = impl_->DrainLive();
  if (!impl_->cohorts.empty()) impl_->CatchUp(history_records);
  impl_->in_drain = false;
  impl_->graveyard.clear();
  impl_->PublishStats();
  return more_live || !impl_->cohorts.empty();
}

bool WatcherGroup::IsSynced(const Watcher* watcher) const {
  return watcher->state_ == Watcher::State::kCaughtUp && watcher->spec_.start_revision <= position_;
}

bool WatcherGroup::IsBlocked(const Watcher* watcher) const {
  return watcher->state_ == Watcher::State::kBlocked;
}

}  // namespace mvcc
