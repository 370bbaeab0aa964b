#include "wal/segment_writer.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "base/wire.h"

namespace wal {
namespace {

// The buffer keeps its capacity from batch to batch, but not what one giant batch needed.
constexpr size_t kBufferKeptBytesMax = 4U << 20;
// How far ahead zeros are written, and below which size a write takes some along: large ones pay
// for their blocks anyway.
constexpr uint64_t kFillBytes = 256U << 10;
constexpr size_t kSmallWriteBytes = 32U << 10;
// Length field, and the record's tags and numbers up to its data.
constexpr size_t kRecordHeadBytesMax = kAlignment + 32;

}  // namespace

SegmentWriter::SegmentWriter(std::unique_ptr<base::File> file, uint64_t offset, uint32_t crc)
    : file_(std::move(file)),
      appended_(offset),
      written_(offset),
      synced_(offset),
      filled_(offset),
      crc_(crc) {
  CHECK_OP(offset % kAlignment, ==, 0U);
  // Unknown means that nothing is written ahead.
  file_bytes_ = file_->Size().value_or(0);
}

void SegmentWriter::Append(RecordType type, std::string_view head, std::string_view body) {
  using base::wire::PutVarint;
  if (type != RecordType::kCrc) crc_ = base::Crc32c(base::Crc32c(crc_, head), body);
  char prefix[kRecordHeadBytesMax];
  char* p = prefix + kAlignment;
  *p++ = 0x08;  // field 1, varint
  p = PutVarint(p, static_cast<uint64_t>(type));
  *p++ = 0x10;  // field 2, varint
  p = PutVarint(p, crc_);
  const uint64_t data_bytes = head.size() + body.size();
  if (type != RecordType::kCrc) {
    *p++ = 0x1a;  // field 3, bytes
    p = PutVarint(p, data_bytes);
  }
  const auto prefix_bytes = static_cast<size_t>(p - prefix);
  const uint64_t record_bytes = prefix_bytes - kAlignment + data_bytes;
  const uint64_t padding = (kAlignment - record_bytes % kAlignment) % kAlignment;
  const uint64_t length =
      record_bytes | (padding != 0 ? kPaddedFlag | padding << kPaddingShift : 0);
  base::StoreLe(prefix, length);

  buffer_.append(prefix, prefix_bytes);
  buffer_.append(head);
  buffer_.append(body);
  buffer_.append(padding, '\0');
  appended_ += kAlignment + record_bytes + padding;
  CheckPositions();
}

void SegmentWriter::AppendCrc() { Append(RecordType::kCrc, {}); }

size_t SegmentWriter::ZerosAhead() const {
  if (buffer_.size() > kSmallWriteBytes || appended_ <= filled_) return 0;
  const uint64_t end = std::min((appended_ / kFillBytes + 1) * kFillBytes, file_bytes_);
  return end > appended_ ? end - appended_ : 0;
}

absl::Status SegmentWriter::Write() {
  if (!failure_.ok()) return failure_;
  if (buffer_.empty()) return absl::OkStatus();
  buffer_.append(ZerosAhead(), '\0');
  if (absl::Status status = file_->WriteAt(written_, buffer_); !status.ok())
    return Fail(std::move(status));
  filled_ = std::max(filled_, written_ + buffer_.size());
  written_ = appended_;
  CheckPositions();
  buffer_.clear();
  if (buffer_.capacity() > kBufferKeptBytesMax) buffer_.shrink_to_fit();
  return absl::OkStatus();
}

absl::Status SegmentWriter::Sync() {
  if (!failure_.ok()) return failure_;
  if (absl::Status status = file_->Sync(); !status.ok()) return Fail(std::move(status));
  synced_ = written_;
  CheckPositions();
  return absl::OkStatus();
}

absl::Status SegmentWriter::Finish() {
  RETURN_IF_ERROR(Write());
  if (absl::Status status = file_->Truncate(written_); !status.ok()) return Fail(std::move(status));
  return Sync();
}

absl::Status SegmentWriter::Fail(absl::Status status) {
  failure_ = std::move(status);
  return failure_;
}

void SegmentWriter::CheckPositions() const {
  CHECK_OP(synced_, <=, written_);
  CHECK_OP(written_, <=, appended_);
  CHECK_OP(appended_ % kAlignment, ==, 0U);
}

}  // namespace wal
