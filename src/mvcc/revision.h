// Revisions, and their 17 or 18 byte form as keys of the db's `key` bucket. Pure values and
// functions, thread-safe: callable from any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace mvcc {

// The place of one change in the history: `main` counts write transactions (the first of a fresh
// store is 2), `sub` the changes inside one from 0. Clients only ever see `main`.
struct Revision {
  int64_t main = 0;
  int64_t sub = 0;
  friend auto operator<=>(const Revision&, const Revision&) = default;
};

// What a storage key says. A tombstone records the deletion of a user key.
struct RevisionKey {
  Revision revision;
  bool tombstone = false;
  friend bool operator==(const RevisionKey&, const RevisionKey&) = default;
};

inline constexpr size_t kPutKeyBytes = 17;        // main, big-endian | '_' | sub, big-endian
inline constexpr size_t kTombstoneKeyBytes = 18;  // the same and 't'

// A storage key in a buffer of its own, so that building one for a look-up allocates nothing. The
// order of the bytes is the order of the revisions.
class RevisionKeyBytes {
 public:
  explicit RevisionKeyBytes(Revision revision, bool tombstone = false)
      : size_(tombstone ? kTombstoneKeyBytes : kPutKeyBytes) {
    base::StoreBe64(bytes_, static_cast<uint64_t>(revision.main));
    bytes_[8] = '_';
    base::StoreBe64(bytes_ + 9, static_cast<uint64_t>(revision.sub));
    bytes_[17] = 't';
  }
  // Valid as long as this object lives and stays where it is.
  std::string_view view() const { return {bytes_, size_}; }

 private:
  size_t size_;
  char bytes_[kTombstoneKeyBytes];
};

inline std::string EncodeRevisionKey(Revision revision, bool tombstone = false) {
  return std::string(RevisionKeyBytes(revision, tombstone).view());
}

// Reads a storage key; nullopt for any other length, separator or mark, and for a negative number.
// The bytes come from a file: the caller reports the damage, since it knows the file and the place.
inline std::optional<RevisionKey> ParseRevisionKey(std::string_view bytes) {
  if (bytes.size() != kPutKeyBytes && bytes.size() != kTombstoneKeyBytes) return std::nullopt;
  if (bytes[8] != '_') return std::nullopt;
  const bool tombstone = bytes.size() == kTombstoneKeyBytes;
  if (tombstone && bytes[17] != 't') return std::nullopt;
  const Revision revision{static_cast<int64_t>(base::LoadBe64(bytes.data())),
                          static_cast<int64_t>(base::LoadBe64(bytes.data() + 9))};
  if (revision.main < 0 || revision.sub < 0) return std::nullopt;
  return RevisionKey{revision, tombstone};
}

}  // namespace mvcc
