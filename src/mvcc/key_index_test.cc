#include "mvcc/key_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "mvcc/revision.h"

namespace mvcc {

void PrintTo(const Change& change, std::ostream* out) {
  *out << change.revision.main << "." << change.revision.sub << (change.tombstone ? "T" : "")
       << "(created " << change.created << ", version " << change.version << ")";
}
void PrintTo(const KeyState& state, std::ostream* out) {
  *out << state.mod.main << "." << state.mod.sub << "(created " << state.created << ", version "
       << state.version << ")";
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::string kFromKey("\0", 1);
constexpr size_t kAll = std::numeric_limits<size_t>::max();

uint64_t Seed() {
  const char* given = std::getenv("ENGRAM_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : base::SystemRandom().Next();
  std::cout << "ENGRAM_TEST_SEED=" << seed << "\n";
  return seed;
}

// A key's changes as in the comment of key_index.h, without the generations.
std::string Shown(const KeyIndex& index, std::string_view key) {
  std::string text;
  for (const Change& change : index.History(key)) {
    if (!text.empty()) text += ' ';
    text += std::to_string(change.revision.main);
    if (change.revision.sub != 0) text += '.' + std::to_string(change.revision.sub);
    if (change.tombstone) text += 'T';
  }
  return text;
}

// Compacts everything and returns the dropped changes, shown the same way.
std::string CompactAll(KeyIndex& index, int64_t at, size_t slice_max = kAll) {
  std::string dropped;
  KeyIndex::Slice slice{false, ""};
  while (!slice.done) {
    slice = index.Compact(at, slice.resume_key, slice_max,
                          [&dropped](const RevisionKey& key, bool kept) {
                            if (kept) return;
                            if (!dropped.empty()) dropped += ' ';
                            dropped += std::to_string(key.revision.main);
                            if (key.revision.sub != 0)
                              dropped += '.' + std::to_string(key.revision.sub);
                            if (key.tombstone) dropped += 'T';
                          });
  }
  return dropped;
}

using State = std::optional<KeyState>;

TEST(Revision, StorageKeysHaveEtcdsForm) {
  EXPECT_EQ(EncodeRevisionKey({2, 0}), std::string("\0\0\0\0\0\0\0\2_\0\0\0\0\0\0\0\0", 17));
  EXPECT_EQ(EncodeRevisionKey({4, 1}, true), std::string("\0\0\0\0\0\0\0\4_\0\0\0\0\0\0\0\1t", 18));
  const Revision big{std::numeric_limits<int64_t>::max(), 7};
  EXPECT_EQ(ParseRevisionKey(EncodeRevisionKey(big)), (RevisionKey{big, false}));
  EXPECT_EQ(ParseRevisionKey(RevisionKeyBytes(big, true).view()), (RevisionKey{big, true}));
}

TEST(Revision, OtherBytesAreNotStorageKeys) {
  const std::string good = EncodeRevisionKey({2, 3}, true);
  for (size_t size = 0; size < 17; ++size)
    EXPECT_EQ(ParseRevisionKey(good.substr(0, size)), std::nullopt);
  EXPECT_EQ(ParseRevisionKey(good + "t"), std::nullopt);
  for (const size_t at : {0, 8, 9, 17}) {
    std::string bad = good;
    bad[at] = '\xff';
    EXPECT_EQ(ParseRevisionKey(bad), std::nullopt) << at;
  }
}

TEST(KeyIndex, FollowsTheWorkedExample) {
  KeyIndex index;
  index.Put("a", {2, 0});
  index.Put("a", {3, 0});
  index.Put("b", {4, 0});
  index.Tombstone("a", {5, 0});
  index.Put("a", {5, 1});
  index.Put("a", {6, 0});
  index.Tombstone("b", {7, 0});
  index.Put("c", {8, 0});
  EXPECT_EQ(Shown(index, "a"), "2 3 5T 5.1 6");
  EXPECT_EQ(Shown(index, "b"), "4 7T");
  EXPECT_EQ(Shown(index, "c"), "8");
  EXPECT_EQ(index.Get("a", 4), (State{{2, {3, 0}, 2}}));
  EXPECT_EQ(index.Get("a", 5), (State{{5, {5, 1}, 1}}));
  EXPECT_EQ(index.Get("b", 6), (State{{4, {4, 0}, 1}}));
  EXPECT_EQ(index.Get("b", 7), std::nullopt);

  EXPECT_EQ(CompactAll(index, 4), "2");
  EXPECT_EQ(Shown(index, "a"), "3 5T 5.1 6");
  EXPECT_EQ(Shown(index, "b"), "4 7T");
  EXPECT_EQ(index.Get("a", 4), (State{{2, {3, 0}, 2}}));

  EXPECT_EQ(CompactAll(index, 5), "3 5T");
  EXPECT_EQ(Shown(index, "a"), "5.1 6");

  EXPECT_EQ(CompactAll(index, 7), "5.1 4");
  EXPECT_EQ(Shown(index, "a"), "6");
  EXPECT_EQ(index.Get("a", 7), (State{{5, {6, 0}, 2}}));
  EXPECT_EQ(Shown(index, "b"), "7T");
  EXPECT_EQ(index.keys(), 3u);

  EXPECT_EQ(CompactAll(index, 8), "7T");
  EXPECT_EQ(Shown(index, "a"), "6");
  EXPECT_EQ(Shown(index, "b"), "");
  EXPECT_EQ(Shown(index, "c"), "8");
  EXPECT_EQ(index.keys(), 2u);
}

TEST(KeyIndex, PutAndTombstoneReturnWhatWasLive) {
  KeyIndex index;
  EXPECT_EQ(index.Tombstone("k", {2, 0}), std::nullopt);
  EXPECT_EQ(index.keys(), 0u);
  KeyIndex::PutResult put = index.Put("k", {2, 0});
  EXPECT_EQ(put.state, (KeyState{2, {2, 0}, 1}));
  EXPECT_EQ(put.previous, std::nullopt);
  put = index.Put("k", {3, 4});
  EXPECT_EQ(put.state, (KeyState{2, {3, 4}, 2}));
  EXPECT_EQ(put.previous, (State{{2, {2, 0}, 1}}));
  EXPECT_EQ(index.Tombstone("k", {4, 0}), (State{{2, {3, 4}, 2}}));
  EXPECT_EQ(index.Tombstone("k", {5, 0}), std::nullopt);
  EXPECT_EQ(Shown(index, "k"), "2 3.4 4T");
  put = index.Put("k", {5, 0});
  EXPECT_EQ(put.state, (KeyState{5, {5, 0}, 1}));
  EXPECT_EQ(put.previous, std::nullopt);
  EXPECT_EQ(index.live_keys(), 1u);
}

TEST(KeyIndex, SeveralChangesInOneTransactionCountOneByOne) {
  KeyIndex index;
  for (int64_t sub = 0; sub < 3; ++sub) index.Put("k", {2, sub});
  EXPECT_EQ(index.Get("k", 2), (State{{2, {2, 2}, 3}}));
  EXPECT_EQ(index.Get("k", 1), std::nullopt);
  EXPECT_EQ(CompactAll(index, 2), "2 2.1");
  EXPECT_EQ(index.Get("k", 2), (State{{2, {2, 2}, 3}}));
}

TEST(KeyIndex, IntervalsFollowTheRequestsRules) {
  KeyIndex index;
  int64_t main = 2;
  for (const char* key : {"", "a", "ab", "b", "c"}) index.Put(key, {main++, 0});
  index.Tombstone("b", {main, 0});
  auto keys = [&index](std::string_view key, std::string_view end, int64_t at) {
    std::vector<std::string> found;
    const KeyIndex::Slice slice =
        index.Visit(key, end, at, kAll, [&found](std::string_view k, const KeyState&) {
          found.emplace_back(k);
          return true;
        });
    EXPECT_TRUE(slice.done);
    size_t count = 0;
    EXPECT_TRUE(index.CountAt(key, end, at, kAll, &count).done);
    EXPECT_EQ(count, found.size());
    if (at == KeyIndex::kNow) {
      EXPECT_EQ(index.CountNow(key, end), found.size());
    }
    return found;
  };
  EXPECT_THAT(keys("a", "", KeyIndex::kNow), ElementsAre("a"));
  EXPECT_THAT(keys("b", "", KeyIndex::kNow), IsEmpty());
  EXPECT_THAT(keys("b", "", 6), ElementsAre("b"));
  EXPECT_THAT(keys("x", "", KeyIndex::kNow), IsEmpty());
  EXPECT_THAT(keys("a", "c", KeyIndex::kNow), ElementsAre("a", "ab"));
  EXPECT_THAT(keys("a", "c", 6), ElementsAre("a", "ab", "b"));
  EXPECT_THAT(keys("a", "c", 3), ElementsAre("a"));
  EXPECT_THAT(keys("ab", kFromKey, KeyIndex::kNow), ElementsAre("ab", "c"));
  EXPECT_THAT(keys(kFromKey, kFromKey, KeyIndex::kNow), ElementsAre("a", "ab", "c"));
  EXPECT_THAT(keys("", kFromKey, KeyIndex::kNow), ElementsAre("", "a", "ab", "c"));
  EXPECT_THAT(keys("", "", KeyIndex::kNow), ElementsAre(""));
  EXPECT_THAT(keys("c", "a", KeyIndex::kNow), IsEmpty());
  EXPECT_THAT(keys("a", "a", KeyIndex::kNow), IsEmpty());
}

TEST(KeyIndex, AnEmptyIndexAnswers) {
  KeyIndex index;
  EXPECT_EQ(index.Get("k", KeyIndex::kNow), std::nullopt);
  EXPECT_EQ(index.CountNow("", kFromKey), 0u);
  EXPECT_EQ(index.CountNow("a", "b"), 0u);
  EXPECT_EQ(CompactAll(index, 100), "");
  EXPECT_TRUE(index.CheckInvariants().ok());
  EXPECT_EQ(index.Get({}, KeyIndex::kNow), std::nullopt);
}

TEST(KeyIndex, RestoredKeysCountOnFromTheirFirstRecord) {
  KeyIndex index;
  ASSERT_TRUE(index.RestorePut("k", 5, {9, 1}, 4).ok());
  ASSERT_TRUE(index.RestorePut("k", 5, {11, 0}, 5).ok());
  EXPECT_EQ(index.Get("k", 10), (State{{5, {9, 1}, 4}}));
  EXPECT_EQ(index.Get("k", 11), (State{{5, {11, 0}, 5}}));
  ASSERT_TRUE(index.RestoreTombstone("t", {12, 0}).ok());
  ASSERT_TRUE(index.RestorePut("t", 13, {13, 0}, 1).ok());
  EXPECT_EQ(Shown(index, "t"), "12T 13");
  EXPECT_EQ(index.Get("t", 13), (State{{13, {13, 0}, 1}}));
  EXPECT_EQ(index.live_keys(), 2u);
}

TEST(KeyIndex, RecordsOutOfOrderAreDataLoss) {
  KeyIndex index;
  ASSERT_TRUE(index.RestorePut("k", 5, {5, 1}, 1).ok());
  EXPECT_EQ(index.RestorePut("k", 5, {5, 1}, 2).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(index.RestoreTombstone("k", {5, 0}).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Shown(index, "k"), "5.1");

  std::vector<KeyIndexLoader::Shard> shards(2);
  shards[0].Put("a", 1, {1, 0}, 1, 0);
  shards[0].Put("k", 5, {5, 0}, 1, 0);
  shards[1].Tombstone("k", {5, 0});
  const auto loaded = KeyIndexLoader::Build(std::move(shards), [](std::string_view, int64_t) {});
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kDataLoss);
}

// What a damaged or strange file may hold must come out as it went in.
TEST(KeyIndex, AnyStoredNumbersAreKept) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  KeyIndex index;
  ASSERT_TRUE(index.RestorePut("a", kMin, {kMax, kMax}, kMax).ok());
  ASSERT_TRUE(index.RestorePut("b", kMax, {0, 0}, kMin).ok());
  ASSERT_TRUE(index.RestorePut("b", 0, {kMax - 1, kMax}, 0).ok());
  ASSERT_TRUE(index.RestorePut("c", 7, {3, 0}, kMax).ok());
  ASSERT_TRUE(index.RestorePut("c", 7, {4, 0}, kMax).ok());
  EXPECT_EQ(index.Get("a", kMax), (State{{kMin, {kMax, kMax}, kMax}}));
  EXPECT_EQ(index.Get("b", 5), (State{{kMax, {0, 0}, kMin}}));
  EXPECT_EQ(index.Get("b", kMax), (State{{kMax, {kMax - 1, kMax}, kMin + 1}}));
  EXPECT_EQ(index.Get("c", 4), (State{{7, {4, 0}, kMin}}));
  EXPECT_EQ(CompactAll(index, kMax - 1), "0 3");
  EXPECT_EQ(index.Get("b", kMax), (State{{kMax, {kMax - 1, kMax}, kMin + 1}}));
  EXPECT_TRUE(index.CheckInvariants().ok());
}

TEST(KeyIndex, AHotKeyStaysCheap) {
  constexpr int64_t kPuts = 300000;
  KeyIndex index;
  for (int64_t main = 2; main < 2 + kPuts; ++main) index.Put("hot", {main, 0});
  EXPECT_LT(index.memory_bytes(), static_cast<size_t>(kPuts) * 8);
  for (int64_t main : {int64_t{2}, int64_t{65}, int64_t{66}, int64_t{67}, kPuts / 2, kPuts}) {
    EXPECT_EQ(index.Get("hot", main), (State{{2, {main, 0}, main - 1}}));
  }
  // Slices stay short within the one history, and each change is told once.
  std::vector<int64_t> dropped;
  KeyIndex::Slice slice{false, ""};
  size_t slices = 0;
  size_t kept = 0;
  for (; !slice.done; ++slices) {
    size_t in_slice = 0;
    slice =
        index.Compact(kPuts - 10, slice.resume_key, 1000, [&](const RevisionKey& key, bool keep) {
          ++in_slice;
          if (keep) {
            ++kept;
            EXPECT_EQ(key.revision.main, kPuts - 10);
          } else {
            dropped.push_back(key.revision.main);
          }
        });
    EXPECT_LE(in_slice, 1001u);
    EXPECT_EQ(index.Get("hot", kPuts - 10), (State{{2, {kPuts - 10, 0}, kPuts - 11}}));
  }
  EXPECT_EQ(kept, 1u);
  EXPECT_GE(slices, 299u);
  ASSERT_EQ(dropped.size(), static_cast<size_t>(kPuts - 12));
  for (size_t i = 0; i < dropped.size(); ++i) ASSERT_EQ(dropped[i], static_cast<int64_t>(i) + 2);
  EXPECT_EQ(index.History("hot").size(), 12u);
  EXPECT_TRUE(index.CheckInvariants().ok());
  EXPECT_EQ(CompactAll(index, kPuts + 1).size(), std::string("299990 ").size() * 11 - 1);
  EXPECT_EQ(index.Get("hot", kPuts + 1), (State{{2, {kPuts + 1, 0}, kPuts}}));
}

TEST(KeyIndex, AscendingKeysFillTheLeaves) {
  KeyIndex index;
  constexpr int kKeys = 50000;
  size_t bytes_of_keys = 0;
  // Two ascending sequences side by side.
  for (int i = 0; i < kKeys; ++i) {
    char key[40];
    std::snprintf(key, sizeof key, "/registry/%s/%020d", i % 2 == 0 ? "events" : "leases", i);
    bytes_of_keys += std::string_view(key).size();
    index.Put(key, {2 + i, 0});
  }
  EXPECT_TRUE(index.CheckInvariants().ok());
  EXPECT_LT(index.memory_bytes(), bytes_of_keys);
  EXPECT_EQ(index.CountNow("/registry/events/", "/registry/events0"), size_t{kKeys / 2});
}

TEST(KeyIndex, LongKeysAndBrokenPrefixesAreKept) {
  KeyIndex index;
  std::map<std::string, int64_t> expected;
  int64_t main = 2;
  auto put = [&](const std::string& key) {
    index.Put(key, {main, 0});
    expected[key] = main++;
    ASSERT_TRUE(index.CheckInvariants().ok());
  };
  for (const size_t size : {3, 250, 254, 255, 256, 259, 260, 261, 500, 516, 5000, 100000}) {
    for (const char* end : {"", "x", "y", "zz"}) put(std::string(size, 'p') + end);
  }
  // A leaf that shares much meets a key that shares nothing.
  for (int i = 0; i < 60; ++i) put(std::string(300, 'q') + std::to_string(i));
  put("q");
  put(std::string(150, 'q') + "zzz");
  put("");
  for (const auto& [key, at] : expected)
    EXPECT_EQ(index.Get(key, KeyIndex::kNow), (State{{at, {at, 0}, 1}}));
  std::vector<std::string> found;
  index.Visit("", kFromKey, KeyIndex::kNow, kAll, [&found](std::string_view key, const KeyState&) {
    found.emplace_back(key);
    return true;
  });
  std::vector<std::string> all;
  for (const auto& [key, at] : expected) all.push_back(key);
  EXPECT_EQ(found, all);
  for (const auto& [key, at] : expected) index.Tombstone(key, {main++, 0});
  CompactAll(index, main);
  EXPECT_EQ(index.keys(), 0u);
  EXPECT_EQ(index.memory_bytes(), KeyIndex().memory_bytes());
}

TEST(KeyIndex, AWalkGoesOnWhereItStoppedWhileTheIndexChanges) {
  KeyIndex index;
  int64_t main = 2;
  auto name = [](int i) { return "key" + std::to_string(100000 + i); };
  for (int i = 0; i < 2000; i += 2) index.Put(name(i), {main++, 0});
  const int64_t at = main - 1;
  std::vector<std::string> found;
  KeyIndex::Slice slice{false, ""};
  int next = 1;
  while (!slice.done) {
    slice = index.Visit(slice.resume_key, kFromKey, at, 7,
                        [&found](std::string_view key, const KeyState&) {
                          found.emplace_back(key);
                          return found.size() % 5 != 0;  // at times it stops by itself
                        });
    // New keys before and behind, old ones deleted: none of this belongs to revision `at`.
    for (int i = 0; i < 20; ++i, next = (next + 2 * 37) % 2000) index.Put(name(next), {main++, 0});
    index.Tombstone(name((next - 1) / 2 * 2), {main++, 0});
  }
  ASSERT_EQ(found.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(found[static_cast<size_t>(i)], name(2 * i));
}

TEST(KeyIndexLoader, ReportsLeasesOfLiveKeysOnly) {
  std::vector<KeyIndexLoader::Shard> shards(2);
  shards[0].Put("attached", 2, {2, 0}, 1, 77);
  shards[0].Put("deleted", 2, {2, 1}, 1, 77);
  shards[0].Put("detached", 2, {2, 2}, 1, 77);
  shards[0].Put("moved", 2, {2, 3}, 1, 77);
  shards[1].Tombstone("deleted", {3, 0});
  shards[1].Put("detached", 2, {4, 0}, 2, 0);
  shards[1].Put("moved", 2, {5, 0}, 2, 78);
  std::vector<std::pair<std::string, int64_t>> attached;
  const auto index = KeyIndexLoader::Build(
      std::move(shards),
      [&](std::string_view key, int64_t lease) { attached.emplace_back(key, lease); });
  ASSERT_TRUE(index.ok());
  EXPECT_THAT(attached, ElementsAre(std::pair("attached", 77), std::pair("moved", 78)));
  EXPECT_EQ(index->live_keys(), 3u);
}

TEST(KeyIndexLoader, BuildsNothingOfNothing) {
  const auto none = KeyIndexLoader::Build({}, [](std::string_view, int64_t) {});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->keys(), 0u);
  EXPECT_TRUE(none->CheckInvariants().ok());
}

// The plainest implementation that can be right.
class Model {
 public:
  std::map<std::string, std::vector<Change>> histories;

  std::optional<KeyState> Get(const std::string& key, int64_t at) const {
    const auto found = histories.find(key);
    return found == histories.end() ? std::nullopt : At(found->second, at);
  }
  static std::optional<KeyState> At(const std::vector<Change>& changes, int64_t at) {
    const Change* newest = nullptr;
    for (const Change& change : changes) {
      if (change.revision.main <= at) newest = &change;
    }
    if (newest == nullptr || newest->tombstone) return std::nullopt;
    return KeyState{newest->created, newest->revision, newest->version};
  }
  void Put(const std::string& key, Revision revision) {
    const std::optional<KeyState> now = Get(key, KeyIndex::kNow);
    histories[key].push_back(
        {revision, false, now ? now->created : revision.main, now ? now->version + 1 : 1});
  }
  bool Tombstone(const std::string& key, Revision revision) {
    if (!Get(key, KeyIndex::kNow)) return false;
    histories[key].push_back({revision, true, 0, 0});
    return true;
  }
  // Returns (dropped, kept) of all changes with main <= at.
  std::pair<std::vector<Revision>, std::vector<Revision>> Compact(int64_t at) {
    std::pair<std::vector<Revision>, std::vector<Revision>> result;
    for (auto it = histories.begin(); it != histories.end();) {
      std::vector<Change>& changes = it->second;
      size_t below = 0;
      while (below < changes.size() && changes[below].revision.main <= at) ++below;
      if (below > 0) {
        const Change& newest = changes[below - 1];
        const size_t drop = newest.tombstone && newest.revision.main < at ? below : below - 1;
        for (size_t i = 0; i < below; ++i)
          (i < drop ? result.first : result.second).push_back(changes[i].revision);
        changes.erase(changes.begin(), changes.begin() + static_cast<ptrdiff_t>(drop));
      }
      it = changes.empty() ? histories.erase(it) : std::next(it);
    }
    return result;
  }
  static bool In(const std::string& k, const std::string& key, const std::string& end) {
    if (end.empty()) return k == key;
    return k >= key && (end == kFromKey || k < end);
  }
  std::vector<std::pair<std::string, KeyState>> Range(const std::string& key,
                                                      const std::string& end, int64_t at) const {
    std::vector<std::pair<std::string, KeyState>> found;
    for (const auto& [k, changes] : histories) {
      if (!In(k, key, end)) continue;
      if (const std::optional<KeyState> state = At(changes, at)) found.emplace_back(k, *state);
    }
    return found;
  }
};

// Keys of several shapes, few enough to meet again.
class Keys {
 public:
  Keys(base::Random& random, uint64_t most) : random_(random), most_(most) {}
  std::string Next() {
    const uint64_t n = random_.Below(most_);
    switch (n % 8) {
      case 0:
        return "/registry/pods/namespace-" + std::to_string(n % 5) + "/pod-" + std::to_string(n);
      case 1:
        return "/registry/leases/kube-node-lease/node" + std::to_string(n);
      case 2:
        return std::string(n % 40, '\0');
      case 3:
        return std::string(n % 700, 'x') + std::to_string(n);
      case 4:
        return std::string(reinterpret_cast<const char*>(&n), 3);
      case 5:
        return "/registry/pods/namespace-1" + std::string(n % 3, '\xff') +
               std::to_string(n * 7919 % 1000);
      case 6:
        return std::to_string(n);
      default:
        return n % 16 == 7 ? "" : std::string(1, static_cast<char>(n / 8));
    }
  }

 private:
  base::Random& random_;
  const uint64_t most_;
};

class KeyIndexModel : public ::testing::TestWithParam<int> {
 protected:
  // Compares everything that a reader could ask at `at`.
  void CompareRange(const std::string& key, const std::string& end, int64_t at) {
    const auto expected = model_.Range(key, end, at);
    std::vector<std::pair<std::string, KeyState>> found;
    KeyIndex::Slice slice{false, key};
    while (!slice.done) {
      slice = index_.Visit(slice.resume_key, end, at, 1 + random_.Below(300),
                           [&](std::string_view k, const KeyState& state) {
                             found.emplace_back(k, state);
                             return !random_.OneIn(50);
                           });
    }
    ASSERT_EQ(found, expected);
    size_t count = 0;
    slice = {false, key};
    while (!slice.done)
      slice = index_.CountAt(slice.resume_key, end, at, 1 + random_.Below(300), &count);
    ASSERT_EQ(count, expected.size());
    if (at == KeyIndex::kNow) {
      ASSERT_EQ(index_.CountNow(key, end), expected.size());
    }
  }

  void CompareNewest(int64_t at) {
    std::vector<RevisionKey> expected;
    for (const auto& [k, changes] : model_.histories) {
      const Change* newest = nullptr;
      for (const Change& change : changes) {
        if (change.revision.main <= at) newest = &change;
      }
      if (newest != nullptr) expected.push_back({newest->revision, newest->tombstone});
    }
    std::vector<RevisionKey> found;
    KeyIndex::Slice slice{false, ""};
    while (!slice.done) {
      slice = index_.VisitNewest(at, slice.resume_key, 1 + random_.Below(100),
                                 [&found](const RevisionKey& key) { found.push_back(key); });
    }
    ASSERT_EQ(found, expected);
  }

  void CompareHistories() {
    ASSERT_EQ(index_.keys(), model_.histories.size());
    for (const auto& [key, changes] : model_.histories)
      ASSERT_EQ(index_.History(key), changes) << key;
    const absl::Status status = index_.CheckInvariants();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  void CompactInSlices() {
    const int64_t at =
        compacted_ +
        static_cast<int64_t>(random_.Below(static_cast<uint64_t>(main_ - compacted_) + 1));
    const auto [dropped, kept] = model_.Compact(at);
    std::vector<Revision> index_dropped;
    std::vector<Revision> index_kept;
    KeyIndex::Slice slice{false, ""};
    const size_t most = 1 + random_.Below(200);
    while (!slice.done) {
      slice = index_.Compact(at, slice.resume_key, most, [&](const RevisionKey& key, bool keep) {
        (keep ? index_kept : index_dropped).push_back(key.revision);
      });
    }
    ASSERT_EQ(index_dropped, dropped);
    ASSERT_EQ(index_kept, kept);
    compacted_ = at;
    CompareHistories();
  }

  // Writes the index to records, as a file would hold them, and reads them back in both ways.
  void Reload() {
    struct Record {
      std::string key;
      Change change;
    };
    std::vector<Record> records;
    for (const auto& [key, changes] : model_.histories) {
      for (const Change& change : changes) records.push_back({key, change});
    }
    std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) {
      return a.change.revision < b.change.revision;
    });
    KeyIndex one_by_one;
    std::vector<KeyIndexLoader::Shard> shards(1 + random_.Below(4));
    for (size_t i = 0; i < records.size(); ++i) {
      const auto& [key, change] = records[i];
      KeyIndexLoader::Shard& shard = shards[i * shards.size() / records.size()];
      if (change.tombstone) {
        ASSERT_TRUE(one_by_one.RestoreTombstone(key, change.revision).ok());
        shard.Tombstone(key, change.revision);
      } else {
        ASSERT_TRUE(
            one_by_one.RestorePut(key, change.created, change.revision, change.version).ok());
        shard.Put(key, change.created, change.revision, change.version, 0);
      }
    }
    for (KeyIndexLoader::Shard& shard : shards) {
      if (random_.OneIn(2)) shard.Sort();
    }
    absl::StatusOr<KeyIndex> loaded =
        KeyIndexLoader::Build(std::move(shards), [](std::string_view, int64_t) {});
    ASSERT_TRUE(loaded.ok());
    index_ = std::move(one_by_one);
    CompareHistories();
    index_ = *std::move(loaded);
    CompareHistories();
  }

  base::SeededRandom random_{0};
  KeyIndex index_;
  Model model_;
  int64_t main_ = 1;
  int64_t compacted_ = 0;
};

TEST_P(KeyIndexModel, AgreesOnEverythingAfterRandomSteps) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(testing::Message() << "ENGRAM_TEST_SEED=" << seed << ", set of keys " << GetParam());
  random_ = base::SeededRandom(seed + static_cast<uint64_t>(GetParam()));
  const uint64_t different_keys[] = {8, 200, 4000};
  Keys keys(random_, different_keys[GetParam()]);
  uint64_t deletes = 3;
  for (int step = 0; step < 6000; ++step) {
    if (step % 500 == 0) deletes = 1 + random_.Below(6);
    // A transaction of some changes.
    int64_t sub = 0;
    main_ += random_.OneIn(100) ? 1000000 : 1;
    for (uint64_t n = 1 + random_.Below(random_.OneIn(10) ? 40 : 3); n > 0; --n) {
      const std::string key = keys.Next();
      const std::optional<KeyState> before = model_.Get(key, KeyIndex::kNow);
      if (random_.OneIn(deletes)) {
        ASSERT_EQ(index_.Tombstone(key, {main_, sub}), before);
        if (model_.Tombstone(key, {main_, sub})) ++sub;
      } else {
        model_.Put(key, {main_, sub});
        const KeyIndex::PutResult result = index_.Put(key, {main_, sub++});
        ASSERT_EQ(result.previous, before);
        ASSERT_EQ(State(result.state), model_.Get(key, main_));
      }
    }
    const int64_t at = random_.OneIn(2)
                           ? KeyIndex::kNow
                           : compacted_ + static_cast<int64_t>(random_.Below(
                                              static_cast<uint64_t>(main_ - compacted_) + 1));
    const std::string key = keys.Next();
    ASSERT_EQ(index_.Get(key, at), model_.Get(key, at));
    if (random_.OneIn(20))
      CompareRange(key, random_.OneIn(3) ? kFromKey : random_.OneIn(8) ? "" : keys.Next(), at);
    if (random_.OneIn(200)) CompareNewest(at);
    if (random_.OneIn(300)) CompareHistories();
    if (random_.OneIn(300)) CompactInSlices();
    if (random_.OneIn(1500)) Reload();
    if (HasFatalFailure()) FAIL() << "at step " << step;
  }
  // Delete all, compact all: nothing stays.
  ++main_;
  int64_t sub = 0;
  for (const auto& [key, state] : model_.Range("", kFromKey, KeyIndex::kNow))
    index_.Tombstone(key, {main_, sub++});
  EXPECT_EQ(index_.live_keys(), 0u);
  EXPECT_EQ(index_.CountNow("", kFromKey), 0u);
  CompactAll(index_, main_ + 1, 100);
  EXPECT_EQ(index_.keys(), 0u);
  EXPECT_TRUE(index_.CheckInvariants().ok());
  EXPECT_EQ(index_.memory_bytes(), KeyIndex().memory_bytes());
}

INSTANTIATE_TEST_SUITE_P(FewSomeAndManyKeys, KeyIndexModel, ::testing::Range(0, 3));

}  // namespace
}  // namespace mvcc
