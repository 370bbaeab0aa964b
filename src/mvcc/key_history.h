// One key's changes as packed bytes, the form in which the leaves of the key index hold them.
// Internal to the key index, which synchronises; not thread-safe, reading functions may run
// concurrently.
//
// A *state* is a byte string of at most kStateBytesMax bytes:
//
//   header   1 byte   bits 0-3: number of changes 1..15, or 0 if they are in a change log of their
//   own
//                     bit 5: the first change's `created` and `version` are stored (else: a
//                     generation's first put) bit 7: the last change is a tombstone, so the key is
//                     dead now
//   changes           each a varint (difference of main to the change before) << 2 | has_sub << 1 |
//   tombstone,
//                     then, if has_sub, a varint sub. The first one's difference is its main.
//                     After the first, if bit 5: varint main - created, varint version
//   or       8 bytes  the address of the change log, which the state owns
//
// The usual key, put once and never again, takes 1 + 4 bytes for revisions below 2^26.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "mvcc/key_index.h"

namespace mvcc::internal {

inline constexpr size_t kStateBytesMax = 40;

struct StateBuffer {
  char bytes[kStateBytesMax];
  size_t size = 0;
  std::string_view view() const { return {bytes, size}; }
};

inline size_t VarintBytes(uint64_t value) {
  return value == 0 ? 1 : static_cast<size_t>(64 - __builtin_clzll(value) + 6) / 7;
}
inline char* PutVarint(char* p, uint64_t value) {
  while (value >= 0x80) {
    *p++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *p++ = static_cast<char>(value);
  return p;
}
// For bytes written by PutVarint only.
inline uint64_t TakeVarint(const char*& p) {
  uint64_t byte = static_cast<unsigned char>(*p++);
  if (byte < 0x80) return byte;
  uint64_t value = byte & 0x7f;
  for (int shift = 7;; shift += 7) {
    byte = static_cast<unsigned char>(*p++);
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

// The change that a put or a tombstone at `revision` makes after `last`.
Change NextChange(const Change& last, Revision revision, bool tombstone);

inline bool StateIsLive(const char* state) {
  return (static_cast<unsigned char>(*state) & 0x80) == 0;
}
// Length of the state that begins at `state`.
size_t StateBytes(const char* state);
Change LastChange(const char* state);
// The newest change with main <= at_main.
std::optional<Change> NewestAt(const char* state, int64_t at_main);
// Oldest first, until `visit` returns false.
void ForEachChange(const char* state, absl::FunctionRef<bool(const Change&)> visit);

// A history too long for a leaf: runs of up to kRunChanges changes, so that appending is O(1), a
// look-up a binary search and a short decode, and dropping old changes does not touch the younger
// ones.
class ChangeLog {
 public:
  void Append(const Change& change);
  const Change& last() const { return last_; }
  size_t size() const { return size_; }
  std::optional<Change> NewestAt(int64_t at_main) const;
  void ForEach(absl::FunctionRef<bool(const Change&)> visit) const;
  // Requires count < size().
  void DropOldest(size_t count);
  size_t memory_bytes() const;

 private:
  static constexpr uint32_t kRunChanges = 64;
  struct Run {
    Change first;
    uint32_t changes = 1;  // `first` included
    std::string rest;      // the others, coded as in a state
  };
  static void AppendTo(Run& run, const Change& last, const Change& change);

  std::vector<std::unique_ptr<Run>> runs_;
  Change last_;
  size_t size_ = 0;
  size_t text_bytes_ = 0;  // heap memory of all `rest`
};

// Makes and changes states; counts the memory of their logs.
class Histories {
 public:
  // Codes `changes` (at least one, ascending).
  void Encode(std::span<const Change> changes, StateBuffer* out);
  // Codes the changes of `state` and `change` after them. The log of `state`, if any, goes over to
  // `out`.
  void Append(const char* state, const Change& change, StateBuffer* out);
  // Gives back the log of a state that is not needed any more.
  void Free(const char* state);

  enum class Outcome { kSame, kShorter, kEmpty };
  struct Compacted {
    Outcome outcome = Outcome::kSame;
    bool finished =
        true;  // false: *drops_left was too small, and the rest is still to be done and reported
  };
  // What a compaction at `compact_main` does to `state` (KeyIndex::Compact); reports the changes
  // with main <= compact_main. kShorter: the new state is in `out`. kEmpty: nothing stays. In both
  // cases a log of `state` is given back or goes over to `out`. Drops at most *drops_left changes
  // and counts it down.
  Compacted Compact(const char* state, int64_t compact_main, size_t* drops_left,
                    absl::FunctionRef<void(const RevisionKey&, bool kept)> record,
                    StateBuffer* out);

  size_t log_bytes() const { return log_bytes_; }

 private:
  void StoreLog(ChangeLog* log, StateBuffer* out);
  void DropOldest(const char* state, size_t count, StateBuffer* out);

  size_t log_bytes_ = 0;
};

}  // namespace mvcc::internal
