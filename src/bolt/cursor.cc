#include <utility>

#include "base/status.h"
#include "bolt/node.h"
#include "bolt/tx.h"

namespace bolt {

using internal::Item;
using internal::Node;

absl::Status internal::PageSource::Damage(PageId id) const {
  if (id < 2 || id >= page_count) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "db file {}: page {}: expected an id from 2 to {}, the last page",
                            *path, id, page_count - 1);
  }
  return base::MakeStatus(
      absl::StatusCode::kDataLoss, "db file {}: {}", *path,
      DescribeDamage(data + id * page_bytes, id, (page_count - id) * page_bytes, page_bytes));
}

absl::Status internal::PageSource::Damage(PageId id, std::string_view what) const {
  return base::MakeStatus(absl::StatusCode::kDataLoss, "db file {}: page {}: {}", *path, id, what);
}

namespace {

constexpr std::string_view kBadElement = "expected every element to lie inside the page with a key";
constexpr std::string_view kCycle = "expected a tree, found a cycle of pages";

// As memcmp does, then the shorter first. Most keys differ within their first 8 bytes, revisions
// always do unless they are of one transaction; comparing those as a number spares the call.
int CompareKeys(std::string_view a, std::string_view b) {
  if (a.size() >= sizeof(uint64_t) && b.size() >= sizeof(uint64_t)) {
    const uint64_t x = base::LoadBe64(a.data());
    const uint64_t y = base::LoadBe64(b.data());
    if (x != y) return x < y ? -1 : 1;
  }
  return a.compare(b);
}

// Index of the first element with key >= `key` (count() if none) and whether it is equal; false on
// damage.
bool LowerBound(const PageView& page, std::string_view key, uint32_t* index, bool* exact) {
  uint32_t low = 0;
  uint32_t high = page.count();
  *exact = false;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    std::string_view at;
    if (!page.Key(middle, &at)) return false;
    const int order = CompareKeys(at, key);
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
      if (order == 0) {
        *exact = true;
        break;
      }
    }
  }
  *index = high;
  return true;
}

}  // namespace

absl::Status Bucket::LoadRoot(PageView* out) const {
  if (root_ != kInlineRoot) {
    return source_->Load(root_, out) ? absl::OkStatus() : source_->Damage(root_);
  }
  if (PageView::LoadInline(inline_image_, out)) return absl::OkStatus();
  return base::MakeStatus(absl::StatusCode::kDataLoss,
                          "db file {}: expected an inline bucket of {} bytes to be a leaf page",
                          *source_->path, inline_image_.size());
}

absl::StatusOr<std::optional<std::string_view>> Bucket::Get(std::string_view key,
                                                            LeafHint* hint) const {
  const auto covers = [&](const LeafHint::Level& level) {
    return !level.first.empty() && CompareKeys(level.first, key) <= 0 &&
           CompareKeys(key, level.last) <= 0;
  };
  const auto keep = [](const PageView& page, LeafHint::Level* level) {
    level->first = {};
    std::string_view first;
    if (page.count() < 2 || !page.Key(0, &first) || !page.Key(page.count() - 1, &level->last))
      return;
    level->page = page;
    level->first = first;
  };
  PageView page;
  if (hint != nullptr && covers(hint->leaf_)) {
    page = hint->leaf_.page;
  } else if (hint != nullptr && covers(hint->branch_)) {
    page = hint->branch_.page;
  } else {
    RETURN_IF_ERROR(LoadRoot(&page));
  }
  for (int depth = 0; depth < kDepthMax; ++depth) {
    uint32_t index;
    bool exact;
    if (!LowerBound(page, key, &index, &exact)) return source_->Damage(page.id(), kBadElement);
    if (page.leaf() && !exact) return std::nullopt;
    if (!page.leaf() && !exact && index > 0) --index;
    Element element;
    if (!page.Get(index, &element)) return source_->Damage(page.id(), kBadElement);
    if (page.leaf()) {
      if (hint != nullptr) keep(page, &hint->leaf_);
      if (element.is_bucket()) return std::nullopt;
      return element.value;
    }
    const PageView parent = page;
    if (!source_->Load(element.child, &page)) return source_->Damage(element.child);
    if (hint != nullptr && page.leaf()) keep(parent, &hint->branch_);
  }
  return source_->Damage(page.id(), kCycle);
}

absl::StatusOr<Bucket> Bucket::bucket(std::string_view name) const {
  Cursor at = cursor();
  ASSIGN_OR_RETURN(const bool found, at.Seek(name));
  if (!found || at.key() != name || !at.is_bucket()) return absl::NotFoundError("bucket not found");
  const std::optional<BucketHeader> header = DecodeBucketHeader(at.value());
  if (!header) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "db file {}: bucket {}: expected a header of {} bytes, found {}",
                            *source_->path, name, kBucketHeaderBytes, at.value().size());
  }
  Bucket nested;
  nested.source_ = source_;
  nested.root_ = header->root;
  nested.inline_image_ = header->inline_image;
  nested.sequence_ = header->sequence;
  return nested;
}

absl::StatusOr<std::vector<std::string_view>> Bucket::CutKeys(size_t parts_max) const {
  PageView root;
  RETURN_IF_ERROR(LoadRoot(&root));
  // The branch pages of one level after the other, until one has enough children.
  std::vector<PageView> level = {root};
  std::vector<std::string_view> keys;
  for (int depth = 0; depth < kDepthMax && !level.front().leaf(); ++depth) {
    keys.clear();
    std::vector<PageId> children;
    for (const PageView& page : level) {
      for (uint32_t i = 0; i < page.count() && !page.leaf(); ++i) {
        Element element;
        if (!page.Get(i, &element)) return source_->Damage(page.id(), kBadElement);
        keys.push_back(element.key);
        children.push_back(element.child);
      }
    }
    if (keys.size() >= parts_max * 8 || children.size() > source_->page_count) break;
    level.clear();
    for (const PageId child : children) {
      PageView page;
      if (!source_->Load(child, &page)) return source_->Damage(child);
      level.push_back(page);
    }
  }
  std::vector<std::string_view> cuts;
  for (size_t part = 1; part < parts_max; ++part) {
    const size_t at = keys.size() * part / parts_max;
    if (at == 0 || (!cuts.empty() && keys[at] <= cuts.back())) continue;
    cuts.push_back(keys[at]);
  }
  return cuts;
}

Cursor Bucket::cursor() const { return Cursor(*this); }

Cursor::Cursor(const WriteBucket& bucket) : bucket_(bucket.stored_), writing_(&bucket) {}

uint32_t Cursor::Level::count() const {
  return node != nullptr ? static_cast<uint32_t>(node->items.size()) : page.count();
}

bool Cursor::Level::leaf() const { return node != nullptr ? node->leaf : page.leaf(); }

absl::Status Cursor::Get(const Level& level, Element* out) const {
  if (level.node == nullptr) {
    if (level.page.Get(level.index, out)) return absl::OkStatus();
    return bucket_.source_->Damage(level.page.id(), kBadElement);
  }
  const Item& item = level.node->items[level.index];
  out->key = item.key();
  if (level.node->leaf) {
    out->value = item.value();
    out->flags = static_cast<uint32_t>(item.flags);
  } else {
    out->child = item.page;
  }
  return absl::OkStatus();
}

absl::Status Cursor::PushRoot() {
  path_.clear();
  valid_ = false;
  if (writing_ != nullptr) change_count_ = writing_->change_count_;
  Level level;
  if (writing_ != nullptr && writing_->root_ != nullptr) {
    level.node = writing_->root_;
  } else {
    RETURN_IF_ERROR(bucket_.LoadRoot(&level.page));
  }
  if (path_.capacity() == 0) path_.reserve(6);
  path_.push_back(level);
  return absl::OkStatus();
}

absl::Status Cursor::PushChild() {
  const Level& above = path_.back();
  Level level;
  if (above.node != nullptr && above.node->items[above.index].child != nullptr) {
    level.node = above.node->items[above.index].child;
  } else {
    Element element;
    RETURN_IF_ERROR(Get(above, &element));
    if (path_.size() >= kDepthMax) return bucket_.source_->Damage(element.child, kCycle);
    if (!bucket_.source_->Load(element.child, &level.page))
      return bucket_.source_->Damage(element.child);
  }
  path_.push_back(level);
  return absl::OkStatus();
}

// From the last level of the path down to a leaf along its first or last children. Ends at a branch
// only if that is empty, which a node may be within a transaction.
absl::Status Cursor::Descend(bool to_last) {
  while (true) {
    Level& level = path_.back();
    if (level.leaf() || level.count() == 0) break;
    RETURN_IF_ERROR(PushChild());
    Level& child = path_.back();
    child.index = to_last && child.count() > 0 ? child.count() - 1 : 0;
  }
  return absl::OkStatus();
}

// Notes the ends of the leaf at the end of the path, which must have elements. With `forward`: the
// leaf has to lie beyond the one stood on before. Together with first <= last in every leaf, no
// leaf can then be met twice.
absl::Status Cursor::EnterLeaf(const bool* forward) {
  Level& level = path_.back();
  Element element;
  const uint32_t index = std::exchange(level.index, 0);
  RETURN_IF_ERROR(Get(level, &element));
  const std::string_view first = element.key;
  level.index = level.count() - 1;
  RETURN_IF_ERROR(Get(level, &element));
  const std::string_view last = element.key;
  level.index = index;
  if (first > last ||
      (forward != nullptr && (*forward ? first <= leaf_last_ : last >= leaf_first_))) {
    return bucket_.source_->Damage(level.page.id(), "expected keys in ascending order");
  }
  leaf_first_ = first;
  leaf_last_ = last;
  return absl::OkStatus();
}

absl::StatusOr<bool> Cursor::Land() {
  RETURN_IF_ERROR(Get(path_.back(), &element_));
  valid_ = true;
  return true;
}

absl::StatusOr<bool> Cursor::Step(bool forward) {
  valid_ = false;
  PageId empty_leaves = 0;
  while (!path_.empty()) {
    Level& level = path_.back();
    if (forward ? level.index + 1 >= level.count() : level.index == 0) {
      path_.pop_back();
      continue;
    }
    level.index += forward ? 1u : ~0u;
    if (level.leaf()) return Land();
    RETURN_IF_ERROR(Descend(!forward));
    if (path_.back().leaf() && path_.back().count() > 0) {
      // The first leaf with elements has nothing before it to be compared with.
      RETURN_IF_ERROR(EnterLeaf(leaf_first_.empty() ? nullptr : &forward));
      return Land();
    }
    if (++empty_leaves > bucket_.source_->page_count + 2) {
      return bucket_.source_->Damage(path_.back().page.id(), kCycle);
    }
  }
  return false;
}

absl::StatusOr<bool> Cursor::First() {
  RETURN_IF_ERROR(PushRoot());
  leaf_first_ = leaf_last_ = {};
  RETURN_IF_ERROR(Descend(false));
  if (!path_.back().leaf() || path_.back().count() == 0) return Step(true);
  RETURN_IF_ERROR(EnterLeaf(nullptr));
  return Land();
}

absl::StatusOr<bool> Cursor::Last() {
  RETURN_IF_ERROR(PushRoot());
  leaf_first_ = leaf_last_ = {};
  path_.back().index = path_.back().count() > 0 ? path_.back().count() - 1 : 0;
  RETURN_IF_ERROR(Descend(true));
  if (!path_.back().leaf() || path_.back().count() == 0) return Step(false);
  RETURN_IF_ERROR(EnterLeaf(nullptr));
  return Land();
}

absl::Status Cursor::SearchLevel(Level& level, std::string_view key, bool* exact) const {
  if (level.node != nullptr) {
    level.index = level.node->LowerBound(key, exact);
  } else if (!LowerBound(level.page, key, &level.index, exact)) {
    return bucket_.source_->Damage(level.page.id(), kBadElement);
  }
  if (!level.leaf() && !*exact && level.index > 0) --level.index;
  return absl::OkStatus();
}

absl::StatusOr<bool> Cursor::Seek(std::string_view key) {
  RETURN_IF_ERROR(PushRoot());
  leaf_first_ = leaf_last_ = {};
  bool exact = false;
  RETURN_IF_ERROR(SearchLevel(path_.back(), key, &exact));
  while (!path_.back().leaf() && path_.back().count() > 0) {
    RETURN_IF_ERROR(PushChild());
    RETURN_IF_ERROR(SearchLevel(path_.back(), key, &exact));
  }
  Level& level = path_.back();
  if (!level.leaf() || level.count() == 0) return Step(true);
  RETURN_IF_ERROR(EnterLeaf(nullptr));
  if (level.index < level.count()) return Land();
  level.index = level.count() - 1;
  return Step(true);
}

// The bucket has changed below the cursor: finds its place again by the key it stood on.
absl::StatusOr<bool> Cursor::Reseek(bool forward) {
  const std::string_view old = element_.key;
  ASSIGN_OR_RETURN(const bool found, Seek(old));
  if (forward) return found && key() == old ? Step(true) : found;
  if (!found) return Last();
  return Step(false);
}

absl::StatusOr<bool> Cursor::Next() {
  if (!valid_) return false;
  if (writing_ != nullptr && change_count_ != writing_->change_count_) return Reseek(true);
  return Step(true);
}

absl::StatusOr<bool> Cursor::Prev() {
  if (!valid_) return false;
  if (writing_ != nullptr && change_count_ != writing_->change_count_) return Reseek(false);
  return Step(false);
}

}  // namespace bolt
