// Reading etcd's buckets in a db file from outside a running member. For this layer's own use.
// Functions are safe on any thread; what they return is valid as long as the transaction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bolt/tx.h"
#include "mvcc/revision.h"

namespace snapshot {

inline constexpr std::string_view kKeyBucket = "key";
inline constexpr std::string_view kMetaBucket = "meta";
inline constexpr std::string_view kMembersBucket = "members";
inline constexpr std::string_view kMembersRemovedBucket = "members_removed";
inline constexpr std::string_view kConsistentIndexKey = "consistent_index";
inline constexpr std::string_view kTermKey = "term";
inline constexpr std::string_view kStorageVersionKey = "storageVersion";
inline constexpr std::string_view kScheduledCompactKey = "scheduledCompactRev";
inline constexpr std::string_view kFinishedCompactKey = "finishedCompactRev";

// A top-level bucket; nothing when the file has none of that name.
absl::StatusOr<std::optional<bolt::Bucket>> FindBucket(const bolt::ReadTx& tx,
                                                       std::string_view name);

// Every element of a bucket in order; nested buckets are passed over. Stops at the first error of
// `f`.
absl::Status ForEach(
    const bolt::Bucket& bucket,
    absl::FunctionRef<absl::Status(std::string_view key, std::string_view value)> f);

// One record of the key bucket.
struct KeyRecord {
  mvcc::RevisionKey revision;
  std::string_view stored_key;
  std::string_view value;     // mvccpb.KeyValue, or empty (a bump)
  std::string_view user_key;  // from the value
};
// Every record in the order of revisions. DataLoss for one that is none.
absl::Status ForEachRecord(const bolt::ReadTx& tx,
                           absl::FunctionRef<absl::Status(const KeyRecord&)> f);

// The main revision of the last record, 0 without any.
absl::StatusOr<int64_t> LatestRevision(const bolt::ReadTx& tx);

// A value of the meta bucket; nothing when it is missing.
absl::StatusOr<std::optional<std::string_view>> MetaValue(const bolt::ReadTx& tx,
                                                          std::string_view key);
// 8 bytes, big-endian; nothing when missing, DataLoss for any other length.
absl::StatusOr<std::optional<uint64_t>> MetaNumber(const bolt::ReadTx& tx, std::string_view key);
// A revision key; its main revision. Nothing when missing.
absl::StatusOr<std::optional<int64_t>> MetaRevision(const bolt::ReadTx& tx, std::string_view key);
// "3.7.0"; empty when missing or not of that form, which counts as missing.
absl::StatusOr<std::string> StorageVersion(const bolt::ReadTx& tx);

}  // namespace snapshot
