#include "wal/segment_reader.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "base/wire.h"

namespace wal {
namespace {

// How much is read at a time; a longer record is read whole.
constexpr uint64_t kChunkBytes = 256U << 10;

struct ParsedRecord {
  uint64_t type = 0;
  uint32_t crc = 0;
  std::string_view data;
};

bool ParseRecord(std::string_view bytes, ParsedRecord* out) {
  using base::wire::Type;
  base::wire::Reader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1 && reader.Expect(Type::kVarint)) out->type = reader.varint();
    if (reader.field() == 2 && reader.Expect(Type::kVarint))
      out->crc = static_cast<uint32_t>(reader.varint());
    if (reader.field() == 3 && reader.Expect(Type::kBytes)) out->data = reader.bytes();
  }
  return reader.ok();
}

absl::Status CrcMismatch(uint32_t expected, uint32_t computed, const std::string& path,
                         uint64_t offset) {
  return base::MakeStatus(
      absl::StatusCode::kDataLoss,
      "wal: crc mismatch: expected: {:x} computed: {:x}: in file '{}' at position: {}", expected,
      computed, path, offset);
}

}  // namespace

SegmentReader::SegmentReader(const base::File& file, std::string path, const Options& options)
    : file_(file),
      path_(std::move(path)),
      limit_(options.limit),
      last_segment_(options.last_segment),
      offset_(options.offset),
      crc_(options.crc) {}

absl::StatusOr<ReadOutcome> SegmentReader::Next(RecordView* record) {
  if (offset_ >= limit_) return ReadOutcome::kEnd;
  const uint64_t left = limit_ - offset_;
  if (left < kAlignment) return ReadOutcome::kTorn;
  ASSIGN_OR_RETURN(bool there, Fill(kAlignment));
  if (!there) return ReadOutcome::kTorn;
  const auto length = base::LoadLe<uint64_t>(buffer_.data() + (offset_ - buffer_offset_));
  if (length == 0) return ReadOutcome::kEnd;
  const uint64_t record_bytes = length & kLengthMask;
  const uint64_t padding = (length & kPaddedFlag) != 0 ? (length >> kPaddingShift) & 7 : 0;
  if (record_bytes + padding > left - kAlignment) return ReadOutcome::kTorn;
  ASSIGN_OR_RETURN(there, Fill(kAlignment + record_bytes + padding));
  if (!there) return ReadOutcome::kTorn;
  const std::string_view payload(buffer_.data() + (offset_ - buffer_offset_) + kAlignment,
                                 record_bytes + padding);
  return Decode(payload, record_bytes, record);
}

// `payload` is the record and its padding.
absl::StatusOr<ReadOutcome> SegmentReader::Decode(std::string_view payload, uint64_t record_bytes,
                                                  RecordView* record) {
  ParsedRecord parsed;
  if (!ParseRecord(payload.substr(0, record_bytes), &parsed)) {
    if (LooksTorn(payload)) return ReadOutcome::kTorn;
    return base::MakeStatus(
        absl::StatusCode::kDataLoss,
        "wal: record of {} bytes cannot be decoded: in file '{}' at position: {}", record_bytes,
        path_, offset_);
  }
  uint32_t crc = 0;
  if (parsed.type == static_cast<uint64_t>(RecordType::kCrc)) {
    // A reader that begins at this segment does not know the value to expect.
    if (crc_ != 0 && crc_ != parsed.crc) return CrcMismatch(parsed.crc, crc_, path_, offset_);
    crc = parsed.crc;
  } else {
    crc = base::Crc32c(crc_, parsed.data);
    if (crc != parsed.crc) {
      if (LooksTorn(payload)) return ReadOutcome::kTorn;
      return CrcMismatch(parsed.crc, crc, path_, offset_);
    }
  }
  // Every etcd since 3.0 pads, and the writer that goes on behind this record relies on it.
  if (payload.size() % kAlignment != 0) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "wal: record of {} bytes is padded with {}, not to a multiple of {}: "
                            "in file '{}' at position: {}",
                            record_bytes, payload.size() - record_bytes, kAlignment, path_,
                            offset_);
  }
  *record = {.type = parsed.type, .data = parsed.data, .offset = offset_, .crc_before = crc_};
  crc_ = crc;
  offset_ += kAlignment + payload.size();
  return ReadOutcome::kRecord;
}

// A crash leaves sectors that were never written, and a preallocated file holds zeros there. A
// sector counts with the part of it that the payload covers.
bool SegmentReader::LooksTorn(std::string_view payload) const {
  if (!last_segment_) return false;
  uint64_t position = offset_ + kAlignment;
  while (!payload.empty()) {
    const auto slice = std::min<uint64_t>(kSectorBytes - position % kSectorBytes, payload.size());
    if (payload.substr(0, slice).find_first_not_of('\0') == std::string_view::npos) return true;
    payload.remove_prefix(slice);
    position += slice;
  }
  return false;
}

// Makes the buffer hold `bytes` bytes from offset_ on, which the caller has checked against limit_;
// false when the file is shorter than that.
absl::StatusOr<bool> SegmentReader::Fill(uint64_t bytes) {
  const uint64_t skip = offset_ - buffer_offset_;
  if (skip <= buffer_.size() && buffer_.size() - skip >= bytes) return true;
  buffer_.erase(0, std::min<uint64_t>(skip, buffer_.size()));
  buffer_offset_ = offset_;
  const uint64_t want = std::min(std::max(bytes, kChunkBytes), limit_ - offset_);
  const size_t have = buffer_.size();
  buffer_.resize(want);
  ASSIGN_OR_RETURN(const size_t got,
                   file_.ReadAt(offset_ + have, buffer_.data() + have, want - have));
  buffer_.resize(have + got);
  return buffer_.size() >= bytes;
}

}  // namespace wal
