// Which chunks of a log become one. A pure function; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ledger/names.h"

namespace ledger {

struct StoredChunk {
  SeqRange range;
  uint64_t bytes = 0;
};

struct MergeRules {
  size_t fan = 32;                         // so many chunks of a like number of records are one
  uint64_t bytes_max = uint64_t{4} << 20;  // no merged chunk is larger
};

// The chunks whose records all lie in a larger one of `chunks`: they may go once that was read
// back. `in` is the larger one.
struct Covered {
  SeqRange chunk;
  SeqRange in;
};
std::vector<Covered> CoveredChunks(std::vector<StoredChunk> chunks);

// The records of the next chunk to make, oldest first; nothing when the log has few enough. Each
// record is moved a number of times that grows with the logarithm of the log's length.
std::optional<SeqRange> NextMerge(std::vector<StoredChunk> chunks, const MergeRules& rules);

}  // namespace ledger
