#include "raft/raw_node.h"

#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "raft/codec.h"
#include "raft/machine.h"

namespace raft {
namespace {

// Only entries and votes must not be lost: a commit index is learnt again, so it may wait for the
// next write.
bool MustSync(const HardState& now, const HardState& before, bool has_entries) {
  return has_entries || now.term != before.term || now.vote != before.vote;
}

Message StorageApplyResponse(NodeId self, const std::vector<Entry>& entries) {
  return {
      .type = MessageType::kStorageApplyResp, .to = self, .from = kApplyThread, .entries = entries};
}

}  // namespace

RawNode::RawNode(std::unique_ptr<Machine> machine, bool async_storage_writes)
    : machine_(std::move(machine)),
      async_(async_storage_writes),
      last_soft_state_(machine_->soft_state()),
      last_hard_state_(machine_->hard_state()) {}

RawNode::~RawNode() = default;

absl::StatusOr<std::unique_ptr<RawNode>> RawNode::Create(const Config& config, LogStorage* storage,
                                                         base::Random* random) {
  ASSIGN_OR_RETURN(std::unique_ptr<Machine> machine, Machine::Create(config, storage, random));
  return std::unique_ptr<RawNode>(new RawNode(std::move(machine), config.async_storage_writes));
}

absl::Status RawNode::Bootstrap(std::span<const BootstrapPeer> peers) {
  RETURN_IF_ERROR(machine_->Bootstrap(peers));
  // Nothing of it is stored yet: the first Ready must carry the whole hard state.
  last_hard_state_ = HardState();
  return absl::OkStatus();
}

void RawNode::Tick() { machine_->Tick(); }

void RawNode::Campaign() { CHECK(machine_->Step({.type = MessageType::kHup}).ok()); }

absl::Status RawNode::Propose(Buffer data) {
  std::vector<Entry> entries;
  entries.push_back({.data = std::move(data)});
  return ProposeBatch(std::move(entries));
}

absl::Status RawNode::ProposeBatch(std::vector<Entry> entries) {
  if (entries.empty()) return absl::OkStatus();
  for (const Entry& entry : entries) {
    if (entry.type == EntryType::kNormal) continue;
    if (const auto change = DecodeConfChangeEntry(entry); !change.ok()) return change.status();
  }
  return machine_->Step(
      {.type = MessageType::kProp, .from = machine_->id(), .entries = std::move(entries)});
}

absl::Status RawNode::ProposeConfChange(const ConfChange& change) {
  std::string data;
  EncodeConfChange(change, &data);
  std::vector<Entry> entries;
  entries.push_back({.type = EntryType::kConfChange, .data = Buffer::Own(std::move(data))});
  return ProposeBatch(std::move(entries));
}

absl::Status RawNode::ProposeConfChange(const ConfChangeV2& change) {
  std::string data;
  EncodeConfChangeV2(change, &data);
  std::vector<Entry> entries;
  entries.push_back({.type = EntryType::kConfChangeV2, .data = Buffer::Own(std::move(data))});
  return ProposeBatch(std::move(entries));
}

absl::StatusOr<ConfState> RawNode::ApplyConfChange(const ConfChangeV2& change) {
  return machine_->ApplyConfChange(change);
}

absl::Status RawNode::Step(Message message) {
  RETURN_IF_ERROR(machine_->CheckPeerMessage(message));
  return machine_->Step(std::move(message));
}

void RawNode::ReadIndex(Buffer context) {
  Message request{.type = MessageType::kReadIndex};
  request.entries.push_back({.data = std::move(context)});
  CHECK(machine_->Step(std::move(request)).ok());
}

void RawNode::TransferLeader(NodeId transferee) {
  CHECK(machine_->Step({.type = MessageType::kTransferLeader, .from = transferee}).ok());
}

absl::Status RawNode::ForgetLeader() { return machine_->ForgetLeader(); }

void RawNode::ReportUnreachable(NodeId id) {
  CHECK(machine_->Step({.type = MessageType::kUnreachable, .from = id}).ok());
}

void RawNode::ReportSnapshot(NodeId id, bool ok) {
  CHECK(machine_->Step({.type = MessageType::kSnapStatus, .reject = !ok, .from = id}).ok());
}

bool RawNode::HasReady() const {
  const Machine& m = *machine_;
  return !m.messages.empty() || !m.messages_after_append.empty() || !m.read_states.empty() ||
         !m.log().unstable().NewEntries().empty() || m.log().unstable().NewSnapshot() ||
         m.log().HasNextCommitted(!async_) || m.soft_state() != last_soft_state_ ||
         m.hard_state() != last_hard_state_;
}

Ready RawNode::TakeReady() {
  CHECK(!ready_taken_);
  Machine& m = *machine_;
  Ready ready;
  if (const SoftState soft = m.soft_state(); soft != last_soft_state_) ready.soft_state = soft;
  const HardState hard = m.hard_state();
  if (hard != last_hard_state_) ready.hard_state = hard;
  const std::span<const Entry> unstable = m.log().unstable().NewEntries();
  ready.entries.assign(unstable.begin(), unstable.end());
  ready.snapshot = m.log().unstable().NewSnapshot();
  uint64_t committed_bytes = 0;
  ready.committed_entries = m.log().NextCommitted(!async_, &committed_bytes);
  ready.must_sync = MustSync(hard, last_hard_state_, !ready.entries.empty());
  ready.read_states.swap(m.read_states);

  if (async_) {
    ready.messages.swap(m.messages);
    if (NeedStorageAppend(ready)) ready.messages.push_back(MakeStorageAppend(ready));
    if (!ready.committed_entries.empty()) {
      Message apply{.type = MessageType::kStorageApply,
                    .to = kApplyThread,
                    .from = m.id(),
                    .entries = ready.committed_entries};
      apply.responses.push_back(StorageApplyResponse(m.id(), ready.committed_entries));
      ready.messages.push_back(std::move(apply));
    }
  } else {
    // A leader's appends may overtake its own write, since its own acknowledgement waits for it
    // (thesis §10.2.1). A candidate's requests speak of a term and a log that must not be lost any
    // more.
    const bool is_leader = m.role() == Role::kLeader;
    (is_leader ? ready.messages : ready.messages_after_write).swap(m.messages);
    for (Message& message : m.messages_after_append) {
      (message.to == m.id() ? self_steps_ : ready.messages_after_write)
          .push_back(std::move(message));
    }
    const Unstable& rest = m.log().unstable();
    if (!rest.empty() || rest.snapshot())
      self_steps_.push_back(MakeStorageAppendResponse(ready.snapshot));
    if (!ready.committed_entries.empty()) {
      self_steps_.push_back(StorageApplyResponse(m.id(), ready.committed_entries));
    }
    ready_taken_ = true;
  }
  m.messages.clear();
  m.messages_after_append.clear();

  if (ready.soft_state) last_soft_state_ = *ready.soft_state;
  last_hard_state_ = hard;
  m.log().AcceptUnstable();
  if (!ready.committed_entries.empty()) {
    m.log().AcceptApplying(ready.committed_entries.back().index, committed_bytes, !async_);
  }
  return ready;
}

bool RawNode::NeedStorageAppend(const Ready& ready) const {
  return !ready.entries.empty() || !ready.hard_state.empty() || ready.snapshot ||
         !machine_->messages_after_append.empty();
}

Message RawNode::MakeStorageAppend(const Ready& ready) {
  Message append{.type = MessageType::kStorageAppend,
                 .to = kAppendThread,
                 .from = machine_->id(),
                 .term = ready.hard_state.term,
                 .commit = ready.hard_state.commit,
                 .vote = ready.hard_state.vote,
                 .entries = ready.entries,
                 .snapshot = ready.snapshot};
  append.responses.swap(machine_->messages_after_append);
  const Unstable& unstable = machine_->log().unstable();
  if (!unstable.empty() || unstable.snapshot()) {
    append.responses.push_back(MakeStorageAppendResponse(ready.snapshot));
  }
  return append;
}

// Acknowledges everything unstable, including what earlier batches carried: the writes happen in
// order. It bears the present term, and is ignored when it comes back in a later one, for by then
// the entries may have been replaced by others that are still being written, and replaced again by
// equal ones (the ABA problem).
Message RawNode::MakeStorageAppendResponse(const SnapshotPtr& snapshot) const {
  Message response{.type = MessageType::kStorageAppendResp,
                   .to = machine_->id(),
                   .from = kAppendThread,
                   .term = machine_->term(),
                   .snapshot = snapshot};
  if (!machine_->log().unstable().empty()) {
    const EntryId last = machine_->log().LastId();
    response.log_term = last.term;
    response.index = last.index;
  }
  return response;
}

void RawNode::Advance() {
  CHECK(!async_);
  CHECK(ready_taken_);
  ready_taken_ = false;
  // A step may propose and thereby add messages for the next batch, but not to this list: it is
  // filled by TakeReady() only.
  for (Message& message : self_steps_) CHECK(machine_->Step(std::move(message)).ok());
  self_steps_.clear();
}

Role RawNode::role() const { return machine_->role(); }
NodeId RawNode::lead() const { return machine_->lead(); }
Term RawNode::term() const { return machine_->term(); }
Index RawNode::commit_index() const { return machine_->log().committed(); }
Index RawNode::applied_index() const { return machine_->log().applied(); }
Index RawNode::last_index() const { return machine_->log().last_index(); }
bool RawNode::HasCommittedInTerm() const { return machine_->HasCommittedInTerm(); }
bool RawNode::IsOnlyVoter() const { return machine_->IsOnlyVoter(); }
ConfState RawNode::conf_state() const { return machine_->group().config.ToConfState(); }

NodeStatus RawNode::GetStatus() const {
  NodeStatus status{.id = machine_->id(),
                    .hard_state = machine_->hard_state(),
                    .soft_state = machine_->soft_state(),
                    .applied = machine_->log().applied(),
                    .lead_transferee = machine_->lead_transferee(),
                    .conf_state = conf_state(),
                    .progress = {}};
  if (machine_->role() != Role::kLeader) return status;
  for (const auto& [id, progress] : machine_->group().progress) {
    status.progress.push_back({.id = id,
                               .state = progress.state(),
                               .match = progress.match(),
                               .next = progress.next(),
                               .pending_snapshot = progress.pending_snapshot(),
                               .learner = progress.is_learner,
                               .recent_active = progress.recent_active,
                               .paused = progress.paused(),
                               .inflight_messages = progress.inflights().count(),
                               .inflight_full = progress.inflights().full()});
  }
  return status;
}

void RawNode::SetRandomizedElectionTimeout(int ticks) {
  machine_->SetRandomizedElectionTimeout(ticks);
}

}  // namespace raft
