// The view that readers pin: one bolt read transaction and the batches that are not in it.
// Immutable but for the records that the apply thread goes on appending to the last batch;
// thread-safe.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "bolt/db.h"
#include "mvcc/backend.h"
#include "mvcc/batch.h"

namespace mvcc {

// An open db file. Views and images hold it, so the file of before a replacement lives until its
// last reader ends.
struct OpenDb {
  std::unique_ptr<bolt::DB> db;
};

// A read transaction with its buckets looked up.
class CommittedState {
 public:
  static absl::StatusOr<std::shared_ptr<const CommittedState>> Begin(std::shared_ptr<OpenDb> db);

  const bolt::ReadTx& tx() const { return *tx_; }
  // Null when the file has no such bucket.
  const bolt::Bucket* bucket(Bucket bucket) const {
    const auto& found = buckets_[static_cast<size_t>(bucket)];
    return found.has_value() ? &*found : nullptr;
  }
  absl::StatusOr<std::optional<std::string_view>> Find(Revision revision, FindHint* hint) const;
  absl::Status Scan(Revision from, absl::FunctionRef<bool(const Record&)> visit,
                    bool* stopped) const;
  absl::StatusOr<int64_t> LastRevision() const;

 private:
  CommittedState() = default;
  std::shared_ptr<OpenDb> db_;  // outlives tx_
  std::unique_ptr<bolt::ReadTx> tx_;
  std::array<std::optional<bolt::Bucket>, kBucketCount> buckets_;
};

class BoltView final : public ReadView {
 public:
  // `batches` in ascending order, the active one last.
  BoltView(std::shared_ptr<const CommittedState> committed,
           std::vector<std::shared_ptr<const Batch>> batches)
      : committed_(std::move(committed)), batches_(std::move(batches)) {}

  absl::StatusOr<std::optional<std::string_view>> Find(Revision revision,
                                                       FindHint* hint = nullptr) const override;
  absl::Status Scan(Revision from, absl::FunctionRef<bool(const Record&)> visit) const override;
  absl::StatusOr<int64_t> LastRevision() const override;
  absl::StatusOr<std::optional<std::string>> Get(Bucket bucket,
                                                 std::string_view key) const override;
  absl::Status ForEach(
      Bucket bucket,
      absl::FunctionRef<bool(std::string_view, std::string_view)> visit) const override;

  const std::shared_ptr<const CommittedState>& committed() const { return committed_; }

 private:
  const std::shared_ptr<const CommittedState> committed_;
  const std::vector<std::shared_ptr<const Batch>> batches_;
};

}  // namespace mvcc
