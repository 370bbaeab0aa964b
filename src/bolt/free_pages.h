// Which pages are free, and which are freed but may still be seen by a reader. Owned by the writer,
// not thread-safe.
//
// Free pages are a bitmap, one bit a page: 320 KiB for 10 GiB, where a set of spans may take a
// hundred times that when the free pages are scattered, as they are after a compaction.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bolt/page.h"

namespace bolt::internal {

class FreePages {
 public:
  // Starts with nothing free among `page_count` pages, all allocated at or before `txid`.
  void Reset(PageId page_count, TxId txid);
  // The file has grown: more pages, in use.
  void Extend(PageId page_count);

  // Requires that the page is in use and below page_count.
  void MarkFree(PageId id);
  bool IsFree(PageId id) const { return Bit(free_, id); }
  // Whether the run [id, id + pages) exists and is wholly in use.
  bool InUse(PageId id, uint64_t pages) const;

  // The first of `pages` contiguous free pages, no longer free; nothing when there is no such run.
  std::optional<PageId> Allocate(uint64_t pages);
  // Remembers that transaction `txid` allocated this run, wherever it came from.
  void NoteAllocated(PageId id, uint64_t pages, TxId txid);

  // Transaction `freed_by`, now committed, no longer uses these runs (first page, overflow pages).
  // They must be InUse.
  void AddPending(TxId freed_by, std::span<const std::pair<PageId, uint32_t>> runs);
  // Frees the pending pages that none of the open readers can see. `readers`: their txids,
  // ascending. Call before each write transaction; later readers see none of the pages pending now.
  void Release(std::span<const TxId> readers);

  uint64_t free_count() const { return free_count_; }
  uint64_t pending_count() const { return pending_count_; }
  // Free and pending pages, ascending: what a stored list holds.
  std::vector<PageId> StoredIds() const;

 private:
  using Bits = std::vector<uint64_t>;
  // A run allocated by one transaction and freed by a later one: readers in [allocated_by,
  // freed_by) see it.
  struct Pending {
    PageId id;
    uint64_t pages;
    TxId allocated_by;
    TxId freed_by;
  };

  static bool Bit(const Bits& bits, PageId id) { return (bits[id / 64] >> (id % 64) & 1) != 0; }
  void Place(const Pending& pending, std::span<const TxId> readers);
  std::optional<PageId> FindRun(PageId from, uint64_t pages) const;

  Bits free_;
  Bits pending_;
  // Transaction that allocated each page, less first_txid_; 0 for "at or before". Saturates, which
  // only keeps pages longer.
  std::vector<uint32_t> allocated_by_;
  TxId first_txid_ = 0;
  PageId page_count_ = 0;
  uint64_t free_count_ = 0;
  uint64_t pending_count_ = 0;
  PageId lowest_free_ = 0;  // no page below is free
  PageId run_from_ = 0;     // where the last search for a longer run ended
  uint64_t no_run_of_ =
      ~uint64_t{0};             // a search for so many pages has failed since pages were freed last
  std::vector<Pending> fresh_;  // not yet placed
  std::map<TxId, std::vector<Pending>> waiting_;  // for the oldest reader that sees them
};

}  // namespace bolt::internal
