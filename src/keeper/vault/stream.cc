#include "vault/stream.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/status.h"

namespace vault {
namespace {

constexpr size_t kCopyBytes = size_t{64} << 10;

}  // namespace

absl::StatusOr<size_t> ReadFully(Source& from, char* out, size_t n) {
  size_t done = 0;
  while (done < n) {
    ASSIGN_OR_RETURN(const size_t got, from.Read(out + done, n - done));
    if (got == 0) break;
    done += got;
  }
  return done;
}

absl::StatusOr<uint64_t> Copy(Source& from, Sink& to) {
  std::vector<char> piece(kCopyBytes);
  for (uint64_t total = 0;;) {
    ASSIGN_OR_RETURN(const size_t got, from.Read(piece.data(), piece.size()));
    if (got == 0) return total;
    RETURN_IF_ERROR(to.Write({piece.data(), got}));
    total += got;
  }
}

absl::Status FileSink::Write(std::string_view data) {
  RETURN_IF_ERROR(file_.WriteAt(offset_, data));
  offset_ += data.size();
  return absl::OkStatus();
}

absl::StatusOr<size_t> FileSource::Read(char* out, size_t n) {
  if (left_ == 0) return 0;
  const size_t wanted = static_cast<size_t>(std::min<uint64_t>(n, left_));
  ASSIGN_OR_RETURN(const size_t got, file_.ReadAt(offset_, out, wanted));
  if (got == 0) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "{}: ends at byte {}, {} bytes too early",
                            file_.path(), offset_, left_);
  }
  offset_ += got;
  left_ -= got;
  return got;
}

absl::Status StringSink::Write(std::string_view data) {
  if (data.size() > bytes_max_ - std::min(bytes_max_, out_->size())) {
    return base::MakeStatus(absl::StatusCode::kResourceExhausted,
                            "more than the {} bytes that may come here", bytes_max_);
  }
  out_->append(data);
  return absl::OkStatus();
}

absl::StatusOr<size_t> StringSource::Read(char* out, size_t n) {
  const size_t got = std::min(n, left_.size());
  std::memcpy(out, left_.data(), got);
  left_.remove_prefix(got);
  return got;
}

absl::Status HashingSink::Write(std::string_view data) {
  stream_.Update(data);
  bytes_ += data.size();
  return next_.Write(data);
}

absl::Status HashingSink::Finish() {
  digest_ = stream_.Finish();
  return next_.Finish();
}

const base::Digest& HashingSink::digest() const {
  CHECK(digest_.has_value());
  return *digest_;
}

absl::StatusOr<size_t> HashingSource::Read(char* out, size_t n) {
  if (digest_.has_value()) return 0;
  ASSIGN_OR_RETURN(const size_t got, from_.Read(out, n));
  if (got == 0) {
    digest_ = stream_.Finish();
  } else {
    stream_.Update({out, got});
    bytes_ += got;
  }
  return got;
}

}  // namespace vault
