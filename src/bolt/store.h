// The open db file behind DB, shared by its transactions: the lock, the mapping, the newest meta,
// who reads what, and the commit. Internal to the layer.
//
// Threads. `mutex_` guards what readers and the writer share and is held for moments only, never
// across I/O. What is marked "writer" belongs to the one write transaction in progress; `writing_`
// says that there is one.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "bolt/db.h"
#include "bolt/free_pages.h"
#include "bolt/tree_editor.h"

namespace bolt::internal {

// Bytes that bbolt would map for a file of `bytes`: a power of two from 32 KiB to 1 GiB, then whole
// GiB.
uint64_t MapBytes(uint64_t bytes);
// Length to which a file grows that must hold `needed` bytes, while `mapped` bytes are mapped.
uint64_t GrownFileBytes(uint64_t needed, uint64_t mapped);

class Store : public std::enable_shared_from_this<Store> {
 public:
  Store(std::unique_ptr<base::File> file, Options options, base::Clock& clock);

  // Reads the meta pages, maps the file and finds the free pages. The file is locked and not empty.
  absl::Status Start();

  std::unique_ptr<ReadTx> BeginRead();
  absl::StatusOr<std::unique_ptr<WriteTx>> BeginWrite();
  void EndRead(TxId txid);
  void EndWrite();
  absl::StatusOr<CommitStats> Commit(WriteTx& tx);

  DbStats stats() const;
  absl::Status failure() const;
  uint32_t page_bytes() const { return page_bytes_; }
  const std::string& path() const { return file_->path(); }
  // Whether a list of free pages has to be stored that the file lacks; before any transaction.
  bool NeedsFreelist() const {
    return options_.store_freelist && !options_.read_only && meta_.freelist == kNoFreelist;
  }

 private:
  absl::StatusOr<uint32_t> FindPageBytes(uint64_t file_bytes) const;
  absl::StatusOr<Meta> ReadMeta(uint64_t file_bytes) const;
  absl::Status Map(uint64_t bytes);
  absl::Status LoadFreePages();
  absl::Status DataLoss(std::string_view what) const;
  PageSource Source(const Meta& meta) const;

  // The steps of a commit.
  absl::Status CollectFreed(WriteTx& tx) const;
  PageId AllocatePages(Meta& meta, uint64_t pages);
  absl::Status Grow(const Meta& meta, CommitStats& stats);
  absl::Status WritePages(std::vector<PlannedPage>& plan, CommitStats& stats);
  absl::Status Sync(CommitStats& stats);
  absl::Status WriteAll(const Meta& meta, std::vector<PlannedPage>& plan, CommitStats& stats);

  const std::unique_ptr<base::File> file_;
  const Options options_;
  base::Clock& clock_;
  uint32_t page_bytes_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable writer_gone_;
  Meta meta_;                                       // newest committed
  std::shared_ptr<const base::Mapping> mapping_;    // holds all pages of meta_
  std::vector<std::pair<TxId, uint64_t>> readers_;  // open read transactions by txid, ascending
  bool writing_ = false;
  absl::Status failure_;  // the first failed write or sync
  uint64_t free_count_ = 0;
  uint64_t pending_count_ = 0;
  uint64_t commits_ = 0;

  // Writer.
  FreePages free_pages_;
  uint64_t file_bytes_ = 0;
  uint64_t mapped_bytes_ = 0;
  uint32_t freelist_overflow_ = 0;  // of the stored list's page, if there is one
  std::vector<char> buffer_;        // pages on their way to the file
};

}  // namespace bolt::internal
