// The db file's format: page header, meta page, branch and leaf elements, bucket headers, and
// bounds-checked readers of them. Byte tables: docs/internals/bolt.md. Pure functions and value
// types, thread-safe.
//
// A PageView never trusts what it reads: the page's own header is validated when it is loaded, and
// each element when it is touched, so a damaged page yields an error and never an access outside
// the page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"

namespace bolt {

using PageId = uint64_t;
using TxId = uint64_t;

// In a bucket header: the bucket is inline, its page follows the header.
inline constexpr PageId kInlineRoot = 0;
// In a meta page: no list of free pages is stored; they are found by scanning.
inline constexpr PageId kNoFreelist = ~uint64_t{0};

inline constexpr uint32_t kMetaMagic = 0xED0CDAED;
inline constexpr uint32_t kMetaVersion = 2;

inline constexpr uint16_t kBranchPage = 0x01;
inline constexpr uint16_t kLeafPage = 0x02;
inline constexpr uint16_t kMetaPage = 0x04;
inline constexpr uint16_t kFreelistPage = 0x10;

inline constexpr uint32_t kBucketElement = 0x01;  // leaf element flag: the value is a bucket

inline constexpr size_t kPageHeaderBytes = 16;
inline constexpr size_t kElementBytes = 16;
inline constexpr size_t kBucketHeaderBytes = 16;
inline constexpr size_t kMetaBytes = 64;  // behind the page header, the checksum included

inline constexpr uint32_t kPageBytesDefault = 4096;
inline constexpr uint32_t kPageBytesMin = 512;
inline constexpr uint32_t kPageBytesMax = 16u << 20;
inline constexpr uint32_t kElementsMax = 65534;  // of one page
inline constexpr size_t kKeyBytesMax = 32768;
inline constexpr size_t kValueBytesMax = (size_t{1} << 31) - 2;
// No tree that fits into 2^48 bytes is deeper; a deeper descent means that the pages form a cycle.
inline constexpr int kDepthMax = 64;

struct Meta {
  uint32_t page_bytes = 0;
  PageId root = 0;             // root page of the tree of top-level buckets
  uint64_t root_sequence = 0;  // unused by etcd, kept as it was
  PageId freelist = 0;         // or kNoFreelist
  PageId page_count = 0;       // high water mark: the first page id never allocated
  TxId txid = 0;
};

// Writes the whole page `id` (0 or 1) of meta.page_bytes bytes, the rest zero.
void EncodeMetaPage(const Meta& meta, PageId id, char* page);
// Decodes the meta page at the front of `page`. DataLoss "invalid database", "version mismatch" or
// "checksum error".
absl::StatusOr<Meta> DecodeMetaPage(std::string_view page);
// The four pages of a new file.
std::string FreshImage(uint32_t page_bytes);

struct PageHeader {
  PageId id;
  uint16_t flags;
  uint16_t count;
  uint32_t overflow;
};

inline PageHeader LoadPageHeader(const char* page) {
  return {base::LoadLe<uint64_t>(page), base::LoadLe<uint16_t>(page + 8),
          base::LoadLe<uint16_t>(page + 10), base::LoadLe<uint32_t>(page + 12)};
}
inline void StorePageHeader(char* page, const PageHeader& header) {
  base::StoreLe(page, header.id);
  base::StoreLe(page + 8, header.flags);
  base::StoreLe(page + 10, header.count);
  base::StoreLe(page + 12, header.overflow);
}

// One element of a leaf page or, with `child` set and no value, of a branch page.
struct Element {
  std::string_view key;
  std::string_view value;
  uint32_t flags = 0;
  PageId child = 0;
  bool is_bucket() const { return (flags & kBucketElement) != 0; }
};

// A branch or leaf page (or the page image of an inline bucket) whose header has been checked.
// Valid as long as the bytes below it.
class PageView {
 public:
  PageView() = default;

  // Checks the header of the page `id` at `page`, of which `available` bytes may be read (from the
  // page to the end of the last allocated page). False if anything is wrong; DescribeDamage then
  // says what.
  static bool Load(const char* page, PageId id, uint64_t available, uint32_t page_bytes,
                   PageView* out);
  // The same for an inline bucket's page image.
  static bool LoadInline(std::string_view image, PageView* out);

  bool leaf() const { return leaf_; }
  uint32_t count() const { return count_; }
  PageId id() const { return id_; }
  uint32_t overflow() const { return overflow_; }

  // Each returns false when element `i` (< count()) reaches outside of the page or has an empty
  // key.
  bool Key(uint32_t i, std::string_view* key) const {
    const char* at = base_ + kPageHeaderBytes + i * kElementBytes;
    const uint64_t pos = base::LoadLe<uint32_t>(at + (leaf_ ? 4 : 0));
    const uint64_t key_bytes = base::LoadLe<uint32_t>(at + (leaf_ ? 8 : 4));
    const uint64_t room = bytes_ - kPageHeaderBytes - i * kElementBytes;
    if (key_bytes == 0 || pos < kElementBytes || pos + key_bytes > room) return false;
    *key = {at + pos, key_bytes};
    return true;
  }
  bool Get(uint32_t i, Element* out) const {
    const char* at = base_ + kPageHeaderBytes + i * kElementBytes;
    if (!Key(i, &out->key)) return false;
    if (!leaf_) {
      out->value = {};
      out->flags = 0;
      out->child = base::LoadLe<uint64_t>(at + 8);
      return true;
    }
    const uint64_t value_bytes = base::LoadLe<uint32_t>(at + 12);
    const char* value = out->key.data() + out->key.size();
    if (value_bytes > bytes_ - static_cast<uint64_t>(value - base_)) return false;
    out->value = {value, value_bytes};
    out->flags = base::LoadLe<uint32_t>(at);
    out->child = 0;
    return true;
  }
  // The flags of leaf element `i`, which need no check.
  uint32_t Flags(uint32_t i) const {
    return base::LoadLe<uint32_t>(base_ + kPageHeaderBytes + i * kElementBytes);
  }

 private:
  const char* base_ = nullptr;
  uint64_t bytes_ = 0;  // of the page with its overflow; the element table fits into it
  PageId id_ = 0;
  uint32_t count_ = 0;
  uint32_t overflow_ = 0;
  bool leaf_ = false;
};

// What PageView::Load found wrong, as "page 7: expected ...".
std::string DescribeDamage(const char* page, PageId id, uint64_t available, uint32_t page_bytes);

// A bucket as a leaf element holds it.
struct BucketHeader {
  PageId root = kInlineRoot;
  uint64_t sequence = 0;
  std::string_view inline_image;  // with kInlineRoot: a leaf page image
};
// Nothing when the value is too short.
std::optional<BucketHeader> DecodeBucketHeader(std::string_view value);

}  // namespace bolt
