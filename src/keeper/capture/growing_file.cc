#include "capture/growing_file.h"

#include <algorithm>

#include "base/status.h"

namespace capture {
namespace {

// To wake the reader for every piece costs more than the piece.
constexpr uint64_t kStepBytes = uint64_t{256} << 10;

}  // namespace

void GrowingFile::Grow(uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    bytes_ = bytes;
  }
  if (bytes - told_ < kStepBytes) return;
  told_ = bytes;
  changed_.notify_one();
}

void GrowingFile::End(const absl::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    status_ = status;
  }
  changed_.notify_one();
}

absl::StatusOr<size_t> GrowingFile::Read(char* out, size_t n) {
  uint64_t there = 0;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return bytes_ > offset_ || ended_; });
    RETURN_IF_ERROR(status_);
    there = bytes_ - offset_;
  }
  const size_t wanted = static_cast<size_t>(std::min<uint64_t>(n, there));
  if (wanted == 0) return 0;
  ASSIGN_OR_RETURN(const size_t got, file_->ReadAt(offset_, out, wanted));
  if (got == 0) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "{}: ends at byte {}, which was written to {}", file_->path(), offset_,
                            offset_ + there);
  }
  offset_ += got;
  return got;
}

}  // namespace capture
