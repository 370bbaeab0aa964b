// Names of a log's objects. For this layer's own use; pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ledger/log.h"

namespace ledger {

struct SeqRange {
  uint64_t first = 0;
  uint64_t last = 0;
};

std::string LogFolder(const Place& place);  // with a slash at the end
std::string ChunkName(const Place& place, SeqRange range);
std::string HeadName(const Place& place);
// The records that a chunk of this name holds; nothing for any other name.
std::optional<SeqRange> ChunkRange(std::string_view name);

}  // namespace ledger
