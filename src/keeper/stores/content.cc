#include "stores/content.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"

namespace stores {
namespace {

size_t Clip(uint64_t bytes, uint64_t offset, size_t n) {
  return static_cast<size_t>(std::min<uint64_t>(n, bytes - std::min(bytes, offset)));
}

}  // namespace

absl::StatusOr<size_t> FileContent::ReadAt(uint64_t offset, char* out, size_t n) const {
  const size_t wanted = Clip(bytes_, offset, n);
  return wanted == 0 ? absl::StatusOr<size_t>(0) : file_.ReadAt(offset, out, wanted);
}

absl::StatusOr<size_t> BytesContent::ReadAt(uint64_t offset, char* out, size_t n) const {
  const size_t wanted = Clip(data_.size(), offset, n);
  if (wanted > 0) std::memcpy(out, data_.data() + offset, wanted);
  return wanted;
}

absl::StatusOr<size_t> ContentSource::Read(char* out, size_t n) {
  if (at_ == content_.bytes()) return 0;
  ASSIGN_OR_RETURN(const size_t got, content_.ReadToSend(at_, out, n));
  if (got == 0) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "what is to be stored ends at {} of {} bytes", at_, content_.bytes());
  }
  at_ += got;
  return got;
}

}  // namespace stores
