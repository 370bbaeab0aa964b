#include "mvcc/interval_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.h"

namespace mvcc {
namespace {

const std::string kFromKey("\0", 1);

uint64_t Seed() {
  const char* given = std::getenv("ENGRAM_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : base::SystemRandom().Next();
  std::cout << "ENGRAM_TEST_SEED=" << seed << "\n";
  return seed;
}

std::vector<int> Hits(const IntervalTree<int>& tree, std::string_view key) {
  std::vector<int> hits;
  tree.Stab(key, [&hits](int value) { hits.push_back(value); });
  EXPECT_EQ(tree.Any(key), !hits.empty());
  return hits;
}

TEST(IntervalTree, FindsSingleKeysRangesAndOpenRanges) {
  IntervalTree<int> tree;
  tree.Add("b", "", 1);
  tree.Add("a", "c", 2);
  tree.Add("b", kFromKey, 3);
  tree.Add("b", "", 4);
  EXPECT_EQ(Hits(tree, "a"), (std::vector<int>{2}));
  EXPECT_EQ(Hits(tree, "b"), (std::vector<int>{1, 4, 2, 3}));
  EXPECT_EQ(Hits(tree, "bb"), (std::vector<int>{2, 3}));
  EXPECT_EQ(Hits(tree, "c"), (std::vector<int>{3}));
  EXPECT_EQ(Hits(tree, ""), (std::vector<int>{}));
  EXPECT_EQ(Hits(tree, std::string("b\0", 2)), (std::vector<int>{2, 3}));
}

TEST(IntervalTree, EmptyIntervalsAreNeverHit) {
  IntervalTree<int> tree;
  tree.Add("b", "a", 1);
  tree.Add("b", "b", 2);
  EXPECT_EQ(tree.size(), 2u);
  for (const char* key : {"", "a", "aa", "b", "c"})
    EXPECT_EQ(Hits(tree, key), (std::vector<int>{}));
}

TEST(IntervalTree, RemovesOnePairOfMany) {
  IntervalTree<int> tree;
  std::vector<IntervalId> ids;
  for (int i = 0; i < 100; ++i) ids.push_back(tree.Add("k", "", i));
  for (int i = 0; i < 100; ++i) {
    if (i % 10 != 3) tree.Remove(ids[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(Hits(tree, "k"), (std::vector<int>{3, 13, 23, 33, 43, 53, 63, 73, 83, 93}));
  for (int i = 3; i < 100; i += 10) tree.Remove(ids[static_cast<size_t>(i)]);
  EXPECT_TRUE(tree.empty());
  EXPECT_EQ(Hits(tree, "k"), (std::vector<int>{}));
}

TEST(IntervalTree, HoldsPointersAndMoves) {
  int watched = 5;
  IntervalTree<int*> tree;
  const IntervalId id = tree.Add("k", "l", &watched);
  IntervalTree<int*> moved = std::move(tree);
  moved.Stab("kk", [](int* value) { ++*value; });
  EXPECT_EQ(watched, 6);
  moved.Remove(id);
  EXPECT_TRUE(moved.empty());
}

TEST(IntervalTree, AgreesWithAListOfIntervals) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(testing::Message() << "ENGRAM_TEST_SEED=" << seed);
  base::SeededRandom random(seed);
  auto random_key = [&random] {
    std::string key;
    for (uint64_t n = random.Below(4); n > 0; --n) key.push_back("\0ab\xff"[random.Below(4)]);
    return key;
  };
  struct Pair {
    std::string key, end;
    int value;
    IntervalId id;
    bool Holds(std::string_view k) const {
      if (end.empty()) return k == key;
      return k >= key && (end == kFromKey || k < end);
    }
    auto Order() const {
      return std::tuple(end.empty() ? 0 : 1, end.empty() ? "" : key, end == kFromKey, end);
    }
  };
  IntervalTree<int> tree;
  std::vector<Pair> pairs;  // in order of addition
  size_t most = 40;
  for (int step = 0; step < 20000; ++step) {
    if (step % 1000 == 0) most = 1 + random.Below(400);
    if (pairs.size() < most && !random.OneIn(3)) {
      Pair pair{random_key(), random.OneIn(2) ? "" : random_key(), step, {}};
      if (random.OneIn(6)) pair.end = kFromKey;
      pair.id = tree.Add(pair.key, pair.end, pair.value);
      pairs.push_back(pair);
    } else if (!pairs.empty()) {
      const auto at = pairs.begin() + static_cast<ptrdiff_t>(random.Below(pairs.size()));
      tree.Remove(at->id);
      pairs.erase(at);
    }
    ASSERT_EQ(tree.size(), pairs.size());
    const std::string key = random_key();
    std::vector<Pair> expected;
    std::copy_if(pairs.begin(), pairs.end(), std::back_inserter(expected),
                 [&key](const Pair& pair) { return pair.Holds(key); });
    std::stable_sort(expected.begin(), expected.end(),
                     [](const Pair& a, const Pair& b) { return a.Order() < b.Order(); });
    std::vector<int> values;
    for (const Pair& pair : expected) values.push_back(pair.value);
    ASSERT_EQ(Hits(tree, key), values) << "step " << step;
    if (step % 100 == 0) {
      ASSERT_TRUE(tree.CheckInvariants());
    }
  }
}

// No clock in the assertion: this only shows that neither many keys nor many watchers of one key
// make a removal walk.
TEST(IntervalTree, ServesManyWatchers) {
  IntervalTree<size_t> tree;
  std::vector<IntervalId> ids;
  constexpr size_t kWatchers = 200000;
  for (size_t i = 0; i < kWatchers; ++i) {
    ids.push_back(i % 2 == 0 ? tree.Add("one key", "", i)
                             : tree.Add("key " + std::to_string(i), "", i));
  }
  size_t hits = 0;
  tree.Stab("one key", [&hits](size_t) { ++hits; });
  EXPECT_EQ(hits, kWatchers / 2);
  for (const IntervalId& id : ids) tree.Remove(id);
  EXPECT_TRUE(tree.empty());
  EXPECT_TRUE(tree.CheckInvariants());
}

}  // namespace
}  // namespace mvcc
