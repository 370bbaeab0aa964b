// Backend on a bolt file. Internal to mvcc; see backend.h for the contract.
//
// Locks, in the order they may be taken: step_mutex_ (one step of the loop at a time; held across
// file I/O; never taken by the apply thread inside an entry), mutex_ (entries, sealed batches,
// requests; for moments), view_mutex_ (the pointer to the current view; leaf).
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "bolt/compact.h"
#include "bolt/db.h"
#include "mvcc/backend.h"
#include "mvcc/batch.h"
#include "mvcc/bolt_view.h"

namespace mvcc {

class BoltBackend final : public Backend {
 public:
  explicit BoltBackend(BackendOptions options);
  ~BoltBackend() override;
  absl::Status Init();

  void Start() override;
  absl::Status Stop() override;
  base::Duration RunOnce() override;

  absl::Status BeginEntry() override;
  void EndEntry(uint64_t index, uint64_t term) override;
  char* AppendRecord(Revision revision, bool tombstone, size_t size) override;
  void Put(Bucket bucket, std::string_view key, std::string_view value) override;
  void Delete(Bucket bucket, std::string_view key) override;
  void RequestCommit(absl::AnyInvocable<void(const absl::Status&)> done) override;
  void SetConsistentIndex(uint64_t index, uint64_t term) override;
  absl::Status ReplaceFile(const std::string& path) override;

  absl::Status ForceCommit() override;
  absl::StatusOr<std::unique_ptr<BackendImage>> Image() override;
  absl::StatusOr<uint32_t> Hash() override;
  absl::Status Defragment() override;
  void StartDefragment(absl::AnyInvocable<void(const absl::Status&)> done) override;

  ViewPtr View() const override;
  uint64_t consistent_index() const override { return index_.load(std::memory_order_acquire); }
  uint64_t term() const override { return term_.load(std::memory_order_acquire); }
  uint64_t durable_index() const override { return durable_index_.load(std::memory_order_acquire); }
  BackendSizes sizes() const override;
  absl::Status fatal_status() const override;
  const std::string& path() const override { return options_.path; }

  void SetJob(BackendJob* job) override;
  void WakeJob() override;
  absl::Status ScanCommitted(Revision from,
                             absl::FunctionRef<bool(const Record&)> visit) const override;
  absl::Status CommitDeletion(const Deletion& deletion) override;

 private:
  using Done = absl::AnyInvocable<void(const absl::Status&)>;
  struct Waiter {
    uint64_t batch_number = 0;  // durable once this batch is
    Done done;
  };
  // A defragmentation between two steps. Touched under step_mutex_ only.
  struct Defragmentation {
    std::shared_ptr<OpenDb> target;
    std::string path;
    std::unique_ptr<bolt::ReadTx> source;
    std::unique_ptr<bolt::CompactCopier> copier;      // null once everything is copied
    std::deque<std::shared_ptr<const Batch>> replay;  // committed since to the old file
    uint64_t replay_bytes = 0;
    base::Duration started{};
    int rounds = 0;  // replays that met new batches at their end
  };
  // A replaced file that nobody may still map when it is cut down.
  struct Retired {
    std::weak_ptr<OpenDb> readers;
    std::unique_ptr<base::File> file;
  };

  // --- under mutex_ ---
  void SealLocked();
  // Returns the view before, which may be the last holder of much: let it go after the lock.
  ViewPtr PublishViewLocked(std::shared_ptr<const CommittedState> committed);
  bool CommitDueLocked(base::Duration now) const;
  void WakeLocked();

  // --- under step_mutex_ ---
  absl::StatusOr<std::shared_ptr<OpenDb>> OpenFile(const std::string& path, bool existing_only);
  absl::Status Adopt(std::shared_ptr<OpenDb> db);
  void RemoveScratchFiles();
  absl::Status CommitSealed();
  absl::StatusOr<bolt::CommitStats> WriteBatches(
      bolt::DB& db, const std::vector<std::shared_ptr<const Batch>>& batches, uint64_t* operations);
  absl::Status RefreshView();
  absl::Status StepLocked(base::Duration now, base::Duration* next);
  absl::Status StepDefragmentation(base::Duration now);
  absl::Status BeginDefragmentation(base::Duration now);
  absl::Status ReplayOnce();
  absl::Status SwapFiles();
  void EndDefragmentation(const absl::Status& status);
  base::Duration StepRetired(base::Duration now);

  void Fail(const absl::Status& status);
  void ThreadMain();

  BackendOptions options_;
  std::shared_ptr<OpenDb> db_;  // written under step_mutex_ and mutex_

  std::mutex step_mutex_;
  BackendJob* job_ = nullptr;  // under step_mutex_, as all down to mutex_
  base::Duration job_due_{};
  bool job_active_ = false;
  std::unique_ptr<Defragmentation> defragmentation_;
  base::Duration defragmentation_due_{};
  std::vector<Retired> retired_;
  base::Duration retired_due_{};

  mutable std::mutex mutex_;
  std::condition_variable loop_wake_;  // the loop has something to do
  std::condition_variable room_;       // pending bytes fell, or a failure
  bool threaded_ = false;
  bool stopping_ = false;
  bool woken_ = false;
  bool job_woken_ = false;
  bool in_entry_ = false;
  bool seal_wanted_ = false;  // at the next border
  bool commit_now_ = false;   // a commit is asked for, whatever the interval says
  base::Duration commit_due_ = base::Duration::max();  // by the interval
  std::shared_ptr<Batch> active_;
  std::vector<std::shared_ptr<const Batch>> sealed_;
  uint64_t sealed_bytes_ = 0;
  std::vector<Waiter> waiters_;
  std::vector<Done> defragment_requests_;
  bool defragmenting_ = false;
  absl::Status fatal_;
  std::shared_ptr<const CommittedState> committed_;

  Batch* writing_ = nullptr;  // apply thread: the active batch while an entry is open
  std::atomic<uint64_t> index_{0};
  std::atomic<uint64_t> term_{0};
  std::atomic<uint64_t> durable_index_{0};

  mutable std::mutex view_mutex_;
  ViewPtr view_;

  std::thread thread_;
};

}  // namespace mvcc
