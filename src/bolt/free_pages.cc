#include "bolt/free_pages.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace bolt::internal {

void FreePages::Reset(PageId page_count, TxId txid) {
  *this = FreePages();
  first_txid_ = txid;
  Extend(page_count);
  lowest_free_ = page_count;
  run_from_ = page_count;
}

void FreePages::Extend(PageId page_count) {
  CHECK_OP(page_count, >=, page_count_);
  page_count_ = page_count;
  const size_t words = static_cast<size_t>(page_count / 64 + 1);
  free_.resize(words);
  pending_.resize(words);
  allocated_by_.resize(static_cast<size_t>(page_count));
}

void FreePages::MarkFree(PageId id) {
  CHECK_OP(id, <, page_count_);
  uint64_t& word = free_[id / 64];
  const uint64_t mask = uint64_t{1} << (id % 64);
  CHECK((word & mask) == 0);
  word |= mask;
  ++free_count_;
  lowest_free_ = std::min(lowest_free_, id);
  run_from_ = std::min(run_from_, id);
  no_run_of_ = ~uint64_t{0};
}

bool FreePages::InUse(PageId id, uint64_t pages) const {
  if (id < 2 || id >= page_count_ || pages > page_count_ - id) return false;
  for (PageId i = id; i < id + pages; ++i) {
    if (Bit(free_, i) || Bit(pending_, i)) return false;
  }
  return true;
}

// The first run of free pages at or above `from`, looking at whole words where it can.
std::optional<PageId> FreePages::FindRun(PageId from, uint64_t pages) const {
  uint64_t run = 0;
  for (PageId id = from; id < page_count_;) {
    const uint64_t word = free_[id / 64] >> (id % 64);
    const uint64_t left = 64 - id % 64;
    if (word == 0) {
      run = 0;
      id += left;
      continue;
    }
    const uint64_t zeros = static_cast<uint64_t>(std::countr_zero(word));
    if (zeros > 0) {
      run = 0;
      id += zeros;
      continue;
    }
    const uint64_t ones = std::min<uint64_t>(static_cast<uint64_t>(std::countr_one(word)), left);
    run += ones;
    id += ones;
    if (run >= pages) return id - run;
  }
  return std::nullopt;
}

std::optional<PageId> FreePages::Allocate(uint64_t pages) {
  if (pages == 0 || free_count_ < pages || pages >= no_run_of_) return std::nullopt;
  std::optional<PageId> found;
  if (pages == 1) {
    found = FindRun(lowest_free_, 1);
    CHECK(found.has_value());
    lowest_free_ = *found + 1;
  } else {
    found = FindRun(run_from_, pages);
    if (!found && run_from_ > lowest_free_) found = FindRun(lowest_free_, pages);
    if (!found) {
      no_run_of_ = pages;
      return std::nullopt;
    }
    run_from_ = *found + pages;
  }
  for (PageId id = *found; id < *found + pages; ++id) free_[id / 64] &= ~(uint64_t{1} << (id % 64));
  free_count_ -= pages;
  return found;
}

void FreePages::NoteAllocated(PageId id, uint64_t pages, TxId txid) {
  const auto age = static_cast<uint32_t>(
      std::min<uint64_t>(txid - std::min(txid, first_txid_), std::numeric_limits<uint32_t>::max()));
  std::fill_n(allocated_by_.begin() + static_cast<ptrdiff_t>(id), pages, age);
}

void FreePages::AddPending(TxId freed_by, std::span<const std::pair<PageId, uint32_t>> runs) {
  for (const auto& [id, overflow] : runs) {
    const uint64_t pages = uint64_t{overflow} + 1;
    CHECK(InUse(id, pages));
    for (PageId i = id; i < id + pages; ++i) pending_[i / 64] |= uint64_t{1} << (i % 64);
    pending_count_ += pages;
    const uint32_t age = allocated_by_[id];
    fresh_.push_back({.id = id,
                      .pages = pages,
                      .allocated_by = age == 0 ? 0 : first_txid_ + age,
                      .freed_by = freed_by});
  }
}

void FreePages::Place(const Pending& pending, std::span<const TxId> readers) {
  const auto oldest = std::lower_bound(readers.begin(), readers.end(), pending.allocated_by);
  if (oldest != readers.end() && *oldest < pending.freed_by) {
    waiting_[*oldest].push_back(pending);
    return;
  }
  pending_count_ -= pending.pages;
  for (PageId id = pending.id; id < pending.id + pending.pages; ++id) {
    pending_[id / 64] &= ~(uint64_t{1} << (id % 64));
    MarkFree(id);
  }
}

void FreePages::Release(std::span<const TxId> readers) {
  std::vector<Pending> moving;
  moving.swap(fresh_);
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (std::binary_search(readers.begin(), readers.end(), it->first)) {
      ++it;
      continue;
    }
    moving.insert(moving.end(), it->second.begin(), it->second.end());
    it = waiting_.erase(it);
  }
  for (const Pending& pending : moving) Place(pending, readers);
}

std::vector<PageId> FreePages::StoredIds() const {
  std::vector<PageId> ids;
  ids.reserve(static_cast<size_t>(free_count_ + pending_count_));
  for (size_t i = 0; i < free_.size(); ++i) {
    for (uint64_t word = free_[i] | pending_[i]; word != 0; word &= word - 1) {
      ids.push_back(i * 64 + static_cast<uint64_t>(std::countr_zero(word)));
    }
  }
  return ids;
}

}  // namespace bolt::internal
