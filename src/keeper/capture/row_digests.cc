#include "capture/row_digests.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/status.h"

namespace capture {
namespace {

// | magic, 8 | first revision, 8 | length of the source's name, 8 | name | digests | SHA-256 |
constexpr std::string_view kMagic = "EKROWS1\n";
constexpr size_t kHeadBytes = 24;
constexpr size_t kSourceBytesMax = 4096;

}  // namespace

void RowDigester::Add(bool tombstone, std::string_view value) {
  char head[9];
  head[0] = tombstone ? 'd' : 'p';
  base::StoreBe64(head + 1, value.size());
  rows_.append(head, sizeof head);
  rows_.append(value);
}

RowDigest RowDigester::Take() {
  const base::Digest whole = base::Sha256(rows_);
  rows_.clear();
  RowDigest digest;
  std::copy_n(whole.begin(), digest.size(), digest.begin());
  return digest;
}

void RowDigests::Append(int64_t revision, const RowDigest& digest) {
  if (digests_.empty() || revision != last() + 1) {
    digests_.clear();
    first_ = revision;
  }
  if (digests_.size() >= kRevisionsMax) {
    // In blocks, so that it costs little a revision.
    const size_t dropped = kRevisionsMax / 10;
    digests_.erase(digests_.begin(), digests_.begin() + static_cast<ptrdiff_t>(dropped));
    first_ += static_cast<int64_t>(dropped);
  }
  digests_.push_back(digest);
}

RowDigests::Comparison RowDigests::CompareWith(const RowDigests& other, int64_t after) const {
  Comparison comparison{.from = after, .to = after, .first_difference = {}};
  if (empty() || other.empty()) return comparison;
  const int64_t from = std::max({after + 1, first_, other.first_});
  const int64_t to = std::min(last(), other.last());
  if (from > to) return comparison;
  comparison.from = from - 1;
  comparison.to = to;
  for (int64_t r = from; r <= to; ++r) {
    if (at(r) == other.at(r)) continue;
    comparison.first_difference = r;
    break;
  }
  return comparison;
}

absl::Status RowDigests::Save(base::Files& files, const std::string& path,
                              const std::string& source) const {
  std::string bytes(kHeadBytes, '\0');
  std::copy(kMagic.begin(), kMagic.end(), bytes.begin());
  base::StoreBe64(bytes.data() + 8, static_cast<uint64_t>(first_));
  base::StoreBe64(bytes.data() + 16, source.size());
  bytes += source;
  for (const RowDigest& digest : digests_) {
    bytes.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
  const base::Digest digest = base::Sha256(bytes);
  bytes += base::DigestBytes(digest);
  return base::WriteFileAtomically(files, path, bytes, 0600);
}

absl::StatusOr<RowDigests> RowDigests::Load(base::Files& files, const std::string& path,
                                            std::string* source) {
  ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(files, path));
  const auto damaged = [&] {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "{} is damaged", path);
  };
  if (bytes.size() < kHeadBytes + base::kDigestBytes || !bytes.starts_with(kMagic)) {
    return damaged();
  }
  const std::string_view body(bytes.data(), bytes.size() - base::kDigestBytes);
  const base::Digest digest = base::Sha256(body);
  if (!std::string_view(bytes).ends_with(base::DigestBytes(digest))) return damaged();
  const uint64_t source_bytes = base::LoadBe64(bytes.data() + 16);
  if (source_bytes > std::min(kSourceBytesMax, body.size() - kHeadBytes)) return damaged();
  const std::string_view rows = body.substr(kHeadBytes + source_bytes);
  if (rows.size() % sizeof(RowDigest) != 0) return damaged();
  *source = body.substr(kHeadBytes, source_bytes);
  RowDigests digests;
  digests.first_ = static_cast<int64_t>(base::LoadBe64(bytes.data() + 8));
  digests.digests_.resize(rows.size() / sizeof(RowDigest));
  // Of an empty cluster there is none, and no memory to copy to.
  if (!rows.empty()) std::memcpy(digests.digests_.data(), rows.data(), rows.size());
  return digests;
}

}  // namespace capture
