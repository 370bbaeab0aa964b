#include "mvcc/key_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace mvcc {

using internal::HeadOf;
using internal::Histories;
using internal::Leaf;
using internal::Node;
using internal::StateBuffer;

namespace {

constexpr size_t kChildrenMax = 64;
constexpr size_t kHeapBlockOverhead = 8;
// A leaf below the first is merged with a neighbour if the two then stay below the second.
constexpr size_t kLeafMergeBelow = Leaf::kDataBytes / 3;
constexpr size_t kLeafMergedMax = Leaf::kDataBytes * 3 / 4;
constexpr size_t kBranchMergeBelow = kChildrenMax / 4;
constexpr size_t kBranchMergedMax = kChildrenMax * 3 / 4;
// A file loaded into leaves that are quite full would have to split each on its first change.
constexpr size_t kPackedLeafBytes = Leaf::kDataBytes * 15 / 16;
constexpr size_t kPackedChildren = kChildrenMax * 7 / 8;
// So many insertions in a row, each right behind the last, are taken for ascending keys.
constexpr size_t kAscendingRun = 6;

size_t HeapBytes(const std::string& text) {
  return text.capacity() <= 15 ? 0 : text.capacity() + 1 + kHeapBlockOverhead;
}

// The shortest string above `below` and not above `key`; requires below < key.
std::string Separator(std::string_view below, std::string_view key) {
  return std::string(key.substr(0, internal::CommonPrefix(below, key) + 1));
}

std::vector<Leaf::Entry> EntriesOf(const Leaf& leaf, std::vector<std::string>* keys) {
  const size_t before = keys->size();
  for (size_t i = 0; i < leaf.count(); ++i) keys->push_back(leaf.Key(i));
  std::vector<Leaf::Entry> entries;
  entries.reserve(leaf.count() + 1);
  for (size_t i = 0; i < leaf.count(); ++i) {
    const char* state = leaf.state(i);
    entries.push_back({(*keys)[before + i], {state, internal::StateBytes(state)}});
  }
  return entries;
}

}  // namespace

struct KeyIndex::Tree::Branch : Node {
  static constexpr size_t kPrefixCopyBytes = 48;

  size_t count = 0;
  size_t prefix_bytes = 0;             // common to the separators
  char prefix_copy[kPrefixCopyBytes];  // of its begin, to spare a search the way to a separator
  uint32_t heads[kChildrenMax];        // of the separators after the prefix; from index 1
  Node* child[kChildrenMax];
  uint32_t live[kChildrenMax];
  std::string separator[kChildrenMax];

  // What a search reads of it: the fields up to `child`.
  static constexpr size_t kSearchBytes =
      2 * sizeof(size_t) + kPrefixCopyBytes + kChildrenMax * (sizeof(uint32_t) + sizeof(Node*));

  // The child whose interval holds `key`.
  size_t ChildOf(std::string_view key) const {
    if (count <= 1) return 0;
    if (prefix_bytes > 0) {
      const std::string_view prefix = prefix_bytes <= kPrefixCopyBytes
                                          ? std::string_view(prefix_copy, prefix_bytes)
                                          : std::string_view(separator[1]).substr(0, prefix_bytes);
      const int order = key.substr(0, prefix_bytes).compare(prefix);
      if (order != 0) return order < 0 ? 0 : count - 1;
    }
    const uint32_t head = HeadOf(key.substr(prefix_bytes));
    size_t low = 1 + internal::LowerBoundHead(heads + 1, count - 1, head);
    size_t high = low;
    while (high < count && heads[high] == head) ++high;
    // Separators below `low` are below the key, those from `high` on above it.
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (std::string_view(separator[middle]) <= key) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low - 1;
  }

  void ComputeHeads() {
    prefix_bytes = count <= 1 ? 0 : internal::CommonPrefix(separator[1], separator[count - 1]);
    if (count > 1) separator[1].copy(prefix_copy, std::min(prefix_bytes, kPrefixCopyBytes));
    for (size_t i = 1; i < count; ++i) {
      heads[i] = HeadOf(std::string_view(separator[i]).substr(prefix_bytes));
    }
  }
  size_t LiveBelowChild(size_t end) const { return std::accumulate(live, live + end, size_t{0}); }
  size_t Live() const { return LiveBelowChild(count); }
  size_t Bytes() const {
    size_t bytes = sizeof(*this) + kHeapBlockOverhead;
    for (size_t i = 0; i < count; ++i) bytes += HeapBytes(separator[i]);
    return bytes;
  }
  void SetChild(size_t index, Child&& from) {
    CHECK_OP(from.live, <=, UINT32_MAX);
    child[index] = from.node;
    live[index] = static_cast<uint32_t>(from.live);
    separator[index] = std::move(from.separator);
  }
  void TakeChildren(std::vector<Child>* out) {
    for (size_t i = 0; i < count; ++i) out->push_back({child[i], live[i], std::move(separator[i])});
    count = 0;
  }
  void Fill(std::span<Child> children) {
    CHECK_OP(children.size(), <=, kChildrenMax);
    for (size_t i = 0; i < children.size(); ++i) SetChild(i, std::move(children[i]));
    count = children.size();
    ComputeHeads();
  }
};

KeyIndex::Tree::Tree() : root_(Leaf::NewEmpty()), leaf_bytes_(Leaf::kBytes + kHeapBlockOverhead) {}

KeyIndex::Tree::~Tree() { FreeBelow(root_, 0); }

void KeyIndex::Tree::FreeBelow(Node* node, size_t level) {
  if (level == height_) {
    Leaf* leaf = static_cast<Leaf*>(node);
    for (size_t i = 0; i < leaf->count(); ++i) histories_.Free(leaf->state(i));
    FreeLeaf(leaf);
    return;
  }
  Branch* branch = static_cast<Branch*>(node);
  for (size_t i = 0; i < branch->count; ++i) FreeBelow(branch->child[i], level + 1);
  delete branch;
}

Leaf* KeyIndex::Tree::NewLeaf(std::span<const Leaf::Entry> entries) {
  Leaf* leaf = Leaf::Build(entries);
  leaf_bytes_ += Leaf::kBytes + kHeapBlockOverhead + leaf->long_key_bytes();
  return leaf;
}

void KeyIndex::Tree::FreeLeaf(Leaf* leaf) {
  leaf_bytes_ -= Leaf::kBytes + kHeapBlockOverhead + leaf->long_key_bytes();
  Leaf::Destroy(leaf);
}

Leaf* KeyIndex::Tree::Descend(std::string_view key, Path* path) const {
  Node* node = root_;
  for (size_t level = 0; level < height_; ++level) {
    Branch* branch = static_cast<Branch*>(node);
    const size_t child = branch->ChildOf(key);
    if (path != nullptr) path->steps[level] = {branch, child};
    node = branch->child[child];
    internal::Prefetch(node, level + 1 == height_ ? Leaf::kSearchBytes : Branch::kSearchBytes);
  }
  return static_cast<Leaf*>(node);
}

Leaf* KeyIndex::Tree::NextLeaf(Path* path) const {
  size_t level = height_;
  do {
    if (level == 0) return nullptr;
    --level;
  } while (path->steps[level].child + 1 == path->steps[level].branch->count);
  ++path->steps[level].child;
  Node* node = path->steps[level].branch->child[path->steps[level].child];
  for (++level; level < height_; ++level) {
    Branch* branch = static_cast<Branch*>(node);
    path->steps[level] = {branch, 0};
    node = branch->child[0];
  }
  return static_cast<Leaf*>(node);
}

const Leaf* KeyIndex::Tree::NextSibling(const Path& path) const {
  if (height_ == 0) return nullptr;
  const Path::Step& above = path.steps[height_ - 1];
  return above.child + 1 < above.branch->count
             ? static_cast<Leaf*>(above.branch->child[above.child + 1])
             : nullptr;
}

void KeyIndex::Tree::AddLive(const Path& path, int difference) {
  if (difference == 0) return;
  for (size_t level = 0; level < height_; ++level) {
    uint32_t& live = path.steps[level].branch->live[path.steps[level].child];
    CHECK(difference > 0 ? live < UINT32_MAX : live > 0);
    live += static_cast<uint32_t>(difference);
  }
}

// Corrects the counts above the branch at `level`.
void KeyIndex::Tree::SetLiveAlong(const Path& path, size_t level) {
  for (; level > 0; --level) {
    const Path::Step& above = path.steps[level - 1];
    above.branch->live[above.child] = static_cast<uint32_t>(path.steps[level].branch->Live());
  }
}

KeyIndex::Tree::Updated KeyIndex::Tree::Update(
    std::string_view key, absl::FunctionRef<std::optional<Change>(const Change* last)> make) {
  Path path;
  Leaf* leaf = Descend(key, &path);
  const Leaf::Position position = leaf->Find(key);
  Updated updated;
  const char* old_state = nullptr;
  if (position.found) {
    old_state = leaf->state(position.index);
    updated.before = internal::LastChange(old_state);
  }
  updated.after = make(position.found ? &*updated.before : nullptr);
  if (!updated.after.has_value()) return updated;

  StateBuffer state;
  if (position.found) {
    histories_.Append(old_state, *updated.after, &state);
  } else {
    histories_.Encode(std::span(&*updated.after, 1), &state);
    ++keys_;
  }
  const int difference =
      (updated.after->tombstone ? 0 : 1) - (position.found && !updated.before->tombstone ? 1 : 0);
  if (position.found ? leaf->SetState(position.index, state.view())
                     : leaf->Insert(position.index, key, state.view())) {
    if (!position.found) leaf_bytes_ += leaf->LongKeyBytes(position.index);
    AddLive(path, difference);
    return updated;
  }

  std::vector<std::string> keys;
  keys.reserve(leaf->count());
  std::vector<Leaf::Entry> entries = EntriesOf(*leaf, &keys);
  if (position.found) {
    entries[position.index].state = state.view();
  } else {
    entries.insert(entries.begin() + static_cast<ptrdiff_t>(position.index), {key, state.view()});
  }
  std::optional<size_t> cut;
  size_t ascending = 0;
  if (!position.found && leaf->IsNextAscending(position.index) &&
      leaf->ascending_inserts() >= kAscendingRun) {
    cut = position.index;
    ascending = leaf->ascending_inserts();
  }
  ReplaceLeaf(path, leaf, entries, cut, ascending);
  return updated;
}

void KeyIndex::Tree::Pack(std::span<const Leaf::Entry> entries, std::optional<size_t> cut,
                          size_t ascending_inserts, std::vector<Child>* out) {
  if (Leaf::Fits(entries)) {
    Leaf* leaf = NewLeaf(entries);
    out->push_back({leaf, leaf->live(), {}});
    return;
  }
  if (!cut.has_value()) {
    // Half of the bytes to each side.
    const size_t prefix_bytes = Leaf::PrefixBytes(entries.front().key, entries.back().key);
    size_t total = 0;
    for (const Leaf::Entry& entry : entries) total += Leaf::EntryBytes(entry, prefix_bytes);
    size_t left = 0;
    cut = 0;
    while (left < total / 2) left += Leaf::EntryBytes(entries[(*cut)++], prefix_bytes);
  }
  const size_t at = std::clamp<size_t>(*cut, 1, entries.size() - 1);
  Pack(entries.first(at), std::nullopt, 0, out);
  const size_t right = out->size();
  Pack(entries.subspan(at), std::nullopt, 0, out);
  (*out)[right].separator = Separator(entries[at - 1].key, entries[at].key);
  if (ascending_inserts > 0)
    static_cast<Leaf*>((*out)[right].node)->ContinueAscending(ascending_inserts);
}

void KeyIndex::Tree::ReplaceLeaf(const Path& path, Leaf* leaf, std::span<const Leaf::Entry> entries,
                                 std::optional<size_t> cut, size_t ascending_inserts) {
  std::vector<Child> leaves;
  if (!entries.empty()) Pack(entries, cut, ascending_inserts, &leaves);
  FreeLeaf(leaf);
  if (height_ > 0) {
    Splice(path, height_ - 1, path.steps[height_ - 1].child, 1, std::move(leaves));
    return;
  }
  if (leaves.empty()) {
    root_ = Leaf::NewEmpty();
    leaf_bytes_ += Leaf::kBytes + kHeapBlockOverhead;
  } else if (leaves.size() == 1) {
    root_ = leaves[0].node;
  } else {
    Branch* branch = new Branch;
    branch->Fill(leaves);
    branch_bytes_ += branch->Bytes();
    root_ = branch;
    height_ = 1;
  }
}

void KeyIndex::Tree::Splice(const Path& path, size_t level, size_t first, size_t removed,
                            std::vector<Child> added) {
  Branch* branch = path.steps[level].branch;
  if (removed == 1 && added.size() == 1) {
    branch->child[first] = added[0].node;
    branch->live[first] = static_cast<uint32_t>(added[0].live);
    SetLiveAlong(path, level);
    return;
  }
  branch_bytes_ -= branch->Bytes();
  const bool at_end = first + removed == branch->count;
  if (!added.empty()) added[0].separator = std::move(branch->separator[first]);
  std::vector<Child> all;
  all.reserve(branch->count + added.size());
  branch->TakeChildren(&all);
  const auto place = all.erase(all.begin() + static_cast<ptrdiff_t>(first),
                               all.begin() + static_cast<ptrdiff_t>(first + removed));
  all.insert(place, std::make_move_iterator(added.begin()), std::make_move_iterator(added.end()));
  if (all.empty()) {
    // Never the root: ShrinkRoot leaves no branch with one child there.
    CHECK_OP(level, >, size_t{0});
    delete branch;
    Splice(path, level - 1, path.steps[level - 1].child, 1, {});
    return;
  }
  if (all.size() > kChildrenMax) {
    SplitBranch(path, level, std::move(all), at_end);
    return;
  }
  branch->Fill(all);
  branch_bytes_ += branch->Bytes();
  SetLiveAlong(path, level);
  if (level == 0) {
    ShrinkRoot();
  } else if (branch->count < kBranchMergeBelow && removed > 0) {
    MergeBranch(path, level);
  }
}

void KeyIndex::Tree::SplitBranch(const Path& path, size_t level, std::vector<Child> all,
                                 bool at_end) {
  Branch* left = path.steps[level].branch;
  Branch* right = new Branch;
  // At the right edge keys probably ascend: what comes next goes right.
  const size_t cut = at_end ? kPackedChildren : all.size() / 2;
  std::string separator = all[cut].separator;
  left->Fill(std::span(all).first(cut));
  right->Fill(std::span(all).subspan(cut));
  branch_bytes_ += left->Bytes() + right->Bytes();
  std::vector<Child> halves;
  halves.push_back({left, left->Live(), {}});
  halves.push_back({right, right->Live(), std::move(separator)});
  if (level > 0) {
    Splice(path, level - 1, path.steps[level - 1].child, 1, std::move(halves));
    return;
  }
  CHECK_OP(height_ + 1, <, Path::kHeightMax);
  Branch* root = new Branch;
  root->Fill(halves);
  branch_bytes_ += root->Bytes();
  root_ = root;
  ++height_;
}

void KeyIndex::Tree::MergeBranch(const Path& path, size_t level) {
  Branch* above = path.steps[level - 1].branch;
  const size_t child = path.steps[level - 1].child;
  for (const size_t left_child :
       {child, child - 1}) {  // with the right neighbour, or with the left one
    if (left_child >= above->count || left_child + 1 >= above->count) continue;
    Branch* left = static_cast<Branch*>(above->child[left_child]);
    Branch* right = static_cast<Branch*>(above->child[left_child + 1]);
    if (left->count + right->count > kBranchMergedMax) continue;
    branch_bytes_ -= left->Bytes() + right->Bytes();
    std::vector<Child> all;
    const size_t left_count = left->count;
    left->TakeChildren(&all);
    right->TakeChildren(&all);
    all[left_count].separator = above->separator[left_child + 1];
    left->Fill(all);
    branch_bytes_ += left->Bytes();
    delete right;
    std::vector<Child> merged;
    merged.push_back({left, left->Live(), {}});
    Splice(path, level - 1, left_child, 2, std::move(merged));
    return;
  }
}

void KeyIndex::Tree::ShrinkRoot() {
  while (height_ > 0 && static_cast<Branch*>(root_)->count == 1) {
    Branch* root = static_cast<Branch*>(root_);
    branch_bytes_ -= root->Bytes();
    root_ = root->child[0];
    delete root;
    --height_;
  }
}

void KeyIndex::Tree::MergeLeaf(const Path& path) {
  if (height_ == 0) return;
  const Path::Step& above = path.steps[height_ - 1];
  const Leaf* leaf = static_cast<Leaf*>(above.branch->child[above.child]);
  if (leaf->used_bytes() >= kLeafMergeBelow) return;
  for (const size_t left_child :
       {above.child - 1, above.child}) {  // with the left neighbour, or with the right one
    if (left_child >= above.branch->count || left_child + 1 >= above.branch->count) continue;
    Leaf* left = static_cast<Leaf*>(above.branch->child[left_child]);
    Leaf* right = static_cast<Leaf*>(above.branch->child[left_child + 1]);
    if (left->used_bytes() + right->used_bytes() > kLeafMergedMax) continue;
    std::vector<std::string> keys;
    keys.reserve(left->count() + right->count());
    std::vector<Leaf::Entry> entries = EntriesOf(*left, &keys);
    const std::vector<Leaf::Entry> more = EntriesOf(*right, &keys);
    entries.insert(entries.end(), more.begin(), more.end());
    if (!Leaf::Fits(entries)) continue;  // without the prefix that each has they are longer
    Leaf* merged = NewLeaf(entries);
    FreeLeaf(left);
    FreeLeaf(right);
    std::vector<Child> added;
    added.push_back({merged, merged->live(), {}});
    Splice(path, height_ - 1, left_child, 2, std::move(added));
    return;
  }
}

std::optional<Change> KeyIndex::Tree::Newest(std::string_view key, int64_t at_main) const {
  const Leaf* leaf = Descend(key, nullptr);
  const Leaf::Position position = leaf->Find(key);
  if (!position.found) return std::nullopt;
  return internal::NewestAt(leaf->state(position.index), at_main);
}

std::vector<Change> KeyIndex::Tree::History(std::string_view key) const {
  std::vector<Change> changes;
  const Leaf* leaf = Descend(key, nullptr);
  const Leaf::Position position = leaf->Find(key);
  if (!position.found) return changes;
  internal::ForEachChange(leaf->state(position.index), [&changes](const Change& change) {
    changes.push_back(change);
    return true;
  });
  return changes;
}

KeyIndex::Slice KeyIndex::Tree::Walk(
    std::string_view key, std::string_view end, size_t keys_max, bool want_keys,
    absl::FunctionRef<bool(std::string_view, const char*)> visit) const {
  CHECK_OP(keys_max, >, size_t{0});
  const bool single = end.empty();
  const bool open_ended = end.size() == 1 && end[0] == '\0';
  Path path;
  const Leaf* leaf = Descend(key, &path);
  const Leaf::Position start = leaf->Find(key);
  std::string buffer;
  std::string last_of_leaf;
  if (single) {
    if (start.found) visit(key, leaf->state(start.index));
    return {};
  }
  if (!open_ended && end <= key) return {};
  for (size_t i = start.index; leaf != nullptr; leaf = NextLeaf(&path), i = 0) {
    if (const Leaf* sibling = NextSibling(path); sibling != nullptr)
      internal::Prefetch(sibling, Leaf::kBytes);
    size_t stop = leaf->count();
    bool last = false;
    if (!open_ended && stop > 0) {
      leaf->GetKey(stop - 1, &last_of_leaf);
      last = last_of_leaf >= end;
      if (last) stop = leaf->Find(end).index;
    }
    for (; i < stop; ++i) {
      if (keys_max == 0) return {false, leaf->Key(i)};
      --keys_max;
      if (want_keys) leaf->GetKey(i, &buffer);
      if (!visit(buffer, leaf->state(i))) return {false, leaf->Key(i) + '\0'};
    }
    if (last) break;
  }
  return {};
}

size_t KeyIndex::Tree::LiveBelow(std::string_view bound) const {
  Path path;
  const Leaf* leaf = Descend(bound, &path);
  size_t live = 0;
  for (size_t level = 0; level < height_; ++level) {
    live += path.steps[level].branch->LiveBelowChild(path.steps[level].child);
  }
  return live + leaf->LiveBefore(leaf->Find(bound).index);
}

size_t KeyIndex::Tree::live_keys() const {
  return height_ == 0 ? static_cast<Leaf*>(root_)->live() : static_cast<Branch*>(root_)->Live();
}

size_t KeyIndex::Tree::memory_bytes() const {
  return sizeof(*this) + leaf_bytes_ + branch_bytes_ + histories_.log_bytes();
}

KeyIndex::Slice KeyIndex::Tree::Compact(int64_t compact_main, std::string_view from_key,
                                        size_t keys_max,
                                        absl::FunctionRef<void(const RevisionKey&, bool)> record) {
  CHECK_OP(keys_max, >, size_t{0});
  size_t drops_left = keys_max;
  Slice slice{false, std::string(from_key)};
  std::vector<std::string> keys;
  std::vector<StateBuffer> states;
  while (true) {
    // Each leaf is found anew, since changing one may merge it with its neighbours.
    Path path;
    Leaf* leaf = Descend(slice.resume_key, &path);
    const size_t begin = leaf->Find(slice.resume_key).index;
    const size_t end = begin + std::min(leaf->count() - begin, keys_max);
    struct Outcome {
      size_t index;
      Histories::Outcome outcome;
    };
    std::vector<Outcome> changed;
    states.clear();
    size_t i = begin;
    bool finished = true;
    for (; i < end && finished; ++i) {
      StateBuffer state;
      const Histories::Compacted compacted =
          histories_.Compact(leaf->state(i), compact_main, &drops_left, record, &state);
      finished = compacted.finished;
      if (compacted.outcome == Histories::Outcome::kSame) continue;
      changed.push_back({i, compacted.outcome});
      states.push_back(state);
    }
    const size_t resume_index = finished ? i : i - 1;
    keys_max -= resume_index - begin;
    // Where to go on: at a key of this leaf, or behind all of it.
    if (resume_index < leaf->count()) {
      slice.resume_key = leaf->Key(resume_index);
    } else if (leaf->count() > 0) {
      slice.resume_key = leaf->Key(leaf->count() - 1) + '\0';
    }
    Path next = path;
    const Leaf* next_leaf = NextLeaf(&next);
    slice.done = resume_index >= leaf->count() && next_leaf == nullptr;
    // An insertion position at the end of a leaf means the next one.
    if (resume_index >= leaf->count() && next_leaf != nullptr) slice.resume_key = next_leaf->Key(0);

    if (!changed.empty()) {
      keys.clear();
      keys.reserve(leaf->count());
      const std::vector<Leaf::Entry> old_entries = EntriesOf(*leaf, &keys);
      std::vector<Leaf::Entry> entries;
      entries.reserve(old_entries.size());
      for (size_t at = 0, next_changed = 0; at < old_entries.size(); ++at) {
        Leaf::Entry entry = old_entries[at];
        if (next_changed < changed.size() && changed[next_changed].index == at) {
          const Outcome& outcome = changed[next_changed];
          entry.state = states[next_changed].view();
          ++next_changed;
          if (outcome.outcome == Histories::Outcome::kEmpty) {
            --keys_;
            continue;
          }
        }
        entries.push_back(entry);
      }
      const std::string place = entries.empty() ? std::string() : std::string(entries.front().key);
      ReplaceLeaf(path, leaf, entries, std::nullopt, 0);
      if (!entries.empty()) {
        Descend(place, &path);
        MergeLeaf(path);
      }
    }
    if (slice.done) return {};
    if (keys_max == 0 || drops_left == 0 || !finished) return slice;
  }
}

absl::Status KeyIndex::Tree::CheckInvariants() const {
  size_t live = 0;
  size_t keys = 0;
  size_t branch_bytes = 0;
  if (absl::Status status = CheckBelow(root_, 0, nullptr, nullptr, &live, &keys, &branch_bytes);
      !status.ok()) {
    return status;
  }
  if (live != live_keys() || keys != keys_) {
    return absl::InternalError(fmt::format("{} keys, {} of them live; counted as {} and {}", keys,
                                           live, keys_, live_keys()));
  }
  if (branch_bytes != branch_bytes_) {
    return absl::InternalError(
        fmt::format("branches take {} bytes, not {}", branch_bytes, branch_bytes_));
  }
  return absl::OkStatus();
}

absl::Status KeyIndex::Tree::CheckBelow(Node* node, size_t level, const std::string* low,
                                        const std::string* high, size_t* live, size_t* keys,
                                        size_t* bytes) const {
  if (level == height_) {
    const Leaf* leaf = static_cast<Leaf*>(node);
    if (leaf->count() == 0 && level > 0) return absl::InternalError("empty leaf");
    size_t live_here = 0;
    std::string before;
    for (size_t i = 0; i < leaf->count(); ++i) {
      const std::string key = leaf->Key(i);
      if (i > 0 && before >= key)
        return absl::InternalError(fmt::format("keys {} and {} out of order", before, key));
      if ((low != nullptr && key < *low) || (high != nullptr && key >= *high)) {
        return absl::InternalError(fmt::format("key {} outside of its leaf's bounds", key));
      }
      const Leaf::Position position = leaf->Find(key);
      if (!position.found || position.index != i)
        return absl::InternalError(fmt::format("key {} is not found", key));
      live_here += internal::LastChange(leaf->state(i)).tombstone ? 0 : 1;
      before = key;
    }
    if (live_here != leaf->live()) return absl::InternalError("wrong count of live keys in a leaf");
    *live += live_here;
    *keys += leaf->count();
    return absl::OkStatus();
  }
  const Branch* branch = static_cast<Branch*>(node);
  if (branch->count == 0 || (level == 0 && branch->count == 1))
    return absl::InternalError("branch without choice");
  *bytes += branch->Bytes();
  for (size_t i = 0; i < branch->count; ++i) {
    size_t live_below = 0;
    const std::string* child_low = i == 0 ? low : &branch->separator[i];
    const std::string* child_high = i + 1 == branch->count ? high : &branch->separator[i + 1];
    absl::Status status =
        CheckBelow(branch->child[i], level + 1, child_low, child_high, &live_below, keys, bytes);
    if (!status.ok()) return status;
    if (live_below != branch->live[i]) {
      return absl::InternalError(
          fmt::format("{} live keys below a child, counted as {}", live_below, branch->live[i]));
    }
    *live += live_below;
  }
  return absl::OkStatus();
}

void KeyIndex::Tree::Packer::Add(std::string_view key, std::span<const Change> changes) {
  Pending pending{keys_.size(), key.size(), {}};
  tree_.histories_.Encode(changes, &pending.state);
  size_t prefix_bytes = Leaf::PrefixBytes(
      pending_.empty() ? key : Key(pending_.front()).substr(0, prefix_bytes_), key);
  if (!pending_.empty() && prefix_bytes != prefix_bytes_) {
    pending_bytes_ = 0;
    for (const Pending& p : pending_)
      pending_bytes_ += Leaf::EntryBytes({Key(p), p.state.view()}, prefix_bytes);
  }
  size_t bytes = Leaf::EntryBytes({key, pending.state.view()}, prefix_bytes);
  if (!pending_.empty() && prefix_bytes + pending_bytes_ + bytes > kPackedLeafBytes) {
    Flush();
    pending.key_at = 0;
    prefix_bytes = Leaf::PrefixBytes(key, key);
    bytes = Leaf::EntryBytes({key, pending.state.view()}, prefix_bytes);
  }
  keys_ += key;
  pending_.push_back(pending);
  prefix_bytes_ = prefix_bytes;
  pending_bytes_ += bytes;
  ++tree_.keys_;
}

void KeyIndex::Tree::Packer::Flush() {
  std::vector<Leaf::Entry> entries;
  entries.reserve(pending_.size());
  for (const Pending& pending : pending_) entries.push_back({Key(pending), pending.state.view()});
  Leaf* leaf = tree_.NewLeaf(entries);
  Child child{leaf, leaf->live(), {}};
  if (!children_.empty()) child.separator = Separator(last_key_, entries.front().key);
  children_.push_back(std::move(child));
  last_key_ = entries.back().key;
  pending_.clear();
  pending_bytes_ = 0;
  keys_.clear();
}

void KeyIndex::Tree::Packer::Finish() {
  if (pending_.empty()) return;  // only if nothing was added
  Flush();
  tree_.FreeLeaf(static_cast<Leaf*>(tree_.root_));
  while (children_.size() > 1) {
    std::vector<Child> above;
    // Evenly, so that the last branch is not a nearly empty one.
    const size_t branches = (children_.size() + kPackedChildren - 1) / kPackedChildren;
    for (size_t i = 0; i < branches; ++i) {
      const size_t begin = children_.size() * i / branches;
      const size_t end = children_.size() * (i + 1) / branches;
      std::string separator = children_[begin].separator;
      Branch* branch = new Branch;
      branch->Fill(std::span(children_).subspan(begin, end - begin));
      tree_.branch_bytes_ += branch->Bytes();
      above.push_back({branch, branch->Live(), std::move(separator)});
    }
    children_ = std::move(above);
    ++tree_.height_;
  }
  CHECK_OP(tree_.height_, <, Path::kHeightMax);
  tree_.root_ = children_.front().node;
}

}  // namespace mvcc
