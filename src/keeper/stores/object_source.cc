#include "stores/object_source.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"

namespace stores {

absl::StatusOr<size_t> ObjectSource::Read(char* out, size_t n) {
  RETURN_IF_ERROR(failure_);
  if (piece_at_ == piece_.size()) {
    if (fetched_ == bytes_) return 0;
    failure_ = NextPiece();
    RETURN_IF_ERROR(failure_);
  }
  const size_t got = std::min(n, piece_.size() - piece_at_);
  std::memcpy(out, piece_.data() + piece_at_, got);
  piece_at_ += got;
  return got;
}

absl::Status ObjectSource::NextPiece() {
  const auto wanted = static_cast<size_t>(std::min<uint64_t>(piece_bytes_, bytes_ - fetched_));
  piece_.clear();
  piece_at_ = 0;
  vault::StringSink sink(&piece_, wanted);
  const absl::Status status = store_.Get(name_, offset_ + fetched_, wanted, sink, deadline_);
  if (absl::IsOutOfRange(status)) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "{}: it is shorter than its {} bytes",
                            name_, offset_ + bytes_);
  }
  RETURN_IF_ERROR(status);
  if (piece_.size() != wanted) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "{}: the store gave {} of the {} bytes at {}", name_, piece_.size(),
                            wanted, offset_ + fetched_);
  }
  fetched_ += wanted;
  return absl::OkStatus();
}

}  // namespace stores
