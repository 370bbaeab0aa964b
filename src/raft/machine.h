// The raft state machine behind RawNode: roles, elections, replication, membership (raft paper and
// thesis; behaviour as etcd's). Not thread-safe; owned by a RawNode. Four files: machine.cc (terms,
// elections, configuration), leader.cc, follower.cc, check_message.cc (what a peer may send).
//
// Messages leave in two lists: those that may go at once, and those that must wait until all
// unstable entries and the hard state are durable, because they promise it (votes and append
// acknowledgements, those to this node itself included).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "raft/configuration.h"
#include "raft/log.h"
#include "raft/quorum.h"
#include "raft/raw_node.h"
#include "raft/read_queue.h"
#include "raft/storage.h"
#include "raft/types.h"

namespace raft {

class Machine {
 public:
  static absl::StatusOr<std::unique_ptr<Machine>> Create(const Config& config, LogStorage* storage,
                                                         base::Random* random);

  void Tick();
  // Takes in any message, a local one as well. Peers' messages must have passed CheckPeerMessage().
  absl::Status Step(Message message);
  // What Step() would be right to refuse or unable to survive; see the errors in raw_node.h.
  absl::Status CheckPeerMessage(const Message& message) const;

  absl::Status Bootstrap(std::span<const BootstrapPeer> peers);
  absl::StatusOr<ConfState> ApplyConfChange(const ConfChangeV2& change);
  absl::Status ForgetLeader();
  void SetRandomizedElectionTimeout(int ticks) { randomized_election_timeout_ = ticks; }

  const Config& config() const { return config_; }
  NodeId id() const { return config_.id; }
  Role role() const;
  NodeId lead() const { return lead_; }
  Term term() const { return term_; }
  HardState hard_state() const {
    return {.term = term_, .vote = vote_, .commit = log_.committed()};
  }
  SoftState soft_state() const { return {.lead = lead_, .role = role()}; }
  Log& log() { return log_; }
  const Log& log() const { return log_; }
  const Group& group() const { return group_; }
  NodeId lead_transferee() const;
  bool HasCommittedInTerm() const;
  bool IsOnlyVoter() const;
  bool is_learner() const;

  // Filled by the machine, emptied by RawNode.
  std::vector<Message> messages;
  std::vector<Message> messages_after_append;
  std::vector<ReadState> read_states;

 private:
  struct Follower {};
  struct Candidate {
    bool pre = false;
    std::map<NodeId, bool> votes;  // the first answer of each node counts
  };
  struct Leader {
    int heartbeat_elapsed = 0;
    NodeId transferee = kNoNode;
    // No configuration change may be proposed before this entry, the last one that may be a change,
    // is applied.
    Index pending_conf_index = 0;
    uint64_t uncommitted_bytes = 0;  // payload of the entries proposed here and not applied yet
    ReadQueue reads;
    // Reads that came before an entry of this term was committed: until then the commit index may
    // lie below what was acknowledged.
    std::vector<Message> early_reads;
  };
  enum class Campaign { kPreElection, kElection, kTransfer };

  Machine(const Config& config, LogStorage* storage, base::Random* random);

  // machine.cc
  absl::Status StepTerm(const Message& message, bool* drop);
  absl::Status StepStorageAppendResp(const Message& message);
  void HandleVote(const Message& message);
  void Hup(bool transfer);
  void StartCampaign(Campaign campaign);
  bool Promotable() const;
  // Whether an entry of (after, last] is a configuration change.
  bool HasConfChangeIn(Index after, Index last) const;
  void Reset(Term term);
  void BecomeFollower(Term term, NodeId lead);
  void BecomePreCandidate();
  void BecomeCandidate();
  void BecomeLeader();
  VoteResult Tally(const Candidate& candidate) const;
  absl::Status StepCandidate(Message message);
  void SwitchTo(Group group);
  void AppliedTo(Index index, uint64_t bytes);
  void AppliedSnapshot(const Snapshot& snapshot);
  void Send(Message message);
  NewMember NewMemberParameters() const;
  Leader* leader() { return std::get_if<Leader>(&role_); }
  const Leader* leader() const { return std::get_if<Leader>(&role_); }

  // leader.cc
  void TickLeader();
  absl::Status StepLeader(Message message);
  absl::Status ProposeAsLeader(Message message);
  void AppendAsLeader(std::vector<Entry> entries);
  void RefuseUnfitConfChanges(std::vector<Entry>* entries);
  void CheckQuorumActive();
  void HandleAppendResponse(const Message& message, Progress* progress);
  void HandleHeartbeatResponse(const Message& message, Progress* progress);
  void HandleTransferLeader(NodeId transferee, const Progress& progress);
  void HandleReadIndex(Message request);
  void StartRead(Message request);
  void AnswerRead(const Message& request, Index index);
  void AnswerConfirmedReads();
  void ReleaseEarlyReads();
  bool MaybeCommit();
  void SendAppend(NodeId to) { MaybeSendAppend(to, true); }
  bool MaybeSendAppend(NodeId to, bool even_if_empty);
  bool MaybeSendSnapshot(NodeId to, Progress* progress);
  void BroadcastAppend();
  void BroadcastHeartbeat();
  void SendTimeoutNow(NodeId to);
  void ReduceUncommitted(const std::vector<Entry>& applied);

  // follower.cc
  absl::Status StepFollower(Message message);
  absl::Status ForwardToLeader(Message message);
  void HandleLeaderMessage(Message message);
  void HandleAppend(Message message);
  void HandleHeartbeat(const Message& message);
  void HandleSnapshot(const Message& message);
  bool Restore(const SnapshotPtr& snapshot);

  // check_message.cc
  absl::Status CheckShape(const Message& message) const;
  absl::Status CheckAppend(const Message& message) const;
  absl::Status CheckSnapshot(const Message& message) const;
  absl::Status CheckLocalResponse(const Message& message) const;

  const Config config_;
  LogStorage* const storage_;
  base::Random* const random_;
  Log log_;
  Group group_;  // progress has meaning only for a leader

  Term term_ = 0;
  NodeId vote_ = kNoNode;  // in term_
  NodeId lead_ = kNoNode;  // of term_, as far as known
  std::variant<Follower, Candidate, Leader> role_;
  int election_elapsed_ = 0;  // ticks; for a leader since its last quorum check
  int randomized_election_timeout_ = 0;
};

inline constexpr std::string_view kCampaignTransfer = "CampaignTransfer";
inline constexpr std::string_view kProposalDropped = "raft proposal dropped";

absl::Status ProposalDropped();

}  // namespace raft
