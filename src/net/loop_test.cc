#include "net/loop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <thread>

#include "base/random.h"

namespace net {
namespace {

using std::chrono::milliseconds;

TEST(Loop, RunsPostedTasksInOrder) {
  Loop loop;
  std::vector<int> order;
  loop.Post([&] {
    order.push_back(1);
    loop.Post([&] { order.push_back(3); });
  });
  loop.Post([&] { order.push_back(2); });
  loop.RunOnce(base::Duration::zero());
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  loop.RunOnce(base::Duration::max());
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(Loop, TryPostRefusesAtTheBound) {
  Loop loop;
  EXPECT_TRUE(loop.TryPost([] {}, 2));
  EXPECT_TRUE(loop.TryPost([] {}, 2));
  EXPECT_FALSE(loop.TryPost([] {}, 2));
  loop.RunOnce(base::Duration::zero());
  EXPECT_TRUE(loop.TryPost([] {}, 2));
}

TEST(Loop, WakesForPostsOfOtherThreads) {
  LoopPool pool(2);
  std::atomic<int> count{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 1000; ++i) pool.at(static_cast<size_t>(t) % 2).Post([&] { ++count; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 2; ++i) {
    std::promise<void> done;
    pool.at(i).Post([&] { done.set_value(); });
    done.get_future().wait();
  }
  EXPECT_EQ(count, 4000);
}

TEST(Loop, KnowsItsThread) {
  LoopPool pool(1);
  std::promise<bool> inside;
  pool.at(0).Post([&] { inside.set_value(pool.at(0).InLoopThread()); });
  EXPECT_TRUE(inside.get_future().get());
  EXPECT_FALSE(pool.at(0).InLoopThread());
}

TEST(Loop, FiresTimersInOrderOfTheirTimes) {
  Loop loop;
  std::vector<int> fired;
  loop.RunAfter(milliseconds(3), [&] { fired.push_back(3); });
  loop.RunAfter(milliseconds(1), [&] { fired.push_back(1); });
  TimerId cancelled = loop.RunAfter(milliseconds(2), [&] { fired.push_back(2); });
  loop.Cancel(&cancelled);
  EXPECT_EQ(cancelled.generation, 0U);
  while (fired.size() < 2) loop.RunOnce(base::Duration::max());
  EXPECT_EQ(fired, (std::vector<int>{1, 3}));
}

TEST(Loop, CancelOfAFiredTimerDoesNotHitTheNextOneInItsSlot) {
  Loop loop;
  int fired = 0;
  TimerId first = loop.RunAfter(base::Duration::zero(), [&] { ++fired; });
  while (fired == 0) loop.RunOnce(base::Duration::max());
  loop.RunAfter(base::Duration::zero(), [&] { ++fired; });
  loop.Cancel(&first);
  while (fired == 1) loop.RunOnce(base::Duration::max());
  EXPECT_EQ(fired, 2);
}

TEST(Loop, KeepsTheTimerHeapInOrderUnderRandomUse) {
  const char* given = std::getenv("ENGRAM_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : base::SystemRandom().Next();
  SCOPED_TRACE(testing::Message() << "ENGRAM_TEST_SEED=" << seed);
  base::SeededRandom random(seed);
  Loop loop;
  std::vector<TimerId> ids;
  size_t live = 0;
  size_t fired = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto us = static_cast<int64_t>(random.Below(20000));
    ids.push_back(loop.RunAfter(std::chrono::microseconds(us), [&] { ++fired; }));
    ++live;
    if (random.OneIn(3)) {
      TimerId& victim = ids[random.Below(ids.size())];
      if (victim.generation != 0) --live;
      loop.Cancel(&victim);
    }
  }
  while (fired < live) loop.RunOnce(base::Duration::max());
  EXPECT_EQ(fired, live);
}

struct CountingHook final : TurnEndHook {
  void OnTurnEnd() override { ++count; }
  int count = 0;
};

TEST(Loop, RunsAHookOncePerTurnAfterTheTasks) {
  Loop loop;
  CountingHook hook;
  CountingHook removed;
  bool early = false;
  for (int i = 0; i < 3; ++i) {
    loop.Post([&] {
      early |= hook.count != 0;
      loop.AtTurnEnd(&hook);
      loop.AtTurnEnd(&removed);
      loop.RemoveTurnEndHook(&removed);
    });
  }
  loop.RunOnce(base::Duration::zero());
  EXPECT_FALSE(early);
  EXPECT_EQ(hook.count, 1);
  EXPECT_EQ(removed.count, 0);
}

TEST(Loop, DestroysWhatIsLeftInTheQueue) {
  auto alive = std::make_shared<int>(1);
  {
    Loop loop;
    loop.Post([alive] {});
    loop.Defer([alive] {});
    loop.RunAfter(std::chrono::hours(1), [alive] {});
  }
  EXPECT_EQ(alive.use_count(), 1);
}

struct PipeWatcher final : FdWatcher {
  void OnFdReady(bool readable, bool, bool) override { readable_count += readable ? 1 : 0; }
  int readable_count = 0;
};

TEST(Loop, ReportsReadableDescriptors) {
  Loop loop;
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  PipeWatcher watcher;
  ASSERT_TRUE(loop.AddFd(fds[0], &watcher, true, false).ok());
  loop.RunOnce(base::Duration::zero());
  EXPECT_EQ(watcher.readable_count, 0);
  ASSERT_EQ(::write(fds[1], "x", 1), 1);
  loop.RunOnce(base::Duration::max());
  EXPECT_EQ(watcher.readable_count, 1);
  loop.RemoveFd(fds[0], &watcher);
  loop.RunOnce(base::Duration::zero());
  EXPECT_EQ(watcher.readable_count, 1);
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST(Mailbox, DrainsInBatchesAndRefusesWhenFull) {
  Loop loop;
  std::vector<std::vector<int>> batches;
  Mailbox<int> mailbox(loop, 3, [&](std::vector<int>& items) { batches.push_back(items); });
  EXPECT_TRUE(mailbox.Push(1));
  EXPECT_TRUE(mailbox.Push(2));
  EXPECT_TRUE(mailbox.Push(3));
  EXPECT_FALSE(mailbox.Push(4));
  loop.RunOnce(base::Duration::zero());
  EXPECT_TRUE(mailbox.Push(5));
  loop.RunOnce(base::Duration::zero());
  EXPECT_EQ(batches, (std::vector<std::vector<int>>{{1, 2, 3}, {5}}));
}

TEST(Mailbox, MayGoBeforeItsItemsArrive) {
  Loop loop;
  int drained = 0;
  {
    Mailbox<int> mailbox(loop, 3, [&](std::vector<int>&) { ++drained; });
    EXPECT_TRUE(mailbox.Push(1));
  }
  loop.RunOnce(base::Duration::zero());
  EXPECT_EQ(drained, 0);
}

}  // namespace
}  // namespace net
