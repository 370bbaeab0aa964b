// Changes the tree of one bucket within a write transaction: loads pages as nodes, edits them,
// merges small ones, splits big ones and plans which pages they become. One thread, the
// transaction's.
//
// A commit has two phases. Prepare reads pages and may fail on damage; up to its end nothing
// outside the transaction has changed. Spill then only allocates pages and lays out bytes, and
// cannot fail.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bolt/node.h"
#include "bolt/tx.h"

namespace bolt::internal {

// A page to be written: items [begin, end) of `node`.
struct PlannedPage {
  PageId id;
  uint32_t pages;  // overflow included
  const Node* node;
  uint32_t begin;
  uint32_t end;
};

// Bytes of the page with these items, and the page itself. `out` has room for `room` bytes, which
// are all written.
uint64_t EncodedBytes(const Node& node, uint32_t begin, uint32_t end);
void EncodePage(const Node& node, uint32_t begin, uint32_t end, PageId id, uint32_t overflow,
                char* out, uint64_t room);

// Where to cut a node into pages: the end index of each part. One part when the node has at most 4
// elements or fits a page; else parts are filled up to `fill` of a page, with 2 elements at least
// in each.
std::vector<uint32_t> SplitPoints(const Node& node, uint32_t page_bytes, double fill);

class TreeEditor {
 public:
  // Allocates that many contiguous pages.
  using Allocate = absl::FunctionRef<PageId(uint64_t pages)>;

  explicit TreeEditor(WriteBucket& bucket) : bucket_(bucket), tx_(bucket.tx_) {}

  static absl::StatusOr<std::optional<Element>> Find(const WriteBucket& bucket,
                                                     std::string_view key);
  absl::Status Put(std::string_view key, std::string_view value, uint32_t flags, bool copy);
  absl::StatusOr<bool> Delete(std::string_view key);
  absl::StatusOr<uint64_t> DeleteRange(std::string_view begin, std::optional<std::string_view> end);
  // Frees all pages of the nested bucket `name`, which is there, and removes it.
  absl::Status DeleteBucket(std::string_view name);

  // Phase one, nested buckets first. Sets *changed if this bucket has to be written.
  absl::Status Prepare(bool* changed);
  // Phase two: plans the pages of this bucket and its nested ones and returns what its header must
  // hold.
  BucketHeader Spill(Allocate allocate, std::vector<PlannedPage>* plan);

 private:
  using Path = std::vector<std::pair<Node*, uint32_t>>;  // nodes from the root to a leaf, and the
                                                         // index taken in each

  absl::StatusOr<Node*> Root();
  absl::StatusOr<Node*> LoadNode(const PageView& page);
  absl::StatusOr<Node*> Child(Node* parent, uint32_t index, size_t depth);
  // Loads the path to the leaf that holds or would hold `key`; its last index is the lower bound of
  // the key there.
  absl::Status FindLeaf(std::string_view key, Path* path, bool* exact);
  static void MarkDirty(const Path& path);
  Node* SplitLoadedLeaf(const Path& path);
  void Free(PageId id, uint32_t overflow) { tx_.freed_.emplace_back(id, overflow); }
  void FreeNodePage(Node* node);
  absl::Status FreeSubtree(PageId id, size_t depth);
  absl::Status FreeNodeTree(Node* node, size_t depth);
  absl::Status FreeNested(std::string_view name, std::string_view header);
  absl::Status FreeAll();
  absl::Status DropRange(Node* node, std::string_view begin, std::optional<std::string_view> end,
                         std::optional<std::string_view> upper, size_t depth);
  absl::Status Rebalance(Node* node, size_t depth);
  absl::Status MergeChild(Node* parent, uint32_t index, size_t depth);
  absl::Status CollapseRoot();
  std::vector<Item> SpillNode(Node* node, Allocate allocate, std::vector<PlannedPage>* plan);
  std::vector<Item> PlanParts(Node* node, Allocate allocate, std::vector<PlannedPage>* plan);
  bool CanBeInline() const;

  WriteBucket& bucket_;
  WriteTx& tx_;
};

}  // namespace bolt::internal
