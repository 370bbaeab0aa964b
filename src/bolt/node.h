// What a write transaction holds in memory: nodes, which take the place of pages it changes, and
// the bytes put into them. One thread, the transaction's.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "bolt/page.h"

namespace bolt::internal {

struct Node;

// One element of a node. Keys and values lie in the mapping, in the arena, or with the caller
// (PutBorrowed).
struct Item {
  const char* key_data;
  union {
    const char* value_data;  // leaf
    Node* child;             // branch: null while the child is only a page
  };
  uint32_t key_bytes;
  uint32_t value_bytes;  // leaf
  union {
    PageId page;     // branch: of the child; unknown while the child is dirty
    uint64_t flags;  // leaf
  };

  std::string_view key() const { return {key_data, key_bytes}; }
  std::string_view value() const { return {value_data, value_bytes}; }
  bool is_bucket() const { return (flags & kBucketElement) != 0; }

  static Item Leaf(std::string_view key, std::string_view value, uint32_t flags) {
    Item item;
    item.key_data = key.data();
    item.value_data = value.data();
    item.key_bytes = static_cast<uint32_t>(key.size());
    item.value_bytes = static_cast<uint32_t>(value.size());
    item.flags = flags;
    return item;
  }
  static Item Branch(std::string_view key, PageId page, Node* child) {
    Item item;
    item.key_data = key.data();
    item.child = child;
    item.key_bytes = static_cast<uint32_t>(key.size());
    item.value_bytes = 0;
    item.page = page;
    return item;
  }
};
static_assert(sizeof(Item) == 32);

struct Node {
  bool leaf = true;
  bool dirty = false;  // this node or one below it has to be written; then all above are dirty too
  bool unbalanced = false;  // something was removed from it
  PageId page = 0;          // the page it was read from, still to be freed; 0 for none
  uint32_t overflow = 0;
  uint64_t data_bytes = 0;  // keys and values together
  std::vector<Item> items;  // ascending by key

  uint64_t encoded_bytes() const {
    return kPageHeaderBytes + items.size() * kElementBytes + data_bytes;
  }
  // Index of the first item with key >= `key`; *exact whether it is equal.
  uint32_t LowerBound(std::string_view key, bool* exact) const;
  // For a branch: index of the child that holds `key`.
  uint32_t ChildIndex(std::string_view key) const;
};

// Owns nodes and bytes until the transaction ends.
class Arena {
 public:
  Node* NewNode(bool leaf) {
    nodes_.push_back(std::make_unique<Node>());
    nodes_.back()->leaf = leaf;
    return nodes_.back().get();
  }
  char* Allocate(size_t bytes);
  std::string_view Copy(std::string_view bytes) {
    char* const copy = Allocate(bytes.size());
    if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
    return {copy, bytes.size()};
  }
  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }

 private:
  static constexpr size_t kBlockBytes = 256 << 10;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace bolt::internal
