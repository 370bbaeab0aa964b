#include "wal/entry_map.h"

#include <algorithm>

namespace wal {
namespace {

// How far a reader goes beyond what it was asked for, at most.
constexpr uint64_t kMarkEveryBytes = 64U << 10;

}  // namespace

void EntryMap::Add(uint64_t index, const Position& position, uint32_t crc_before) {
  bool mark = marks_.empty();
  if (!mark && index <= last_index_) {
    rewrites_.push_back({index, position});
    while (!marks_.empty() && marks_.back().index >= index) marks_.pop_back();
    mark = true;
  } else if (!mark) {
    const Position& last = marks_.back().position;
    mark = last.sequence != position.sequence || position.offset - last.offset >= kMarkEveryBytes;
  }
  if (mark) marks_.push_back({index, position, crc_before});
  last_index_ = index;
}

void EntryMap::Clear() {
  marks_.clear();
  rewrites_.clear();
  last_index_ = 0;
}

void EntryMap::ForgetBefore(uint64_t sequence) {
  while (!marks_.empty() && marks_.front().position.sequence < sequence) marks_.pop_front();
  while (!rewrites_.empty() && rewrites_.front().position.sequence < sequence)
    rewrites_.pop_front();
}

std::optional<EntryMap::Mark> EntryMap::Find(uint64_t index) const {
  if (marks_.empty() || index < marks_.front().index || index > last_index_) return std::nullopt;
  const auto after =
      std::upper_bound(marks_.begin(), marks_.end(), index,
                       [](uint64_t value, const Mark& mark) { return value < mark.index; });
  return *std::prev(after);
}

std::vector<EntryMap::Rewrite> EntryMap::RewritesAfter(const Position& position) const {
  const auto first = std::upper_bound(
      rewrites_.begin(), rewrites_.end(), position,
      [](const Position& value, const Rewrite& rewrite) { return value < rewrite.position; });
  return {first, rewrites_.end()};
}

}  // namespace wal
