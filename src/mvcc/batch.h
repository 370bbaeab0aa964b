// One pending batch: the writes of some finished entries (and perhaps one unfinished one) that are
// not in the db file yet. The apply thread appends while it is the active one; any thread reads. A
// sealed batch never changes.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mvcc/backend.h"
#include "mvcc/revision.h"

namespace mvcc {

class Batch {
 public:
  explicit Batch(uint64_t number) : number_(number) {}
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // A record of the key bucket. `key` points to the storage key, directly followed by the value.
  struct Entry {
    Revision revision;
    const char* key = nullptr;
    uint32_t key_bytes = 0;
    uint32_t value_bytes = 0;
    bool tombstone() const { return key_bytes == kTombstoneKeyBytes; }
    std::string_view storage_key() const { return {key, key_bytes}; }
    std::string_view value() const { return {key + key_bytes, value_bytes}; }
  };
  using Operations = std::map<std::string, std::optional<std::string>, std::less<>>;

  uint64_t number() const { return number_; }

  // --- apply thread ---
  // The caller fills the returned bytes before anybody may read a revision this high.
  char* AppendRecord(Revision revision, bool tombstone, size_t value_bytes);
  void Put(Bucket bucket, std::string_view key, std::optional<std::string_view> value);

  // --- any thread ---
  size_t record_count() const { return count_.load(std::memory_order_acquire); }
  const Entry& record(size_t i) const {
    const auto [chunk, place] = Place(i);
    return chunks_[chunk][place];
  }
  // Index of the first record with revision >= `revision`, among `count` records.
  size_t LowerBound(Revision revision, size_t count) const;
  std::optional<std::string_view> Find(Revision revision) const;
  // nullopt: not touched by this batch. Else the new value, or nullopt inside for deleted.
  std::optional<std::optional<std::string>> Get(Bucket bucket, std::string_view key) const;
  void CopyOperations(Bucket bucket, Operations* into) const;
  // For commits, of a sealed batch only.
  const Operations& operations(Bucket bucket) const {
    return operations_[static_cast<size_t>(bucket)];
  }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t operation_count() const { return operation_count_.load(std::memory_order_relaxed); }
  bool deletes() const { return deletes_.load(std::memory_order_relaxed); }

  // Of the last finished entry; 0 = as before. Guarded by the backend's lock until the batch is
  // sealed.
  uint64_t index = 0;
  uint64_t term = 0;

 private:
  static constexpr size_t kFirstChunk = 256;
  // Chunk c holds kFirstChunk << c records.
  static std::pair<size_t, size_t> Place(size_t i) {
    const size_t n = i / kFirstChunk + 1;
    const size_t chunk = static_cast<size_t>(std::bit_width(n)) - 1;
    return {chunk, i - kFirstChunk * ((size_t{1} << chunk) - 1)};
  }
  char* Allocate(size_t n);

  const uint64_t number_;
  std::array<std::unique_ptr<Entry[]>, 40> chunks_;  // a chunk is published by count_
  std::atomic<size_t> count_{0};
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* free_ = nullptr;
  size_t free_bytes_ = 0;
  size_t block_bytes_ = 16 << 10;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> operation_count_{0};
  std::atomic<bool> deletes_{false};

  mutable std::mutex mutex_;  // guards operations_ while the batch is active; leaf
  std::array<Operations, kBucketCount> operations_;
};

}  // namespace mvcc
