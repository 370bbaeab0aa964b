#include "bolt/free_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "bolt/model_for_test.h"

namespace bolt::internal {
namespace {

using Runs = std::vector<std::pair<PageId, uint32_t>>;

TEST(FreePages, HandsOutLowPagesFirstAndRunsWhereTheyFit) {
  FreePages pages;
  pages.Reset(200, 1);
  for (const PageId id : {3, 5, 6, 10, 11, 12, 130, 131, 132, 133}) pages.MarkFree(id);
  EXPECT_EQ(pages.free_count(), 10u);
  EXPECT_EQ(pages.Allocate(1), 3u);
  EXPECT_EQ(pages.Allocate(3), 10u);
  EXPECT_EQ(pages.Allocate(5), std::nullopt);
  EXPECT_EQ(pages.Allocate(4), 130u);
  EXPECT_EQ(pages.Allocate(2), 5u);
  EXPECT_EQ(pages.Allocate(1), std::nullopt);
  EXPECT_EQ(pages.free_count(), 0u);
}

TEST(FreePages, RunsCrossWordBorders) {
  FreePages pages;
  pages.Reset(400, 1);
  for (PageId id = 60; id < 260; ++id) pages.MarkFree(id);
  EXPECT_EQ(pages.Allocate(200), 60u);
  EXPECT_EQ(pages.free_count(), 0u);
}

TEST(FreePages, KeepsWhatAReaderSees) {
  FreePages pages;
  pages.Reset(100, 10);
  pages.AddPending(11, Runs{{20, 1}});
  pages.Release(std::vector<TxId>{10});  // sees them
  EXPECT_EQ(pages.free_count(), 0u);
  EXPECT_EQ(pages.pending_count(), 2u);
  pages.Release(std::vector<TxId>{11});  // came after
  EXPECT_EQ(pages.free_count(), 2u);
  EXPECT_EQ(pages.pending_count(), 0u);
}

TEST(FreePages, FreesWhatLivedBetweenTwoReaders) {
  FreePages pages;
  pages.Reset(100, 10);
  pages.NoteAllocated(30, 1, 12);
  pages.AddPending(14, Runs{{30, 0}, {40, 0}});
  pages.Release(std::vector<TxId>{11, 14});  // 11 sees page 40 only
  EXPECT_TRUE(pages.IsFree(30));
  EXPECT_FALSE(pages.IsFree(40));
  EXPECT_FALSE(pages.InUse(40, 1));
  pages.Release(std::vector<TxId>{14});
  EXPECT_TRUE(pages.IsFree(40));
}

// Against the definition: a page is held while a reader in [allocated, freed) is open.
TEST(FreePages, MatchesTheDefinition) {
  base::SeededRandom random(TestSeed(99));
  for (int run = 0; run < 30; ++run) {
    FreePages pages;
    PageId page_count = 50;
    TxId txid = 5;
    pages.Reset(page_count, txid);
    std::map<PageId, TxId> in_use;
    for (PageId id = 2; id < page_count; ++id) in_use[id] = 0;
    struct Held {
      PageId id;
      TxId from, to;
    };
    std::vector<Held> held;
    std::multiset<TxId> readers;
    for (int step = 0; step < 200; ++step) {
      if (random.OneIn(2)) readers.insert(txid);
      if (!readers.empty() && random.OneIn(2)) {
        auto at = readers.begin();
        std::advance(at, static_cast<ptrdiff_t>(random.Below(readers.size())));
        readers.erase(at);
      }
      ++txid;
      std::vector<TxId> open(readers.begin(), readers.end());
      open.erase(std::unique(open.begin(), open.end()), open.end());
      pages.Release(open);
      std::set<PageId> expected_free;
      for (PageId id = 2; id < page_count; ++id) {
        if (!in_use.contains(id)) expected_free.insert(id);
      }
      std::erase_if(held, [&](const Held& h) {
        const auto reader = std::lower_bound(open.begin(), open.end(), h.from);
        const bool seen = reader != open.end() && *reader < h.to;
        if (seen) expected_free.erase(h.id);
        return !seen;
      });
      ASSERT_EQ(pages.free_count(), expected_free.size());
      ASSERT_EQ(pages.pending_count(), held.size());
      for (PageId id = 2; id < page_count; ++id)
        ASSERT_EQ(pages.IsFree(id), expected_free.contains(id));
      for (uint64_t i = random.Below(5); i > 0; --i) {
        const uint64_t count = 1 + random.Below(3);
        std::optional<PageId> id = pages.Allocate(count);
        if (!id) {
          id = page_count;
          page_count += count;
          pages.Extend(page_count);
        }
        pages.NoteAllocated(*id, count, txid);
        for (PageId p = *id; p < *id + count; ++p) ASSERT_TRUE(in_use.emplace(p, txid).second);
      }
      Runs freed;
      for (uint64_t i = random.Below(6); i > 0 && !in_use.empty(); --i) {
        auto at = in_use.begin();
        std::advance(at, static_cast<ptrdiff_t>(random.Below(in_use.size())));
        if (at->second == txid) continue;
        freed.emplace_back(at->first, 0);
        held.push_back({at->first, at->second, txid});
        in_use.erase(at);
      }
      pages.AddPending(txid, freed);
    }
  }
}

}  // namespace
}  // namespace bolt::internal
