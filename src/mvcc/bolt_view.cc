#include "mvcc/bolt_view.h"

#include "base/bytes.h"
#include "base/status.h"

namespace mvcc {

std::string_view BucketName(Bucket bucket) {
  static constexpr std::string_view kNames[kBucketCount] = {
      "alarm", "auth",  "authRoles", "authUsers",       "cluster",
      "key",   "lease", "members",   "members_removed", "meta"};
  return kNames[static_cast<size_t>(bucket)];
}

namespace {

absl::StatusOr<RevisionKey> ParseRecordKey(const std::string& path, std::string_view bytes) {
  const std::optional<RevisionKey> key = ParseRevisionKey(bytes);
  if (key.has_value()) return *key;
  return base::MakeStatus(absl::StatusCode::kDataLoss,
                          "db file {}: bucket key: expected a revision of 17 or 18 bytes, found {}",
                          path, base::ToHex(bytes));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CommittedState>> CommittedState::Begin(
    std::shared_ptr<OpenDb> db) {
  std::shared_ptr<CommittedState> state(new CommittedState);
  state->tx_ = db->db->BeginRead();
  state->db_ = std::move(db);
  for (int i = 0; i < kBucketCount; ++i) {
    absl::StatusOr<bolt::Bucket> bucket = state->tx_->bucket(BucketName(static_cast<Bucket>(i)));
    if (bucket.ok()) {
      state->buckets_[static_cast<size_t>(i)] = *bucket;
    } else if (bucket.status().code() != absl::StatusCode::kNotFound) {
      return bucket.status();
    }
  }
  return std::shared_ptr<const CommittedState>(std::move(state));
}

absl::StatusOr<std::optional<std::string_view>> CommittedState::Find(Revision revision,
                                                                     FindHint* hint) const {
  const bolt::Bucket* records = bucket(Bucket::kKey);
  if (records == nullptr) return std::nullopt;
  return records->Get(RevisionKeyBytes(revision).view(), hint);
}

absl::Status CommittedState::Scan(Revision from, absl::FunctionRef<bool(const Record&)> visit,
                                  bool* stopped) const {
  *stopped = false;
  const bolt::Bucket* records = bucket(Bucket::kKey);
  if (records == nullptr) return absl::OkStatus();
  bolt::Cursor cursor = records->cursor();
  ASSIGN_OR_RETURN(bool found, cursor.Seek(RevisionKeyBytes(from).view()));
  while (found) {
    ASSIGN_OR_RETURN(const RevisionKey key, ParseRecordKey(tx_->path(), cursor.key()));
    if (!visit({key.revision, key.tombstone, cursor.value()})) {
      *stopped = true;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(found, cursor.Next());
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CommittedState::LastRevision() const {
  const bolt::Bucket* records = bucket(Bucket::kKey);
  if (records == nullptr) return 0;
  bolt::Cursor cursor = records->cursor();
  ASSIGN_OR_RETURN(const bool found, cursor.Last());
  if (!found) return 0;
  ASSIGN_OR_RETURN(const RevisionKey key, ParseRecordKey(tx_->path(), cursor.key()));
  return key.revision.main;
}

absl::StatusOr<int64_t> BoltView::LastRevision() const {
  for (size_t i = batches_.size(); i-- > 0;) {
    const size_t count = batches_[i]->record_count();
    if (count > 0) return batches_[i]->record(count - 1).revision.main;
  }
  return committed_->LastRevision();
}

absl::StatusOr<std::optional<std::string_view>> BoltView::Find(Revision revision,
                                                               FindHint* hint) const {
  for (size_t i = batches_.size(); i-- > 0;) {
    const Batch& batch = *batches_[i];
    if (batch.record_count() > 0 && batch.record(0).revision <= revision) {
      return batch.Find(revision);
    }
  }
  return committed_->Find(revision, hint);
}

absl::Status BoltView::Scan(Revision from, absl::FunctionRef<bool(const Record&)> visit) const {
  bool stopped = false;
  const bool all_pending = [&] {
    for (const auto& batch : batches_) {
      if (batch->record_count() > 0) return batch->record(0).revision <= from;
    }
    return false;
  }();
  if (!all_pending) {
    RETURN_IF_ERROR(committed_->Scan(from, visit, &stopped));
    if (stopped) return absl::OkStatus();
  }
  for (const auto& batch : batches_) {
    const size_t count = batch->record_count();
    for (size_t i = batch->LowerBound(from, count); i < count; ++i) {
      const Batch::Entry& entry = batch->record(i);
      if (!visit({entry.revision, entry.tombstone(), entry.value()})) return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> BoltView::Get(Bucket bucket,
                                                         std::string_view key) const {
  for (size_t i = batches_.size(); i-- > 0;) {
    std::optional<std::optional<std::string>> pending = batches_[i]->Get(bucket, key);
    if (pending.has_value()) return *std::move(pending);
  }
  const bolt::Bucket* stored = committed_->bucket(bucket);
  if (stored == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(const std::optional<std::string_view> value, stored->Get(key));
  if (!value.has_value()) return std::nullopt;
  return std::string(*value);
}

absl::Status BoltView::ForEach(
    Bucket bucket, absl::FunctionRef<bool(std::string_view, std::string_view)> visit) const {
  Batch::Operations pending;
  for (const auto& batch : batches_) batch->CopyOperations(bucket, &pending);
  auto it = pending.begin();
  // Visits pending pairs below `bound`; false when the visitor stopped.
  const auto visit_pending = [&](std::optional<std::string_view> bound) {
    for (; it != pending.end() && (!bound.has_value() || it->first < *bound); ++it) {
      if (it->second.has_value() && !visit(it->first, *it->second)) return false;
    }
    return true;
  };
  if (const bolt::Bucket* stored = committed_->bucket(bucket); stored != nullptr) {
    bolt::Cursor cursor = stored->cursor();
    ASSIGN_OR_RETURN(bool found, cursor.First());
    while (found) {
      if (!visit_pending(cursor.key())) return absl::OkStatus();
      if (it != pending.end() && it->first == cursor.key()) {
        if (it->second.has_value() && !visit(it->first, *it->second)) return absl::OkStatus();
        ++it;
      } else if (!visit(cursor.key(), cursor.value())) {
        return absl::OkStatus();
      }
      ASSIGN_OR_RETURN(found, cursor.Next());
    }
  }
  visit_pending(std::nullopt);
  return absl::OkStatus();
}

}  // namespace mvcc
