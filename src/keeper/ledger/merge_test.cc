// Which chunks become one, over the life of a log.
#include "ledger/merge.h"

#include <algorithm>
#include <cstdlib>

#include "base/random.h"
#include "base/testing.h"

namespace ledger {
namespace {

const MergeRules kRules{.fan = 4, .bytes_max = 1000};

StoredChunk Chunk(uint64_t first, uint64_t last, uint64_t bytes = 1) {
  return {.range = {.first = first, .last = last}, .bytes = bytes};
}

std::string Text(const std::optional<SeqRange>& range) {
  return range.has_value() ? std::to_string(range->first) + "-" + std::to_string(range->last)
                           : "none";
}

TEST(Merge, WaitsForEnoughOfOneKind) {
  std::vector<StoredChunk> chunks = {Chunk(1, 1), Chunk(2, 2), Chunk(3, 3)};
  EXPECT_EQ(Text(NextMerge(chunks, kRules)), "none");
  chunks.push_back(Chunk(4, 4));
  EXPECT_EQ(Text(NextMerge(chunks, kRules)), "1-4");
  chunks = {Chunk(1, 4), Chunk(5, 5), Chunk(6, 6), Chunk(7, 7)};
  EXPECT_EQ(Text(NextMerge(chunks, kRules)), "none") << "the large one is not moved for three more";
}

TEST(Merge, LeavesAGapAGap) {
  EXPECT_EQ(Text(NextMerge({Chunk(1, 1), Chunk(2, 2), Chunk(4, 4), Chunk(5, 5)}, kRules)), "none");
}

TEST(Merge, NoChunkIsTooLarge) {
  EXPECT_EQ(Text(NextMerge({Chunk(1, 1, 400), Chunk(2, 2, 400), Chunk(3, 3, 400)}, kRules)), "1-2");
  EXPECT_EQ(Text(NextMerge({Chunk(1, 1, 900), Chunk(2, 2, 900), Chunk(3, 3, 900)}, kRules)),
            "none");
}

TEST(Merge, MixedSizesAreNotLeftForEver) {
  std::vector<StoredChunk> chunks;
  uint64_t next = 1;
  for (int i = 0; i < 20; ++i) {
    const uint64_t records = i % 3 == 0 ? 5 : 1;
    chunks.push_back(Chunk(next, next + records - 1));
    next += records;
  }
  EXPECT_NE(Text(NextMerge(chunks, kRules)), "none");
}

TEST(Merge, WhatLiesInALargerOneIsCovered) {
  const auto covered =
      CoveredChunks({Chunk(1, 1), Chunk(2, 2), Chunk(1, 4), Chunk(4, 5), Chunk(6, 6)});
  ASSERT_EQ(covered.size(), 2u);
  EXPECT_EQ(covered[0].chunk.first, 1u);
  EXPECT_EQ(covered[1].chunk.first, 2u);
  EXPECT_EQ(covered[1].in.last, 4u);
}

// A log that grows for long: the number of its chunks stays small, and so does what is moved.
TEST(Merge, AGrowingLogStaysFewChunks) {
  const char* given = std::getenv("ENGRAM_SEED");
  const uint64_t seed = given == nullptr ? 11 : std::strtoull(given, nullptr, 10);
  SCOPED_TRACE("ENGRAM_SEED=" + std::to_string(seed));
  base::SeededRandom random(seed);
  const MergeRules rules{.fan = 8, .bytes_max = 200'000};
  std::vector<StoredChunk> chunks;
  uint64_t next = 1, moved = 0, most = 0;
  while (next < 20'000) {
    const uint64_t records = random.OneIn(20) ? 1 + random.Below(30) : 1;
    chunks.push_back(Chunk(next, next + records - 1, records * 100 + 90));
    next += records;
    while (const auto merge = NextMerge(chunks, rules)) {
      uint64_t bytes = 90;
      std::erase_if(chunks, [&](const StoredChunk& chunk) {
        const bool in = chunk.range.first >= merge->first && chunk.range.last <= merge->last;
        if (in) bytes += chunk.bytes - 90;
        return in;
      });
      ASSERT_LE(bytes, rules.bytes_max);
      chunks.push_back(Chunk(merge->first, merge->last, bytes));
      std::sort(chunks.begin(), chunks.end(), [](const StoredChunk& a, const StoredChunk& b) {
        return a.range.first < b.range.first;
      });
      moved += merge->last - merge->first + 1;
    }
    most = std::max<uint64_t>(most, chunks.size());
    // Nothing is lost on the way.
    ASSERT_EQ(chunks.front().range.first, 1u);
    ASSERT_EQ(chunks.back().range.last, next - 1);
  }
  EXPECT_LT(most, 100u);  // 2 MB in chunks of at most 200 kB, and some small ones
  EXPECT_LT(moved, 8 * next) << "each record is moved a few times";
  for (size_t i = 1; i < chunks.size(); ++i) {
    ASSERT_EQ(chunks[i].range.first, chunks[i - 1].range.last + 1);
  }
}

}  // namespace
}  // namespace ledger
