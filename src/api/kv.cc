#include "api/kv.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <utility>

#include "api/long_range.h"
#include "api/validate.h"
#include "api/write.h"
#include "base/wire.h"
#include "member/applier.h"
#include "member/errors.h"
#include "member/txn.h"
#include "proto/rpc.pb.h"

namespace api {
namespace {

namespace pb = etcdserverpb;

pb::TxnRequest* ParseTxn(std::string_view bytes, google::protobuf::Arena* arena) {
  auto* txn = google::protobuf::Arena::CreateMessage<pb::TxnRequest>(arena);
  return txn->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ? txn : nullptr;
}

void AnswerRange(const Context& context, const rpc::CallPtr& call, const mvcc::RangeQuery& query) {
  rpc::Message message;
  std::string* out = message.bytes();
  // The header comes first but is known last: key-values are appended behind room that is cut to
  // size by the common case, in which the revision did not change meanwhile.
  const int64_t guess = context.member.store().current_revision();
  context.AppendHeader(out, guess);
  const size_t header_end = out->size();
  const auto result = context.member.store().Range(query, out);
  if (!result.ok()) return call->Finish(result.status());
  member::AppendRangeTail(*result, out);
  if (result->revision == guess) return call->Respond(std::move(message));
  rpc::Message corrected = context.WithHeader(result->revision);
  corrected.bytes()->append(*out, header_end, std::string::npos);
  call->Respond(std::move(corrected));
}

// Whether a range may be long: such ones leave the loop to others and run on a helper.
bool MayBeLong(const Context& context, const mvcc::RangeQuery& query) {
  if (query.range_end.empty() || query.count_only) return false;
  return query.limit <= 0 || static_cast<size_t>(query.limit) > context.options.inline_keys_max;
}

void Range(const Context& context, rpc::CallPtr call, std::string_view request) {
  member::RangeView range;
  if (!member::DecodeRange(request, &range)) return call->Finish(UnmarshalError());
  if (absl::Status status = ValidateRange(range); !status.ok()) return call->Finish(status);
  const bool may_be_long = MayBeLong(context, range.query);
  if (range.serializable || context.member.ReadNow()) {
    if (may_be_long) return AnswerLongRange(context, std::move(call), std::string(request));
    return AnswerRange(context, call, range.query);
  }
  if (context.member.is_learner()) return call->Finish(member::NotSupportedForLearnerError());
  WhenLinearizable(context, call, [&context, call, bytes = std::string(request), may_be_long] {
    if (may_be_long) return AnswerLongRange(context, call, bytes);
    member::RangeView again;
    if (!member::DecodeRange(bytes, &again)) return call->Finish(UnmarshalError());
    AnswerRange(context, call, again.query);
  });
}

void RangeStream(const Context& context, rpc::CallPtr call, std::string_view request) {
  member::RangeView range;
  if (!member::DecodeRange(request, &range)) return call->Finish(UnmarshalError());
  if (absl::Status status = ValidateRange(range); !status.ok()) return call->Finish(status);
  const bool by_key = range.query.sort_target == mvcc::SortTarget::kKey;
  if (range.query.sort_order != mvcc::SortOrder::kNone &&
      !(by_key && range.query.sort_order == mvcc::SortOrder::kAscend)) {
    return call->Finish(absl::StatusCode::kUnimplemented,
                        "RangeStream does not support custom sort orders");
  }
  if (range.query.min_mod_revision != 0 || range.query.max_mod_revision != 0 ||
      range.query.min_create_revision != 0 || range.query.max_create_revision != 0) {
    return call->Finish(absl::StatusCode::kUnimplemented,
                        "RangeStream does not support revision filters");
  }
  // Another sort target without an order is let through by etcd, and sorted.
  if (range.serializable || context.member.ReadNow()) {
    return StreamRange(context, std::move(call), std::string(request));
  }
  WhenLinearizable(context, call, [&context, call, bytes = std::string(request)] {
    StreamRange(context, call, bytes);
  });
}

void Put(const Context& context, rpc::CallPtr call, std::string_view request) {
  member::PutView put;
  if (!member::DecodePut(request, &put)) return call->Finish(UnmarshalError());
  const uint64_t cost = member::PutCost(put.key.size(), put.value.size());
  // Room is looked at before the arguments, as etcd does.
  if (!CheckRoom(context, call, cost)) return;
  if (absl::Status status = ValidatePut(put); !status.ok()) return call->Finish(status);
  ProposeFor(context, std::move(call), member::RequestKind::kPut, request);
}

void DeleteRange(const Context& context, rpc::CallPtr call, std::string_view request) {
  member::DeleteRangeView view;
  if (!member::DecodeDeleteRange(request, &view)) return call->Finish(UnmarshalError());
  if (absl::Status status = ValidateDeleteRange(view); !status.ok()) return call->Finish(status);
  ProposeFor(context, std::move(call), member::RequestKind::kDeleteRange, request);
}

void AnswerReadTxn(const Context& context, const rpc::CallPtr& call, const pb::TxnRequest& txn) {
  auto outcome = member::ReadTxn(context.member.store(), txn);
  if (!outcome.ok()) return call->Finish(outcome.status());
  rpc::Message message = context.WithHeader(outcome->revision);
  message.bytes()->append(outcome->body);
  call->Respond(std::move(message));
}

void Txn(const Context& context, rpc::CallPtr call, std::string_view request) {
  google::protobuf::Arena arena;
  const pb::TxnRequest* txn = ParseTxn(request, &arena);
  if (txn == nullptr) return call->Finish(UnmarshalError());
  if (!CheckRoom(context, call, member::TxnCost(*txn))) return;
  if (absl::Status status = ValidateTxn(*txn, static_cast<int64_t>(context.options.max_txn_ops));
      !status.ok()) {
    return call->Finish(status);
  }
  if (!member::IsReadOnly(*txn))
    return ProposeFor(context, std::move(call), member::RequestKind::kTxn, request);
  if (member::IsSerializable(*txn) || context.member.ReadNow())
    return AnswerReadTxn(context, call, *txn);
  WhenLinearizable(context, call, [&context, call, bytes = std::string(request)] {
    google::protobuf::Arena again;
    AnswerReadTxn(context, call, *ParseTxn(bytes, &again));
  });
}

void Compact(const Context& context, rpc::CallPtr call, std::string_view request) {
  pb::CompactionRequest compaction;
  if (!Parse(request, &compaction)) return call->Finish(UnmarshalError());
  ProposeFor(context, std::move(call), member::RequestKind::kCompaction, request);
}

}  // namespace

void RegisterKv(rpc::Server& server, const Context& context) {
  RegisterUnary(server, context, "/etcdserverpb.KV/Range", Range);
  RegisterUnary(server, context, "/etcdserverpb.KV/Put", Put);
  RegisterUnary(server, context, "/etcdserverpb.KV/DeleteRange", DeleteRange);
  RegisterUnary(server, context, "/etcdserverpb.KV/Txn", Txn);
  RegisterUnary(server, context, "/etcdserverpb.KV/Compact", Compact);
  server.RegisterServerStream("/etcdserverpb.KV/RangeStream",
                              [&context](rpc::CallPtr call, std::string_view request) {
                                RangeStream(context, std::move(call), request);
                              });
}

}  // namespace api
