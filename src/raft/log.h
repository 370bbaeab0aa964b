// The whole log: what storage has, overlaid by what it does not have yet, and how far it is
// committed and applied. Owned by the machine; not thread-safe.
//
//   first_index .. applied .. applying .. committed .. last_index
//
// applied: the owner said so. applying: handed out. All of applied <= applying <= committed <=
// last_index holds always.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "raft/storage.h"
#include "raft/types.h"
#include "raft/unstable.h"

namespace raft {

class Log {
 public:
  // `storage` outlives the log. At most `applying_bytes_max` encoded bytes are handed out for
  // application at a time, but at least one entry.
  Log(const LogStorage* storage, uint64_t applying_bytes_max);

  Index first_index() const;
  Index last_index() const;
  Index committed() const { return committed_; }
  Index applying() const { return applying_; }
  Index applied() const { return applied_; }
  const Unstable& unstable() const { return unstable_; }

  // nullopt when the entry is compacted (and is not the one just before first_index()) or does not
  // exist.
  std::optional<Term> TermAt(Index index) const;
  EntryId LastId() const;
  bool Matches(EntryId id) const;
  // Whether a log that ends with `last` is at least as up to date as this one (raft paper §5.4.1).
  bool IsUpToDate(EntryId last) const;

  // Appends to *out the entries of [low, high), cut as LogStorage::Entries does. The size handed
  // out in *bytes, if given.
  absl::Status Slice(Index low, Index high, uint64_t bytes_max, std::vector<Entry>* out,
                     uint64_t* bytes = nullptr) const;

  // Appends, replacing from entries[0].index on. Requires entries[0].index > committed().
  void Append(std::vector<Entry>&& entries);
  // A leader's append after `previous`: false when the log does not have `previous`. Otherwise
  // drops the entries that are here already, replaces from the first that differs, and raises the
  // commit index to `commit` as far as the message reaches.
  bool AppendAfter(EntryId previous, std::vector<Entry>&& entries, Index commit);
  // The largest index <= `index` whose term is at most `term`, with its term; an index whose term
  // is unknown counts, with term 0. Lets leader and follower skip a whole term of conflicting
  // entries per round trip.
  EntryId FindConflictByTerm(Index index, Term term) const;

  // Requires index <= last_index(). Never lowers the commit index.
  void CommitTo(Index index);
  void Restore(SnapshotPtr snapshot);

  // Committed entries that have not been handed out. Without `allow_unstable` only those that
  // storage durably has. Empty while a snapshot is on its way to the application.
  std::vector<Entry> NextCommitted(bool allow_unstable, uint64_t* bytes) const;
  bool HasNextCommitted(bool allow_unstable) const;
  // The entries up to `index`, of `bytes` encoded bytes, have been handed out.
  void AcceptApplying(Index index, uint64_t bytes, bool allow_unstable);
  void AppliedTo(Index index, uint64_t bytes);

  void AcceptUnstable() { unstable_.MarkInProgress(); }
  void StableUpTo(EntryId id) { unstable_.StableUpTo(id); }
  void SnapshotStable(Index index) { unstable_.SnapshotStable(index); }

  // Where an owner that restarts begins. Requires the order stated at the top.
  void Start(Index committed, Index applied);

 private:
  Index LastApplicable(bool allow_unstable) const;

  const LogStorage* const storage_;
  Unstable unstable_;
  Index committed_;
  Index applying_;
  Index applied_;
  const uint64_t applying_bytes_max_;
  uint64_t applying_bytes_ = 0;   // of [applied_+1, applying_]
  bool applying_paused_ = false;  // the limit is reached
};

}  // namespace raft
