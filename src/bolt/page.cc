#include "bolt/page.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/status.h"

namespace bolt {
namespace {

// Offsets in a meta page.
constexpr size_t kMetaAt = kPageHeaderBytes;
constexpr size_t kChecksummedBytes = kMetaBytes - 8;

}  // namespace

void EncodeMetaPage(const Meta& meta, PageId id, char* page) {
  CHECK_OP(meta.root, <, meta.page_count);
  CHECK(meta.freelist == kNoFreelist || meta.freelist < meta.page_count);
  std::memset(page, 0, meta.page_bytes);
  StorePageHeader(page, {.id = id, .flags = kMetaPage, .count = 0, .overflow = 0});
  char* const at = page + kMetaAt;
  base::StoreLe(at, kMetaMagic);
  base::StoreLe(at + 4, kMetaVersion);
  base::StoreLe(at + 8, meta.page_bytes);
  base::StoreLe(at + 12, uint32_t{0});
  base::StoreLe(at + 16, meta.root);
  base::StoreLe(at + 24, meta.root_sequence);
  base::StoreLe(at + 32, meta.freelist);
  base::StoreLe(at + 40, meta.page_count);
  base::StoreLe(at + 48, meta.txid);
  base::StoreLe(at + 56, base::Fnv1a64({at, kChecksummedBytes}));
}

absl::StatusOr<Meta> DecodeMetaPage(std::string_view page) {
  if (page.size() < kMetaAt + kMetaBytes) return absl::DataLossError("invalid database");
  const char* const at = page.data() + kMetaAt;
  if (base::LoadLe<uint32_t>(at) != kMetaMagic) return absl::DataLossError("invalid database");
  if (base::LoadLe<uint32_t>(at + 4) != kMetaVersion)
    return absl::DataLossError("version mismatch");
  if (base::LoadLe<uint64_t>(at + 56) != base::Fnv1a64({at, kChecksummedBytes})) {
    return absl::DataLossError("checksum error");
  }
  return Meta{.page_bytes = base::LoadLe<uint32_t>(at + 8),
              .root = base::LoadLe<uint64_t>(at + 16),
              .root_sequence = base::LoadLe<uint64_t>(at + 24),
              .freelist = base::LoadLe<uint64_t>(at + 32),
              .page_count = base::LoadLe<uint64_t>(at + 40),
              .txid = base::LoadLe<uint64_t>(at + 48)};
}

std::string FreshImage(uint32_t page_bytes) {
  std::string image(size_t{4} * page_bytes, '\0');
  Meta meta{.page_bytes = page_bytes, .root = 3, .freelist = 2, .page_count = 4};
  for (PageId id = 0; id < 2; ++id) {
    meta.txid = id;
    EncodeMetaPage(meta, id, image.data() + id * page_bytes);
  }
  StorePageHeader(image.data() + size_t{2} * page_bytes,
                  {.id = 2, .flags = kFreelistPage, .count = 0, .overflow = 0});
  StorePageHeader(image.data() + size_t{3} * page_bytes,
                  {.id = 3, .flags = kLeafPage, .count = 0, .overflow = 0});
  return image;
}

bool PageView::Load(const char* page, PageId id, uint64_t available, uint32_t page_bytes,
                    PageView* out) {
  if (available < page_bytes) return false;
  const PageHeader header = LoadPageHeader(page);
  const uint64_t bytes = (uint64_t{header.overflow} + 1) * page_bytes;
  const bool leaf = header.flags == kLeafPage;
  if (header.id != id || (!leaf && header.flags != kBranchPage) || bytes > available ||
      kPageHeaderBytes + header.count * kElementBytes > bytes || (!leaf && header.count == 0)) {
    return false;
  }
  out->base_ = page;
  out->bytes_ = bytes;
  out->id_ = id;
  out->count_ = header.count;
  out->overflow_ = header.overflow;
  out->leaf_ = leaf;
  return true;
}

bool PageView::LoadInline(std::string_view image, PageView* out) {
  if (image.size() < kPageHeaderBytes) return false;
  const PageHeader header = LoadPageHeader(image.data());
  if (header.flags != kLeafPage || header.overflow != 0 ||
      kPageHeaderBytes + header.count * kElementBytes > image.size()) {
    return false;
  }
  out->base_ = image.data();
  out->bytes_ = image.size();
  out->id_ = 0;
  out->count_ = header.count;
  out->overflow_ = 0;
  out->leaf_ = true;
  return true;
}

std::string DescribeDamage(const char* page, PageId id, uint64_t available, uint32_t page_bytes) {
  if (available < page_bytes)
    return fmt::format("page {}: expected a whole page, found the end of the file", id);
  const PageHeader header = LoadPageHeader(page);
  if (header.id != id) return fmt::format("page {}: expected its own id, found {}", id, header.id);
  if (header.flags != kLeafPage && header.flags != kBranchPage) {
    return fmt::format("page {}: expected a branch or leaf page, found flags 0x{:x}", id,
                       header.flags);
  }
  const uint64_t bytes = (uint64_t{header.overflow} + 1) * page_bytes;
  if (bytes > available) {
    return fmt::format("page {}: expected at most {} overflow pages, found {}", id,
                       available / page_bytes - 1, header.overflow);
  }
  if (kPageHeaderBytes + header.count * kElementBytes > bytes) {
    return fmt::format("page {}: expected its {} elements to fit into {} bytes", id, header.count,
                       bytes);
  }
  if (header.flags == kBranchPage && header.count == 0) {
    return fmt::format("page {}: expected a branch page to have elements", id);
  }
  return fmt::format("page {}: expected every element to lie inside the page with a key", id);
}

std::optional<BucketHeader> DecodeBucketHeader(std::string_view value) {
  if (value.size() < kBucketHeaderBytes) return std::nullopt;
  BucketHeader header{.root = base::LoadLe<uint64_t>(value.data()),
                      .sequence = base::LoadLe<uint64_t>(value.data() + 8),
                      .inline_image = {}};
  if (header.root == kInlineRoot) header.inline_image = value.substr(kBucketHeaderBytes);
  return header;
}

}  // namespace bolt
