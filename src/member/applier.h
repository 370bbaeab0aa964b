// Applies committed entries to the store, the lessor, the alarms and the membership, exactly once
// each: an entry at or below the db's consistent index has no effect. Owned by the apply loop; one
// thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "cluster/membership.h"
#include "lease/lessor.h"
#include "member/alarms.h"
#include "member/proposal.h"
#include "member/request.h"
#include "mvcc/store.h"
#include "raft/types.h"

namespace etcdserverpb {
class TxnRequest;
}  // namespace etcdserverpb

namespace member {

// What the owner wants to know of applied entries. Called on the apply thread; quick.
class ApplyObserver {
 public:
  virtual ~ApplyObserver() = default;
  // After each normal entry. `op` is etcd's name of the operation ("Put", "Txn", ...).
  virtual void OnApplied(std::string_view op, base::Duration took, bool success) = 0;
  virtual void OnAlarm(const Alarm& alarm, bool active) = 0;
  virtual void OnClusterVersion(const std::string& version) = 0;
  // A membership change took effect.
  virtual void OnMembership(const std::string& what, const cluster::Member& member) = 0;
  virtual void OnCompactionFinished(int64_t revision, base::Duration took) = 0;
};

struct ApplierState {
  mvcc::Backend& backend;
  mvcc::Store& store;
  lease::Lessor& lessor;
  cluster::Membership& membership;
  Alarms& alarms;
};

class Applier {
 public:
  Applier(ApplierState state, const base::Clock& clock, ApplyObserver* observer);

  // Errors are fatal: a damaged file, an entry this release does not know. `proposal` is whoever
  // waits here, or null.
  absl::Status ApplyNormal(const raft::Entry& entry, ProposalPtr proposal);

  struct ConfChangeVerdict {
    bool skipped = false;     // at or below the consistent index: raft has it already
    absl::Status status;      // why it is refused; raft then gets a change without effect
    raft::ConfChange change;  // what raft is to apply
  };
  // Fatal errors as above.
  absl::StatusOr<ConfChangeVerdict> ApplyConfChange(const raft::Entry& entry);

 private:
  absl::StatusOr<ApplyResult> Dispatch(const RequestView& request,
                                       std::unique_ptr<Proposal>* proposal);
  ApplyResult Put(const RequestView& request);
  ApplyResult DeleteRange(const RequestView& request);
  ApplyResult Txn(const RequestView& request);
  ApplyResult Compact(const RequestView& request, std::unique_ptr<Proposal>* proposal);
  ApplyResult LeaseGrant(const RequestView& request);
  ApplyResult LeaseRevoke(const RequestView& request);
  ApplyResult LeaseCheckpoint(const RequestView& request);
  ApplyResult Alarm(const RequestView& request);
  ApplyResult ClusterVersionSet(const RequestView& request);
  ApplyResult ClusterMemberAttrSet(const RequestView& request);
  ApplyResult DowngradeInfoSet(const RequestView& request);
  // NOSPACE and CORRUPT refuse writes of cost > 0, or all of them.
  absl::Status CheckAlarms(bool costs) const;
  ApplyResult Failed(absl::Status status) const;

  ApplierState s_;
  const base::Clock& clock_;
  ApplyObserver* const observer_;
};

// The quota's estimate of what a request adds to the db file (reference client-api.md 2.2 step 6);
// 0 for requests that always pass.
uint64_t PutCost(uint64_t key_bytes, uint64_t value_bytes);
uint64_t TxnCost(const etcdserverpb::TxnRequest& request);
inline constexpr uint64_t kLeaseGrantCost = 64;

}  // namespace member
