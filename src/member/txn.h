// What a Put, DeleteRange, Range or Txn request does to the store, and the response body it gives.
// Runs on the apply thread within an entry (ReadTxn: on any thread). Bodies are the encoded fields
// of the response message other than its outermost header. Semantics: reference client-api.md 2.3
// to 2.5.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lease/lessor.h"
#include "mvcc/store.h"

namespace etcdserverpb {
class RangeRequest;
class TxnRequest;
}  // namespace etcdserverpb

namespace member {

// A PutRequest as views into its bytes.
struct PutView {
  std::string_view key;
  std::string_view value;
  int64_t lease = 0;
  bool prev_kv = false;
  bool ignore_value = false;
  bool ignore_lease = false;
};
bool DecodePut(std::string_view bytes, PutView* out);

struct DeleteRangeView {
  std::string_view key;
  std::string_view range_end;
  bool prev_kv = false;
};
bool DecodeDeleteRange(std::string_view bytes, DeleteRangeView* out);

// A RangeRequest as views into its bytes; `serializable` is the API's business.
struct RangeView {
  mvcc::RangeQuery query;
  bool serializable = false;
  // As sent: values that are no SortOrder or SortTarget are for the validation to refuse.
  int64_t raw_sort_order = 0;
  int64_t raw_sort_target = 0;
};
bool DecodeRange(std::string_view bytes, RangeView* out);

mvcc::RangeQuery ToQuery(const etcdserverpb::RangeRequest& request);

// The fields `more` and `count` that follow the key-values in a RangeResponse.
void AppendRangeTail(const mvcc::RangeResult& result, std::string* body);

// Whether the txn is one that only reads: both branches hold ranges only.
bool IsReadOnly(const etcdserverpb::TxnRequest& request);
// Whether every range in both branches is serializable (also when there is none).
bool IsSerializable(const etcdserverpb::TxnRequest& request);

struct Outcome {
  int64_t revision = 0;  // for the header
  std::string body;
};

// Each runs one request in a store transaction of its own. Errors leave the store as it was.
absl::StatusOr<Outcome> ApplyPut(mvcc::Store& store, const lease::Lessor& lessor,
                                 const PutView& put);
absl::StatusOr<Outcome> ApplyDeleteRange(mvcc::Store& store, const DeleteRangeView& request);
absl::StatusOr<Outcome> ApplyTxn(mvcc::Store& store, const lease::Lessor& lessor,
                                 const etcdserverpb::TxnRequest& request);
// A read-only txn at one revision, on any thread.
absl::StatusOr<Outcome> ReadTxn(const mvcc::Store& store, const etcdserverpb::TxnRequest& request);

}  // namespace member
