#include "bolt/node.h"

#include <algorithm>

namespace bolt::internal {

uint32_t Node::LowerBound(std::string_view key, bool* exact) const {
  const auto at = std::lower_bound(
      items.begin(), items.end(), key,
      [](const Item& item, std::string_view wanted) { return item.key() < wanted; });
  *exact = at != items.end() && at->key() == key;
  return static_cast<uint32_t>(at - items.begin());
}

uint32_t Node::ChildIndex(std::string_view key) const {
  bool exact;
  const uint32_t at = LowerBound(key, &exact);
  return exact || at == 0 ? at : at - 1;
}

char* Arena::Allocate(size_t bytes) {
  if (bytes > left_) {
    if (bytes > kBlockBytes / 4) {  // a block of its own, so that little of the current one is lost
      blocks_.push_back(std::make_unique_for_overwrite<char[]>(bytes));
      return blocks_.back().get();
    }
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(kBlockBytes));
    next_ = blocks_.back().get();
    left_ = kBlockBytes;
  }
  char* const at = next_;
  next_ += bytes;
  left_ -= bytes;
  return at;
}

}  // namespace bolt::internal
