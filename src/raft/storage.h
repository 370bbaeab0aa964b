// The stable part of the log, as the machine reads it. The machine calls it on the thread that owns
// the RawNode; an implementation that other threads write to locks by itself. MemoryStorage is not
// thread-safe.
//
// Writing is the owner's: it stores what a Ready (or a MsgStorageAppend) asks for before it
// acknowledges it. What the machine has been told is stable must be readable here.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "raft/types.h"

namespace raft {

class LogStorage {
 public:
  virtual ~LogStorage() = default;

  // What the node starts from: read once, when the RawNode is made.
  struct InitialState {
    // Its commit index may lag behind FirstIndex()-1 or Config::applied, since a commit index alone
    // is never synced; the machine raises it.
    HardState hard_state;
    ConfState conf_state;  // as of Config::applied, or of the snapshot the log starts from
  };
  virtual absl::StatusOr<InitialState> Load() = 0;

  // The first index that Entries() can return: one above the snapshot the log starts from.
  // FirstIndex() == LastIndex() + 1 when there are no entries.
  virtual Index FirstIndex() const = 0;
  virtual Index LastIndex() const = 0;

  // The term of the entry at `index`, FirstIndex()-1 <= index <= LastIndex(); nullopt outside
  // (compacted, or not there yet).
  virtual std::optional<Term> TermAt(Index index) const = 0;

  // Appends to *out the entries of [low, high), cut after the longest prefix whose encoded sizes
  // sum up to at most `bytes_max`, but never before the first. Requires low < high <= LastIndex() +
  // 1. kOutOfRange when low < FirstIndex() (compacted); kUnavailable when the entries cannot be had
  // right now (replication then tries again at the next heartbeat response).
  virtual absl::Status Entries(Index low, Index high, uint64_t bytes_max,
                               std::vector<Entry>* out) const = 0;

  // A snapshot to bring a follower up whose entries are gone; its index is >= FirstIndex()-1. It
  // should be of the present state: a follower ignores one whose configuration does not know it
  // yet. kUnavailable while one is being made: the machine asks again later.
  virtual absl::StatusOr<SnapshotPtr> GetSnapshot() = 0;
};

// The log in memory: what a member keeps of its log beside the WAL, and what tests use. Entries lie
// in a ring, so that appending and compacting cost no allocation per entry.
class MemoryStorage final : public LogStorage {
 public:
  MemoryStorage();

  absl::StatusOr<InitialState> Load() override;
  Index FirstIndex() const override { return base_index_ + 1; }
  Index LastIndex() const override { return base_index_ + size_; }
  std::optional<Term> TermAt(Index index) const override;
  absl::Status Entries(Index low, Index high, uint64_t bytes_max,
                       std::vector<Entry>* out) const override;
  absl::StatusOr<SnapshotPtr> GetSnapshot() override;

  void SetHardState(const HardState& state) { hard_state_ = state; }
  const HardState& hard_state() const { return hard_state_; }

  // Appends contiguous entries, replacing from entries[0].index on what is there. Entries below
  // FirstIndex() are skipped. CHECKs that no gap results: a machine never asks for one.
  void Append(std::span<const Entry> entries);
  // The same, taking the entries over.
  void Append(std::vector<Entry>&& entries);

  // Replaces the whole log by a received snapshot. kOutOfRange when the storage has a newer one.
  absl::Status ApplySnapshot(SnapshotPtr snapshot);

  // Records a snapshot of the application's state at `index` for GetSnapshot(), and gives it back.
  // It drops no entries. kOutOfRange when not newer than the last one; kInvalidArgument beyond the
  // last index.
  absl::StatusOr<SnapshotPtr> CreateSnapshot(Index index, const ConfState& conf_state, Buffer data);

  // Discards all entries up to and including `index`, which must be applied already. kOutOfRange
  // when they are discarded already; kInvalidArgument beyond the last index.
  absl::Status Compact(Index index);

  // Memory the entries hold: encoded sizes plus the slots, in bytes. The owner compacts to bound
  // it.
  size_t MemoryBytes() const { return payload_bytes_ + slots_.size() * sizeof(Entry); }
  size_t EntryCount() const { return size_; }

 private:
  Entry& Slot(size_t position) { return slots_[(head_ + position) & (slots_.size() - 1)]; }
  const Entry& Slot(size_t position) const {
    return slots_[(head_ + position) & (slots_.size() - 1)];
  }
  void Reserve(size_t count);
  void TruncateBack(size_t new_size);
  // Makes room for entries that start at `first` and says how many of the `count` to skip.
  size_t PrepareAppend(Index first, size_t count);
  void PushBack(Entry entry);

  HardState hard_state_;
  SnapshotPtr snapshot_;  // never null; empty at first
  Index base_index_ = 0;  // the entry before the first, with its term
  Term base_term_ = 0;
  std::vector<Entry> slots_;  // a ring; its size is a power of two
  size_t head_ = 0;
  size_t size_ = 0;
  size_t payload_bytes_ = 0;  // of the entries in the ring
};

}  // namespace raft
