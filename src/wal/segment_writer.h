// Appends records to one WAL segment and carries its CRC chain; knows bytes and checksums, not what
// records mean. Owned by one thread; not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/files.h"
#include "wal/format.h"

namespace wal {

class SegmentWriter {
 public:
  // Goes on at `offset` of `file`, which must be a multiple of 8 and have nothing but zeros behind
  // it; `crc` covers all records before it, in this and in earlier segments.
  SegmentWriter(std::unique_ptr<base::File> file, uint64_t offset, uint32_t crc);

  // Buffers one record whose data is `head` followed by `body`. Never fails and writes nothing.
  void Append(RecordType type, std::string_view head, std::string_view body = {});
  // Buffers a CRC record that states the running value.
  void AppendCrc();

  // Writes all appended records with one call to the file. Now and then a small write takes zeros
  // behind the records along: an allocated block that was never written costs a sync twice the
  // time, since the file system has to note that it now holds something. The first failure of
  // Write, Sync or Finish is final and returned ever after.
  absl::Status Write();
  // Makes all written records durable. What is appended but not written stays so.
  absl::Status Sync();
  // Writes, cuts the file off behind the last record, and syncs: the segment is complete.
  absl::Status Finish();

  // synced <= written <= appended, checked wherever one of them moves.
  uint64_t appended_bytes() const { return appended_; }
  uint64_t written_bytes() const { return written_; }
  uint64_t synced_bytes() const { return synced_; }
  // The running CRC behind the last appended record.
  uint32_t crc() const { return crc_; }
  const absl::Status& failure() const { return failure_; }

  // Gives up the file, whose lock is still needed. The writer must not be used after it.
  std::unique_ptr<base::File> TakeFile() { return std::move(file_); }

 private:
  absl::Status Fail(absl::Status status);
  size_t ZerosAhead() const;
  void CheckPositions() const;

  std::unique_ptr<base::File> file_;
  std::string buffer_;  // the appended, not yet written records; keeps its capacity
  uint64_t appended_;
  uint64_t written_;
  uint64_t synced_;
  uint64_t file_bytes_ = 0;  // what is allocated
  uint64_t filled_;          // records or zeros have been written up to here
  uint32_t crc_;
  absl::Status failure_;
};

}  // namespace wal
