#include "member/txn.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "base/wire.h"
#include "member/errors.h"
#include "mvcc/key_value.h"
#include "proto/rpc.pb.h"

namespace member {
namespace {

namespace pb = etcdserverpb;
namespace wire = base::wire;

// Field numbers of the response messages.
constexpr uint32_t kHeader = 1;
constexpr uint32_t kHeaderRevision = 3;
constexpr uint32_t kPutPrevKv = 2;
constexpr uint32_t kDeleteCount = 2;
constexpr uint32_t kDeletePrevKvs = 3;
constexpr uint32_t kRangeMore = 3;
constexpr uint32_t kRangeCount = 4;
constexpr uint32_t kTxnSucceeded = 2;
constexpr uint32_t kTxnResponses = 3;
constexpr uint32_t kOpRange = 1;
constexpr uint32_t kOpPut = 2;
constexpr uint32_t kOpDelete = 3;
constexpr uint32_t kOpTxn = 4;

// What the compares of a txn look at: the state before the txn.
class CompareSource {
 public:
  virtual ~CompareSource() = default;
  // Calls `visit` with each stored key-value of the interval, in key order, until it returns false.
  virtual absl::Status Visit(std::string_view key, std::string_view range_end, bool want_value,
                             absl::FunctionRef<bool(const mvcc::KeyValue&)> visit) = 0;
};

class WriteSource final : public CompareSource {
 public:
  explicit WriteSource(mvcc::WriteTxn& txn) : txn_(txn) {}
  absl::Status Visit(std::string_view key, std::string_view range_end, bool want_value,
                     absl::FunctionRef<bool(const mvcc::KeyValue&)> visit) override {
    absl::Status status;
    txn_.VisitStates(key, range_end, [&](std::string_view k, const mvcc::KeyState& state) {
      mvcc::KeyValue kv;
      if (want_value) {
        const auto stored = txn_.Stored(state);
        if (!stored.ok()) {
          status = stored.status();
          return false;
        }
        auto decoded = mvcc::DecodeKeyValue(*stored);
        if (!decoded.ok()) {
          status = decoded.status();
          return false;
        }
        kv = *decoded;
      }
      kv.key = k;
      kv.create_revision = state.created;
      kv.mod_revision = state.mod.main;
      kv.version = state.version;
      return visit(kv);
    });
    return status;
  }

 private:
  mvcc::WriteTxn& txn_;
};

class ReadSource final : public CompareSource {
 public:
  ReadSource(const mvcc::Store& store, int64_t revision) : store_(store), revision_(revision) {}
  absl::Status Visit(std::string_view key, std::string_view range_end, bool /*want_value*/,
                     absl::FunctionRef<bool(const mvcc::KeyValue&)> visit) override {
    std::string found;
    const auto result =
        store_.Range({.key = key, .range_end = range_end, .revision = revision_}, &found);
    RETURN_IF_ERROR(result.status());
    wire::Reader r(found);
    while (r.Next()) {
      ASSIGN_OR_RETURN(const mvcc::KeyValue kv, mvcc::DecodeKeyValue(r.bytes()));
      if (!visit(kv)) break;
    }
    return absl::OkStatus();
  }

 private:
  const mvcc::Store& store_;
  const int64_t revision_;
};

template <typename T>
int Order(const T& a, const T& b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

bool Satisfies(pb::Compare::CompareResult wanted, int order) {
  switch (wanted) {
    case pb::Compare::EQUAL:
      return order == 0;
    case pb::Compare::NOT_EQUAL:
      return order != 0;
    case pb::Compare::GREATER:
      return order > 0;
    case pb::Compare::LESS:
      return order < 0;
    default:
      return true;
  }
}

// The operand is taken from the union member that belongs to the target; another one counts as 0 or
// empty.
bool CompareOne(const pb::Compare& compare, const mvcc::KeyValue& kv) {
  int order = 0;
  switch (compare.target()) {
    case pb::Compare::VALUE:
      order = Order<std::string_view>(kv.value, compare.value());
      break;
    case pb::Compare::CREATE:
      order = Order(kv.create_revision, compare.create_revision());
      break;
    case pb::Compare::MOD:
      order = Order(kv.mod_revision, compare.mod_revision());
      break;
    case pb::Compare::VERSION:
      order = Order(kv.version, compare.version());
      break;
    case pb::Compare::LEASE:
      order = Order(kv.lease, compare.lease());
      break;
    default:
      break;
  }
  return Satisfies(compare.result(), order);
}

absl::StatusOr<bool> Holds(const pb::Compare& compare, CompareSource& source) {
  const bool want_value =
      compare.target() == pb::Compare::VALUE || compare.target() == pb::Compare::LEASE;
  bool any = false;
  bool all = true;
  RETURN_IF_ERROR(
      source.Visit(compare.key(), compare.range_end(), want_value, [&](const mvcc::KeyValue& kv) {
        any = true;
        all = CompareOne(compare, kv);
        return all;
      }));
  if (any) return all;
  // A missing key has no value that a compare could hold for; its numbers are 0.
  if (compare.target() == pb::Compare::VALUE) return false;
  return CompareOne(compare, mvcc::KeyValue{});
}

// Which branch each txn of the tree takes, in the order of a walk through the chosen branches. All
// compares see the state before.
absl::Status ChoosePath(const pb::TxnRequest& txn, CompareSource& source, std::vector<bool>* path) {
  bool succeeded = true;
  for (const pb::Compare& compare : txn.compare()) {
    ASSIGN_OR_RETURN(succeeded, Holds(compare, source));
    if (!succeeded) break;
  }
  path->push_back(succeeded);
  for (const pb::RequestOp& op : succeeded ? txn.success() : txn.failure()) {
    if (op.request_case() == pb::RequestOp::kRequestTxn) {
      RETURN_IF_ERROR(ChoosePath(op.request_txn(), source, path));
    }
  }
  return absl::OkStatus();
}

PutView ToView(const pb::PutRequest& request) {
  return {.key = request.key(),
          .value = request.value(),
          .lease = request.lease(),
          .prev_kv = request.prev_kv(),
          .ignore_value = request.ignore_value(),
          .ignore_lease = request.ignore_lease()};
}

absl::Status CheckPut(const mvcc::WriteTxn& txn, const lease::Lessor& lessor, const PutView& put) {
  if (put.lease != 0 && !lessor.Exists(put.lease)) return lease::LeaseNotFoundError();
  if ((put.ignore_value || put.ignore_lease) && !txn.State(put.key)) return KeyNotFoundError();
  return absl::OkStatus();
}

// Every operation on the chosen path is checked against the state before the txn, so that a failure
// leaves nothing behind.
absl::Status CheckPath(const pb::TxnRequest& txn, const mvcc::WriteTxn& write,
                       const mvcc::Store& store, const lease::Lessor& lessor,
                       const std::vector<bool>& path, size_t* position) {
  const bool succeeded = path[(*position)++];
  for (const pb::RequestOp& op : succeeded ? txn.success() : txn.failure()) {
    switch (op.request_case()) {
      case pb::RequestOp::kRequestRange: {
        const int64_t revision = op.request_range().revision();
        // A negative revision means current, as in a plain range (R48).
        if (revision <= 0) break;
        if (revision > write.base_revision()) return mvcc::FutureRevisionError();
        if (revision < store.compact_revision()) return mvcc::CompactedError();
        break;
      }
      case pb::RequestOp::kRequestPut:
        RETURN_IF_ERROR(CheckPut(write, lessor, ToView(op.request_put())));
        break;
      case pb::RequestOp::kRequestTxn:
        RETURN_IF_ERROR(CheckPath(op.request_txn(), write, store, lessor, path, position));
        break;
      default:
        break;
    }
  }
  return absl::OkStatus();
}

void AppendHeader(int64_t revision, std::string* out) {
  std::string header;
  wire::AppendNonZero(&header, kHeaderRevision, static_cast<uint64_t>(revision));
  wire::AppendBytes(out, kHeader, header);
}

// One put within a transaction; the body of its response other than the header goes to *out.
absl::Status ExecutePut(mvcc::WriteTxn& txn, const PutView& put, std::string* out) {
  std::string_view value = put.value;
  int64_t lease = put.lease;
  // Copied: the bytes before may move while the new ones are written.
  std::string previous;
  if (put.prev_kv || put.ignore_value || put.ignore_lease) {
    ASSIGN_OR_RETURN(const auto stored, txn.Get(put.key));
    if (stored) {
      previous = *stored;
      ASSIGN_OR_RETURN(const mvcc::KeyValue kv, mvcc::DecodeKeyValue(previous));
      if (put.ignore_value) value = kv.value;
      if (put.ignore_lease) lease = kv.lease;
      if (put.prev_kv) mvcc::AppendField(kPutPrevKv, previous, out);
    }
  }
  return txn.Put(put.key, value, lease);
}

class Executor {
 public:
  Executor(mvcc::WriteTxn& txn, const std::vector<bool>& path) : txn_(txn), path_(path) {}

  // Appends succeeded and responses; the caller has written the header.
  absl::Status Run(const pb::TxnRequest& request, std::string* out) {
    const bool succeeded = path_[position_++];
    wire::AppendNonZero(out, kTxnSucceeded, succeeded ? 1 : 0);
    for (const pb::RequestOp& op : succeeded ? request.success() : request.failure()) {
      std::string response;
      uint32_t field = 0;
      RETURN_IF_ERROR(RunOp(op, &response, &field));
      std::string response_op;
      if (field != 0) wire::AppendBytes(&response_op, field, response);
      wire::AppendBytes(out, kTxnResponses, response_op);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status RunOp(const pb::RequestOp& op, std::string* response, uint32_t* field) {
    switch (op.request_case()) {
      case pb::RequestOp::kRequestRange: {
        *field = kOpRange;
        AppendHeader(txn_.header_revision(), response);
        ASSIGN_OR_RETURN(const mvcc::RangeResult result,
                         txn_.Range(ToQuery(op.request_range()), response));
        AppendRangeTail(result, response);
        return absl::OkStatus();
      }
      case pb::RequestOp::kRequestPut: {
        *field = kOpPut;
        AppendHeader(txn_.write_revision(), response);
        return ExecutePut(txn_, ToView(op.request_put()), response);
      }
      case pb::RequestOp::kRequestDeleteRange: {
        *field = kOpDelete;
        const pb::DeleteRangeRequest& request = op.request_delete_range();
        std::string previous;
        ASSIGN_OR_RETURN(const int64_t deleted,
                         txn_.DeleteRange(request.key(), request.range_end(),
                                          request.prev_kv() ? &previous : nullptr, kDeletePrevKvs));
        AppendHeader(txn_.header_revision(), response);
        wire::AppendNonZero(response, kDeleteCount, static_cast<uint64_t>(deleted));
        response->append(previous);
        return absl::OkStatus();
      }
      case pb::RequestOp::kRequestTxn:
        *field = kOpTxn;
        wire::AppendBytes(response, kHeader, "");
        return Run(op.request_txn(), response);
      default:
        return absl::OkStatus();
    }
  }

  mvcc::WriteTxn& txn_;
  const std::vector<bool>& path_;
  size_t position_ = 0;
};

}  // namespace

bool DecodePut(std::string_view bytes, PutView* out) {
  wire::Reader r(bytes);
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        if (r.Expect(wire::Type::kBytes)) out->key = r.bytes();
        break;
      case 2:
        if (r.Expect(wire::Type::kBytes)) out->value = r.bytes();
        break;
      case 3:
        if (r.Expect(wire::Type::kVarint)) out->lease = static_cast<int64_t>(r.varint());
        break;
      case 4:
        if (r.Expect(wire::Type::kVarint)) out->prev_kv = r.varint() != 0;
        break;
      case 5:
        if (r.Expect(wire::Type::kVarint)) out->ignore_value = r.varint() != 0;
        break;
      case 6:
        if (r.Expect(wire::Type::kVarint)) out->ignore_lease = r.varint() != 0;
        break;
      default:
        break;
    }
  }
  return r.ok();
}

bool DecodeDeleteRange(std::string_view bytes, DeleteRangeView* out) {
  wire::Reader r(bytes);
  while (r.Next()) {
    if (r.field() == 1 && r.Expect(wire::Type::kBytes)) out->key = r.bytes();
    if (r.field() == 2 && r.Expect(wire::Type::kBytes)) out->range_end = r.bytes();
    if (r.field() == 3 && r.Expect(wire::Type::kVarint)) out->prev_kv = r.varint() != 0;
  }
  return r.ok();
}

bool DecodeRange(std::string_view bytes, RangeView* out) {
  wire::Reader r(bytes);
  mvcc::RangeQuery& q = out->query;
  while (r.Next()) {
    if (r.field() <= 2) {
      if (!r.Expect(wire::Type::kBytes)) break;
      (r.field() == 1 ? q.key : q.range_end) = r.bytes();
      continue;
    }
    if (r.field() > 13) continue;
    if (!r.Expect(wire::Type::kVarint)) break;
    const auto v = static_cast<int64_t>(r.varint());
    switch (r.field()) {
      case 3:
        q.limit = v;
        break;
      case 4:
        q.revision = v;
        break;
      case 5:
        out->raw_sort_order = v;
        q.sort_order = static_cast<mvcc::SortOrder>(v);
        break;
      case 6:
        out->raw_sort_target = v;
        q.sort_target = static_cast<mvcc::SortTarget>(v);
        break;
      case 7:
        out->serializable = v != 0;
        break;
      case 8:
        q.keys_only = v != 0;
        break;
      case 9:
        q.count_only = v != 0;
        break;
      case 10:
        q.min_mod_revision = v;
        break;
      case 11:
        q.max_mod_revision = v;
        break;
      case 12:
        q.min_create_revision = v;
        break;
      default:
        q.max_create_revision = v;
        break;
    }
  }
  return r.ok();
}

mvcc::RangeQuery ToQuery(const pb::RangeRequest& request) {
  return {.key = request.key(),
          .range_end = request.range_end(),
          .limit = request.limit(),
          .revision = request.revision(),
          .sort_order = static_cast<mvcc::SortOrder>(request.sort_order()),
          .sort_target = static_cast<mvcc::SortTarget>(request.sort_target()),
          .keys_only = request.keys_only(),
          .count_only = request.count_only(),
          .min_mod_revision = request.min_mod_revision(),
          .max_mod_revision = request.max_mod_revision(),
          .min_create_revision = request.min_create_revision(),
          .max_create_revision = request.max_create_revision()};
}

void AppendRangeTail(const mvcc::RangeResult& result, std::string* body) {
  wire::AppendNonZero(body, kRangeMore, result.more ? 1 : 0);
  wire::AppendNonZero(body, kRangeCount, static_cast<uint64_t>(result.count));
}

bool IsReadOnly(const pb::TxnRequest& request) {
  const auto ranges_only = [](const auto& ops) {
    return std::all_of(ops.begin(), ops.end(), [](const pb::RequestOp& op) {
      return op.request_case() == pb::RequestOp::kRequestRange;
    });
  };
  return ranges_only(request.success()) && ranges_only(request.failure());
}

bool IsSerializable(const pb::TxnRequest& request) {
  const auto serializable = [](const auto& ops) {
    return std::all_of(ops.begin(), ops.end(), [](const pb::RequestOp& op) {
      return op.request_case() == pb::RequestOp::kRequestRange && op.request_range().serializable();
    });
  };
  return serializable(request.success()) && serializable(request.failure());
}

absl::StatusOr<Outcome> ApplyPut(mvcc::Store& store, const lease::Lessor& lessor,
                                 const PutView& put) {
  mvcc::WriteTxn txn = store.BeginWrite();
  Outcome outcome;
  absl::Status status = CheckPut(txn, lessor, put);
  if (status.ok()) status = ExecutePut(txn, put, &outcome.body);
  outcome.revision = txn.End();
  if (!status.ok()) return status;
  return outcome;
}

absl::StatusOr<Outcome> ApplyDeleteRange(mvcc::Store& store, const DeleteRangeView& request) {
  mvcc::WriteTxn txn = store.BeginWrite();
  std::string previous;
  const auto deleted = txn.DeleteRange(request.key, request.range_end,
                                       request.prev_kv ? &previous : nullptr, kDeletePrevKvs);
  Outcome outcome;
  outcome.revision = txn.End();
  RETURN_IF_ERROR(deleted.status());
  wire::AppendNonZero(&outcome.body, kDeleteCount, static_cast<uint64_t>(*deleted));
  outcome.body.append(previous);
  return outcome;
}

absl::StatusOr<Outcome> ApplyTxn(mvcc::Store& store, const lease::Lessor& lessor,
                                 const pb::TxnRequest& request) {
  mvcc::WriteTxn txn = store.BeginWrite();
  WriteSource source(txn);
  std::vector<bool> path;
  Outcome outcome;
  absl::Status status = ChoosePath(request, source, &path);
  if (status.ok()) {
    size_t position = 0;
    status = CheckPath(request, txn, store, lessor, path, &position);
  }
  if (status.ok()) {
    // From here on only a damaged file can fail, and half a transaction must not be published.
    const absl::Status executed = Executor(txn, path).Run(request, &outcome.body);
    if (!executed.ok())
      base::CheckFailed(__FILE__, __LINE__, "the store is readable", base::Message(executed));
  }
  outcome.revision = txn.End();
  if (!status.ok()) return status;
  return outcome;
}

namespace {

absl::StatusOr<Outcome> ReadTxnAt(const mvcc::Store& store, const pb::TxnRequest& request,
                                  int64_t revision) {
  ReadSource source(store, revision);
  std::vector<bool> path;
  RETURN_IF_ERROR(ChoosePath(request, source, &path));
  const bool succeeded = path.front();
  Outcome outcome{.revision = revision};
  wire::AppendNonZero(&outcome.body, kTxnSucceeded, succeeded ? 1 : 0);
  for (const pb::RequestOp& op : succeeded ? request.success() : request.failure()) {
    std::string response;
    AppendHeader(revision, &response);
    mvcc::RangeQuery query = ToQuery(op.request_range());
    if (query.revision <= 0) query.revision = revision;
    if (query.revision > revision) return mvcc::FutureRevisionError();
    ASSIGN_OR_RETURN(const mvcc::RangeResult result, store.Range(query, &response));
    AppendRangeTail(result, &response);
    std::string response_op;
    wire::AppendBytes(&response_op, kOpRange, response);
    wire::AppendBytes(&outcome.body, kTxnResponses, response_op);
  }
  return outcome;
}

}  // namespace

absl::StatusOr<Outcome> ReadTxn(const mvcc::Store& store, const pb::TxnRequest& request) {
  while (true) {
    const int64_t revision = store.current_revision();
    auto outcome = ReadTxnAt(store, request, revision);
    // A compaction that overtook the pinned revision is not the client's fault: read again at the
    // newer one.
    if (outcome.ok() || store.compact_revision() <= revision) return outcome;
  }
}

}  // namespace member
