// What a history asks of the member, and what comes back.
#include <fmt/format.h>

#include <utility>

#include "base/status.h"
#include "base/wire.h"
#include "proto/rpc.pb.h"
#include "sim/history.h"

namespace sim {
namespace {

namespace pb = etcdserverpb;
using member::RequestKind;

constexpr int kKeys = 8;
constexpr int64_t kLongTtl = 10'000'000;
constexpr int64_t kShortTtl = 4;

void AddPut(const std::string& key, const std::string& value, pb::RequestOp* op) {
  op->mutable_request_put()->set_key(key);
  op->mutable_request_put()->set_value(value);
}

// The second twin is put by a transaction within the transaction.
std::string EncodeTwins(const Op& op) {
  pb::TxnRequest txn;
  pb::Compare* const compare = txn.add_compare();
  compare->set_key(op.key);
  compare->set_target(pb::Compare::MOD);
  compare->set_result(pb::Compare::EQUAL);
  compare->set_mod_revision(op.compare_mod);
  AddPut(TwinKey(op.twin, false), op.value, txn.add_success());
  AddPut(TwinKey(op.twin, true), op.value, txn.add_success()->mutable_request_txn()->add_success());
  for (const bool second : {false, true})
    txn.add_failure()->mutable_request_delete_range()->set_key(TwinKey(op.twin, second));
  return txn.SerializeAsString();
}

std::pair<RequestKind, std::string> Encode(const Op& op) {
  switch (op.kind) {
    case OpKind::kPut: {
      pb::PutRequest put;
      put.set_key(op.key);
      put.set_value(op.value);
      put.set_lease(op.lease);
      return {RequestKind::kPut, put.SerializeAsString()};
    }
    case OpKind::kDelete: {
      pb::DeleteRangeRequest request;
      request.set_key(op.key);
      request.set_range_end(op.end);
      return {RequestKind::kDeleteRange, request.SerializeAsString()};
    }
    case OpKind::kTwins:
      return {RequestKind::kTxn, EncodeTwins(op)};
    case OpKind::kGrant: {
      pb::LeaseGrantRequest grant;
      grant.set_id(op.lease);
      grant.set_ttl(op.ttl);
      return {RequestKind::kLeaseGrant, grant.SerializeAsString()};
    }
    case OpKind::kRevoke:
    case OpKind::kExpire: {
      pb::LeaseRevokeRequest revoke;
      revoke.set_id(op.lease);
      return {RequestKind::kLeaseRevoke, revoke.SerializeAsString()};
    }
    case OpKind::kCompact: {
      pb::CompactionRequest compact;
      compact.set_revision(op.revision);
      compact.set_physical(op.physical);
      return {RequestKind::kCompaction, compact.SerializeAsString()};
    }
  }
  return {};
}

Answer Decode(OpKind kind, const member::ApplyResult& result) {
  Answer answer{.code = result.status.code(), .revision = result.revision};
  base::wire::Reader reader(result.body);
  while (result.status.ok() && reader.Next()) {
    if (reader.field() != 2) continue;
    if (kind == OpKind::kDelete) answer.deleted = static_cast<int64_t>(reader.varint());
    if (kind == OpKind::kTwins) answer.succeeded = reader.varint() != 0;
  }
  return answer;
}

// Whether the request was decided: anything else leaves open what becomes of it.
bool IsDecided(absl::StatusCode code) {
  return code == absl::StatusCode::kOk || code == absl::StatusCode::kNotFound ||
         code == absl::StatusCode::kFailedPrecondition || code == absl::StatusCode::kOutOfRange;
}

}  // namespace

std::string History::DrawKey() { return fmt::format("key/{}", random_.Below(kKeys)); }

Op History::DrawOp() {
  Op op;
  const uint64_t dice = random_.Below(100);
  const std::string value =
      fmt::format("{}.{}", next_number_, std::string(random_.Below(120), 'x'));
  std::vector<int64_t> leases;
  for (const auto& [id, ttl] : model_.leases()) leases.push_back(id);
  // Now and then one that is not there.
  const int64_t lease =
      leases.empty() || random_.OneIn(10) ? 1'000'000 : leases[random_.Below(leases.size())];
  if (dice < 50) {
    op = {.kind = OpKind::kPut, .key = DrawKey(), .value = value};
    if (random_.OneIn(5)) op.lease = lease;
  } else if (dice < 62) {
    op = {.kind = OpKind::kDelete, .key = DrawKey()};
    if (random_.OneIn(4)) op.end = DrawKey();
  } else if (dice < 84) {
    op = {.kind = OpKind::kTwins, .key = DrawKey(), .value = value};
    op.twin = static_cast<int>(random_.Below(kTwins));
    const auto it = model_.keys().find(op.key);
    op.compare_mod = it == model_.keys().end() || random_.OneIn(4) ? 0 : it->second.mod;
  } else if (dice < 88) {
    op = {
        .kind = OpKind::kGrant, .lease = random_.OneIn(8) ? lease : next_lease_++, .ttl = kLongTtl};
  } else if (dice < 91) {
    op = {.kind = OpKind::kRevoke, .lease = lease};
  } else {
    op = {.kind = OpKind::kCompact, .physical = random_.OneIn(2)};
    const int64_t from = std::max<int64_t>(model_.compacted(), 0);
    op.revision = from + static_cast<int64_t>(
                             random_.Below(static_cast<uint64_t>(model_.revision() - from + 2)));
  }
  return op;
}

void History::Issue(Op op) {
  const uint64_t number = next_number_++;
  const OpKind kind = op.kind;
  const auto [request, message] = Encode(op);
  pending_.push_back({.number = number, .op = std::move(op)});
  ++counters_.operations;
  process_->Propose(request, message, [this, number, kind](const member::ApplyResult& result) {
    OnAnswer(number, kind, result);
  });
}

void History::OnAnswer(uint64_t number, OpKind kind, const member::ApplyResult& result) {
  if (ending_) {
    if (result.status.ok()) Broken(fmt::format("request {} acknowledged by a dead member", number));
    return;
  }
  if (result.status.ok() && Over())
    Broken(fmt::format("request {} (kind {}) acknowledged after the fatal error: {}", number,
                       static_cast<int>(kind), base::Message(process_->fatal())));
  // Between two entries: exactly what the answer says is visible.
  if (result.status.ok() && kind != OpKind::kCompact &&
      process_->member().store().current_revision() != result.revision) {
    Broken(fmt::format("request {} answered with revision {}, visible is {}", number,
                       result.revision, process_->member().store().current_revision()));
  }
  acks_.push_back({.number = number,
                   .answer = Decode(kind, result),
                   .text = std::string(base::Message(result.status))});
}

absl::Status History::TakeAcks() {
  for (const Ack& ack : std::exchange(acks_, {})) {
    if (!IsDecided(ack.answer.code)) {
      if (Over()) continue;
      return absl::InternalError(
          fmt::format("request {} failed on a living member: {}", ack.number, ack.text));
    }
    ApplyThrough(ack.number);
    const auto expected = expected_.extract(ack.number);
    if (!expected) return absl::InternalError(fmt::format("request {} answered twice", ack.number));
    const Answer& want = expected.mapped();
    if (ack.answer != want) {
      return absl::InternalError(fmt::format(
          "request {} answered with code {} revision {} deleted {} succeeded {} ({}), expected "
          "code {} revision {} deleted {} succeeded {}",
          ack.number, static_cast<int>(ack.answer.code), ack.answer.revision, ack.answer.deleted,
          ack.answer.succeeded, ack.text, static_cast<int>(want.code), want.revision, want.deleted,
          want.succeeded));
    }
    ++counters_.answered;
    Mix(ack.number);
    Mix(static_cast<uint64_t>(want.code) << 48 ^ static_cast<uint64_t>(want.revision));
  }
  return absl::OkStatus();
}

// The log keeps the order of requests, so one that is applied has all before it applied, too.
void History::ApplyThrough(uint64_t number) {
  while (!pending_.empty() && pending_.front().number <= number) {
    const Pending& next = pending_.front();
    const Answer answer = model_.Apply(next.op);
    if (next.op.kind != OpKind::kExpire) expected_[next.number] = answer;
    pending_.pop_front();
  }
}

void History::IssueSome() {
  if (random_.OneIn(4)) Read();
  for (uint64_t n = random_.Below(4); n > 0; --n) Issue(DrawOp());
}

void History::Read() {
  const int64_t acknowledged = model_.revision();
  process_->member().Read([this, acknowledged](const absl::Status& status) {
    if (ending_ || Over()) return;
    if (!status.ok()) return Broken(fmt::format("read: {}", base::Message(status)));
    ++counters_.reads;
    const int64_t revision = process_->member().store().current_revision();
    if (revision < acknowledged) {
      return Broken(
          fmt::format("stale read: revision {} after {} was acknowledged", revision, acknowledged));
    }
    if (const absl::Status twins = CheckTwins(); !twins.ok()) Broken(base::Message(twins));
  });
}

void History::StartDefragmentation() {
  process_->member().backend().StartDefragment([](const absl::Status&) {});
}

// One lease is granted, gets keys, and runs out; it is the only one that can.
absl::Status History::ExpireLease() {
  short_lease_ = next_lease_++;
  Issue({.kind = OpKind::kGrant, .lease = short_lease_, .ttl = kShortTtl});
  for (int i = 0; i < 2; ++i)
    Issue({.kind = OpKind::kPut, .key = DrawKey(), .value = "short", .lease = short_lease_});
  RETURN_IF_ERROR(Step());
  return AwaitExpiry();
}

absl::Status History::AwaitExpiry() {
  if (Over() || !model_.leases().contains(short_lease_)) return absl::OkStatus();
  const uint64_t number = next_number_++;
  pending_.push_back({.number = number, .op = {.kind = OpKind::kExpire, .lease = short_lease_}});
  for (int i = 0; i < 40 && !Over(); ++i) {
    RETURN_IF_ERROR(Step(std::chrono::milliseconds(300)));
    if (Over() || process_->member().lessor().Exists(short_lease_)) continue;
    ApplyThrough(number);
    return absl::OkStatus();
  }
  if (Over()) return absl::OkStatus();
  return absl::InternalError(fmt::format("lease {} of {} s does not end", short_lease_, kShortTtl));
}

}  // namespace sim
