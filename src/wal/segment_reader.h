// Reads the records of one WAL segment and checks their CRC chain; knows bytes and checksums, not
// what records mean. One reader belongs to one thread; several may read one file, also while it is
// being appended to (below `limit`).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "wal/format.h"

namespace wal {

struct RecordView {
  uint64_t type = 0;        // a RecordType, or a number this version does not know
  std::string_view data;    // valid until the next call of Next()
  uint64_t offset = 0;      // of the length field in the segment
  uint32_t crc_before = 0;  // the running CRC at `offset`
};

enum class ReadOutcome {
  kRecord,
  kEnd,   // a length field of zero, or the limit exactly at the end of a record
  kTorn,  // an incomplete or half-written record: what a crash leaves at the tail
};

class SegmentReader {
 public:
  struct Options {
    uint64_t limit = 0;   // how much of the file to read: its size, or what is written so far
    uint64_t offset = 0;  // where a record starts
    uint32_t crc = 0;     // the running CRC there; 0 is compared with nothing
    // Only in the last segment may a record with a zero sector count as torn; elsewhere it is
    // damage.
    bool last_segment = false;
  };

  // `file` must outlive the reader. `path` is what messages call it.
  SegmentReader(const base::File& file, std::string path, const Options& options);

  // Reads the next record into `*record`. DataLoss, with file and offset, for a record that is
  // damaged rather than torn, and for a CRC record that breaks the chain; else the file's own
  // error. After anything but kRecord the reader is used up.
  absl::StatusOr<ReadOutcome> Next(RecordView* record);

  // Where the last good record ends.
  uint64_t offset() const { return offset_; }
  // The running CRC there.
  uint32_t crc() const { return crc_; }
  const std::string& path() const { return path_; }

 private:
  absl::StatusOr<bool> Fill(uint64_t bytes);
  absl::StatusOr<ReadOutcome> Decode(std::string_view payload, uint64_t record_bytes,
                                     RecordView* record);
  bool LooksTorn(std::string_view payload) const;

  const base::File& file_;
  const std::string path_;
  const uint64_t limit_;
  const bool last_segment_;
  uint64_t offset_;
  uint32_t crc_;
  std::string buffer_;  // file bytes [buffer_offset_, buffer_offset_ + buffer_.size())
  uint64_t buffer_offset_ = 0;
};

}  // namespace wal
