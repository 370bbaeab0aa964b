// Where in the log the entries lie, coarsely: one mark every 64 KiB and at each place that matters,
// so that entries can be read back without keeping an offset for each. Not thread-safe; Log guards
// it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace wal {

// A place in the log. Places are ordered the way the log is written.
struct Position {
  uint64_t sequence = 0;  // of the segment
  uint64_t offset = 0;    // of a record in it
  friend auto operator<=>(const Position&, const Position&) = default;
};

class EntryMap {
 public:
  // Where reading may begin.
  struct Mark {
    uint64_t index = 0;  // of the entry at `position`
    Position position;
    uint32_t crc_before = 0;
  };
  // From `position` on, entries with an index >= `index` that lie before it are superseded.
  struct Rewrite {
    uint64_t index = 0;
    Position position;
  };

  // Notes that an entry was written. Calls come in the order of the log.
  void Add(uint64_t index, const Position& position, uint32_t crc_before);
  // Forgets all entries: a snapshot took their place.
  void Clear();
  // Forgets what lies in segments before `sequence`, which are gone.
  void ForgetBefore(uint64_t sequence);

  // The last mark at or before `index`; empty when the entry is not in the map.
  std::optional<Mark> Find(uint64_t index) const;
  // Rewrites behind `position`, in order.
  std::vector<Rewrite> RewritesAfter(const Position& position) const;

  // The entries present are [first_index, last_index]; both 0 when there are none.
  uint64_t first_index() const { return marks_.empty() ? 0 : marks_.front().index; }
  uint64_t last_index() const { return marks_.empty() ? 0 : last_index_; }

 private:
  std::deque<Mark> marks_;  // ascending in index and in position
  std::deque<Rewrite> rewrites_;
  uint64_t last_index_ = 0;
};

}  // namespace wal
