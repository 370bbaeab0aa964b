// Everything at once: a writer, readers, watchers, compactions, defragmentations, images and
// hashes, each on its thread. Meant for ThreadSanitizer as much as for the invariants it checks.
#include <condition_variable>
#include <thread>

#include "base/random.h"
#include "mvcc/fixture_for_test.h"

namespace mvcc {
namespace {

using base::IsOk;

constexpr int kPairs = 40;

std::string PairKey(char side, int i) {
  return std::string(1, side) + "/" + std::to_string(100 + i);
}

// Counts what it gets and checks that nothing is missing between revisions.
struct OrderedSink final : WatchSink {
  int64_t last = 0;
  uint64_t events = 0;
  int until_full = 7;
  bool full = false;
  bool cancelled = false;
  bool HasRoom() override { return true; }
  bool OnEvents(Watcher&, const WatchDelivery& delivery) override {
    for (const Event* event : delivery.events) {
      EXPECT_GE(event->mod_revision, last);
      // The writer changes both sides in each revision, and this watches one.
      if (last != 0) {
        EXPECT_EQ(event->mod_revision, last + 1);
      }
      last = event->mod_revision;
      ++events;
      EXPECT_FALSE(event->body.empty());
    }
    full = --until_full == 0;
    return !full;
  }
  void OnCompacted(Watcher&, int64_t) override { cancelled = true; }
  void OnFailed(Watcher&, const absl::Status& status) override { EXPECT_OK(status); }
};

TEST(Concurrency, EverythingAtOnce) {
  TestStore::Setup setup;
  setup.threaded = true;
  setup.batch_interval = std::chrono::milliseconds(3);
  setup.hub.window_revisions = 50;
  setup.store.count_window = 100;
  setup.defragment_step_bytes = 20 << 10;
  TestStore t(std::move(setup));
  ASSERT_OK(t.Open());
  const char* const long_run = std::getenv("ENGRAM_TEST_TRANSACTIONS");
  const int transactions = long_run != nullptr ? std::atoi(long_run) : 20000;
  // All pairs exist, so that counts stay as they are.
  for (int i = 0; i < kPairs; ++i) {
    t.Txn([&](WriteTxn& txn) {
      ASSERT_OK(txn.Put(PairKey('a', i), "0", 0));
      ASSERT_OK(txn.Put(PairKey('b', i), "0", 0));
    });
  }
  // From here on all pairs are there at every revision.
  const int64_t complete = t.store->current_revision();
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  const uint64_t seed = TestSeed();

  threads.emplace_back([&] {  // the apply thread
    base::SeededRandom random(seed);
    for (int n = 0; n < transactions; ++n) {
      const int i = static_cast<int>(random.Below(kPairs));
      const std::string value = std::string(random.Below(400), 'v') + std::to_string(n);
      t.Txn([&](WriteTxn& txn) {
        if (random.OneIn(4)) {
          // Delete and put anew within one revision.
          EXPECT_THAT(txn.DeleteRange(PairKey('b', i), {}), base::IsOkAndHolds(1));
        }
        ASSERT_OK(txn.Put(PairKey('a', i), value, 0));
        ASSERT_OK(txn.Put(PairKey('b', i), value, 0));
      });
      if (n % 200 == 199) {
        EXPECT_OK(t.Compact(t.store->current_revision() - 60));
      }
    }
    over = true;
  });
  for (int reader = 0; reader < 2; ++reader) {
    threads.emplace_back([&, reader] {
      base::SeededRandom random(seed + 10 + static_cast<uint64_t>(reader));
      while (!over) {
        RangeResult r;
        const auto both = t.Get({.key = "a", .range_end = "c"}, &r);
        EXPECT_EQ(r.count, 2 * kPairs);
        EXPECT_EQ(both.size(), size_t{2 * kPairs});
        for (size_t i = 0; i + kPairs < both.size(); ++i) {
          EXPECT_EQ(both[i].value, both[i + kPairs].value);
          EXPECT_EQ(both[i].mod, both[i + kPairs].mod);
        }
        const int i = static_cast<int>(random.Below(kPairs));
        const auto one = t.Get({.key = PairKey('a', i)}, &r);
        ASSERT_EQ(one.size(), 1u);
        const std::string other = PairKey('b', i);
        std::string out;
        const auto again = t.store->Range({.key = other, .revision = r.revision}, &out);
        if (again.ok()) {
          EXPECT_EQ(ParseKvs(out)[0].value, one[0].value);
        }
        out.clear();
        const auto page =
            t.store->Range({.key = "a",
                            .range_end = "c",
                            .limit = 5,
                            .revision = std::max(complete, t.store->current_revision() - 20)},
                           &out);
        if (page.ok()) {
          EXPECT_EQ(page->count, 2 * kPairs);
        }
      }
    });
  }
  for (int loop = 0; loop < 2; ++loop) {
    threads.emplace_back([&, loop] {  // an I/O loop with watchers
      std::mutex mutex;
      std::condition_variable wake;
      bool woken = false;
      WatcherGroup group(*t.hub, [&] {
        std::lock_guard lock(mutex);
        woken = true;
        wake.notify_one();
      });
      std::vector<std::unique_ptr<OrderedSink>> sinks;
      std::vector<Watcher*> watchers;
      for (int i = 0; i < 20; ++i) {
        auto sink = std::make_unique<OrderedSink>();
        if (i % 2 == 0) sink->until_full = 1 << 30;
        WatchSpec spec;
        spec.key = "a";
        spec.range_end = "b";
        spec.prev_kv = i % 3 == 0;
        spec.start_revision = i % 4 == 0 ? 0 : t.store->current_revision();
        watchers.push_back(group.Add(spec, sink.get(), i, nullptr).watcher);
        sinks.push_back(std::move(sink));
      }
      while (true) {
        const bool last_round = over;
        while (group.Drain(100)) {
        }
        for (size_t i = 0; i < sinks.size(); ++i) {
          if (sinks[i]->cancelled) {
            watchers[i] = nullptr;
          } else if (sinks[i]->full) {
            sinks[i]->full = false;
            sinks[i]->until_full = loop == 0 ? 5 : 50;
            group.Unblock(watchers[i]);
          }
        }
        if (last_round && !group.Drain()) {
          bool all = true;
          for (const auto& sink : sinks) {
            all = all && (sink->cancelled || sink->last == t.store->current_revision());
          }
          if (all) break;
        }
        std::unique_lock lock(mutex);
        wake.wait_for(lock, std::chrono::milliseconds(1), [&] { return woken; });
        woken = false;
      }
      for (Watcher* watcher : watchers) {
        if (watcher != nullptr) group.Remove(watcher);
      }
    });
  }
  threads.emplace_back([&] {  // maintenance
    while (!over) {
      EXPECT_OK(t.backend->Defragment());
      EXPECT_OK(t.store->HashByRevision(0));
      EXPECT_OK(t.backend->Hash());
      const auto image = t.backend->Image();
      ASSERT_OK(image);
      std::string bytes((*image)->size_bytes(), '\0');
      EXPECT_OK((*image)->Read(0, bytes.data(), bytes.size()));
      t.backend->sizes();
      t.store->stats();
      t.hub->stats();
    }
  });
  for (std::thread& thread : threads) thread.join();
  const int64_t revision = t.store->current_revision();
  std::string before;
  ASSERT_OK(t.store->Range({.key = "a", .range_end = "c"}, &before));
  ASSERT_OK(t.Reopen());
  EXPECT_EQ(t.store->current_revision(), revision);
  std::string after;
  ASSERT_OK(t.store->Range({.key = "a", .range_end = "c"}, &after));
  EXPECT_EQ(before, after);
}

}  // namespace
}  // namespace mvcc
