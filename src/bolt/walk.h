// Walks all pages reachable from a meta page, checking the rules a tree has to keep, and reads a
// stored freelist. What opening a file without a stored freelist, and the consistency check, have
// in common. Pure functions over a PageSource.
// Not thread-safe: used by the one thread that owns the objects it is given.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "bolt/page.h"
#include "bolt/tx.h"

namespace bolt::internal {

class PageSet {
 public:
  explicit PageSet(PageId page_count) : words_(static_cast<size_t>(page_count / 64 + 1)) {}
  bool Contains(PageId id) const { return (words_[id / 64] >> (id % 64) & 1) != 0; }
  // False if it was there.
  bool Insert(PageId id) {
    uint64_t& word = words_[id / 64];
    const uint64_t mask = uint64_t{1} << (id % 64);
    if ((word & mask) != 0) return false;
    word |= mask;
    return true;
  }

 private:
  std::vector<uint64_t> words_;
};

// Marks every page of every bucket in `reachable`. Whatever breaks a rule goes to `report`, e.g.
// "page 7: expected keys in ascending order"; the walk ends early when that returns false. Visits
// each page once, so it always ends. True if all rules are kept.
bool WalkReachable(const PageSource& source, const Meta& meta, PageSet* reachable,
                   absl::FunctionRef<bool(std::string_view finding)> report);

// The ids in the stored freelist at page `id`, ascending, and its overflow. DataLoss when it is not
// a freelist page, or an id is out of range or listed twice.
absl::Status ReadFreelistPage(const PageSource& source, PageId id, std::vector<PageId>* ids,
                              uint32_t* overflow);

}  // namespace bolt::internal
