#include "api/validate.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "member/errors.h"
#include "proto/rpc.pb.h"

namespace api {
namespace {

namespace pb = etcdserverpb;
using Ops = google::protobuf::RepeatedPtrField<pb::RequestOp>;

absl::Status ValidateOps(const pb::TxnRequest& txn, int64_t allowed);

absl::Status ValidateOp(const pb::RequestOp& op, int64_t allowed) {
  switch (op.request_case()) {
    case pb::RequestOp::kRequestRange: {
      const pb::RangeRequest& r = op.request_range();
      return ValidateRange({.query = {.key = r.key()},
                            .raw_sort_order = r.sort_order(),
                            .raw_sort_target = r.sort_target()});
    }
    case pb::RequestOp::kRequestPut: {
      const pb::PutRequest& p = op.request_put();
      return ValidatePut({.key = p.key(),
                          .value = p.value(),
                          .lease = p.lease(),
                          .ignore_value = p.ignore_value(),
                          .ignore_lease = p.ignore_lease()});
    }
    case pb::RequestOp::kRequestDeleteRange:
      return ValidateDeleteRange({.key = op.request_delete_range().key()});
    case pb::RequestOp::kRequestTxn:
      return ValidateOps(op.request_txn(), allowed);
    default:
      return member::KeyNotFoundError();
  }
}

absl::Status ValidateOps(const pb::TxnRequest& txn, int64_t allowed) {
  const int64_t ops = std::max({txn.compare_size(), txn.success_size(), txn.failure_size()});
  if (ops > allowed) return member::TooManyOpsError();
  for (const pb::Compare& compare : txn.compare()) {
    if (compare.key().empty()) return member::EmptyKeyError();
  }
  for (const Ops* branch : {&txn.success(), &txn.failure()}) {
    for (const pb::RequestOp& op : *branch) RETURN_IF_ERROR(ValidateOp(op, allowed - ops));
  }
  return absl::OkStatus();
}

// The deletes of a branch as intervals. A range_end of one zero byte reaches to the end of the key
// space; etcd overlooks those (R02).
class DeleteSet {
 public:
  void Add(const pb::DeleteRangeRequest& request) {
    intervals_.push_back({request.key(), request.range_end()});
  }
  void AddAll(const DeleteSet& other) {
    intervals_.insert(intervals_.end(), other.intervals_.begin(), other.intervals_.end());
  }
  bool Covers(std::string_view key) const {
    return std::any_of(intervals_.begin(), intervals_.end(), [&](const Interval& i) {
      if (i.end.empty()) return key == i.begin;
      if (i.end == std::string_view("\0", 1)) return key >= i.begin;
      return key >= i.begin && key < i.end;
    });
  }

 private:
  struct Interval {
    std::string_view begin;
    std::string_view end;
  };
  std::vector<Interval> intervals_;
};

using KeySet = std::unordered_set<std::string_view>;

// Puts and deletes of one branch, nested txns included; DuplicateKey where they meet. Keys put in
// both branches of one nested txn do not meet, since only one of them runs. Nested txns are held
// against each other in any order (R45).
absl::Status CheckBranch(const Ops& ops, KeySet* puts, DeleteSet* deletes) {
  for (const pb::RequestOp& op : ops) {
    if (op.has_request_delete_range()) deletes->Add(op.request_delete_range());
  }
  KeySet nested_puts;
  for (const pb::RequestOp& op : ops) {
    if (!op.has_request_txn()) continue;
    KeySet here;
    DeleteSet deletes_here;
    for (const Ops* branch : {&op.request_txn().success(), &op.request_txn().failure()}) {
      KeySet branch_puts;
      DeleteSet branch_deletes;
      RETURN_IF_ERROR(CheckBranch(*branch, &branch_puts, &branch_deletes));
      for (const std::string_view key : branch_puts) {
        if (nested_puts.contains(key) || deletes->Covers(key)) return member::DuplicateKeyError();
      }
      here.insert(branch_puts.begin(), branch_puts.end());
      deletes_here.AddAll(branch_deletes);
    }
    // A put of an earlier sibling under a delete of this one would give two changes of a key one
    // revision.
    for (const std::string_view key : nested_puts) {
      if (deletes_here.Covers(key)) return member::DuplicateKeyError();
    }
    nested_puts.insert(here.begin(), here.end());
    deletes->AddAll(deletes_here);
  }
  for (const pb::RequestOp& op : ops) {
    if (!op.has_request_put()) continue;
    const std::string_view key = op.request_put().key();
    if (nested_puts.contains(key) || !puts->insert(key).second || deletes->Covers(key)) {
      return member::DuplicateKeyError();
    }
  }
  puts->insert(nested_puts.begin(), nested_puts.end());
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateRange(const member::RangeView& range) {
  if (range.query.key.empty()) return member::EmptyKeyError();
  if (range.raw_sort_order < 0 || range.raw_sort_order > 2 || range.raw_sort_target < 0 ||
      range.raw_sort_target > 4) {
    return member::InvalidSortOptionError();
  }
  return absl::OkStatus();
}

absl::Status ValidatePut(const member::PutView& put) {
  if (put.key.empty()) return member::EmptyKeyError();
  if (put.ignore_value && !put.value.empty()) return member::ValueProvidedError();
  if (put.ignore_lease && put.lease != 0) return member::LeaseProvidedError();
  return absl::OkStatus();
}

absl::Status ValidateDeleteRange(const member::DeleteRangeView& request) {
  return request.key.empty() ? member::EmptyKeyError() : absl::OkStatus();
}

absl::Status ValidateTxn(const pb::TxnRequest& txn, int64_t max_ops) {
  RETURN_IF_ERROR(ValidateOps(txn, max_ops));
  for (const Ops* branch : {&txn.success(), &txn.failure()}) {
    KeySet puts;
    DeleteSet deletes;
    RETURN_IF_ERROR(CheckBranch(*branch, &puts, &deletes));
  }
  return absl::OkStatus();
}

}  // namespace api
