// A leaf of the key index: some dozens of keys with their states, in one block of bytes. Internal
// to the key index, which synchronises; not thread-safe, const methods may run concurrently.
//
//   fields | prefix | padding | heads | offsets | free | entries
//
// `prefix` is common to all keys of the leaf. A key's *suffix* is what follows it. Heads are the
// first four suffix bytes as a number (zero-padded), in key order, so that a search touches two or
// three cache lines and compares bytes only among equal heads. Offsets (16 bits, same order) point
// to the entries:
//
//   varint suffix bytes | suffix from its 5th byte, or, if that is long, 8 bytes address of it |
//   state
//
// Entries lie without gaps in any order: changing the size of one moves the others, which costs
// less in a block of this size than keeping garbage would.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "mvcc/key_history.h"

namespace mvcc::internal {

// What a node of the tree is, is known from its level.
struct Node {};

// Starts loading the first `bytes` of a node, all cache lines at once. A search of a big tree costs
// little but waiting for memory, line after line.
inline void Prefetch(const Node* node, size_t bytes) {
  const char* p = reinterpret_cast<const char*>(node);
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(p + at);
}

// The first four bytes as a big-endian number, missing ones as zeros.
inline uint32_t HeadOf(std::string_view bytes) {
  if (bytes.size() >= 4) return base::LoadBe32(bytes.data());
  char padded[4] = {};
  if (!bytes.empty()) std::memcpy(padded, bytes.data(), bytes.size());
  return base::LoadBe32(padded);
}

inline size_t CommonPrefix(std::string_view a, std::string_view b) {
  const auto diverge = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(diverge.first - a.begin());
}

// The first index in [0, n) whose head is not below `head`, heads being an ascending array.
inline size_t LowerBoundHead(const uint32_t* heads, size_t n, uint32_t head) {
  size_t base = 0;
  while (n > 1) {
    const size_t half = n / 2;
    base += heads[base + half - 1] < head ? half : 0;
    n -= half;
  }
  return base + (n == 1 && heads[base] < head ? 1 : 0);
}

class Leaf : public Node {
 public:
  struct Entry {
    std::string_view key;
    std::string_view state;
  };
  struct Position {
    size_t index = 0;  // of the key, or where it would be inserted
    bool found = false;
  };

  // A leaf of ascending entries that Fits. Owns the logs of their states from now on.
  static Leaf* Build(std::span<const Entry> entries);
  static Leaf* NewEmpty() { return new Leaf; }
  static bool Fits(std::span<const Entry> entries);
  // Upper bound of what an entry takes if the leaf's prefix has `prefix_bytes`.
  static size_t EntryBytes(const Entry& entry, size_t prefix_bytes);
  // What Build would take as prefix.
  static size_t PrefixBytes(std::string_view first_key, std::string_view last_key);
  // Gives the block back, but not the logs.
  static void Destroy(Leaf* leaf);

  size_t count() const { return count_; }
  size_t live() const { return live_; }
  size_t used_bytes() const { return kDataBytes - free_bytes(); }
  // Heap memory of long keys: of one, of all.
  size_t LongKeyBytes(size_t index) const;
  size_t long_key_bytes() const;

  Position Find(std::string_view key) const;
  const char* state(size_t index) const;
  // Replaces the content of *key.
  void GetKey(size_t index, std::string* key) const;
  std::string Key(size_t index) const;
  // Live keys among the first `index`.
  size_t LiveBefore(size_t index) const;

  // False, with nothing changed, if there is no room (or, for Insert, if the key lacks the prefix).
  bool Insert(size_t index, std::string_view key, std::string_view state);
  bool SetState(size_t index, std::string_view state);

  // How many of the latest insertions each came right behind the one before, and where the last one
  // went: ascending keys are better served by a cut at that place than by one in the middle.
  size_t ascending_inserts() const { return ascending_inserts_; }
  bool IsNextAscending(size_t index) const { return index == size_t{last_insert_} + 1; }
  void ContinueAscending(size_t inserts) {
    last_insert_ = 0;
    ascending_inserts_ = static_cast<uint16_t>(inserts);
  }

  // Fields, prefix, heads and offsets of a usual leaf.
  static constexpr size_t kSearchBytes = 6 * 64;
  // malloc's block of this is 2,048 bytes.
  static constexpr size_t kBytes = 2040;
  static constexpr size_t kDataBytes = kBytes - 12;

 private:
  static constexpr size_t kPrefixBytesMax = 255;
  static constexpr size_t kHeadBytes = 4;
  static constexpr size_t kSlotBytes = kHeadBytes + 2;
  // Longer ones lie in a block of their own, so that every entry is small against a leaf.
  static constexpr size_t kTailBytesMax = 256;

  Leaf() = default;

  size_t heads_at() const { return (size_t{prefix_bytes_} + 3) & ~size_t{3}; }
  size_t offsets_at() const { return heads_at() + kHeadBytes * count_; }
  size_t free_bytes() const { return entries_at_ - heads_at() - kSlotBytes * count_; }
  const uint32_t* heads() const { return reinterpret_cast<const uint32_t*>(data_ + heads_at()); }
  uint32_t* heads() { return reinterpret_cast<uint32_t*>(data_ + heads_at()); }
  const uint16_t* offsets() const {
    return reinterpret_cast<const uint16_t*>(data_ + offsets_at());
  }
  uint16_t* offsets() { return reinterpret_cast<uint16_t*>(data_ + offsets_at()); }
  std::string_view prefix() const { return {data_, prefix_bytes_}; }

  // An entry taken apart.
  struct Parts {
    size_t suffix_bytes = 0;
    const char* tail = nullptr;  // the suffix from its 5th byte
    const char* state = nullptr;
    bool long_tail = false;
  };
  Parts PartsOf(size_t index) const;
  // The suffix, whose head equals the entry's, against the entry's: < 0, 0, > 0.
  int CompareEqualHead(std::string_view suffix, size_t index) const;
  char* PutEntry(char* p, std::string_view suffix, std::string_view state);

  uint16_t count_ = 0;
  uint16_t live_ = 0;
  uint16_t prefix_bytes_ = 0;
  uint16_t entries_at_ = kDataBytes;  // where the entries begin; they go to the end
  uint16_t last_insert_ = kDataBytes;
  uint16_t ascending_inserts_ = 0;
  char data_[kDataBytes];
};
static_assert(sizeof(Leaf) == Leaf::kBytes);

}  // namespace mvcc::internal
