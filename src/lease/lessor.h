// Leases: which exist, which keys hang on them, and when they end. The apply thread changes them
// (grant, revoke, checkpoint, attachments); renewals and look-ups come from any thread; expiry is
// decided on the primary only, by whoever calls TakeExpired. Thread-safe: one mutex, held for
// moments, never while calling out.
//
// Deadlines are monotonic and in memory. Only id, granted TTL and a checkpointed remainder are
// stored, so a restart or a change of the leader starts every lease afresh.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "mvcc/store.h"

namespace lease {

// The errors clients compare: NotFound "etcdserver: requested lease not found", FailedPrecondition
// "etcdserver: lease already exists", OutOfRange "etcdserver: too large lease TTL", Unknown "not a
// primary lessor".
absl::Status LeaseNotFoundError();
absl::Status LeaseExistsError();
absl::Status LeaseTtlTooLargeError();
absl::Status NotPrimaryError();

inline constexpr int64_t kTtlSecondsMax = 9'000'000'000;

// Where the records go; mvcc::Backend's bucket `lease` in production. Called on the apply thread,
// within an entry.
class LeaseStorage {
 public:
  virtual ~LeaseStorage() = default;
  virtual void Put(int64_t id, std::string_view record) = 0;
  virtual void Delete(int64_t id) = 0;
};
// Over bucket `lease` of a backend that outlives it.
std::unique_ptr<LeaseStorage> NewBackendLeaseStorage(mvcc::Backend& backend);

struct LessorOptions {
  int64_t min_ttl_seconds = 2;       // ceil(1.5 x election timeout); grants below it are raised
  bool checkpoints = false;          // the LeaseCheckpoint gate
  bool persist_checkpoints = false;  // cluster version >= 3.6
  base::Duration checkpoint_interval = std::chrono::minutes(5);
  // When a new primary finds more than 1,000 leases, it spreads their ends to at most this many a
  // second.
  int64_t revokes_per_second = 1000;
  // A lease handed out by TakeExpired and still there after this time is handed out again.
  base::Duration expired_retry = std::chrono::seconds(7);
};

struct LeaseInfo {
  int64_t id = 0;
  int64_t granted_ttl_seconds = 0;
  int64_t remaining_seconds =
      0;  // floor; may be negative while the revocation is pending; granted TTL if not primary
  bool expired = false;  // past its deadline (primary)
};

struct LeaseStats {
  uint64_t granted = 0;
  uint64_t revoked = 0;
  uint64_t renewed = 0;
  uint64_t expired = 0;  // handed out for revocation
  uint64_t leases = 0;
  uint64_t attachments = 0;
};

class Lessor final : public mvcc::LeaseHooks {
 public:
  // `storage` may be null (nothing is stored then); both are borrowed.
  Lessor(LeaseStorage* storage, const base::Clock& clock, LessorOptions options);
  ~Lessor() override;

  // --- start-up and a received database (apply thread) ---
  // Forgets everything and loads bucket `lease`; DataLoss for a record that is no lease. Stays
  // primary or not.
  absl::Status Load(const mvcc::ReadView& view);
  // Then the attachments found by the store (lease id, key); one to a lease that does not exist is
  // dropped.
  void LoadAttachments(const std::vector<std::pair<int64_t, std::string>>& attachments);

  // --- apply thread ---
  // Checks in etcd's order: TTL too large, exists. `id` != 0. Returns the granted TTL in seconds.
  absl::StatusOr<int64_t> Grant(int64_t id, int64_t ttl_seconds);
  // Keys attached, sorted; NotFound.
  absl::StatusOr<std::vector<std::string>> AttachedKeys(int64_t id) const;
  // Removes the lease and its record, after the caller has deleted its keys in the same entry.
  // NotFound.
  absl::Status Revoke(int64_t id);
  // Sets the remaining TTL as the primary told. NotFound.
  absl::Status Checkpoint(int64_t id, int64_t remaining_ttl_seconds);
  void OnKeyPut(std::string_view key, int64_t lease) override;
  void OnKeyDeleted(std::string_view key) override;
  void SetPersistCheckpoints(bool persist);

  // --- any thread ---
  bool Exists(int64_t id) const;
  std::optional<LeaseInfo> Find(int64_t id) const;
  // As AttachedKeys, for TimeToLive and permission checks.
  absl::StatusOr<std::vector<std::string>> Keys(int64_t id) const { return AttachedKeys(id); }
  int64_t LeaseOf(std::string_view key) const;  // 0 if none
  // Sorted by remaining time; by id if not primary.
  std::vector<LeaseInfo> Leases() const;
  LeaseStats stats() const;

  enum class RenewOutcome { kRenewed, kNotFound, kNotPrimary, kExpired };
  struct Renewal {
    RenewOutcome outcome = RenewOutcome::kNotFound;
    int64_t ttl_seconds = 0;
    bool clear_checkpoint =
        false;  // kRenewed: a checkpointed remainder must be cleared through the log (Checkpoint 0)
  };
  // Restarts the granted TTL. kExpired: the end is decided; wait with OnceRevoked, then answer TTL
  // 0.
  Renewal Renew(int64_t id);
  // Calls `done` when the lease is gone (at once if it is) or the lessor is demoted or destroyed:
  // done(true) = gone. On the thread that revokes or demotes, outside the lock.
  void OnceRevoked(int64_t id, absl::AnyInvocable<void(bool gone)> done);

  // --- the member's leader duties; any thread ---
  // Every lease gets its full (or checkpointed) TTL plus `extend`.
  void Promote(base::Duration extend);
  void Demote();
  bool is_primary() const;
  // Leases past their deadline, at most `max`, those longest due first; each is handed out again
  // only after expired_retry. Call every 500 ms with max 500. Empty if not primary.
  std::vector<int64_t> TakeExpired(size_t max);
  struct CheckpointItem {
    int64_t id = 0;
    int64_t remaining_ttl_seconds = 0;
  };
  // Leases whose remainder is due to be written through the log, at most `max` (batches of 1,000).
  std::vector<CheckpointItem> TakeCheckpoints(size_t max);

 private:
  struct Lease;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lease
