#include "bolt/tree_editor.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/status.h"

namespace bolt::internal {
namespace {

// A loaded leaf is cut in two before random inserts into it become expensive. The pages made at
// commit are smaller still.
constexpr size_t kLoadedItemsMax = 1024;
// No page may pass 4 GiB, the reach of an element's position.
constexpr uint64_t kPartBytesMax = uint64_t{3} << 30;

uint64_t DataBytes(const Item& item) { return uint64_t{item.key_bytes} + item.value_bytes; }

absl::Status IncompatibleValue() { return absl::InvalidArgumentError("incompatible value"); }

// Removes items [from, to) from a node.
void EraseItems(Node* node, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i < to; ++i) node->data_bytes -= DataBytes(node->items[i]);
  node->items.erase(node->items.begin() + from, node->items.begin() + to);
  node->dirty = true;
  node->unbalanced = true;
}

}  // namespace

uint64_t EncodedBytes(const Node& node, uint32_t begin, uint32_t end) {
  uint64_t bytes = kPageHeaderBytes;
  for (uint32_t i = begin; i < end; ++i) bytes += kElementBytes + DataBytes(node.items[i]);
  return bytes;
}

void EncodePage(const Node& node, uint32_t begin, uint32_t end, PageId id, uint32_t overflow,
                char* out, uint64_t room) {
  const uint32_t count = end - begin;
  CHECK_OP(count, <=, kElementsMax);
  StorePageHeader(out, {.id = id,
                        .flags = node.leaf ? kLeafPage : kBranchPage,
                        .count = static_cast<uint16_t>(count),
                        .overflow = overflow});
  char* element = out + kPageHeaderBytes;
  char* data = element + count * kElementBytes;
  for (uint32_t i = begin; i < end; ++i, element += kElementBytes) {
    const Item& item = node.items[i];
    const auto position = static_cast<uint32_t>(data - element);
    CHECK_OP(item.key_bytes, >, 0u);
    if (node.leaf) {
      base::StoreLe(element, static_cast<uint32_t>(item.flags));
      base::StoreLe(element + 4, position);
      base::StoreLe(element + 8, item.key_bytes);
      base::StoreLe(element + 12, item.value_bytes);
    } else {
      base::StoreLe(element, position);
      base::StoreLe(element + 4, item.key_bytes);
      base::StoreLe(element + 8, item.page);
    }
    std::memcpy(data, item.key_data, item.key_bytes);
    data += item.key_bytes;
    if (item.value_bytes > 0) {
      std::memcpy(data, item.value_data, item.value_bytes);
      data += item.value_bytes;
    }
  }
  const auto used = static_cast<uint64_t>(data - out);
  CHECK_OP(used, <=, room);
  std::memset(data, 0, room - used);
}

std::vector<uint32_t> SplitPoints(const Node& node, uint32_t page_bytes, double fill) {
  constexpr uint32_t kElementsMin = 2;  // of each part
  const auto threshold = static_cast<uint64_t>(page_bytes * fill);
  const auto count = static_cast<uint32_t>(node.items.size());
  std::vector<uint32_t> ends;
  uint32_t begin = 0;
  uint64_t rest = node.encoded_bytes();  // of items [begin, count)
  while ((count - begin > 2 * kElementsMin && rest >= page_bytes) || count - begin > kElementsMax ||
         rest > kPartBytesMax) {
    uint64_t bytes = kPageHeaderBytes;
    uint32_t end = begin;
    // At least one element is left for the next part, and if it can be, two for each.
    const uint32_t end_max =
        std::min(count - (count - begin > kElementsMin ? kElementsMin : 1), begin + kElementsMax);
    while (end < end_max) {
      const uint64_t more = kElementBytes + DataBytes(node.items[end]);
      if (end > begin && bytes + more > (end - begin < kElementsMin ? kPartBytesMax : threshold))
        break;
      bytes += more;
      ++end;
    }
    if (end == begin) break;  // a single element, which cannot be cut
    ends.push_back(end);
    rest -= bytes - kPageHeaderBytes;
    begin = end;
  }
  ends.push_back(count);
  return ends;
}

absl::StatusOr<Node*> TreeEditor::LoadNode(const PageView& page) {
  Node* const node = tx_.arena_->NewNode(page.leaf());
  node->page = page.id();
  node->overflow = page.overflow();
  node->items.reserve(page.count() + 1);
  std::string_view last;
  for (uint32_t i = 0; i < page.count(); ++i) {
    Element element;
    if (!page.Get(i, &element)) {
      return tx_.source_.Damage(page.id(),
                                "expected every element to lie inside the page with a key");
    }
    if (element.key <= last)
      return tx_.source_.Damage(page.id(), "expected keys in ascending order");
    last = element.key;
    node->items.push_back(page.leaf() ? Item::Leaf(element.key, element.value, element.flags)
                                      : Item::Branch(element.key, element.child, nullptr));
    node->data_bytes += element.key.size() + element.value.size();
  }
  return node;
}

absl::StatusOr<Node*> TreeEditor::Root() {
  if (bucket_.root_ == nullptr) {
    PageView page;
    RETURN_IF_ERROR(bucket_.stored_.LoadRoot(&page));
    ASSIGN_OR_RETURN(bucket_.root_, LoadNode(page));
  }
  return bucket_.root_;
}

absl::StatusOr<Node*> TreeEditor::Child(Node* parent, uint32_t index, size_t depth) {
  Item& item = parent->items[index];
  if (item.child == nullptr) {
    if (depth >= kDepthMax)
      return tx_.source_.Damage(item.page, "expected a tree, found a cycle of pages");
    PageView page;
    if (!tx_.source_.Load(item.page, &page)) return tx_.source_.Damage(item.page);
    ASSIGN_OR_RETURN(item.child, LoadNode(page));
  }
  return item.child;
}

absl::Status TreeEditor::FindLeaf(std::string_view key, Path* path, bool* exact) {
  path->clear();
  ASSIGN_OR_RETURN(Node * node, Root());
  while (!node->leaf) {
    const uint32_t index = node->ChildIndex(key);
    path->emplace_back(node, index);
    ASSIGN_OR_RETURN(node, Child(node, index, path->size()));
  }
  path->emplace_back(node, node->LowerBound(key, exact));
  return absl::OkStatus();
}

void TreeEditor::MarkDirty(const Path& path) {
  for (const auto& [node, index] : path) node->dirty = true;
}

absl::StatusOr<std::optional<Element>> TreeEditor::Find(const WriteBucket& bucket,
                                                        std::string_view key) {
  Cursor cursor(bucket);
  ASSIGN_OR_RETURN(const bool found, cursor.Seek(key));
  if (!found || cursor.key() != key) return std::nullopt;
  return cursor.element_;
}

absl::Status TreeEditor::Put(std::string_view key, std::string_view value, uint32_t flags,
                             bool copy) {
  if (key.empty()) return absl::InvalidArgumentError("key required");
  if (key.size() > kKeyBytesMax) return absl::InvalidArgumentError("key too large");
  if (value.size() > kValueBytesMax) return absl::InvalidArgumentError("value too large");
  Node* leaf = bucket_.last_leaf_;
  uint32_t index;
  bool exact = false;
  Path path;
  if (leaf != nullptr && !leaf->items.empty() && leaf->items.back().key() < key) {
    index = static_cast<uint32_t>(leaf->items.size());
  } else {
    RETURN_IF_ERROR(FindLeaf(key, &path, &exact));
    std::tie(leaf, index) = path.back();
    if (exact && leaf->items[index].is_bucket() != ((flags & kBucketElement) != 0))
      return IncompatibleValue();
    MarkDirty(path);
  }
  ++bucket_.change_count_;
  if (copy) {
    char* const bytes = tx_.arena_->Allocate(key.size() + value.size());
    std::memcpy(bytes, key.data(), key.size());
    if (!value.empty()) std::memcpy(bytes + key.size(), value.data(), value.size());
    key = {bytes, key.size()};
    value = {bytes + key.size(), value.size()};
  }
  const Item item = Item::Leaf(key, value, flags);
  if (exact) {
    leaf->data_bytes -= DataBytes(leaf->items[index]);
    leaf->items[index] = item;
  } else {
    leaf->items.insert(leaf->items.begin() + index, item);
  }
  leaf->data_bytes += DataBytes(item);
  if (path.empty()) return absl::OkStatus();
  bool rightmost = true;
  for (size_t i = 0; i + 1 < path.size(); ++i)
    rightmost &= path[i].second + 1 == path[i].first->items.size();
  if (rightmost) bucket_.last_leaf_ = leaf;
  if (!exact && leaf->items.size() > kLoadedItemsMax && index + 1 < leaf->items.size()) {
    Node* const right = SplitLoadedLeaf(path);
    if (rightmost) bucket_.last_leaf_ = right;
  }
  return absl::OkStatus();
}

// Cuts the leaf at the end of `path` in the middle; the right half.
Node* TreeEditor::SplitLoadedLeaf(const Path& path) {
  Node* const left = path.back().first;
  Node* const right = tx_.arena_->NewNode(true);
  right->dirty = true;
  const auto middle = left->items.begin() + static_cast<ptrdiff_t>(left->items.size() / 2);
  right->items.assign(middle, left->items.end());
  left->items.erase(middle, left->items.end());
  for (const Item& item : right->items) right->data_bytes += DataBytes(item);
  left->data_bytes -= right->data_bytes;
  Node* parent;
  uint32_t index = 0;
  if (path.size() > 1) {
    std::tie(parent, index) = path[path.size() - 2];
  } else {
    parent = tx_.arena_->NewNode(false);
    parent->dirty = true;
    parent->items.push_back(Item::Branch(left->items.front().key(), 0, left));
    parent->data_bytes = DataBytes(parent->items.front());
    bucket_.root_ = parent;
  }
  const Item item = Item::Branch(right->items.front().key(), 0, right);
  parent->items.insert(parent->items.begin() + index + 1, item);
  parent->data_bytes += DataBytes(item);
  return right;
}

absl::StatusOr<bool> TreeEditor::Delete(std::string_view key) {
  Path path;
  bool exact = false;
  RETURN_IF_ERROR(FindLeaf(key, &path, &exact));
  if (!exact) return false;
  const auto [leaf, index] = path.back();
  if (leaf->items[index].is_bucket()) return IncompatibleValue();
  ++bucket_.change_count_;
  MarkDirty(path);
  EraseItems(leaf, index, index + 1);
  return true;
}

void TreeEditor::FreeNodePage(Node* node) {
  if (node->page != 0) Free(node->page, node->overflow);
  node->page = 0;
}

// Frees a tree none of whose pages is loaded.
absl::Status TreeEditor::FreeSubtree(PageId id, size_t depth) {
  PageView page;
  if (!tx_.source_.Load(id, &page)) return tx_.source_.Damage(id);
  // Checked before a commit in earnest; here it bounds the work.
  if (depth >= kDepthMax || tx_.freed_.size() > tx_.source_.page_count) {
    return tx_.source_.Damage(id, "expected a tree, found a page referenced twice");
  }
  Free(id, page.overflow());
  for (uint32_t i = 0; i < page.count(); ++i) {
    if (page.leaf() && (page.Flags(i) & kBucketElement) == 0) continue;
    Element element;
    if (!page.Get(i, &element)) {
      return tx_.source_.Damage(id, "expected every element to lie inside the page with a key");
    }
    if (!page.leaf()) {
      RETURN_IF_ERROR(FreeSubtree(element.child, depth + 1));
      continue;
    }
    const std::optional<BucketHeader> header = DecodeBucketHeader(element.value);
    if (!header) return tx_.source_.Damage(id, "expected a bucket header");
    if (header->root != kInlineRoot) RETURN_IF_ERROR(FreeSubtree(header->root, depth + 1));
  }
  return absl::OkStatus();
}

absl::Status TreeEditor::FreeNested(std::string_view name, std::string_view value) {
  if (const auto opened = bucket_.children_.find(name); opened != bucket_.children_.end()) {
    return TreeEditor(*opened->second).FreeAll();
  }
  const std::optional<BucketHeader> header = DecodeBucketHeader(value);
  if (!header) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "db file {}: bucket {}: expected a bucket header", *tx_.source_.path,
                            name);
  }
  return header->root == kInlineRoot ? absl::OkStatus() : FreeSubtree(header->root, 0);
}

absl::Status TreeEditor::FreeNodeTree(Node* node, size_t depth) {
  for (uint32_t i = 0; i < node->items.size(); ++i) {
    const Item& item = node->items[i];
    if (node->leaf) {
      if (item.is_bucket()) RETURN_IF_ERROR(FreeNested(item.key(), item.value()));
    } else if (item.child != nullptr || !bucket_.children_.empty()) {
      // A page not loaded may name a nested bucket that has been opened and changed, which
      // FreeNested knows.
      ASSIGN_OR_RETURN(Node* const child, Child(node, i, depth + 1));
      RETURN_IF_ERROR(FreeNodeTree(child, depth + 1));
    } else {
      RETURN_IF_ERROR(FreeSubtree(item.page, depth + 1));
    }
  }
  FreeNodePage(node);
  node->dirty = false;
  return absl::OkStatus();
}

// Frees all pages of this bucket.
absl::Status TreeEditor::FreeAll() {
  ASSIGN_OR_RETURN(Node* const root, Root());
  return FreeNodeTree(root, 0);
}

absl::Status TreeEditor::DeleteBucket(std::string_view name) {
  Path path;
  bool exact = false;
  RETURN_IF_ERROR(FindLeaf(name, &path, &exact));
  const auto [leaf, index] = path.back();
  CHECK(exact && leaf->items[index].is_bucket());
  RETURN_IF_ERROR(FreeNested(name, leaf->items[index].value()));
  ++bucket_.change_count_;
  MarkDirty(path);
  EraseItems(leaf, index, index + 1);
  if (const auto opened = bucket_.children_.find(name); opened != bucket_.children_.end()) {
    bucket_.children_.erase(opened);
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> TreeEditor::DeleteRange(std::string_view begin,
                                                 std::optional<std::string_view> end) {
  uint64_t count = 0;
  Cursor cursor(bucket_);
  ASSIGN_OR_RETURN(bool valid, cursor.Seek(begin));
  while (valid && (!end || cursor.key() < *end)) {
    if (cursor.is_bucket()) return IncompatibleValue();
    ++count;
    ASSIGN_OR_RETURN(valid, cursor.Next());
  }
  if (count == 0) return 0;
  ASSIGN_OR_RETURN(Node* const root, Root());
  ++bucket_.change_count_;
  bucket_.last_leaf_ = nullptr;
  RETURN_IF_ERROR(DropRange(root, begin, end, std::nullopt, 0));
  return count;
}

// Removes [begin, end) below `node`, all of whose keys are < upper.
absl::Status TreeEditor::DropRange(Node* node, std::string_view begin,
                                   std::optional<std::string_view> end,
                                   std::optional<std::string_view> upper, size_t depth) {
  if (node->leaf) {
    bool exact;
    const uint32_t from = node->LowerBound(begin, &exact);
    const uint32_t to =
        end ? node->LowerBound(*end, &exact) : static_cast<uint32_t>(node->items.size());
    if (from < to) EraseItems(node, from, to);
    return absl::OkStatus();
  }
  node->dirty = true;
  const uint32_t first = node->ChildIndex(begin);
  uint32_t i = first;
  uint32_t dropped_from = 0;
  uint32_t dropped_to = 0;  // the children dropped whole lie side by side
  for (; i < node->items.size() && (!end || i == first || node->items[i].key() < *end); ++i) {
    const Item& item = node->items[i];
    const std::optional<std::string_view> child_upper =
        i + 1 < node->items.size() ? std::optional(node->items[i + 1].key()) : upper;
    // Child 0 may hold keys below its item's key. A later one may not.
    const bool whole =
        i > 0 && item.key() >= begin && (!end || (child_upper && *child_upper <= *end));
    if (!whole) {
      ASSIGN_OR_RETURN(Node* const child, Child(node, i, depth + 1));
      RETURN_IF_ERROR(DropRange(child, begin, end, child_upper, depth + 1));
      continue;
    }
    if (item.child != nullptr) {
      RETURN_IF_ERROR(FreeNodeTree(item.child, depth + 1));
    } else {
      RETURN_IF_ERROR(FreeSubtree(item.page, depth + 1));
    }
    if (dropped_from == 0) dropped_from = i;
    dropped_to = i + 1;
  }
  if (dropped_from < dropped_to) EraseItems(node, dropped_from, dropped_to);
  return absl::OkStatus();
}

// Below a dirty branch: takes out empty children and merges small ones, deepest first.
absl::Status TreeEditor::Rebalance(Node* node, size_t depth) {
  if (node->leaf) return absl::OkStatus();
  for (const Item& item : node->items) {
    if (item.child != nullptr && item.child->dirty)
      RETURN_IF_ERROR(Rebalance(item.child, depth + 1));
  }
  for (uint32_t i = 0; i < node->items.size();) {
    Node* const child = node->items[i].child;
    if (child == nullptr || !child->unbalanced) {
      ++i;
      continue;
    }
    child->unbalanced = false;
    if (child->items.empty()) {
      FreeNodePage(child);
      child->dirty = false;
      EraseItems(node, i, i + 1);
      continue;
    }
    const auto threshold =
        static_cast<uint64_t>(tx_.source_.page_bytes * bucket_.fill_percent_ / 2);
    const size_t elements_min = child->leaf ? 1 : 2;
    if ((child->encoded_bytes() > threshold && child->items.size() > elements_min) ||
        node->items.size() == 1) {
      ++i;
      continue;
    }
    const size_t before = node->items.size();
    RETURN_IF_ERROR(MergeChild(node, i, depth + 1));
    // Merged, the next child to look at is at i: the one behind, or the first one with what it has
    // taken in.
    if (node->items.size() == before) ++i;
  }
  return absl::OkStatus();
}

// Merges child `index` with its left sibling, or the first child with its right one.
absl::Status TreeEditor::MergeChild(Node* parent, uint32_t index, size_t depth) {
  const uint32_t left_index = index == 0 ? 0 : index - 1;
  ASSIGN_OR_RETURN(Node* const left, Child(parent, left_index, depth));
  ASSIGN_OR_RETURN(Node* const right, Child(parent, left_index + 1, depth));
  if (left->leaf != right->leaf) return absl::OkStatus();  // a lopsided tree is legal, if not ours
  left->items.insert(left->items.end(), right->items.begin(), right->items.end());
  left->data_bytes += right->data_bytes;
  left->dirty = true;
  // If the right one has lost elements and waits for its turn, the merged node waits in its place.
  left->unbalanced |= right->unbalanced;
  FreeNodePage(right);
  right->dirty = false;
  EraseItems(parent, left_index + 1, left_index + 2);
  return absl::OkStatus();
}

// A root branch with one child is replaced by the child, one without by an empty leaf.
absl::Status TreeEditor::CollapseRoot() {
  for (size_t depth = 0; !bucket_.root_->leaf && bucket_.root_->items.size() <= 1; ++depth) {
    Node* const root = bucket_.root_;
    if (root->items.empty()) {
      root->leaf = true;
      continue;
    }
    if (!root->unbalanced) break;
    ASSIGN_OR_RETURN(Node* const child, Child(root, 0, depth));
    FreeNodePage(root);
    root->dirty = false;
    child->dirty = true;
    child->unbalanced = true;
    bucket_.root_ = child;
  }
  bucket_.root_->unbalanced = false;
  return absl::OkStatus();
}

absl::Status TreeEditor::Prepare(bool* changed) {
  for (auto& [name, child] : bucket_.children_) {
    bool child_changed = false;
    RETURN_IF_ERROR(TreeEditor(*child).Prepare(&child_changed));
    if (!child_changed) continue;
    // The header in this bucket will be written anew; load the way to it now, while an error can
    // still be returned.
    Path path;
    bool exact = false;
    RETURN_IF_ERROR(FindLeaf(name, &path, &exact));
    CHECK(exact);
    MarkDirty(path);
  }
  if (bucket_.root_ != nullptr && bucket_.root_->dirty) {
    bucket_.last_leaf_ = nullptr;
    RETURN_IF_ERROR(Rebalance(bucket_.root_, 0));
    RETURN_IF_ERROR(CollapseRoot());
    bucket_.dirty_ = true;
  }
  *changed = bucket_.dirty_;
  return absl::OkStatus();
}

bool TreeEditor::CanBeInline() const {
  const Node& root = *bucket_.root_;
  return root.leaf && root.encoded_bytes() <= tx_.source_.page_bytes / 4 &&
         std::none_of(root.items.begin(), root.items.end(),
                      [](const Item& item) { return item.is_bucket(); });
}

BucketHeader TreeEditor::Spill(Allocate allocate, std::vector<PlannedPage>* plan) {
  for (auto& [name, child] : bucket_.children_) {
    if (!child->dirty_) continue;
    const BucketHeader header = TreeEditor(*child).Spill(allocate, plan);
    char* const value = tx_.arena_->Allocate(kBucketHeaderBytes + header.inline_image.size());
    base::StoreLe(value, header.root);
    base::StoreLe(value + 8, header.sequence);
    // A bucket with pages of its own has no image, and its view may be null.
    if (!header.inline_image.empty()) {
      std::memcpy(value + kBucketHeaderBytes, header.inline_image.data(),
                  header.inline_image.size());
    }
    Node* node = bucket_.root_;
    while (!node->leaf) node = node->items[node->ChildIndex(name)].child;
    bool exact;
    Item& item = node->items[node->LowerBound(name, &exact)];
    CHECK(exact);
    node->data_bytes -= item.value_bytes;
    item.value_data = value;
    item.value_bytes = static_cast<uint32_t>(kBucketHeaderBytes + header.inline_image.size());
    node->data_bytes += item.value_bytes;
  }
  BucketHeader header{.root = bucket_.stored_.root_,
                      .sequence = bucket_.sequence_,
                      .inline_image = bucket_.stored_.inline_image_};
  if (bucket_.root_ == nullptr || !bucket_.root_->dirty) return header;
  if (&bucket_ != tx_.root_.get() && CanBeInline()) {
    const uint64_t bytes = bucket_.root_->encoded_bytes();
    char* const image = tx_.arena_->Allocate(bytes);
    EncodePage(*bucket_.root_, 0, static_cast<uint32_t>(bucket_.root_->items.size()), 0, 0, image,
               bytes);
    header.root = kInlineRoot;
    header.inline_image = {image, bytes};
    return header;
  }
  std::vector<Item> parts = SpillNode(bucket_.root_, allocate, plan);
  while (parts.size() > 1) {
    Node* const above = tx_.arena_->NewNode(false);
    for (const Item& item : parts) above->data_bytes += DataBytes(item);
    above->items = std::move(parts);
    parts = PlanParts(above, allocate, plan);
  }
  header.root = parts.front().page;
  header.inline_image = {};
  return header;
}

// Plans the dirty nodes from the leaves up; what a parent of `node` has to refer to.
std::vector<Item> TreeEditor::SpillNode(Node* node, Allocate allocate,
                                        std::vector<PlannedPage>* plan) {
  if (!node->leaf) {
    std::vector<Item> items;
    items.reserve(node->items.size());
    for (const Item& item : node->items) {
      if (item.child == nullptr || !item.child->dirty) {
        items.push_back(item);
        continue;
      }
      const std::vector<Item> parts = SpillNode(item.child, allocate, plan);
      items.insert(items.end(), parts.begin(), parts.end());
    }
    node->items = std::move(items);
    node->data_bytes = 0;
    for (const Item& item : node->items) node->data_bytes += DataBytes(item);
  }
  return PlanParts(node, allocate, plan);
}

std::vector<Item> TreeEditor::PlanParts(Node* node, Allocate allocate,
                                        std::vector<PlannedPage>* plan) {
  std::vector<Item> parts;
  uint32_t begin = 0;
  for (const uint32_t end : SplitPoints(*node, tx_.source_.page_bytes, bucket_.fill_percent_)) {
    const uint64_t page_bytes = tx_.source_.page_bytes;
    const uint64_t pages = (EncodedBytes(*node, begin, end) + page_bytes - 1) / page_bytes;
    const PageId id = allocate(pages);
    plan->push_back({.id = id,
                     .pages = static_cast<uint32_t>(pages),
                     .node = node,
                     .begin = begin,
                     .end = end});
    parts.push_back(Item::Branch(
        node->items.empty() ? std::string_view() : node->items[begin].key(), id, nullptr));
    begin = end;
  }
  return parts;
}

}  // namespace bolt::internal
