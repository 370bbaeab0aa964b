#include "bolt/store.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/status.h"
#include "bolt/walk.h"

namespace bolt::internal {
namespace {

// Below this much the file grows to what is mapped, above it by this much beyond need.
constexpr uint64_t kGrowthBytes = 16 << 20;
}  // namespace

uint64_t MapBytes(uint64_t bytes) {
  for (int shift = 15; shift <= 30; ++shift) {
    if (bytes <= uint64_t{1} << shift) return uint64_t{1} << shift;
  }
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  return (bytes + kGiB - 1) / kGiB * kGiB;
}

uint64_t GrownFileBytes(uint64_t needed, uint64_t mapped) {
  return mapped <= kGrowthBytes ? mapped : needed + kGrowthBytes;
}

Store::Store(std::unique_ptr<base::File> file, Options options, base::Clock& clock)
    : file_(std::move(file)), options_(std::move(options)), clock_(clock) {}

absl::Status Store::DataLoss(std::string_view what) const {
  return base::MakeStatus(absl::StatusCode::kDataLoss, "db file {}: {}", path(), what);
}

PageSource Store::Source(const Meta& meta) const {
  return {.data = mapping_->data(),
          .page_count = meta.page_count,
          .page_bytes = page_bytes_,
          .path = &path()};
}

// The first meta page says it; if that one is damaged, the second one lies at the page size itself.
absl::StatusOr<uint32_t> Store::FindPageBytes(uint64_t file_bytes) const {
  constexpr size_t kProbeBytes = kPageHeaderBytes + kMetaBytes;
  char probe[kProbeBytes];
  ASSIGN_OR_RETURN(size_t got, file_->ReadAt(0, probe, kProbeBytes));
  absl::StatusOr<Meta> meta = DecodeMetaPage({probe, got});
  for (uint32_t at = 1024; !meta.ok() && at <= kPageBytesMax && uint64_t{at} + 1024 < file_bytes;
       at *= 2) {
    ASSIGN_OR_RETURN(got, file_->ReadAt(at, probe, kProbeBytes));
    meta = DecodeMetaPage({probe, got});
    if (meta.ok() && meta->page_bytes != at) meta = absl::DataLossError("not a meta page");
  }
  if (!meta.ok()) return kPageBytesDefault;
  const uint32_t bytes = meta->page_bytes;
  if (bytes < kPageBytesMin || bytes > kPageBytesMax || (bytes & (bytes - 1)) != 0) {
    return DataLoss(
        fmt::format("page 0: expected a page size from {} to {} that is a power of two, found {}",
                    kPageBytesMin, kPageBytesMax, bytes));
  }
  return bytes;
}

absl::StatusOr<Meta> Store::ReadMeta(uint64_t file_bytes) const {
  if (file_bytes < uint64_t{2} * page_bytes_)
    return DataLoss(fmt::format("file size too small {}", file_bytes));
  std::string pages(size_t{2} * page_bytes_, '\0');
  ASSIGN_OR_RETURN(const size_t got, file_->ReadAt(0, pages.data(), pages.size()));
  if (got != pages.size())
    return DataLoss(fmt::format("expected two meta pages, found {} bytes", got));
  const absl::StatusOr<Meta> first = DecodeMetaPage(std::string_view(pages).substr(0, page_bytes_));
  const absl::StatusOr<Meta> second = DecodeMetaPage(std::string_view(pages).substr(page_bytes_));
  if (!first.ok() && !second.ok()) return DataLoss(base::Message(first.status()));
  const int chosen = !first.ok() || (second.ok() && second->txid > first->txid) ? 1 : 0;
  const Meta& meta = chosen == 0 ? *first : *second;
  if (meta.page_bytes != page_bytes_) {
    return DataLoss(fmt::format("page {}: expected page size {}, found {}", chosen, page_bytes_,
                                meta.page_bytes));
  }
  if (meta.txid == ~TxId{0}) {
    return DataLoss(fmt::format("page {}: expected a transaction id with one above it", chosen));
  }
  if (meta.page_count > file_bytes / page_bytes_) {
    return DataLoss(
        fmt::format("expected {} pages of {} bytes, as page {} says, found a file of {} bytes",
                    meta.page_count, page_bytes_, chosen, file_bytes));
  }
  if (meta.root < 2 || meta.root >= meta.page_count) {
    return DataLoss(fmt::format("page {}: expected a root page below {}, found {}", chosen,
                                meta.page_count, meta.root));
  }
  if (meta.freelist != kNoFreelist && (meta.freelist < 2 || meta.freelist >= meta.page_count)) {
    return DataLoss(fmt::format("page {}: expected a freelist page below {}, found {}", chosen,
                                meta.page_count, meta.freelist));
  }
  return meta;
}

absl::Status Store::Map(uint64_t bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<base::Mapping> mapping, file_->Map(bytes));
  std::lock_guard lock(mutex_);
  mapping_ = std::move(mapping);
  mapped_bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status Store::Start() {
  ASSIGN_OR_RETURN(file_bytes_, file_->Size());
  ASSIGN_OR_RETURN(page_bytes_, FindPageBytes(file_bytes_));
  ASSIGN_OR_RETURN(meta_, ReadMeta(file_bytes_));
  RETURN_IF_ERROR(Map(MapBytes(std::max(file_bytes_, options_.map_reserve_bytes))));
  if (options_.read_only) return absl::OkStatus();
  return LoadFreePages();
}

absl::Status Store::LoadFreePages() {
  free_pages_.Reset(meta_.page_count, meta_.txid);
  if (meta_.freelist != kNoFreelist) {
    std::vector<PageId> ids;
    RETURN_IF_ERROR(ReadFreelistPage(Source(meta_), meta_.freelist, &ids, &freelist_overflow_));
    for (const PageId id : ids) free_pages_.MarkFree(id);
  } else {
    PageSet reachable(meta_.page_count);
    std::string finding;
    const bool whole =
        WalkReachable(Source(meta_), meta_, &reachable, [&finding](std::string_view what) {
          finding = what;
          return false;
        });
    if (!whole) return DataLoss(finding);
    for (PageId id = 2; id < meta_.page_count; ++id) {
      if (!reachable.Contains(id)) free_pages_.MarkFree(id);
    }
  }
  free_count_ = free_pages_.free_count();
  return absl::OkStatus();
}

std::unique_ptr<ReadTx> Store::BeginRead() {
  std::lock_guard lock(mutex_);
  const TxId txid = meta_.txid;
  if (readers_.empty() || readers_.back().first != txid)
    readers_.emplace_back(txid, 0);  // txids only grow
  ++readers_.back().second;
  return std::unique_ptr<ReadTx>(new ReadTx(shared_from_this(), mapping_, Source(meta_), meta_));
}

void Store::EndRead(TxId txid) {
  std::lock_guard lock(mutex_);
  const auto at =
      std::lower_bound(readers_.begin(), readers_.end(), std::pair<TxId, uint64_t>(txid, 0));
  CHECK(at != readers_.end() && at->first == txid);
  if (--at->second == 0) readers_.erase(at);
}

absl::StatusOr<std::unique_ptr<WriteTx>> Store::BeginWrite() {
  if (options_.read_only) return absl::FailedPreconditionError("database not open for writing");
  std::unique_lock lock(mutex_);
  writer_gone_.wait(lock, [this] { return !writing_; });
  RETURN_IF_ERROR(failure_);
  writing_ = true;
  std::vector<TxId> readers;
  for (const auto& [txid, count] : readers_) readers.push_back(txid);
  Meta meta = meta_;
  ++meta.txid;
  std::unique_ptr<WriteTx> tx(new WriteTx(shared_from_this(), mapping_, Source(meta_), meta));
  lock.unlock();
  free_pages_.Release(readers);
  lock.lock();
  free_count_ = free_pages_.free_count();
  pending_count_ = free_pages_.pending_count();
  return tx;
}

void Store::EndWrite() {
  {
    std::lock_guard lock(mutex_);
    CHECK(writing_);
    writing_ = false;
  }
  writer_gone_.notify_one();
}

DbStats Store::stats() const {
  std::lock_guard lock(mutex_);
  DbStats stats{
      .txid = meta_.txid,
      .size_bytes = meta_.page_count * page_bytes_,
      .in_use_bytes = (meta_.page_count - free_count_) * page_bytes_,
      .free_pages = free_count_,
      .pending_pages = pending_count_,
      .freelist_bytes = kPageHeaderBytes + (free_count_ + pending_count_) * sizeof(PageId),
      .open_readers = 0,
      .commits = commits_};
  for (const auto& [txid, count] : readers_) stats.open_readers += count;
  return stats;
}

absl::Status Store::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace bolt::internal
