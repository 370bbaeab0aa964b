// The layout of a WAL directory and of a segment file: constants and names. Pure functions,
// thread-safe. Pictures and rules: docs/internals/wal.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace wal {

// What a record carries. The numbers are on disk.
enum class RecordType : uint64_t {
  kMetadata = 1,
  kEntry = 2,
  kState = 3,
  kCrc = 4,
  kSnapshot = 5,
};

// A segment is cut at the first save that leaves it at or above this size, and is preallocated to
// it. Decimal, not 61 MiB.
inline constexpr uint64_t kSegmentBytes = 64'000'000;

// A record starts at a multiple of this and begins with a length field of this many bytes.
inline constexpr uint64_t kAlignment = 8;
// A torn write shows as at least one zero sector of this size.
inline constexpr uint64_t kSectorBytes = 512;

// The length field: bits 0-55 are the size of the protobuf record; when padding follows it, bit 63
// is set and bits 56-58 hold its length.
inline constexpr uint64_t kLengthMask = (uint64_t{1} << 56) - 1;
inline constexpr uint64_t kPaddedFlag = uint64_t{1} << 63;
inline constexpr int kPaddingShift = 56;

inline constexpr uint32_t kFileMode = 0600;
inline constexpr uint32_t kDirectoryMode = 0700;

// A segment's name: its place in the order of segments, and the raft index its first entry will
// have (one above the last index saved when it was begun; 0 for the first segment).
struct SegmentName {
  uint64_t sequence = 0;
  uint64_t index = 0;
  friend bool operator==(const SegmentName&, const SegmentName&) = default;
};

// "%016x-%016x.wal".
std::string FormatSegmentName(const SegmentName& name);
// Empty for anything that is not exactly of that form.
std::optional<SegmentName> ParseSegmentName(std::string_view name);

}  // namespace wal
