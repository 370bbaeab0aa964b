#include "mvcc/key_index.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "mvcc/key_tree.h"

namespace mvcc {
namespace {

KeyState StateOf(const Change& change) { return {change.created, change.revision, change.version}; }

std::optional<KeyState> LiveState(const std::optional<Change>& change) {
  if (!change.has_value() || change->tombstone) return std::nullopt;
  return StateOf(*change);
}

absl::Status OutOfOrder(Revision revision, Revision last) {
  return absl::DataLossError(
      fmt::format("the record of revision {}_{} follows that of {}_{} of the same key",
                  revision.main, revision.sub, last.main, last.sub));
}

}  // namespace

KeyIndex::KeyIndex() : tree_(std::make_unique<Tree>()) {}
KeyIndex::~KeyIndex() = default;
KeyIndex::KeyIndex(KeyIndex&&) noexcept = default;
KeyIndex& KeyIndex::operator=(KeyIndex&&) noexcept = default;

KeyIndex::PutResult KeyIndex::Put(std::string_view key, Revision revision) {
  const Tree::Updated updated =
      tree_->Update(key, [revision](const Change* last) -> std::optional<Change> {
        if (last == nullptr) return Change{revision, false, revision.main, 1};
        CHECK(revision > last->revision);
        return internal::NextChange(*last, revision, false);
      });
  return {StateOf(*updated.after), LiveState(updated.before)};
}

std::optional<KeyState> KeyIndex::Tombstone(std::string_view key, Revision revision) {
  const Tree::Updated updated =
      tree_->Update(key, [revision](const Change* last) -> std::optional<Change> {
        if (last == nullptr || last->tombstone) return std::nullopt;
        CHECK(revision > last->revision);
        return internal::NextChange(*last, revision, true);
      });
  return LiveState(updated.before);
}

absl::Status KeyIndex::RestorePut(std::string_view key, int64_t created, Revision revision,
                                  int64_t version) {
  absl::Status status;
  tree_->Update(key, [&](const Change* last) -> std::optional<Change> {
    if (last == nullptr) return Change{revision, false, created, version};
    if (revision > last->revision) return internal::NextChange(*last, revision, false);
    status = OutOfOrder(revision, last->revision);
    return std::nullopt;
  });
  return status;
}

absl::Status KeyIndex::RestoreTombstone(std::string_view key, Revision revision) {
  absl::Status status;
  tree_->Update(key, [&](const Change* last) -> std::optional<Change> {
    if (last == nullptr || revision > last->revision) return Change{revision, true, 0, 0};
    status = OutOfOrder(revision, last->revision);
    return std::nullopt;
  });
  return status;
}

std::optional<KeyState> KeyIndex::Get(std::string_view key, int64_t at_main) const {
  return LiveState(tree_->Newest(key, at_main));
}

KeyIndex::Slice KeyIndex::Visit(
    std::string_view key, std::string_view end, int64_t at_main, size_t keys_max,
    absl::FunctionRef<bool(std::string_view, const KeyState&)> visit) const {
  return tree_->Walk(key, end, keys_max, true, [&](std::string_view found, const char* state) {
    const std::optional<Change> newest = internal::NewestAt(state, at_main);
    if (!newest.has_value() || newest->tombstone) return true;
    return visit(found, StateOf(*newest));
  });
}

size_t KeyIndex::CountNow(std::string_view key, std::string_view end) const {
  if (end.empty()) return Get(key, kNow).has_value() ? 1 : 0;
  if (end.size() == 1 && end[0] == '\0') return live_keys() - tree_->LiveBelow(key);
  if (end <= key) return 0;
  return tree_->LiveBelow(end) - tree_->LiveBelow(key);
}

KeyIndex::Slice KeyIndex::CountAt(std::string_view key, std::string_view end, int64_t at_main,
                                  size_t keys_max, size_t* count) const {
  return tree_->Walk(key, end, keys_max, false, [&](std::string_view, const char* state) {
    const std::optional<Change> newest = internal::NewestAt(state, at_main);
    if (newest.has_value() && !newest->tombstone) ++*count;
    return true;
  });
}

std::vector<Change> KeyIndex::History(std::string_view key) const { return tree_->History(key); }
size_t KeyIndex::live_keys() const { return tree_->live_keys(); }
size_t KeyIndex::keys() const { return tree_->keys(); }
size_t KeyIndex::memory_bytes() const { return tree_->memory_bytes(); }
absl::Status KeyIndex::CheckInvariants() const { return tree_->CheckInvariants(); }

KeyIndex::Slice KeyIndex::Compact(int64_t compact_main, std::string_view from_key, size_t keys_max,
                                  absl::FunctionRef<void(const RevisionKey&, bool)> record) {
  return tree_->Compact(compact_main, from_key, keys_max, record);
}

KeyIndex::Slice KeyIndex::VisitNewest(int64_t at_main, std::string_view from_key, size_t keys_max,
                                      absl::FunctionRef<void(const RevisionKey&)> record) const {
  const std::string_view every_key_above("\0", 1);
  return tree_->Walk(from_key, every_key_above, keys_max, false,
                     [&](std::string_view, const char* state) {
                       const std::optional<Change> newest = internal::NewestAt(state, at_main);
                       if (newest.has_value()) record({newest->revision, newest->tombstone});
                       return true;
                     });
}

}  // namespace mvcc
