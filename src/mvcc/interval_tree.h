// Which watchers care about a key: a set of (interval, value) pairs with the question "whose
// interval holds this key". Owned by one thread (the loop whose watchers it holds); not
// thread-safe.
//
// Single keys, by far the most common interval, live in a hash map; ranges in a balanced tree
// ordered by start that knows the greatest end of each subtree. Values with the same interval share
// one entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>

#include "absl/functional/function_ref.h"

namespace mvcc {

namespace internal {
class IntervalIndex;
struct IntervalGroup;
}  // namespace internal

// Names one added pair until it is removed.
struct IntervalId {
  internal::IntervalGroup* group = nullptr;
  uint64_t sequence = 0;
};

namespace internal {

// The tree for values of 64 bits.
class IntervalIndex {
 public:
  IntervalIndex();
  ~IntervalIndex();
  IntervalIndex(IntervalIndex&&) noexcept;
  IntervalIndex& operator=(IntervalIndex&&) noexcept;
  IntervalId Add(std::string_view key, std::string_view end, uint64_t value);
  void Remove(IntervalId id);
  void Stab(std::string_view key, absl::FunctionRef<void(uint64_t)> hit) const;
  bool Any(std::string_view key) const;
  size_t size() const;
  bool CheckInvariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace internal

// T: a pointer, an integer or the like.
template <typename T>
class IntervalTree {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));

 public:
  // Adds a pair in O(log n). `end` as in requests: empty is the single key, "\0" every key >=
  // `key`, else key <= k < end (an end not above `key` is an interval without keys). The bytes are
  // copied. The same interval and value may be added more than once.
  IntervalId Add(std::string_view key, std::string_view end, T value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return index_.Add(key, end, bits);
  }
  // Removes what Add returned `id` for, in O(log n) on average; `id` is void afterwards.
  void Remove(IntervalId id) { index_.Remove(id); }

  // Calls `hit` for each value whose interval holds `key`, in O(log n + hits): first those of the
  // single key, then of the ranges by (start, end); within one interval in the order of their
  // addition. `hit` must not change the tree.
  void Stab(std::string_view key, absl::FunctionRef<void(T)> hit) const {
    index_.Stab(key, [&hit](uint64_t bits) {
      T value;
      std::memcpy(&value, &bits, sizeof value);
      hit(value);
    });
  }
  // Whether Stab would find anything.
  bool Any(std::string_view key) const { return index_.Any(key); }

  size_t size() const { return index_.size(); }
  bool empty() const { return size() == 0; }
  // For tests; O(n).
  bool CheckInvariants() const { return index_.CheckInvariants(); }

 private:
  internal::IntervalIndex index_;
};

}  // namespace mvcc
