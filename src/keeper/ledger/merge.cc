#include "ledger/merge.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ledger {
namespace {

// Chunks of mixed sizes are merged when there are this many times `fan`.
constexpr size_t kManyFans = 4;

uint64_t Records(const StoredChunk& chunk) { return chunk.range.last - chunk.range.first + 1; }

// By their first record; of those that begin alike, the longest first.
void Sort(std::vector<StoredChunk>* chunks) {
  std::sort(chunks->begin(), chunks->end(), [](const StoredChunk& a, const StoredChunk& b) {
    return a.range.first != b.range.first ? a.range.first < b.range.first
                                          : a.range.last > b.range.last;
  });
}

// How many times `fan` goes into a number of records.
int Tier(const StoredChunk& chunk, size_t fan) {
  int tier = 0;
  for (uint64_t left = Records(chunk); left >= fan; left /= fan) ++tier;
  return tier;
}

// The first run of neighbours, none above `tier`, that is worth a chunk: `fan` of this very tier,
// or many of any, or as many bytes as fit. Where two overlap, they are no neighbours.
std::optional<SeqRange> RunOf(int tier, const std::vector<StoredChunk>& chunks,
                              const MergeRules& rules) {
  size_t begin = 0;
  size_t of_tier = 0;
  uint64_t bytes = 0;
  const auto up_to = [&](size_t i) {
    return SeqRange{.first = chunks[begin].range.first, .last = chunks[i].range.last};
  };
  for (size_t i = 0; i < chunks.size(); ++i) {
    const int own = Tier(chunks[i], rules.fan);
    const bool goes_on = i > begin && chunks[i].range.first == chunks[i - 1].range.last + 1;
    const bool fits = bytes + chunks[i].bytes <= rules.bytes_max;
    if (goes_on && !fits && i - begin > 1 && bytes >= rules.bytes_max / 2) return up_to(i - 1);
    if (!goes_on || !fits || own > tier) {
      begin = own > tier ? i + 1 : i;
      of_tier = 0;
      bytes = 0;
    }
    if (own > tier) continue;
    bytes += chunks[i].bytes;
    of_tier += own == tier;
    const bool many = i - begin + 1 >= kManyFans * rules.fan;
    if (i > begin && (of_tier >= rules.fan || many)) return up_to(i);
  }
  return std::nullopt;
}

}  // namespace

std::vector<Covered> CoveredChunks(std::vector<StoredChunk> chunks) {
  Sort(&chunks);
  std::vector<Covered> covered;
  std::optional<SeqRange> farthest;
  for (const StoredChunk& chunk : chunks) {
    if (farthest.has_value() && chunk.range.last <= farthest->last) {
      covered.push_back({.chunk = chunk.range, .in = *farthest});
    } else {
      farthest = chunk.range;
    }
  }
  return covered;
}

std::optional<SeqRange> NextMerge(std::vector<StoredChunk> chunks, const MergeRules& rules) {
  std::set<std::pair<uint64_t, uint64_t>> covered;
  for (const Covered& c : CoveredChunks(chunks)) covered.emplace(c.chunk.first, c.chunk.last);
  std::erase_if(chunks, [&](const StoredChunk& chunk) {
    return covered.contains({chunk.range.first, chunk.range.last});
  });
  Sort(&chunks);
  int highest = 0;
  for (const StoredChunk& chunk : chunks) highest = std::max(highest, Tier(chunk, rules.fan));
  for (int tier = 0; tier <= highest; ++tier) {
    if (const auto run = RunOf(tier, chunks, rules)) return run;
  }
  return std::nullopt;
}

}  // namespace ledger
