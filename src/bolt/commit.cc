// The commit: Store's half of it. The order of its steps is what makes a crash at any point
// harmless; see db.h.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/status.h"
#include "bolt/node.h"
#include "bolt/store.h"

namespace bolt::internal {
namespace {

// Adjacent pages are gathered up to this much for one write.
constexpr size_t kBufferBytes = 1 << 20;

// Pages of a stored list of `ids` free pages: one more than strictly needed where the ids end at a
// page's border, as bbolt reckons it.
uint64_t FreelistPages(uint64_t ids, uint32_t page_bytes) {
  const uint64_t words = ids + (ids >= 0xFFFF ? 1 : 0);
  return (kPageHeaderBytes + words * sizeof(PageId)) / page_bytes + 1;
}

void EncodeFreelist(const std::vector<PageId>& ids, PageId id, uint64_t pages, char* out,
                    uint64_t room) {
  const bool counted = ids.size() >= 0xFFFF;
  StorePageHeader(out, {.id = id,
                        .flags = kFreelistPage,
                        .count = static_cast<uint16_t>(counted ? 0xFFFF : ids.size()),
                        .overflow = static_cast<uint32_t>(pages - 1)});
  char* at = out + kPageHeaderBytes;
  if (counted) {
    base::StoreLe(at, static_cast<uint64_t>(ids.size()));
    at += sizeof(uint64_t);
  }
  const uint64_t used = static_cast<uint64_t>(at - out) + ids.size() * sizeof(PageId);
  CHECK_OP(used, <=, room);
  if (!ids.empty()) std::memcpy(at, ids.data(), ids.size() * sizeof(PageId));
  std::memset(out + used, 0, room - used);
}

}  // namespace

// Adds the pages that the transaction's nodes replace, and makes sure that none is given back
// twice: in a damaged file a page may be referenced twice, and freeing it for one reference would
// let the next commit overwrite it for the other.
absl::Status Store::CollectFreed(WriteTx& tx) const {
  for (const auto& node : tx.arena_->nodes()) {
    if (node->dirty && node->page != 0) {
      tx.freed_.emplace_back(node->page, node->overflow);
      node->page = 0;
    }
  }
  std::sort(tx.freed_.begin(), tx.freed_.end());
  PageId end = 0;  // of the run before
  for (const auto& [id, overflow] : tx.freed_) {
    if (id < end || !free_pages_.InUse(id, uint64_t{overflow} + 1)) {
      return tx.source_.Damage(id, "expected a page in use to be referenced once");
    }
    end = id + overflow + 1;
  }
  return absl::OkStatus();
}

PageId Store::AllocatePages(Meta& meta, uint64_t pages) {
  PageId id = meta.page_count;
  if (const std::optional<PageId> free = free_pages_.Allocate(pages)) {
    id = *free;
  } else {
    meta.page_count += pages;
    free_pages_.Extend(meta.page_count);
  }
  free_pages_.NoteAllocated(id, pages, meta.txid);
  return id;
}

absl::Status Store::Sync(CommitStats& stats) {
  if (options_.no_sync) return absl::OkStatus();
  const base::Duration start = clock_.Monotonic();
  absl::Status status = file_->Sync();
  stats.sync += clock_.Monotonic() - start;
  return status;
}

// Makes room for all pages below meta.page_count in the mapping and in the file.
absl::Status Store::Grow(const Meta& meta, CommitStats& stats) {
  const uint64_t needed = (meta.page_count + 1) * page_bytes_;
  const uint64_t mapped =
      needed >= mapped_bytes_ ? MapBytes(std::max(needed, file_bytes_)) : mapped_bytes_;
  if (!options_.no_sync && needed > file_bytes_) {
    const uint64_t grown = GrownFileBytes(needed, mapped);
    RETURN_IF_ERROR(file_->Truncate(grown));
    RETURN_IF_ERROR(Sync(stats));
    file_bytes_ = grown;
  }
  return mapped == mapped_bytes_ ? absl::OkStatus() : Map(mapped);
}

// Writes the planned pages in ascending order, neighbours together. The entry without a node is the
// freelist.
absl::Status Store::WritePages(std::vector<PlannedPage>& plan, CommitStats& stats) {
  std::sort(plan.begin(), plan.end(),
            [](const PlannedPage& a, const PlannedPage& b) { return a.id < b.id; });
  if (buffer_.empty()) buffer_.resize(kBufferBytes);
  PageId start = 0;  // of the pages in the buffer
  uint64_t used = 0;
  const auto flush = [&]() -> absl::Status {
    if (used == 0) return absl::OkStatus();
    ++stats.writes;
    stats.pages_written += used / page_bytes_;
    RETURN_IF_ERROR(
        file_->WriteAt(start * page_bytes_, {buffer_.data(), static_cast<size_t>(used)}));
    used = 0;
    return absl::OkStatus();
  };
  for (const PlannedPage& page : plan) {
    const uint64_t bytes = uint64_t{page.pages} * page_bytes_;
    if (used > 0 && (start + used / page_bytes_ != page.id || used + bytes > buffer_.size()))
      RETURN_IF_ERROR(flush());
    if (bytes > buffer_.size()) buffer_.resize(static_cast<size_t>(bytes));
    if (used == 0) start = page.id;
    if (page.node == nullptr) {
      EncodeFreelist(free_pages_.StoredIds(), page.id, page.pages, buffer_.data() + used, bytes);
    } else {
      EncodePage(*page.node, page.begin, page.end, page.id, page.pages - 1, buffer_.data() + used,
                 bytes);
    }
    used += bytes;
  }
  RETURN_IF_ERROR(flush());
  if (buffer_.size() > kBufferBytes) {  // a large value has passed through
    buffer_.resize(kBufferBytes);
    buffer_.shrink_to_fit();
  }
  return absl::OkStatus();
}

absl::Status Store::WriteAll(const Meta& meta, std::vector<PlannedPage>& plan, CommitStats& stats) {
  if (meta.page_count > meta_.page_count) RETURN_IF_ERROR(Grow(meta, stats));
  RETURN_IF_ERROR(WritePages(plan, stats));
  RETURN_IF_ERROR(Sync(stats));
  std::string page(page_bytes_, '\0');
  const PageId id = meta.txid % 2;
  EncodeMetaPage(meta, id, page.data());
  RETURN_IF_ERROR(file_->WriteAt(id * page_bytes_, page));
  return Sync(stats);
}

absl::StatusOr<CommitStats> Store::Commit(WriteTx& tx) {
  CommitStats stats{.txid = tx.txid()};
  const base::Duration started = clock_.Monotonic();
  TreeEditor root(*tx.root_);
  bool changed = false;
  RETURN_IF_ERROR(root.Prepare(&changed));
  if (meta_.freelist != kNoFreelist) tx.freed_.emplace_back(meta_.freelist, freelist_overflow_);
  RETURN_IF_ERROR(CollectFreed(tx));
  const base::Duration prepared = clock_.Monotonic();

  // Nothing can fail from here to the first write; from there on a failure is final, so the free
  // pages need no way back.
  Meta meta = tx.meta_;
  std::vector<PlannedPage> plan;
  if (changed) {
    const BucketHeader header =
        root.Spill([this, &meta](uint64_t pages) { return AllocatePages(meta, pages); }, &plan);
    meta.root = header.root;
    meta.root_sequence = header.sequence;
  }
  free_pages_.AddPending(meta.txid, tx.freed_);
  for (const auto& [id, overflow] : tx.freed_) stats.pages_freed += uint64_t{overflow} + 1;
  uint64_t freelist_pages = 0;
  meta.freelist = kNoFreelist;
  if (options_.store_freelist) {
    freelist_pages =
        FreelistPages(free_pages_.free_count() + free_pages_.pending_count(), page_bytes_);
    meta.freelist = AllocatePages(meta, freelist_pages);
    plan.push_back({.id = meta.freelist,
                    .pages = static_cast<uint32_t>(freelist_pages),
                    .node = nullptr,
                    .begin = 0,
                    .end = 0});
  }
  const base::Duration planned = clock_.Monotonic();
  absl::Status written = WriteAll(meta, plan, stats);
  stats.rebalance = prepared - started;
  stats.spill = planned - prepared;
  stats.write = clock_.Monotonic() - planned;
  if (freelist_pages > 0) freelist_overflow_ = static_cast<uint32_t>(freelist_pages - 1);

  std::lock_guard lock(mutex_);
  if (!written.ok()) {
    failure_ = base::Annotate(written, fmt::format("db file {}: commit {}", path(), meta.txid));
    return failure_;
  }
  meta_ = meta;
  ++commits_;
  free_count_ = free_pages_.free_count();
  pending_count_ = free_pages_.pending_count();
  return stats;
}

}  // namespace bolt::internal
