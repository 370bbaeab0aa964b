// Argument checks of requests, before anything is proposed or read; etcd's order and texts
// (reference client-api.md 2.3 to 2.5). Pure functions, thread-safe.
#pragma once

#include "absl/status/status.h"
#include "member/txn.h"

namespace etcdserverpb {
class TxnRequest;
}

namespace api {

absl::Status ValidateRange(const member::RangeView& range);
absl::Status ValidatePut(const member::PutView& put);
absl::Status ValidateDeleteRange(const member::DeleteRangeView& request);
// Size, every operation, then overlapping puts and deletes.
absl::Status ValidateTxn(const etcdserverpb::TxnRequest& txn, int64_t max_ops);

}  // namespace api
