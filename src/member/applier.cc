#include "member/applier.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "base/wire.h"
#include "member/errors.h"
#include "member/txn.h"
#include "proto/internal.pb.h"
#include "raft/codec.h"

namespace member {
namespace {

namespace pb = etcdserverpb;
namespace wire = base::wire;
using mvcc::Bucket;

// The flat part of a put's cost: its record beside key and value.
constexpr uint64_t kRecordOverheadBytes = 256;

std::string_view OperationName(RequestKind kind) {
  switch (kind) {
    case RequestKind::kRange:
      return "Range";
    case RequestKind::kPut:
      return "Put";
    case RequestKind::kDeleteRange:
      return "DeleteRange";
    case RequestKind::kTxn:
      return "Txn";
    case RequestKind::kCompaction:
      return "Compaction";
    case RequestKind::kLeaseGrant:
      return "LeaseGrant";
    case RequestKind::kLeaseRevoke:
      return "LeaseRevoke";
    case RequestKind::kLeaseCheckpoint:
      return "LeaseCheckpoint";
    case RequestKind::kAlarm:
      return "Alarm";
    case RequestKind::kClusterVersionSet:
      return "ClusterVersionSet";
    case RequestKind::kClusterMemberAttrSet:
      return "ClusterMemberAttrSet";
    case RequestKind::kDowngradeInfoSet:
      return "DowngradeInfoSet";
    case RequestKind::kDowngradeVersionTest:
      return "DowngradeVersionTest";
    default:
      return "unknown";
  }
}

uint64_t BranchCost(const google::protobuf::RepeatedPtrField<pb::RequestOp>& ops) {
  uint64_t cost = 0;
  for (const pb::RequestOp& op : ops) {
    if (op.has_request_put())
      cost += PutCost(op.request_put().key().size(), op.request_put().value().size());
    if (op.has_request_txn()) cost += TxnCost(op.request_txn());
  }
  return cost;
}

bool HasPut(const pb::TxnRequest& request) { return TxnCost(request) > 0; }

absl::Status BadEntry(const raft::Entry& entry, std::string_view why) {
  return base::MakeStatus(absl::StatusCode::kDataLoss,
                          "raft entry {} of term {} cannot be applied: {}", entry.index, entry.term,
                          why);
}

std::string ConfStateJson(const cluster::Membership::View& view) {
  const auto list = [](const std::vector<uint64_t>& ids) {
    std::string out = "[";
    for (size_t i = 0; i < ids.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(ids[i]);
    return out + "]";
  };
  std::string json = R"({"voters":)" + list(view.Voters());
  if (const auto learners = view.Learners(); !learners.empty())
    json += R"(,"learners":)" + list(learners);
  return json + R"(,"auto_leave":false})";
}

}  // namespace

uint64_t PutCost(uint64_t key_bytes, uint64_t value_bytes) {
  return kRecordOverheadBytes + key_bytes + value_bytes;
}

uint64_t TxnCost(const pb::TxnRequest& request) {
  return std::max(BranchCost(request.success()), BranchCost(request.failure()));
}

Applier::Applier(ApplierState state, const base::Clock& clock, ApplyObserver* observer)
    : s_(state), clock_(clock), observer_(observer) {}

absl::Status Applier::ApplyNormal(const raft::Entry& entry, ProposalPtr proposal) {
  if (entry.index <= s_.backend.consistent_index()) return absl::OkStatus();
  RETURN_IF_ERROR(s_.backend.BeginEntry());
  if (entry.data.empty()) {  // a new leader's first entry
    s_.backend.EndEntry(entry.index, entry.term);
    return absl::OkStatus();
  }
  RequestView request;
  if (!DecodeRequest(entry.data.view(), &request))
    return BadEntry(entry, "it is no InternalRaftRequest");
  const base::Duration begun = clock_.Monotonic();
  auto result = Dispatch(request, &proposal);
  if (!result.ok()) return BadEntry(entry, base::Message(result.status()));
  s_.backend.EndEntry(entry.index, entry.term);
  const auto code = result->status.code();
  observer_->OnApplied(OperationName(request.kind), clock_.Monotonic() - begun,
                       result->status.ok() || code == absl::StatusCode::kOutOfRange);
  if (code == absl::StatusCode::kInternal) return result->status;
  if (proposal != nullptr) proposal->Done(*std::move(result));
  return absl::OkStatus();
}

absl::StatusOr<ApplyResult> Applier::Dispatch(const RequestView& request,
                                              std::unique_ptr<Proposal>* proposal) {
  switch (request.kind) {
    case RequestKind::kPut:
      return Put(request);
    case RequestKind::kDeleteRange:
      return DeleteRange(request);
    case RequestKind::kTxn:
      return Txn(request);
    case RequestKind::kCompaction:
      return Compact(request, proposal);
    case RequestKind::kLeaseGrant:
      return LeaseGrant(request);
    case RequestKind::kLeaseRevoke:
      return LeaseRevoke(request);
    case RequestKind::kLeaseCheckpoint:
      return LeaseCheckpoint(request);
    case RequestKind::kAlarm:
      return Alarm(request);
    case RequestKind::kClusterVersionSet:
      return ClusterVersionSet(request);
    case RequestKind::kClusterMemberAttrSet:
      return ClusterMemberAttrSet(request);
    case RequestKind::kDowngradeInfoSet:
      return DowngradeInfoSet(request);
    case RequestKind::kRange:  // etcd has never proposed one since 3.4, but its schema allows it:
                               // it changes nothing
    case RequestKind::kDowngradeVersionTest:
      return ApplyResult{.revision = s_.store.current_revision()};
    default:
      break;
  }
  return base::MakeStatus(absl::StatusCode::kUnimplemented,
                          "request field {} is of a release that knows more than this one",
                          request.field);
}

ApplyResult Applier::Failed(absl::Status status) const {
  return {.status = std::move(status), .revision = s_.store.current_revision()};
}

absl::Status Applier::CheckAlarms(bool costs) const {
  if (s_.alarms.HasCorrupt()) return CorruptError();
  if (costs && s_.alarms.HasNoSpace()) return NoSpaceError();
  return absl::OkStatus();
}

namespace {
ApplyResult ToResult(absl::StatusOr<Outcome> outcome, const mvcc::Store& store) {
  if (!outcome.ok()) return {.status = outcome.status(), .revision = store.current_revision()};
  return {.revision = outcome->revision, .body = std::move(outcome->body)};
}
}  // namespace

ApplyResult Applier::Put(const RequestView& request) {
  PutView put;
  if (!DecodePut(request.message, &put))
    return Failed(absl::InternalError("malformed put in the log"));
  if (absl::Status status = CheckAlarms(true); !status.ok()) return Failed(std::move(status));
  return ToResult(ApplyPut(s_.store, s_.lessor, put), s_.store);
}

ApplyResult Applier::DeleteRange(const RequestView& request) {
  DeleteRangeView view;
  if (!DecodeDeleteRange(request.message, &view))
    return Failed(absl::InternalError("malformed delete in the log"));
  if (absl::Status status = CheckAlarms(false); !status.ok()) return Failed(std::move(status));
  return ToResult(ApplyDeleteRange(s_.store, view), s_.store);
}

ApplyResult Applier::Txn(const RequestView& request) {
  google::protobuf::Arena arena;
  auto* txn = google::protobuf::Arena::CreateMessage<pb::TxnRequest>(&arena);
  if (!txn->ParseFromArray(request.message.data(), static_cast<int>(request.message.size()))) {
    return Failed(absl::InternalError("malformed txn in the log"));
  }
  if (absl::Status status = CheckAlarms(HasPut(*txn)); !status.ok())
    return Failed(std::move(status));
  return ToResult(ApplyTxn(s_.store, s_.lessor, *txn), s_.store);
}

ApplyResult Applier::Compact(const RequestView& request, std::unique_ptr<Proposal>* proposal) {
  pb::CompactionRequest compaction;
  if (!compaction.ParseFromArray(request.message.data(),
                                 static_cast<int>(request.message.size()))) {
    return Failed(absl::InternalError("malformed compaction in the log"));
  }
  if (absl::Status status = CheckAlarms(false); !status.ok()) return Failed(std::move(status));
  const int64_t revision = compaction.revision();
  const int64_t header_revision = s_.store.current_revision();
  // The answer leaves when the schedule (or, if asked for, the removal) is durable; whoever comes
  // first takes the proposal.
  auto waiting = std::make_shared<std::unique_ptr<Proposal>>();
  const bool physical = compaction.physical();
  const auto answer = [waiting, header_revision](const absl::Status& status) {
    if (*waiting == nullptr) return;
    const auto taken = std::exchange(*waiting, nullptr);
    taken->Done({.status = status, .revision = header_revision});
  };
  const base::Duration begun = clock_.Monotonic();
  ApplyObserver* const observer = observer_;
  const base::Clock* const clock = &clock_;
  *waiting = std::move(*proposal);
  const absl::Status status = s_.store.Compact(
      revision, {.scheduled =
                     [physical, answer](const absl::Status& done) {
                       if (!physical || !done.ok()) answer(done);
                     },
                 .finished =
                     [answer, observer, clock, begun, revision](const absl::Status& done) {
                       if (done.ok())
                         observer->OnCompactionFinished(revision, clock->Monotonic() - begun);
                       answer(done);
                     }});
  if (status.ok()) return {.revision = header_revision};
  if (physical && absl::IsOutOfRange(status) && revision <= s_.store.compact_revision()) {
    // Asked for again: the answer still waits for what is being removed.
    s_.store.AfterCompactions([answer, status](const absl::Status&) { answer(status); });
    return Failed(status);
  }
  *proposal = std::exchange(*waiting, nullptr);
  return Failed(status);
}

ApplyResult Applier::LeaseGrant(const RequestView& request) {
  pb::LeaseGrantRequest grant;
  if (!grant.ParseFromArray(request.message.data(), static_cast<int>(request.message.size()))) {
    return Failed(absl::InternalError("malformed lease grant in the log"));
  }
  if (absl::Status status = CheckAlarms(true); !status.ok()) return Failed(std::move(status));
  const auto ttl = s_.lessor.Grant(grant.id(), grant.ttl());
  if (!ttl.ok()) return Failed(ttl.status());
  ApplyResult result{.revision = s_.store.current_revision()};
  wire::AppendNonZero(&result.body, 2, static_cast<uint64_t>(grant.id()));
  wire::AppendNonZero(&result.body, 3, static_cast<uint64_t>(*ttl));
  return result;
}

ApplyResult Applier::LeaseRevoke(const RequestView& request) {
  pb::LeaseRevokeRequest revoke;
  if (!revoke.ParseFromArray(request.message.data(), static_cast<int>(request.message.size()))) {
    return Failed(absl::InternalError("malformed lease revoke in the log"));
  }
  if (absl::Status status = CheckAlarms(false); !status.ok()) return Failed(std::move(status));
  const auto keys = s_.lessor.AttachedKeys(revoke.id());
  if (!keys.ok()) return Failed(keys.status());
  mvcc::WriteTxn txn = s_.store.BeginWrite();
  for (const std::string& key : *keys) {
    const auto deleted = txn.DeleteRange(key, "");
    if (!deleted.ok())
      base::CheckFailed(__FILE__, __LINE__, "the store is readable",
                        base::Message(deleted.status()));
  }
  const int64_t revision = txn.End();
  if (absl::Status status = s_.lessor.Revoke(revoke.id()); !status.ok())
    return Failed(std::move(status));
  return {.revision = revision};
}

ApplyResult Applier::LeaseCheckpoint(const RequestView& request) {
  pb::LeaseCheckpointRequest checkpoint;
  if (!checkpoint.ParseFromArray(request.message.data(),
                                 static_cast<int>(request.message.size()))) {
    return Failed(absl::InternalError("malformed lease checkpoint in the log"));
  }
  ApplyResult result{.revision = s_.store.current_revision()};
  for (const pb::LeaseCheckpoint& item : checkpoint.checkpoints()) {
    // A lease revoked meanwhile needs no checkpoint; like the reference, the first miss is the
    // answer.
    if (absl::Status status = s_.lessor.Checkpoint(item.id(), item.remaining_ttl()); !status.ok()) {
      return Failed(std::move(status));
    }
  }
  return result;
}

ApplyResult Applier::Alarm(const RequestView& request) {
  pb::AlarmRequest alarm;
  if (!alarm.ParseFromArray(request.message.data(), static_cast<int>(request.message.size()))) {
    return Failed(absl::InternalError("malformed alarm in the log"));
  }
  const member::Alarm wanted{.member_id = alarm.memberid(),
                             .type = static_cast<int>(alarm.alarm())};
  std::vector<member::Alarm> answer;
  switch (alarm.action()) {
    case pb::AlarmRequest::GET:
      answer = s_.alarms.List(wanted.type);
      break;
    case pb::AlarmRequest::ACTIVATE:
      answer = s_.alarms.Activate(wanted);
      for (const auto& a : answer) observer_->OnAlarm(a, true);
      break;
    case pb::AlarmRequest::DEACTIVATE:
      answer = s_.alarms.Deactivate(wanted);
      for (const auto& a : answer) observer_->OnAlarm(a, false);
      break;
    default:
      break;  // refused by the API; an entry of another server has no effect
  }
  ApplyResult result{.revision = s_.store.current_revision()};
  for (const auto& a : answer) wire::AppendBytes(&result.body, 2, EncodeAlarm(a));
  return result;
}

ApplyResult Applier::ClusterVersionSet(const RequestView& request) {
  pb::ClusterVersionSetRequest set;
  if (!set.ParseFromArray(request.message.data(), static_cast<int>(request.message.size()))) {
    return Failed(absl::InternalError("malformed cluster version in the log"));
  }
  s_.membership.SetClusterVersion(set.ver());
  s_.backend.Put(Bucket::kCluster, "clusterVersion", set.ver());
  // The storage version follows: the schema of this release differs from older ones by nothing but
  // this mark.
  s_.backend.Put(Bucket::kMeta, "storageVersion", set.ver());
  observer_->OnClusterVersion(set.ver());
  return {.revision = s_.store.current_revision()};
}

ApplyResult Applier::ClusterMemberAttrSet(const RequestView& request) {
  pb::ClusterMemberAttrSetRequest set;
  if (!set.ParseFromArray(request.message.data(), static_cast<int>(request.message.size()))) {
    return Failed(absl::InternalError("malformed member attributes in the log"));
  }
  const auto& attributes = set.member_attributes();
  if (s_.membership.UpdateAttributes(
          set.member_id(), attributes.name(),
          {attributes.client_urls().begin(), attributes.client_urls().end()})) {
    const auto view = s_.membership.view();
    s_.backend.Put(Bucket::kMembers, base::IdToHex(set.member_id()),
                   cluster::EncodeMember(*view->Find(set.member_id())));
  }
  return {.revision = s_.store.current_revision()};
}

ApplyResult Applier::DowngradeInfoSet(const RequestView& request) {
  pb::DowngradeInfoSetRequest set;
  if (!set.ParseFromArray(request.message.data(), static_cast<int>(request.message.size()))) {
    return Failed(absl::InternalError("malformed downgrade info in the log"));
  }
  s_.backend.Put(Bucket::kCluster, "downgrade",
                 fmt::format(R"({{"target-version":{},"enabled":{}}})",
                             base::JsonString(set.enabled() ? set.ver() : ""), set.enabled()));
  return {.revision = s_.store.current_revision()};
}

absl::StatusOr<Applier::ConfChangeVerdict> Applier::ApplyConfChange(const raft::Entry& entry) {
  ConfChangeVerdict verdict;
  if (entry.type == raft::EntryType::kConfChangeV2) {
    return BadEntry(entry, "no etcd or Engram member proposes a ConfChangeV2");
  }
  auto change = raft::DecodeConfChange(entry.data.view());
  if (!change.ok()) return BadEntry(entry, base::Message(change.status()));
  verdict.change = *std::move(change);
  if (entry.index <= s_.backend.consistent_index()) {
    verdict.skipped = true;
    return verdict;
  }
  cluster::ChangeContext context;
  if (!verdict.change.context.empty()) {
    auto decoded = cluster::DecodeChangeContext(verdict.change.context);
    if (!decoded.ok()) return BadEntry(entry, base::Message(decoded.status()));
    context = *std::move(decoded);
  }
  const uint64_t id = verdict.change.node_id;
  RETURN_IF_ERROR(s_.backend.BeginEntry());
  verdict.status = s_.membership.Validate(static_cast<int>(verdict.change.type), context, id);
  if (!verdict.status.ok()) {
    verdict.change.node_id = raft::kNoNode;  // every member refuses it alike
    s_.backend.EndEntry(entry.index, entry.term);
    return verdict;
  }
  context.member.id = id;
  std::string what = "added member";
  switch (verdict.change.type) {
    case raft::ConfChangeType::kAddNode:
    case raft::ConfChangeType::kAddLearnerNode:
      if (context.is_promote) {
        s_.membership.Promote(id);
        what = "promote member";
      } else {
        context.member.is_learner = verdict.change.type == raft::ConfChangeType::kAddLearnerNode;
        s_.membership.Add(context.member);
      }
      break;
    case raft::ConfChangeType::kRemoveNode:
      if (const auto view = s_.membership.view(); view->Find(id) != nullptr)
        context.member = *view->Find(id);
      s_.membership.Remove(id);
      what = "removed member";
      break;
    case raft::ConfChangeType::kUpdateNode:
      s_.membership.UpdatePeerUrls(id, context.member.peer_urls);
      what = "updated member";
      break;
  }
  const auto view = s_.membership.view();
  if (const cluster::Member* member = view->Find(id); member != nullptr) {
    s_.backend.Put(Bucket::kMembers, base::IdToHex(id), cluster::EncodeMember(*member));
    context.member = *member;
  } else {
    s_.backend.Delete(Bucket::kMembers, base::IdToHex(id));
    s_.backend.Put(Bucket::kMembersRemoved, base::IdToHex(id), "removed");
  }
  s_.backend.Put(Bucket::kMeta, "confState", ConfStateJson(*view));
  s_.backend.EndEntry(entry.index, entry.term);
  observer_->OnMembership(what, context.member);
  return verdict;
}

}  // namespace member
