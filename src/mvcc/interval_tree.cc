#include "mvcc/interval_tree.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/bytes.h"
#include "base/check.h"

namespace mvcc::internal {

// All values with one interval.
struct IntervalGroup {
  explicit IntervalGroup(bool is_single) : single(is_single) {}

  struct Entry {
    uint64_t sequence : 63;  // ascending
    uint64_t live : 1;       // 0: a hole, left by a removal until there are many
    uint64_t value;
  };

  const bool single;
  std::vector<Entry> entries;
  size_t holes = 0;

  size_t size() const { return entries.size() - holes; }
  void Add(uint64_t sequence, uint64_t value) {
    entries.push_back({sequence & (UINT64_MAX >> 1), 1, value});
  }
  void Remove(uint64_t sequence) {
    const auto entry = std::lower_bound(entries.begin(), entries.end(), sequence,
                                        [](const Entry& e, uint64_t s) { return e.sequence < s; });
    CHECK(entry != entries.end() && entry->sequence == sequence && entry->live == 1);
    entry->live = 0;
    ++holes;
    if (2 * holes <= entries.size()) return;
    std::erase_if(entries, [](const Entry& e) { return e.live == 0; });
    entries.shrink_to_fit();
    holes = 0;
  }
  void Hit(absl::FunctionRef<void(uint64_t)> hit) const {
    for (const Entry& entry : entries) {
      if (entry.live == 1) hit(entry.value);
    }
  }
};

namespace {

struct SingleKey : IntervalGroup {
  explicit SingleKey(std::string_view k) : IntervalGroup(true), key(k) {}
  const std::string key;
};

// A node of a treap: a search tree by (start, end) and a heap by priority. Priorities come from a
// counter, so that the same additions make the same tree.
struct Range : IntervalGroup {
  Range() : IntervalGroup(false) {}
  std::string start;
  std::string end;
  bool unbounded = false;
  uint64_t priority = 0;
  Range* left = nullptr;
  Range* right = nullptr;
  const Range* widest = nullptr;  // the node of this subtree with the greatest end

  bool EndsAfter(std::string_view key) const { return unbounded || key < end; }
};

using Place = std::tuple<std::string_view, bool, std::string_view>;
Place PlaceOf(const Range& range) { return {range.start, range.unbounded, range.end}; }

bool EndsBefore(const Range& a, const Range& b) {
  return std::tuple(a.unbounded, std::string_view(a.end)) <
         std::tuple(b.unbounded, std::string_view(b.end));
}

void SetWidest(Range* range) {
  range->widest = range;
  for (const Range* child : {range->left, range->right}) {
    if (child != nullptr && EndsBefore(*range->widest, *child->widest))
      range->widest = child->widest;
  }
}

// Cuts a tree into what lies below `place` and the rest.
std::pair<Range*, Range*> Split(Range* tree, const Place& place) {
  if (tree == nullptr) return {nullptr, nullptr};
  if (PlaceOf(*tree) < place) {
    const auto [below, rest] = Split(tree->right, place);
    tree->right = below;
    SetWidest(tree);
    return {tree, rest};
  }
  const auto [below, rest] = Split(tree->left, place);
  tree->left = rest;
  SetWidest(tree);
  return {below, tree};
}

Range* Join(Range* low, Range* high) {
  if (low == nullptr) return high;
  if (high == nullptr) return low;
  if (low->priority > high->priority) {
    low->right = Join(low->right, high);
    SetWidest(low);
    return low;
  }
  high->left = Join(low, high->left);
  SetWidest(high);
  return high;
}

Range* Insert(Range* tree, Range* range) {
  if (tree == nullptr || range->priority > tree->priority) {
    std::tie(range->left, range->right) = Split(tree, PlaceOf(*range));
    SetWidest(range);
    return range;
  }
  Range*& child = PlaceOf(*range) < PlaceOf(*tree) ? tree->left : tree->right;
  child = Insert(child, range);
  SetWidest(tree);
  return tree;
}

Range* Erase(Range* tree, const Range* range) {
  if (tree == range) return Join(tree->left, tree->right);
  Range*& child = PlaceOf(*range) < PlaceOf(*tree) ? tree->left : tree->right;
  child = Erase(child, range);
  SetWidest(tree);
  return tree;
}

Range* Find(Range* tree, const Place& place) {
  while (tree != nullptr && PlaceOf(*tree) != place)
    tree = place < PlaceOf(*tree) ? tree->left : tree->right;
  return tree;
}

void Stab(const Range* tree, std::string_view key, absl::FunctionRef<void(uint64_t)> hit) {
  for (; tree != nullptr && tree->widest->EndsAfter(key); tree = tree->right) {
    Stab(tree->left, key, hit);
    if (tree->start > key) return;
    if (tree->EndsAfter(key)) tree->Hit(hit);
  }
}

bool Any(const Range* tree, std::string_view key) {
  // Where the left subtree ends after the key and this node starts at or before it, the widest
  // there is a hit.
  for (; tree != nullptr && tree->widest->EndsAfter(key);) {
    if (tree->start > key) {
      tree = tree->left;
      continue;
    }
    if (tree->EndsAfter(key) || (tree->left != nullptr && tree->left->widest->EndsAfter(key)))
      return true;
    tree = tree->right;
  }
  return false;
}

void Delete(Range* tree) {
  if (tree == nullptr) return;
  Delete(tree->left);
  Delete(tree->right);
  delete tree;
}

bool Check(const Range* tree, const Range** before, size_t* values) {
  if (tree == nullptr) return true;
  if (!Check(tree->left, before, values)) return false;
  if (*before != nullptr && !(PlaceOf(**before) < PlaceOf(*tree))) return false;
  *before = tree;
  *values += tree->size();
  const Range* widest = tree;
  for (const Range* child : {tree->left, tree->right}) {
    if (child == nullptr) continue;
    if (child->priority > tree->priority) return false;
    if (EndsBefore(*widest, *child->widest)) widest = child->widest;
  }
  if (EndsBefore(*widest, *tree->widest) || EndsBefore(*tree->widest, *widest) || tree->size() == 0)
    return false;
  return Check(tree->right, before, values);
}

uint64_t Mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

struct IntervalIndex::Impl {
  // By views of the groups' own copies.
  absl::flat_hash_map<std::string_view, std::unique_ptr<SingleKey>, base::StringHash,
                      std::equal_to<>>
      keys;
  Range* ranges = nullptr;
  uint64_t last_sequence = 0;
  size_t size = 0;

  Impl() = default;
  ~Impl() { Delete(ranges); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  IntervalGroup* GroupOf(std::string_view key, std::string_view end) {
    if (end.empty()) {
      if (const auto found = keys.find(key); found != keys.end()) return found->second.get();
      auto group = std::make_unique<SingleKey>(key);
      const std::string_view own_key = group->key;
      return keys.emplace(own_key, std::move(group)).first->second.get();
    }
    const bool unbounded = end.size() == 1 && end[0] == '\0';
    const std::string_view stored_end = unbounded ? std::string_view() : end;
    Range* range = Find(ranges, {key, unbounded, stored_end});
    if (range != nullptr) return range;
    range = new Range;
    range->start = key;
    range->end = stored_end;
    range->unbounded = unbounded;
    range->priority = Mixed(last_sequence);
    ranges = Insert(ranges, range);
    return range;
  }
};

IntervalIndex::IntervalIndex() : impl_(std::make_unique<Impl>()) {}
IntervalIndex::~IntervalIndex() = default;
IntervalIndex::IntervalIndex(IntervalIndex&&) noexcept = default;
IntervalIndex& IntervalIndex::operator=(IntervalIndex&&) noexcept = default;

IntervalId IntervalIndex::Add(std::string_view key, std::string_view end, uint64_t value) {
  IntervalGroup* group = impl_->GroupOf(key, end);
  const uint64_t sequence = ++impl_->last_sequence;
  group->Add(sequence, value);
  ++impl_->size;
  return {group, sequence};
}

void IntervalIndex::Remove(IntervalId id) {
  id.group->Remove(id.sequence);
  --impl_->size;
  if (id.group->size() > 0) return;
  if (id.group->single) {
    const auto found = impl_->keys.find(static_cast<SingleKey*>(id.group)->key);
    const std::unique_ptr<SingleKey> group =
        std::move(found->second);  // outlives its place in the map
    impl_->keys.erase(found);
    return;
  }
  Range* range = static_cast<Range*>(id.group);
  impl_->ranges = Erase(impl_->ranges, range);
  delete range;
}

void IntervalIndex::Stab(std::string_view key, absl::FunctionRef<void(uint64_t)> hit) const {
  if (const auto found = impl_->keys.find(key); found != impl_->keys.end()) found->second->Hit(hit);
  internal::Stab(impl_->ranges, key, hit);
}

bool IntervalIndex::Any(std::string_view key) const {
  return impl_->keys.contains(key) || internal::Any(impl_->ranges, key);
}

size_t IntervalIndex::size() const { return impl_->size; }

bool IntervalIndex::CheckInvariants() const {
  size_t values = 0;
  const Range* before = nullptr;
  if (!Check(impl_->ranges, &before, &values)) return false;
  for (const auto& [key, group] : impl_->keys) {
    if (group->size() == 0 || group->key != key) return false;
    values += group->size();
  }
  return values == impl_->size;
}

}  // namespace mvcc::internal
