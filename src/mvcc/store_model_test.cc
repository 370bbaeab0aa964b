// Random histories against a model that keeps every state of every revision: reads at any revision,
// counts, compactions, restarts, defragmentations, hashes and watchers, on the real file system and
// on a simulated disk that loses its power.
#include <deque>
#include <map>
#include <set>

#include "base/random.h"
#include "mvcc/fixture_for_test.h"
#include "support/memory_files.h"

namespace mvcc {
namespace {

using base::IsOk;
using base::StatusIs;

struct ModelEvent {
  int64_t revision = 0;
  bool tombstone = false;
  TestKv kv;
  friend bool operator==(const ModelEvent&, const ModelEvent&) = default;
  friend void PrintTo(const ModelEvent& event, std::ostream* out) {
    *out << event.revision << (event.tombstone ? " delete " : " put ");
    PrintTo(event.kv, out);
  }
};

bool In(const std::string& k, const std::string& key, const std::string& end) {
  if (end.empty()) return k == key;
  return k >= key && (end == kToEnd || k < end);
}

struct Model {
  using State = std::map<std::string, TestKv>;
  std::vector<State> states = {{}, {}};  // by revision, from 1
  std::vector<std::vector<ModelEvent>> events = {{}, {}};
  int64_t compacted = -1;

  int64_t current() const { return static_cast<int64_t>(states.size()) - 1; }
  const State& at(int64_t revision) const { return states[static_cast<size_t>(revision)]; }
  void Truncate(int64_t revision) {
    states.resize(static_cast<size_t>(revision) + 1);
    events.resize(static_cast<size_t>(revision) + 1);
  }
};

// A watcher and what it was told.
struct Watched final : WatchSink {
  WatchSpec spec;
  int64_t start = 0;
  Watcher* watcher = nullptr;
  std::vector<ModelEvent> events;
  int64_t compacted = -1;
  int64_t last_header = 0;
  int room = 1 << 30;    // deliveries until it says it is full
  bool no_room = false;  // before the next delivery, as if others had filled the stream
  const Model* model = nullptr;

  bool HasRoom() override { return !std::exchange(no_room, false); }
  bool OnEvents(Watcher& w, const WatchDelivery& delivery) override {
    EXPECT_EQ(&w, watcher);
    EXPECT_EQ(compacted, -1);
    EXPECT_FALSE(delivery.events.empty());
    const int64_t last = delivery.events.back()->mod_revision;
    EXPECT_GE(delivery.header_revision, last);
    std::set<int64_t> revisions;
    for (const Event* event : delivery.events) {
      revisions.insert(event->mod_revision);
      Take(*event);
    }
    EXPECT_LE(revisions.size(), 1000u);
    return --room > 0;
  }
  void OnCompacted(Watcher&, int64_t revision) override {
    EXPECT_EQ(compacted, -1) << "cancelled twice";
    compacted = revision;
    watcher = nullptr;
  }
  void OnFailed(Watcher&, const absl::Status& status) override { EXPECT_OK(status); }

  void Take(const Event& event) {
    ModelEvent got{event.mod_revision, event.tombstone, {}};
    std::optional<TestKv> previous;
    bool tombstone = false;
    base::wire::Reader reader(event.body_with_prev);
    while (reader.Next()) {
      if (reader.field() == 1) tombstone = reader.varint() == 1;
      if (reader.field() == 2) got.kv = ToTestKv(reader.bytes());
      if (reader.field() == 3) previous = ToTestKv(reader.bytes());
    }
    EXPECT_TRUE(reader.ok());
    EXPECT_EQ(tombstone, event.tombstone);
    EXPECT_EQ(event.key, got.kv.key);
    EXPECT_TRUE(event.body_with_prev.starts_with(event.body));
    events.push_back(got);
    if (!spec.prev_kv) return;
    const Model::State& before = model->at(event.mod_revision - 1);
    const auto it = before.find(got.kv.key);
    const bool creation = !event.tombstone && got.kv.created == got.kv.mod;
    if (creation || it == before.end()) {
      EXPECT_FALSE(previous.has_value());
    } else if (previous.has_value()) {
      EXPECT_EQ(*previous, it->second);
    } else {
      EXPECT_LT(event.mod_revision - 1, model->compacted) << "prev_kv is missing";
    }
  }
};

class History {
 public:
  History(uint64_t seed, test_support::MemoryFiles* disk)
      : random_(seed), disk_(disk), t_(MakeSetup()) {}

  void Go(int steps) {
    ASSERT_OK(t_.Open());
    group_ = std::make_unique<WatcherGroup>(*t_.hub, [this] { woken_ = true; });
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE("step " + std::to_string(i));
      Step();
    }
    if (!testing::Test::HasFailure()) Settle();
    DropGroup();
    t_.Close();
  }

 private:
  TestStore::Setup MakeSetup() {
    TestStore::Setup setup;
    setup.clock = &clock_;
    if (disk_ != nullptr) {
      setup.files = disk_;
      setup.path = "/member/db";
    }
    setup.hub.window_revisions = 1 + random_.Below(50);
    setup.store.count_window = 1 + random_.Below(30);
    setup.store.compaction_batch_records = 1 + random_.Below(20);
    setup.defragment_step_bytes = 200 + random_.Below(3000);
    return setup;
  }

  std::string Key() {
    return std::string(1, static_cast<char>('a' + random_.Below(4))) +
           std::string(1, static_cast<char>('a' + random_.Below(6)));
  }
  std::pair<std::string, std::string> Interval() {
    switch (random_.Below(4)) {
      case 0:
        return {Key(), ""};
      case 1:
        return {Key(), std::string(kToEnd)};
      default:
        return {Key(), Key()};
    }
  }

  void Step() {
    clock_.now += std::chrono::milliseconds(random_.Below(40));
    const uint64_t dice = random_.Below(100);
    if (dice < 45) return Transact();
    if (dice < 65) return Read();
    if (dice < 70) return AddWatcher();
    if (dice < 80) return Drain();
    if (dice < 82) return RemoveOrUnblock();
    if (dice < 85) return Compact();
    if (dice < 87) return Hash();
    if (dice < 94) {
      t_.backend->RunOnce();
      return;
    }
    if (dice < 95) {
      EXPECT_OK(t_.backend->ForceCommit());
      return;
    }
    if (dice < 96) {
      t_.backend->StartDefragment([](const absl::Status& status) {
        if (!status.ok()) {
          EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted));
        }
      });
      return;
    }
    if (dice < 97) return Restart();
    if (dice < 98) Settle();
  }

  void Transact() {
    const int64_t revision = model_.current() + 1;
    Model::State state = model_.at(model_.current());
    std::vector<ModelEvent> events;
    const int64_t after = t_.Txn([&](WriteTxn& txn) {
      const int operations = 1 + static_cast<int>(random_.Below(3));
      for (int i = 0; i < operations; ++i) {
        if (random_.Below(4) != 0) {
          const std::string key = Key();
          const std::string value = "v" + std::to_string(random_.Below(1000));
          const auto lease = static_cast<int64_t>(random_.OneIn(5) ? random_.Below(3) : 0);
          std::optional<std::string_view> previous;
          ASSERT_OK(txn.Put(key, value, lease, &previous));
          auto it = state.find(key);
          ASSERT_EQ(previous.has_value(), it != state.end());
          if (previous.has_value()) {
            EXPECT_EQ(ToTestKv(*previous), it->second);
          }
          TestKv kv{key, value, revision, revision, 1, lease};
          if (it != state.end()) {
            kv.created = it->second.created;
            kv.version = it->second.version + 1;
          }
          state[key] = kv;
          events.push_back({revision, false, kv});
        } else {
          const auto [key, end] = Interval();
          std::string previous;
          ASSERT_OK_AND_ASSIGN(const int64_t deleted, txn.DeleteRange(key, end, &previous));
          std::vector<TestKv> want;
          for (auto it = state.begin(); it != state.end();) {
            if (!In(it->first, key, end)) {
              ++it;
              continue;
            }
            want.push_back(it->second);
            events.push_back({revision, true, TestKv{it->first, "", 0, revision, 0, 0}});
            it = state.erase(it);
          }
          EXPECT_EQ(deleted, static_cast<int64_t>(want.size()));
          EXPECT_EQ(ParseKvs(previous, 3), want);
        }
      }
      if (random_.OneIn(3)) CheckRange(txn, events.empty() ? revision - 1 : revision, state);
    });
    if (events.empty()) {
      EXPECT_EQ(after, revision - 1);
      return;
    }
    EXPECT_EQ(after, revision);
    model_.states.push_back(std::move(state));
    model_.events.push_back(std::move(events));
  }

  void CheckRange(WriteTxn& txn, int64_t revision, const Model::State& state) {
    const auto [key, end] = Interval();
    std::string out;
    ASSERT_OK_AND_ASSIGN(const RangeResult r, txn.Range({.key = key, .range_end = end}, &out));
    EXPECT_EQ(r.revision, revision);
    std::vector<TestKv> want;
    for (const auto& [k, kv] : state) {
      if (In(k, key, end)) want.push_back(kv);
    }
    EXPECT_EQ(ParseKvs(out), want);
    EXPECT_EQ(r.count, static_cast<int64_t>(want.size()));
  }

  void Read() {
    const auto [key, end] = Interval();
    const auto revision = static_cast<int64_t>(
        random_.OneIn(2) ? 0 : random_.Below(static_cast<uint64_t>(model_.current()) + 2));
    RangeQuery query{.key = key, .range_end = end, .revision = revision};
    if (random_.OneIn(2)) query.limit = static_cast<int64_t>(random_.Below(6));
    if (random_.OneIn(6)) query.count_only = true;
    const bool by_mod = !query.count_only && random_.OneIn(4);
    if (by_mod) {
      query.sort_target = SortTarget::kMod;
      query.sort_order = SortOrder::kDescend;
    }
    if (revision > model_.current() || (revision > 0 && revision < model_.compacted)) {
      EXPECT_THAT(t_.GetStatus(query), StatusIs(absl::StatusCode::kOutOfRange));
      return;
    }
    RangeResult r;
    const std::vector<TestKv> got = t_.Get(query, &r);
    std::vector<TestKv> want;
    for (const auto& [k, kv] : model_.at(revision == 0 ? model_.current() : revision)) {
      if (In(k, key, end)) want.push_back(kv);
    }
    EXPECT_EQ(r.count, static_cast<int64_t>(want.size()));
    EXPECT_EQ(r.revision, model_.current());
    if (query.count_only) return;
    if (by_mod) {
      std::stable_sort(want.begin(), want.end(),
                       [](const TestKv& a, const TestKv& b) { return a.mod > b.mod; });
    }
    const bool more = query.limit > 0 && static_cast<int64_t>(want.size()) > query.limit;
    if (more) want.resize(static_cast<size_t>(query.limit));
    EXPECT_EQ(r.more, more);
    EXPECT_EQ(got, want);
  }

  void AddWatcher() {
    if (watched_.size() > 30) return;
    auto w = std::make_unique<Watched>();
    std::tie(w->spec.key, w->spec.range_end) = Interval();
    if (!w->spec.range_end.empty() && w->spec.range_end != kToEnd &&
        w->spec.key >= w->spec.range_end) {
      std::swap(w->spec.key, w->spec.range_end);
      if (w->spec.key == w->spec.range_end) w->spec.range_end = kToEnd;
    }
    if (random_.OneIn(2)) {
      w->spec.start_revision =
          static_cast<int64_t>(random_.Below(static_cast<uint64_t>(model_.current()) + 10));
    }
    w->spec.prev_kv = random_.OneIn(2);
    w->spec.no_put = random_.OneIn(6);
    w->spec.no_delete = random_.OneIn(6);
    w->model = &model_;
    if (random_.OneIn(3)) w->room = static_cast<int>(1 + random_.Below(5));
    w->no_room = random_.OneIn(5);
    const WatcherGroup::Added added = group_->Add(w->spec, w.get(), 1, nullptr);
    EXPECT_EQ(added.current_revision, model_.current());
    w->watcher = added.watcher;
    w->start = w->spec.start_revision == 0 ? model_.current() + 1 : w->spec.start_revision;
    watched_.push_back(std::move(w));
  }

  void Drain() {
    group_->Drain(1 + random_.Below(20));
    CheckWatchers(false);
  }

  void RemoveOrUnblock() {
    if (watched_.empty()) return;
    const size_t i = random_.Below(watched_.size());
    if (random_.OneIn(2)) {
      if (watched_[i]->watcher == nullptr) return;
      watched_[i]->room = static_cast<int>(1 + random_.Below(10));
      watched_[i]->no_room = random_.OneIn(4);
      group_->Unblock(watched_[i]->watcher);
      return;
    }
    if (watched_[i]->watcher != nullptr) group_->Remove(watched_[i]->watcher);
    watched_.erase(watched_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  std::vector<ModelEvent> Expected(const Watched& w) const {
    std::vector<ModelEvent> want;
    for (int64_t r = w.start; r <= model_.current(); ++r) {
      for (const ModelEvent& event : model_.events[static_cast<size_t>(r)]) {
        if (!In(event.kv.key, w.spec.key, w.spec.range_end)) continue;
        if (event.tombstone ? w.spec.no_delete : w.spec.no_put) continue;
        want.push_back(event);
      }
    }
    return want;
  }

  // A change that another one of the same key follows within its revision: a compaction at just
  // that revision takes it away, so a watcher that reads the history later does not see it.
  bool MayBeCompacted(const ModelEvent& event) const {
    if (!compactions_.contains(event.revision)) return false;
    bool met = false;
    for (const ModelEvent& other : model_.events[static_cast<size_t>(event.revision)]) {
      if (met && other.kv.key == event.kv.key) return true;
      met = met || other == event;
    }
    return false;
  }

  void CheckWatchers(bool complete) {
    for (const auto& w : watched_) {
      const std::vector<ModelEvent> want = Expected(*w);
      size_t at = 0;  // in `want`
      for (const ModelEvent& got : w->events) {
        while (at < want.size() && got != want[at] && MayBeCompacted(want[at])) ++at;
        ASSERT_LT(at, want.size());
        ASSERT_EQ(got, want[at++]);
      }
      if (w->compacted >= 0) {
        EXPECT_LE(w->compacted, model_.compacted);
        // It was cancelled for a reason: what it lacks begins below.
        EXPECT_TRUE(w->start < w->compacted);
        if (!w->events.empty()) {
          EXPECT_LT(w->events.back().revision, w->compacted);
        }
      } else if (complete) {
        while (at < want.size() && MayBeCompacted(want[at])) ++at;
        ASSERT_EQ(at, want.size()) << "watcher of " << w->spec.key << " from " << w->start;
        EXPECT_EQ(group_->IsSynced(w->watcher), w->spec.start_revision <= model_.current());
      }
    }
  }

  // Everybody gets everything.
  void Settle() {
    for (const auto& w : watched_) {
      w->room = 1 << 30;
      w->no_room = false;
      if (w->watcher != nullptr) group_->Unblock(w->watcher);
    }
    int rounds = 0;
    while (group_->Drain(1 + random_.Below(50))) {
      ASSERT_LT(++rounds, 100000);
    }
    if (group_->size() > 0) {
      EXPECT_EQ(group_->revision(), model_.current());
    }
    CheckWatchers(true);
    EXPECT_EQ(t_.store->stats().live_keys,
              static_cast<int64_t>(model_.at(model_.current()).size()));
  }

  void Compact() {
    const auto revision =
        static_cast<int64_t>(random_.Below(static_cast<uint64_t>(model_.current()) + 2));
    const absl::Status status = t_.Compact(revision);
    if (revision <= model_.compacted || revision > model_.current()) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kOutOfRange));
      return;
    }
    EXPECT_OK(status);
    model_.compacted = revision;
    compactions_.insert(revision);
    if (random_.OneIn(3)) t_.FinishCompactions();
  }

  // HashKV computed from the model's own idea of the records.
  void Hash() {
    ASSERT_OK_AND_ASSIGN(const HashKv before, t_.store->HashByRevision(0));
    EXPECT_EQ(before.hash_revision, model_.current());
    if (t_.store->stats().compactions_running == 0) return;
    t_.FinishCompactions();
    ASSERT_OK_AND_ASSIGN(const HashKv after, t_.store->HashByRevision(0));
    const bool anything_live = !model_.at(model_.current()).empty();
    const bool stored = after.compact_revision != before.compact_revision;
    if (anything_live && !stored) {
      EXPECT_EQ(before.hash, after.hash);
    }
  }

  void DropGroup() {
    for (const auto& w : watched_) {
      if (w->watcher != nullptr) group_->Remove(w->watcher);
    }
    watched_.clear();
    group_.reset();
  }

  void Restart() {
    DropGroup();
    if (disk_ == nullptr) {
      ASSERT_OK(t_.Reopen());
    } else {
      // Without the power, what is not in the file is gone: the model goes back to where the file
      // is.
      disk_->Crash(random_);
      t_.Close();
      ASSERT_OK(t_.Open());
      const int64_t revision = t_.store->current_revision();
      ASSERT_LE(revision, model_.current());
      model_.Truncate(revision);
      // A compaction that was not durable did not happen; one that was did.
      ASSERT_LE(t_.store->compact_revision(), model_.compacted);
      model_.compacted = t_.store->compact_revision();
      t_.index = t_.backend->consistent_index();
    }
    EXPECT_EQ(t_.store->current_revision(), model_.current());
    EXPECT_EQ(t_.store->compact_revision(), model_.compacted);
    group_ = std::make_unique<WatcherGroup>(*t_.hub, [this] { woken_ = true; });
    RangeResult r;
    std::vector<TestKv> want;
    for (const auto& [k, kv] : model_.at(model_.current())) want.push_back(kv);
    EXPECT_EQ(t_.Get({.key = "a", .range_end = kToEnd}, &r), want);
    std::vector<std::pair<int64_t, std::string>> attached;
    for (const TestKv& kv : want) {
      if (kv.lease != 0) attached.emplace_back(kv.lease, kv.key);
    }
    EXPECT_EQ(t_.store->TakeAttachments(), attached);
  }

  base::SeededRandom random_;
  test_support::MemoryFiles* const disk_;
  ManualClock clock_;
  TestStore t_;
  Model model_;
  std::set<int64_t> compactions_;  // accepted at any time
  std::unique_ptr<WatcherGroup> group_;
  std::vector<std::unique_ptr<Watched>> watched_;
  bool woken_ = false;
};

TEST(StoreModel, RandomHistoriesOnRealFiles) {
  const uint64_t seed = TestSeed();
  for (uint64_t i = 0; i < 5 && !HasFailure(); ++i) {
    SCOPED_TRACE("run " + std::to_string(i));
    History(seed + i, nullptr).Go(700);
  }
}

TEST(StoreModel, RandomHistoriesWithPowerCuts) {
  const uint64_t seed = TestSeed();
  for (uint64_t i = 0; i < 25 && !HasFailure(); ++i) {
    SCOPED_TRACE("run " + std::to_string(i));
    test_support::MemoryFiles disk;
    ASSERT_OK(disk.MakeDirectory("/member", 0700));
    ASSERT_OK(disk.SyncDirectory("/"));
    History(seed + 1000 + i, &disk).Go(700);
  }
}

}  // namespace
}  // namespace mvcc
