#include "lease/lessor.h"

#include <algorithm>
#include <atomic>
#include <queue>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "base/wire.h"

namespace lease {
namespace {

constexpr base::Duration kForever = base::Duration::max();
constexpr base::Duration kSecond = std::chrono::seconds(1);

std::string EncodeId(int64_t id) {
  std::string key(8, '\0');
  base::StoreBe64(key.data(), static_cast<uint64_t>(id));
  return key;
}

// leasepb.Lease: 1 ID, 2 TTL, 3 RemainingTTL.
std::string EncodeRecord(int64_t id, int64_t ttl_seconds, int64_t remaining_ttl_seconds) {
  std::string record;
  base::wire::AppendNonZero(&record, 1, static_cast<uint64_t>(id));
  base::wire::AppendNonZero(&record, 2, static_cast<uint64_t>(ttl_seconds));
  base::wire::AppendNonZero(&record, 3, static_cast<uint64_t>(remaining_ttl_seconds));
  return record;
}

class BackendLeaseStorage final : public LeaseStorage {
 public:
  explicit BackendLeaseStorage(mvcc::Backend& backend) : backend_(backend) {}
  void Put(int64_t id, std::string_view record) override {
    backend_.Put(mvcc::Bucket::kLease, EncodeId(id), record);
  }
  void Delete(int64_t id) override { backend_.Delete(mvcc::Bucket::kLease, EncodeId(id)); }

 private:
  mvcc::Backend& backend_;
};

// A lease is due for something at a time. Entries are not taken back when that time moves: whoever
// pops one compares it with the lease.
struct Due {
  base::Duration time;
  int64_t id;
  bool operator>(const Due& other) const {
    return time != other.time ? time > other.time : id > other.id;
  }
};
using DueQueue = std::priority_queue<Due, std::vector<Due>, std::greater<>>;

}  // namespace

absl::Status LeaseNotFoundError() {
  return absl::NotFoundError("etcdserver: requested lease not found");
}
absl::Status LeaseExistsError() {
  return absl::FailedPreconditionError("etcdserver: lease already exists");
}
absl::Status LeaseTtlTooLargeError() {
  return absl::OutOfRangeError("etcdserver: too large lease TTL");
}
absl::Status NotPrimaryError() { return absl::UnknownError("not a primary lessor"); }

std::unique_ptr<LeaseStorage> NewBackendLeaseStorage(mvcc::Backend& backend) {
  return std::make_unique<BackendLeaseStorage>(backend);
}

struct Lessor::Lease {
  int64_t id = 0;
  int64_t ttl_seconds = 0;
  int64_t remaining_ttl_seconds = 0;   // checkpointed; 0 = none
  base::Duration deadline = kForever;  // forever unless primary
  base::Duration retry_at{};           // handed out as expired: not again before
  absl::flat_hash_set<std::string, base::StringHash, std::equal_to<>> keys;

  int64_t effective_ttl_seconds() const {
    return remaining_ttl_seconds > 0 ? remaining_ttl_seconds : ttl_seconds;
  }
};

struct Lessor::Impl {
  Impl(LeaseStorage* s, const base::Clock& c, LessorOptions o)
      : storage(s), clock(c), options(o), persist_checkpoints(o.persist_checkpoints) {}

  using Done = absl::AnyInvocable<void(bool)>;

  LeaseStorage* const storage;
  const base::Clock& clock;
  const LessorOptions options;
  std::atomic<size_t> attachment_count{0};  // lets puts without leases pass without the lock

  mutable std::mutex mutex;  // leaf; guards what follows
  bool primary = false;
  bool persist_checkpoints;
  absl::flat_hash_map<int64_t, std::unique_ptr<Lease>> leases;
  absl::flat_hash_map<std::string, int64_t, base::StringHash, std::equal_to<>> lease_of;
  DueQueue ends;
  DueQueue checkpoints;
  absl::flat_hash_map<int64_t, std::vector<Done>> revocation_waiters;
  LeaseStats counters;

  Lease* Find(int64_t id) const {
    const auto it = leases.find(id);
    return it == leases.end() ? nullptr : it->second.get();
  }
  void StartTimers(Lease* lease, base::Duration now, base::Duration extend) {
    lease->deadline = now + extend + std::chrono::seconds(lease->effective_ttl_seconds());
    lease->retry_at = {};
    ends.push({lease->deadline, lease->id});
    ScheduleCheckpoint(*lease, now);
  }
  void ScheduleCheckpoint(const Lease& lease, base::Duration now) {
    if (!options.checkpoints) return;
    if (std::chrono::seconds(lease.effective_ttl_seconds()) <= options.checkpoint_interval) return;
    checkpoints.push({now + options.checkpoint_interval, lease.id});
  }
  void DetachKey(std::string_view key) {
    const auto it = lease_of.find(key);
    if (it == lease_of.end()) return;
    if (Lease* const lease = Find(it->second); lease != nullptr) {
      const auto attached = lease->keys.find(key);
      if (attached != lease->keys.end()) lease->keys.erase(attached);
    }
    lease_of.erase(it);
    attachment_count.store(lease_of.size(), std::memory_order_relaxed);
  }
  void AttachKey(std::string_view key, int64_t id) {
    Lease* const lease = Find(id);
    if (lease == nullptr) return;
    lease->keys.emplace(key);
    lease_of.emplace(key, id);
    attachment_count.store(lease_of.size(), std::memory_order_relaxed);
  }
  LeaseInfo Describe(const Lease& lease, base::Duration now) const {
    LeaseInfo info{.id = lease.id,
                   .granted_ttl_seconds = lease.ttl_seconds,
                   .remaining_seconds = lease.ttl_seconds,
                   .expired = false};
    if (primary) {
      const base::Duration left = lease.deadline - now;
      info.expired = left <= base::Duration::zero();
      info.remaining_seconds = std::chrono::floor<std::chrono::seconds>(left).count();
    }
    return info;
  }
};

Lessor::Lessor(LeaseStorage* storage, const base::Clock& clock, LessorOptions options)
    : impl_(std::make_unique<Impl>(storage, clock, options)) {}

Lessor::~Lessor() {
  for (auto& [id, waiters] : impl_->revocation_waiters) {
    for (Impl::Done& done : waiters) done(false);
  }
}

// --- start-up ---

absl::Status Lessor::Load(const mvcc::ReadView& view) {
  std::vector<std::unique_ptr<Lease>> loaded;
  absl::Status damage;
  RETURN_IF_ERROR(view.ForEach(mvcc::Bucket::kLease, [&](std::string_view key,
                                                         std::string_view record) {
    auto lease = std::make_unique<Lease>();
    base::wire::Reader reader(record);
    while (reader.Next()) {
      if (reader.field() == 1) lease->id = static_cast<int64_t>(reader.varint());
      if (reader.field() == 2) lease->ttl_seconds = static_cast<int64_t>(reader.varint());
      if (reader.field() == 3) {
        lease->remaining_ttl_seconds = static_cast<int64_t>(reader.varint());
      }
    }
    if (!reader.ok() || key != EncodeId(lease->id) || lease->ttl_seconds > kTtlSecondsMax ||
        lease->remaining_ttl_seconds > kTtlSecondsMax || lease->remaining_ttl_seconds < 0) {
      damage = base::MakeStatus(absl::StatusCode::kDataLoss,
                                "bucket lease, key {}: expected the record of that lease, found {}",
                                base::ToHex(key), base::ToHex(record));
      return false;
    }
    lease->ttl_seconds = std::max(lease->ttl_seconds, impl_->options.min_ttl_seconds);
    loaded.push_back(std::move(lease));
    return true;
  }));
  RETURN_IF_ERROR(damage);

  std::vector<Impl::Done> gone;
  {
    const base::Duration now = impl_->clock.Monotonic();
    std::lock_guard lock(impl_->mutex);
    impl_->leases.clear();
    impl_->lease_of.clear();
    impl_->attachment_count.store(0, std::memory_order_relaxed);
    impl_->ends = {};
    impl_->checkpoints = {};
    for (std::unique_ptr<Lease>& lease : loaded) {
      if (impl_->primary) impl_->StartTimers(lease.get(), now, {});
      const int64_t id = lease->id;
      impl_->leases.emplace(id, std::move(lease));
    }
    for (auto it = impl_->revocation_waiters.begin(); it != impl_->revocation_waiters.end();) {
      const auto waiting = it++;
      if (impl_->Find(waiting->first) != nullptr) continue;
      for (Impl::Done& done : waiting->second) gone.push_back(std::move(done));
      impl_->revocation_waiters.erase(waiting);
    }
  }
  for (Impl::Done& done : gone) done(true);
  return absl::OkStatus();
}

void Lessor::LoadAttachments(const std::vector<std::pair<int64_t, std::string>>& attachments) {
  std::lock_guard lock(impl_->mutex);
  for (const auto& [id, key] : attachments) {
    impl_->DetachKey(key);
    impl_->AttachKey(key, id);
  }
}

// --- apply thread ---

absl::StatusOr<int64_t> Lessor::Grant(int64_t id, int64_t ttl_seconds) {
  if (ttl_seconds > kTtlSecondsMax) return LeaseTtlTooLargeError();
  const int64_t granted = std::max(ttl_seconds, impl_->options.min_ttl_seconds);
  {
    const base::Duration now = impl_->clock.Monotonic();
    std::lock_guard lock(impl_->mutex);
    std::unique_ptr<Lease>& slot = impl_->leases[id];
    if (slot != nullptr) return LeaseExistsError();
    slot = std::make_unique<Lease>();
    slot->id = id;
    slot->ttl_seconds = granted;
    if (impl_->primary) impl_->StartTimers(slot.get(), now, {});
    ++impl_->counters.granted;
  }
  if (impl_->storage != nullptr) impl_->storage->Put(id, EncodeRecord(id, granted, 0));
  return granted;
}

absl::StatusOr<std::vector<std::string>> Lessor::AttachedKeys(int64_t id) const {
  std::vector<std::string> keys;
  {
    std::lock_guard lock(impl_->mutex);
    const Lease* const lease = impl_->Find(id);
    if (lease == nullptr) return LeaseNotFoundError();
    keys.assign(lease->keys.begin(), lease->keys.end());
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

absl::Status Lessor::Revoke(int64_t id) {
  std::vector<Impl::Done> gone;
  {
    std::lock_guard lock(impl_->mutex);
    const auto it = impl_->leases.find(id);
    if (it == impl_->leases.end()) return LeaseNotFoundError();
    for (const std::string& key : it->second->keys) impl_->lease_of.erase(key);
    impl_->attachment_count.store(impl_->lease_of.size(), std::memory_order_relaxed);
    impl_->leases.erase(it);
    ++impl_->counters.revoked;
    if (const auto waiting = impl_->revocation_waiters.find(id);
        waiting != impl_->revocation_waiters.end()) {
      gone = std::move(waiting->second);
      impl_->revocation_waiters.erase(waiting);
    }
  }
  if (impl_->storage != nullptr) impl_->storage->Delete(id);
  for (Impl::Done& done : gone) done(true);
  return absl::OkStatus();
}

absl::Status Lessor::Checkpoint(int64_t id, int64_t remaining_ttl_seconds) {
  int64_t ttl_seconds = 0;
  bool persist = false;
  {
    const base::Duration now = impl_->clock.Monotonic();
    std::lock_guard lock(impl_->mutex);
    Lease* const lease = impl_->Find(id);
    if (lease == nullptr) return LeaseNotFoundError();
    lease->remaining_ttl_seconds = std::clamp<int64_t>(remaining_ttl_seconds, 0, kTtlSecondsMax);
    remaining_ttl_seconds = lease->remaining_ttl_seconds;
    ttl_seconds = lease->ttl_seconds;
    persist = impl_->persist_checkpoints;
    if (impl_->primary) impl_->ScheduleCheckpoint(*lease, now);
  }
  if (persist && impl_->storage != nullptr) {
    impl_->storage->Put(id, EncodeRecord(id, ttl_seconds, remaining_ttl_seconds));
  }
  return absl::OkStatus();
}

void Lessor::OnKeyPut(std::string_view key, int64_t lease) {
  if (lease == 0 && impl_->attachment_count.load(std::memory_order_relaxed) == 0) return;
  std::lock_guard lock(impl_->mutex);
  impl_->DetachKey(key);
  if (lease != 0) impl_->AttachKey(key, lease);
}

void Lessor::OnKeyDeleted(std::string_view key) { OnKeyPut(key, 0); }

void Lessor::SetPersistCheckpoints(bool persist) {
  std::lock_guard lock(impl_->mutex);
  impl_->persist_checkpoints = persist;
}

// --- any thread ---

bool Lessor::Exists(int64_t id) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->Find(id) != nullptr;
}

std::optional<LeaseInfo> Lessor::Find(int64_t id) const {
  const base::Duration now = impl_->clock.Monotonic();
  std::lock_guard lock(impl_->mutex);
  const Lease* const lease = impl_->Find(id);
  if (lease == nullptr) return std::nullopt;
  return impl_->Describe(*lease, now);
}

int64_t Lessor::LeaseOf(std::string_view key) const {
  std::lock_guard lock(impl_->mutex);
  const auto it = impl_->lease_of.find(key);
  return it == impl_->lease_of.end() ? 0 : it->second;
}

std::vector<LeaseInfo> Lessor::Leases() const {
  std::vector<LeaseInfo> all;
  bool primary = false;
  {
    const base::Duration now = impl_->clock.Monotonic();
    std::lock_guard lock(impl_->mutex);
    primary = impl_->primary;
    all.reserve(impl_->leases.size());
    for (const auto& [id, lease] : impl_->leases) all.push_back(impl_->Describe(*lease, now));
  }
  std::sort(all.begin(), all.end(), [primary](const LeaseInfo& a, const LeaseInfo& b) {
    if (primary && a.remaining_seconds != b.remaining_seconds) {
      return a.remaining_seconds < b.remaining_seconds;
    }
    return a.id < b.id;
  });
  return all;
}

LeaseStats Lessor::stats() const {
  std::lock_guard lock(impl_->mutex);
  LeaseStats stats = impl_->counters;
  stats.leases = impl_->leases.size();
  stats.attachments = impl_->lease_of.size();
  return stats;
}

Lessor::Renewal Lessor::Renew(int64_t id) {
  const base::Duration now = impl_->clock.Monotonic();
  std::lock_guard lock(impl_->mutex);
  if (!impl_->primary) return {.outcome = RenewOutcome::kNotPrimary};
  Lease* const lease = impl_->Find(id);
  if (lease == nullptr) return {.outcome = RenewOutcome::kNotFound};
  if (lease->deadline <= now) return {.outcome = RenewOutcome::kExpired};
  Renewal renewal{.outcome = RenewOutcome::kRenewed,
                  .ttl_seconds = lease->ttl_seconds,
                  .clear_checkpoint = lease->remaining_ttl_seconds > 0};
  lease->remaining_ttl_seconds = 0;
  // The entry in the queue stays where it is: it is put back when its time comes.
  lease->deadline = now + std::chrono::seconds(lease->ttl_seconds);
  ++impl_->counters.renewed;
  return renewal;
}

void Lessor::OnceRevoked(int64_t id, absl::AnyInvocable<void(bool gone)> done) {
  bool gone = false;
  {
    std::lock_guard lock(impl_->mutex);
    gone = impl_->Find(id) == nullptr;
    if (!gone && impl_->primary) {
      impl_->revocation_waiters[id].push_back(std::move(done));
      return;
    }
  }
  done(gone);
}

// --- primary ---

void Lessor::Promote(base::Duration extend) {
  const base::Duration now = impl_->clock.Monotonic();
  std::lock_guard lock(impl_->mutex);
  impl_->primary = true;
  impl_->ends = {};
  impl_->checkpoints = {};
  std::vector<Lease*> all;
  all.reserve(impl_->leases.size());
  for (const auto& [id, lease] : impl_->leases) {
    lease->deadline = now + extend + std::chrono::seconds(lease->effective_ttl_seconds());
    lease->retry_at = {};
    all.push_back(lease.get());
  }
  std::sort(all.begin(), all.end(), [](const Lease* a, const Lease* b) {
    return a->deadline != b->deadline ? a->deadline < b->deadline : a->id < b->id;
  });
  // A quarter of the revocations a second is left for leases that end for other reasons.
  const auto together =
      static_cast<size_t>(std::max<int64_t>(1, impl_->options.revokes_per_second * 3 / 4));
  if (all.size() >= static_cast<size_t>(impl_->options.revokes_per_second)) {
    for (size_t i = together; i < all.size(); ++i) {
      all[i]->deadline = std::max(all[i]->deadline, all[i - together]->deadline + kSecond);
    }
  }
  for (const Lease* const lease : all) {
    impl_->ends.push({lease->deadline, lease->id});
    impl_->ScheduleCheckpoint(*lease, now);
  }
}

void Lessor::Demote() {
  std::vector<Impl::Done> waiters;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->primary = false;
    impl_->ends = {};
    impl_->checkpoints = {};
    for (const auto& [id, lease] : impl_->leases) {
      lease->deadline = kForever;
      lease->retry_at = {};
    }
    for (auto& [id, waiting] : impl_->revocation_waiters) {
      for (Impl::Done& done : waiting) waiters.push_back(std::move(done));
    }
    impl_->revocation_waiters.clear();
  }
  for (Impl::Done& done : waiters) done(false);
}

bool Lessor::is_primary() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->primary;
}

std::vector<int64_t> Lessor::TakeExpired(size_t max) {
  std::vector<int64_t> expired;
  const base::Duration now = impl_->clock.Monotonic();
  std::lock_guard lock(impl_->mutex);
  if (!impl_->primary) return expired;
  while (!impl_->ends.empty() && impl_->ends.top().time <= now && expired.size() < max) {
    const Due due = impl_->ends.top();
    impl_->ends.pop();
    Lease* const lease = impl_->Find(due.id);
    if (lease == nullptr) continue;
    if (lease->deadline > now) {  // renewed meanwhile
      impl_->ends.push({lease->deadline, lease->id});
      continue;
    }
    if (lease->retry_at > now) continue;  // an older entry of a lease that was handed out
    lease->retry_at = now + impl_->options.expired_retry;
    impl_->ends.push({lease->retry_at, lease->id});
    expired.push_back(lease->id);
    ++impl_->counters.expired;
  }
  return expired;
}

std::vector<Lessor::CheckpointItem> Lessor::TakeCheckpoints(size_t max) {
  std::vector<CheckpointItem> items;
  const base::Duration now = impl_->clock.Monotonic();
  std::lock_guard lock(impl_->mutex);
  if (!impl_->primary) return items;
  while (!impl_->checkpoints.empty() && impl_->checkpoints.top().time <= now &&
         items.size() < max) {
    const Due due = impl_->checkpoints.top();
    impl_->checkpoints.pop();
    const Lease* const lease = impl_->Find(due.id);
    if (lease == nullptr || lease->deadline <= now) continue;
    const int64_t remaining =
        std::chrono::ceil<std::chrono::seconds>(lease->deadline - now).count();
    // Renewed just now: nothing to write, look again later.
    if (remaining >= lease->ttl_seconds) {
      impl_->ScheduleCheckpoint(*lease, now);
      continue;
    }
    items.push_back({lease->id, remaining});
  }
  return items;
}

}  // namespace lease
