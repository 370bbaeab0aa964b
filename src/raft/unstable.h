// The end of the log that storage does not (surely) have yet: entries and possibly a snapshot.
// Owned by the machine; not thread-safe.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "raft/types.h"

namespace raft {

// An entry's place and the term that makes it unique: two logs that agree on one agree on all
// before it.
struct EntryId {
  Term term = 0;
  Index index = 0;

  friend bool operator==(const EntryId&, const EntryId&) = default;
};

// Entries [first(), next()) shadow what storage holds there. Those below in_progress() are with the
// owner, being written.
class Unstable {
 public:
  explicit Unstable(Index first) : first_(first), in_progress_(first) {}

  Index first() const { return first_; }
  Index next() const { return first_ + entries_.size(); }
  bool empty() const { return entries_.empty(); }
  const SnapshotPtr& snapshot() const { return snapshot_; }

  // The term at `index` as far as this part of the log knows.
  std::optional<Term> TermAt(Index index) const;
  // Requires first() <= low <= high <= next(). Valid until the next change.
  std::span<const Entry> Slice(Index low, Index high) const;

  // What the owner has yet to be given.
  std::span<const Entry> NewEntries() const { return Slice(in_progress_, next()); }
  SnapshotPtr NewSnapshot() const { return snapshot_in_progress_ ? nullptr : snapshot_; }
  // The owner has been given all of it.
  void MarkInProgress();

  // Replaces everything from entries[0].index on; the first index must not leave a gap.
  void Append(std::vector<Entry>&& entries);
  // Replaces everything by a snapshot.
  void Restore(SnapshotPtr snapshot);

  // Storage durably has the log up to `id`. Ignored when that entry has been replaced since: the
  // write of its replacement will report by itself.
  void StableUpTo(EntryId id);
  void SnapshotStable(Index index);

 private:
  SnapshotPtr snapshot_;  // null when there is none; then its index is first_ - 1
  bool snapshot_in_progress_ = false;
  Index first_;
  Index in_progress_;  // first_ <= in_progress_ <= next()
  std::vector<Entry> entries_;
};

}  // namespace raft
