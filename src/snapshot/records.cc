#include "snapshot/records.h"

#include "base/bytes.h"
#include "base/status.h"
#include "cluster/membership.h"
#include "mvcc/key_value.h"

namespace snapshot {
namespace {

absl::Status NoRecord(const bolt::ReadTx& tx, std::string_view key, std::string_view what) {
  return base::MakeStatus(absl::StatusCode::kDataLoss, "db file {}: bucket key, record {}: {}",
                          tx.path(), base::ToHex(key.substr(0, 32)), what);
}

absl::Status BadMeta(const bolt::ReadTx& tx, std::string_view key, std::string_view value) {
  return base::MakeStatus(absl::StatusCode::kDataLoss,
                          "db file {}: bucket meta, {}: unexpected value {}", tx.path(), key,
                          base::ToHex(value.substr(0, 32)));
}

}  // namespace

absl::StatusOr<std::optional<bolt::Bucket>> FindBucket(const bolt::ReadTx& tx,
                                                       std::string_view name) {
  absl::StatusOr<bolt::Bucket> bucket = tx.bucket(name);
  if (absl::IsNotFound(bucket.status())) return std::nullopt;
  RETURN_IF_ERROR(bucket.status());
  return *bucket;
}

absl::Status ForEach(
    const bolt::Bucket& bucket,
    absl::FunctionRef<absl::Status(std::string_view key, std::string_view value)> f) {
  bolt::Cursor cursor = bucket.cursor();
  ASSIGN_OR_RETURN(bool more, cursor.First());
  while (more) {
    if (!cursor.is_bucket()) RETURN_IF_ERROR(f(cursor.key(), cursor.value()));
    ASSIGN_OR_RETURN(more, cursor.Next());
  }
  return absl::OkStatus();
}

absl::Status ForEachRecord(const bolt::ReadTx& tx,
                           absl::FunctionRef<absl::Status(const KeyRecord&)> f) {
  ASSIGN_OR_RETURN(const auto bucket, FindBucket(tx, kKeyBucket));
  if (!bucket.has_value()) return absl::OkStatus();
  return ForEach(*bucket, [&](std::string_view key, std::string_view value) -> absl::Status {
    const std::optional<mvcc::RevisionKey> revision = mvcc::ParseRevisionKey(key);
    if (!revision.has_value()) return NoRecord(tx, key, "the key is no revision");
    KeyRecord record{.revision = *revision, .stored_key = key, .value = value, .user_key = {}};
    if (!mvcc::DecodeKey(value, &record.user_key))
      return NoRecord(tx, key, "the value is no key-value message");
    return f(record);
  });
}

absl::StatusOr<int64_t> LatestRevision(const bolt::ReadTx& tx) {
  ASSIGN_OR_RETURN(const auto bucket, FindBucket(tx, kKeyBucket));
  if (!bucket.has_value()) return 0;
  bolt::Cursor cursor = bucket->cursor();
  ASSIGN_OR_RETURN(const bool any, cursor.Last());
  if (!any) return 0;
  const std::optional<mvcc::RevisionKey> revision = mvcc::ParseRevisionKey(cursor.key());
  if (!revision.has_value()) return NoRecord(tx, cursor.key(), "the key is no revision");
  return revision->revision.main;
}

absl::StatusOr<std::optional<std::string_view>> MetaValue(const bolt::ReadTx& tx,
                                                          std::string_view key) {
  ASSIGN_OR_RETURN(const auto bucket, FindBucket(tx, kMetaBucket));
  if (!bucket.has_value()) return std::nullopt;
  return bucket->Get(key);
}

absl::StatusOr<std::optional<uint64_t>> MetaNumber(const bolt::ReadTx& tx, std::string_view key) {
  ASSIGN_OR_RETURN(const auto value, MetaValue(tx, key));
  if (!value.has_value()) return std::nullopt;
  if (value->size() != 8) return BadMeta(tx, key, *value);
  return base::LoadBe64(value->data());
}

absl::StatusOr<std::optional<int64_t>> MetaRevision(const bolt::ReadTx& tx, std::string_view key) {
  ASSIGN_OR_RETURN(const auto value, MetaValue(tx, key));
  if (!value.has_value()) return std::nullopt;
  const std::optional<mvcc::RevisionKey> revision = mvcc::ParseRevisionKey(*value);
  if (!revision.has_value()) return BadMeta(tx, key, *value);
  return revision->revision.main;
}

absl::StatusOr<std::string> StorageVersion(const bolt::ReadTx& tx) {
  ASSIGN_OR_RETURN(const auto value, MetaValue(tx, kStorageVersionKey));
  if (!value.has_value() || !cluster::ParseVersion(*value).ok()) return std::string();
  return std::string(*value);
}

}  // namespace snapshot
