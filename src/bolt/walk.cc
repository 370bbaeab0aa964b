#include "bolt/walk.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/status.h"

namespace bolt::internal {
namespace {

class Walker {
 public:
  Walker(const PageSource& source, PageSet* reachable,
         absl::FunctionRef<bool(std::string_view)> report)
      : source_(source), reachable_(*reachable), report_(report) {}

  // Walks the tree at `id`, whose keys must lie in [low, high). False when the walk has been ended.
  bool Page(PageId id, std::string_view low, std::optional<std::string_view> high, int depth) {
    PageView page;
    if (!source_.Load(id, &page)) {
      // Still reachable, so that it is not called unreachable besides.
      if (id >= 2 && id < source_.page_count) reachable_.Insert(id);
      return Report(base::Message(source_.Damage(id)).substr(prefix_));
    }
    for (PageId i = id; i <= id + page.overflow(); ++i) {
      if (!reachable_.Insert(i)) return Report(fmt::format("page {}: multiple references", i));
    }
    if (depth >= kDepthMax)
      return Report(fmt::format("page {}: expected at most {} levels", id, kDepthMax));
    return Elements(page, low, high, depth);
  }

  bool Elements(const PageView& page, std::string_view low, std::optional<std::string_view> high,
                int depth) {
    Element element;
    std::string_view previous;
    bool going = true;
    for (uint32_t i = 0; i < page.count() && going; ++i) {
      if (!page.Get(i, &element)) {
        // The others cannot be told apart from garbage.
        return Report(fmt::format("page {}: expected element {} to lie inside the page with a key",
                                  page.id(), i));
      }
      const std::string_view key = element.key;
      if (i == 0 ? key < low : key <= previous) {
        going = Report(fmt::format("page {}: expected {}", page.id(),
                                   i == 0 ? "its first key at or above the key of its parent"
                                          : "keys in ascending order"));
      }
      previous = key;
      if (!going) break;
      if (page.leaf()) {
        if (element.is_bucket()) going = Bucket(page.id(), element, depth);
        continue;
      }
      std::optional<std::string_view> child_high = high;
      if (std::string_view next; i + 1 < page.count() && page.Key(i + 1, &next)) child_high = next;
      going = Page(element.child, key, child_high, depth + 1);
    }
    if (going && high && page.count() > 0 && previous >= *high) {
      going = Report(fmt::format("page {}: expected its last key below the next key of its parent",
                                 page.id()));
    }
    return going;
  }

  bool Bucket(PageId page, const Element& element, int depth) {
    const std::optional<BucketHeader> header = DecodeBucketHeader(element.value);
    if (!header) return Report(fmt::format("page {}: expected a bucket header of 16 bytes", page));
    if (depth >= kDepthMax)
      return Report(fmt::format("page {}: expected at most {} levels", page, kDepthMax));
    if (header->root != kInlineRoot) return Page(header->root, {}, std::nullopt, depth + 1);
    PageView image;
    if (!PageView::LoadInline(header->inline_image, &image)) {
      return Report(fmt::format("page {}: expected an inline bucket to be a leaf page", page));
    }
    return Elements(image, {}, std::nullopt, depth + 1);
  }

  bool Report(std::string_view finding) {
    whole_ = false;
    return report_(finding);
  }
  bool whole() const { return whole_; }

 private:
  const PageSource& source_;
  PageSet& reachable_;
  absl::FunctionRef<bool(std::string_view)> report_;
  const size_t prefix_ =
      fmt::format("db file {}: ", *source_.path).size();  // of PageSource's messages
  bool whole_ = true;
};

}  // namespace

bool WalkReachable(const PageSource& source, const Meta& meta, PageSet* reachable,
                   absl::FunctionRef<bool(std::string_view finding)> report) {
  Walker walker(source, reachable, report);
  walker.Page(meta.root, {}, std::nullopt, 0);
  return walker.whole();
}

absl::Status ReadFreelistPage(const PageSource& source, PageId id, std::vector<PageId>* ids,
                              uint32_t* overflow) {
  const char* const page = source.data + id * source.page_bytes;
  const PageHeader header = LoadPageHeader(page);
  if (header.id != id)
    return source.Damage(id, fmt::format("expected its own id, found {}", header.id));
  if (header.flags != kFreelistPage) {
    return source.Damage(id,
                         fmt::format("expected a freelist page, found flags 0x{:x}", header.flags));
  }
  if (header.overflow >= source.page_count - id) {
    return source.Damage(
        id, fmt::format("expected the freelist to end before page {}, found {} overflow pages",
                        source.page_count, header.overflow));
  }
  const uint64_t bytes = (uint64_t{header.overflow} + 1) * source.page_bytes;
  const bool counted = header.count == 0xFFFF;
  const uint64_t count = counted ? base::LoadLe<uint64_t>(page + kPageHeaderBytes) : header.count;
  const uint64_t at = kPageHeaderBytes + (counted ? sizeof(uint64_t) : 0);
  if (count > (bytes - at) / sizeof(PageId)) {
    return source.Damage(id,
                         fmt::format("expected {} free pages to fit into {} bytes", count, bytes));
  }
  ids->resize(static_cast<size_t>(count));
  if (count > 0) std::memcpy(ids->data(), page + at, static_cast<size_t>(count) * sizeof(PageId));
  std::sort(ids->begin(), ids->end());
  for (size_t i = 0; i < ids->size(); ++i) {
    const PageId free = (*ids)[i];
    if (free < 2 || free >= source.page_count) {
      return source.Damage(id, fmt::format("expected free pages from 2 to {}, found {}",
                                           source.page_count - 1, free));
    }
    if (i > 0 && free == (*ids)[i - 1]) {
      return source.Damage(id, fmt::format("expected page {} to be listed once as free", free));
    }
  }
  *overflow = header.overflow;
  return absl::OkStatus();
}

}  // namespace bolt::internal
