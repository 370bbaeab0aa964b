// The tree of the key index: leaves of packed keys under branches that know how many live keys each
// child holds. Internal to the key index, which synchronises; not thread-safe, const methods may
// run concurrently.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "mvcc/key_history.h"
#include "mvcc/key_index.h"
#include "mvcc/key_leaf.h"

namespace mvcc {

// Invariants: all leaves are at the same depth; a leaf is empty only if it is the root; the keys
// below child i of a branch are >= separator i and < separator i + 1 (those of the first child have
// no lower bound of their own).
class KeyIndex::Tree {
 public:
  Tree();
  ~Tree();
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  // Adds a change made from the key's last one (null if the key is new) and returns the two.
  // nullopt from `make`: nothing changes.
  struct Updated {
    std::optional<Change> before;
    std::optional<Change> after;
  };
  Updated Update(std::string_view key,
                 absl::FunctionRef<std::optional<Change>(const Change* last)> make);

  std::optional<Change> Newest(std::string_view key, int64_t at_main) const;
  std::vector<Change> History(std::string_view key) const;

  // Calls `visit` for each key of the interval with its state, of which the bytes are valid during
  // the call. `visit` gets the key only if want_keys (else ""). At most keys_max keys.
  Slice Walk(std::string_view key, std::string_view end, size_t keys_max, bool want_keys,
             absl::FunctionRef<bool(std::string_view key, const char* state)> visit) const;

  // Live keys below `bound`.
  size_t LiveBelow(std::string_view bound) const;
  Slice Compact(int64_t compact_main, std::string_view from_key, size_t keys_max,
                absl::FunctionRef<void(const RevisionKey& change, bool kept)> record);

  size_t live_keys() const;
  size_t keys() const { return keys_; }
  size_t memory_bytes() const;
  absl::Status CheckInvariants() const;

  // Fills an empty tree from ascending keys. Keys and changes are copied.
  class Packer;

 private:
  struct Branch;
  struct Child {
    internal::Node* node = nullptr;
    size_t live = 0;
    std::string separator;  // lower bound of its keys; void for the first child of a branch
  };
  // The branches from the root to a leaf, and which child was taken in each.
  struct Path {
    // The root grows a level when it has more than 64 children, and a split leaves no branch with
    // fewer than 9, so this is never reached.
    static constexpr size_t kHeightMax = 16;
    struct Step {
      Branch* branch;
      size_t child;
    };
    std::array<Step, kHeightMax> steps;
  };

  internal::Leaf* Descend(std::string_view key, Path* path) const;
  // The leaf after the one of `path`, or null.
  internal::Leaf* NextLeaf(Path* path) const;
  // The same, or null, if it lies under the same branch.
  const internal::Leaf* NextSibling(const Path& path) const;
  void AddLive(const Path& path, int difference);
  void SetLiveAlong(const Path& path, size_t level);

  // Puts `added` in the place of `removed` children from `first` on of the branch at `level` of
  // `path`, which is void afterwards. Of the first added child the separator is taken over from the
  // first removed one.
  void Splice(const Path& path, size_t level, size_t first, size_t removed,
              std::vector<Child> added);
  void SplitBranch(const Path& path, size_t level, std::vector<Child> all, bool at_end);
  void MergeBranch(const Path& path, size_t level);
  void MergeLeaf(const Path& path);
  void ShrinkRoot();
  // The same for the leaf of `path`: new leaves of `entries` (none: the leaf goes).
  void ReplaceLeaf(const Path& path, internal::Leaf* leaf,
                   std::span<const internal::Leaf::Entry> entries, std::optional<size_t> cut,
                   size_t ascending_inserts);
  void Pack(std::span<const internal::Leaf::Entry> entries, std::optional<size_t> cut,
            size_t ascending_inserts, std::vector<Child>* out);
  internal::Leaf* NewLeaf(std::span<const internal::Leaf::Entry> entries);
  void FreeLeaf(internal::Leaf* leaf);
  void FreeBelow(internal::Node* node, size_t level);
  absl::Status CheckBelow(internal::Node* node, size_t level, const std::string* low,
                          const std::string* high, size_t* live, size_t* keys, size_t* bytes) const;

  internal::Node* root_;
  size_t height_ = 0;  // branches on the way to a leaf
  size_t keys_ = 0;
  size_t leaf_bytes_ = 0;
  size_t branch_bytes_ = 0;
  internal::Histories histories_;
};

class KeyIndex::Tree::Packer {
 public:
  explicit Packer(Tree* tree) : tree_(*tree) {}
  // Requires a key above the one before, and at least one change.
  void Add(std::string_view key, std::span<const Change> changes);
  void Finish();

 private:
  struct Pending {
    size_t key_at;
    size_t key_bytes;
    internal::StateBuffer state;
  };
  std::string_view Key(const Pending& pending) const {
    return std::string_view(keys_).substr(pending.key_at, pending.key_bytes);
  }
  void Flush();

  Tree& tree_;
  std::vector<Child> children_;
  std::string last_key_;  // of the last finished leaf
  std::string keys_;      // bytes of the pending keys
  std::vector<Pending> pending_;
  size_t prefix_bytes_ = 0;
  size_t pending_bytes_ = 0;  // what they take in a leaf with that prefix
};

}  // namespace mvcc
