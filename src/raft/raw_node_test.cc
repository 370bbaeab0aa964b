// Rules of RawNode that the scenarios do not reach: what peers may and may not send, reads, limits,
// restarts.
#include "raft/raw_node.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/random.h"
#include "base/testing.h"
#include "raft/codec.h"
#include "raft/describe.h"

namespace raft {
namespace {

using base::StatusIs;
using testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// One node of a group whose other members exist only as the messages a test makes up.
class Solo {
 public:
  explicit Solo(std::vector<NodeId> voters, Config config = {}, Index start = 1) : config_(config) {
    config_.id = 1;
    config_.election_ticks = 10;
    const auto snapshot = std::make_shared<const Snapshot>(Snapshot{
        .metadata = {.conf_state = {.voters = std::move(voters)}, .index = start, .term = 1}});
    CHECK(storage.ApplySnapshot(snapshot).ok());
    storage.SetHardState({.term = 1, .vote = 0, .commit = start});
    Restart();
  }

  void Restart() {
    auto made = RawNode::Create(config_, &storage, &random_);
    CHECK(made.ok());
    node = *std::move(made);
  }

  // Handles batches until nothing is left; gives all messages in order.
  std::vector<Message> Drain() {
    std::vector<Message> out;
    while (node->HasReady()) {
      Ready ready = node->TakeReady();
      if (!ready.hard_state.empty()) storage.SetHardState(ready.hard_state);
      if (ready.snapshot) CHECK(storage.ApplySnapshot(ready.snapshot).ok());
      storage.Append(ready.entries);
      for (const Entry& entry : ready.committed_entries) {
        applied.push_back(entry);
        if (entry.type == EntryType::kNormal) continue;
        const absl::StatusOr<ConfChangeV2> change = DecodeConfChangeEntry(entry);
        if (change.ok()) node->ApplyConfChange(*change).status().IgnoreError();
      }
      for (const ReadState& read : ready.read_states) reads.push_back(read);
      std::move(ready.messages.begin(), ready.messages.end(), std::back_inserter(out));
      std::move(ready.messages_after_write.begin(), ready.messages_after_write.end(),
                std::back_inserter(out));
      node->Advance();
    }
    return out;
  }

  // Makes the node leader, with `others` granting and acknowledging.
  void Lead(const std::vector<NodeId>& others) {
    node->Campaign();
    Drain();
    for (const NodeId id : others) {
      ASSERT_OK(
          node->Step({.type = MessageType::kVoteResp, .to = 1, .from = id, .term = node->term()}));
    }
    Drain();
    ASSERT_EQ(node->role(), Role::kLeader);
    for (const NodeId id : others) Acknowledge(id);
    Drain();
  }

  void Acknowledge(NodeId id) {
    ASSERT_OK(node->Step({.type = MessageType::kAppResp,
                          .to = 1,
                          .from = id,
                          .term = node->term(),
                          .index = node->last_index()}));
  }

  MemoryStorage storage;
  std::unique_ptr<RawNode> node;
  std::vector<Entry> applied;
  std::vector<ReadState> reads;

 private:
  Config config_;
  base::SeededRandom random_{5};
};

std::vector<Message> OfType(const std::vector<Message>& messages, MessageType type) {
  std::vector<Message> out;
  for (const Message& message : messages) {
    if (message.type == type) out.push_back(message);
  }
  return out;
}

TEST(RawNode, RefusesConfigurationsThatMakeNoSense) {
  MemoryStorage storage;
  base::SeededRandom random(1);
  const auto create = [&](Config config) {
    return RawNode::Create(config, &storage, &random).status();
  };
  EXPECT_OK(create({.id = 1}));
  EXPECT_THAT(create({.id = 0}), StatusIs(kInvalid));
  EXPECT_THAT(create({.id = kAppendThread}), StatusIs(kInvalid));
  EXPECT_THAT(create({.id = 1, .election_ticks = 1}), StatusIs(kInvalid));
  EXPECT_THAT(create({.id = 1, .max_inflight_msgs = 0}), StatusIs(kInvalid));
  EXPECT_THAT(create({.id = 1, .max_inflight_bytes = 5}), StatusIs(kInvalid));
  EXPECT_THAT(create({.id = 1, .read_only_option = ReadOnlyOption::kLeaseBased}),
              StatusIs(kInvalid));
  storage.SetHardState({.term = 3, .vote = 0, .commit = 9});
  EXPECT_THAT(create({.id = 1}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("the log ends at 0")));
}

TEST(RawNode, RaisesALaggingCommitIndexToWhatIsApplied) {
  Solo solo({1});
  solo.Lead({});
  ASSERT_OK(solo.node->Propose(Buffer::Copy("a")));
  solo.Drain();
  const Index last = solo.node->last_index();
  solo.storage.SetHardState({.term = solo.node->term(), .vote = 1, .commit = 1});
  base::SeededRandom random(1);
  ASSERT_OK_AND_ASSIGN(const auto again,
                       RawNode::Create({.id = 1, .applied = last}, &solo.storage, &random));
  EXPECT_EQ(again->commit_index(), last);
  EXPECT_EQ(again->applied_index(), last);
}

TEST(RawNode, ABootstrappedGroupElectsItsFirstLeaderInTermTwo) {
  MemoryStorage storage;
  base::SeededRandom random(1);
  ASSERT_OK_AND_ASSIGN(const auto node, RawNode::Create({.id = 7}, &storage, &random));
  const std::vector<BootstrapPeer> peers = {{.id = 7, .context = "me"}};
  ASSERT_OK(node->Bootstrap(peers));
  ASSERT_TRUE(node->HasReady());
  Ready ready = node->TakeReady();
  EXPECT_EQ(ready.hard_state, (HardState{.term = 1, .vote = 0, .commit = 1}));
  ASSERT_EQ(ready.entries.size(), 1u);
  // type AddNode, node 7, context, and no id.
  EXPECT_EQ(base::ToHex(ready.entries[0].data.view()),
            "10001807"
            "22026d65");
  ASSERT_EQ(ready.committed_entries.size(), 1u);
  storage.Append(ready.entries);
  ASSERT_OK_AND_ASSIGN(const ConfState state,
                       node->ApplyConfChange(*DecodeConfChangeEntry(ready.committed_entries[0])));
  EXPECT_EQ(state.voters, std::vector<NodeId>{7});
  node->Advance();
  node->Campaign();
  EXPECT_EQ(node->term(), 2u);
  node->TakeReady();
  node->Advance();
  EXPECT_EQ(node->role(), Role::kLeader);
  EXPECT_THAT(node->Bootstrap(peers), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(RawNode, RefusesWhatNoMemberSends) {
  Solo solo({1, 2, 3});
  solo.Lead({2});
  const Term term = solo.node->term();
  const Entry first{.term = term, .index = 5};
  const auto snapshot = [](Index index, Term t, ConfState state) {
    return std::make_shared<const Snapshot>(
        Snapshot{.metadata = {.conf_state = std::move(state), .index = index, .term = t}});
  };
  const ConfState fine{.voters = {1, 2, 3}};
  const Message ok{.type = MessageType::kHeartbeat, .to = 1, .from = 2, .term = term + 1};
  const std::vector<std::pair<std::string, std::function<void(Message&)>>> cases = {
      {"local", [](Message& m) { m.type = MessageType::kHup; }},
      {"storage", [](Message& m) { m.type = MessageType::kStorageAppendResp; }},
      {"storage worker", [](Message& m) { m.from = kAppendThread; }},
      {"no sender", [](Message& m) { m.from = 0; }},
      {"own sender", [](Message& m) { m.from = 1; }},
      {"other receiver", [](Message& m) { m.to = 2; }},
      {"no term", [](Message& m) { m.term = 0; }},
      {"huge term", [](Message& m) { m.term = UINT64_MAX; }},
      {"huge index", [](Message& m) { m.index = UINT64_MAX; }},
      {"proposal with a term",
       [](Message& m) {
         m.type = MessageType::kProp;
         m.entries.resize(1);
       }},
      {"empty proposal",
       [](Message& m) {
         m.type = MessageType::kProp;
         m.term = 0;
       }},
      {"proposal of a broken change",
       [](Message& m) {
         m.type = MessageType::kProp;
         m.term = 0;
         m.entries.push_back({.type = EntryType::kConfChange, .data = Buffer::Copy("\x08")});
       }},
      {"read of nothing",
       [](Message& m) {
         m.type = MessageType::kReadIndex;
         m.term = 0;
       }},
      {"two reads",
       [](Message& m) {
         m.type = MessageType::kReadIndexResp;
         m.entries.resize(2);
       }},
      {"gap",
       [&](Message& m) {
         m.type = MessageType::kApp;
         m.index = 3;
         m.log_term = 1;
         m.entries = {first};
       }},
      {"entry of the future",
       [&](Message& m) {
         m.type = MessageType::kApp;
         m.index = 4;
         m.log_term = 1;
         m.entries = {{.term = term + 2, .index = 5}};
       }},
      {"entry of no term",
       [&](Message& m) {
         m.type = MessageType::kApp;
         m.index = 4;
         m.log_term = 1;
         m.entries = {{.term = 0, .index = 5}};
       }},
      {"terms that fall",
       [&](Message& m) {
         m.type = MessageType::kApp;
         m.index = 4;
         m.log_term = term;
         m.entries = {{.term = 1, .index = 5}};
       }},
      {"no snapshot", [](Message& m) { m.type = MessageType::kSnap; }},
      {"empty snapshot",
       [&](Message& m) {
         m.type = MessageType::kSnap;
         m.snapshot = snapshot(0, 0, fine);
       }},
      {"snapshot of the future",
       [&](Message& m) {
         m.type = MessageType::kSnap;
         m.snapshot = snapshot(9, term + 2, fine);
       }},
      {"snapshot without voters",
       [&](Message& m) {
         m.type = MessageType::kSnap;
         m.snapshot = snapshot(9, term, {});
       }},
      {"snapshot of a broken configuration",
       [&](Message& m) {
         m.type = MessageType::kSnap;
         m.snapshot = snapshot(9, term, {.voters = {1, 2}, .learners = {2}});
       }},
  };
  for (const auto& [name, spoil] : cases) {
    Message message = ok;
    spoil(message);
    EXPECT_THAT(solo.node->Step(message), StatusIs(kInvalid)) << name;
    EXPECT_EQ(solo.node->term(), term) << name;
    EXPECT_EQ(solo.node->role(), Role::kLeader) << name;
    EXPECT_FALSE(solo.node->HasReady()) << name;
  }
  EXPECT_THAT(solo.node->Step({.type = MessageType::kAppResp, .to = 1, .from = 9, .term = term}),
              StatusIs(absl::StatusCode::kNotFound, "raft: cannot step as peer not found"));
  EXPECT_OK(solo.node->Step(ok));
  EXPECT_EQ(solo.node->term(), term + 1);
}

TEST(RawNode, SaysSoWhenItsLogHasLostEntries) {
  Solo solo({1, 2, 3});
  EXPECT_THAT(solo.node->Step(
                  {.type = MessageType::kHeartbeat, .to = 1, .from = 2, .term = 2, .commit = 10}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("entry 10")));
  EXPECT_EQ(solo.node->term(), 1u);
  EXPECT_EQ(solo.node->lead(), kNoNode);
  solo.Lead({2});
  EXPECT_THAT(solo.node->Step({.type = MessageType::kAppResp,
                               .to = 1,
                               .from = 2,
                               .term = solo.node->term(),
                               .index = solo.node->last_index() + 1}),
              StatusIs(absl::StatusCode::kDataLoss));
}

// The context of a heartbeat belongs to whoever leads: 3.6 and 3.7 use it differently, and a peer
// may send anything.
TEST(RawNode, EchoesHeartbeatContextsVerbatim) {
  Solo solo({1, 2, 3});
  for (const std::string& context :
       {std::string("\x01"), std::string("12345678"), std::string(20, 'x')}) {
    ASSERT_OK(solo.node->Step({.type = MessageType::kHeartbeat,
                               .to = 1,
                               .from = 2,
                               .term = 2,
                               .context = Buffer::Copy(context)}));
    const std::vector<Message> out = solo.Drain();
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(out[0].context.view(), context);
  }
}

TEST(RawNode, CountsReadsInHeartbeatContexts) {
  Solo solo({1, 2, 3});
  solo.Lead({2});
  const auto echo = [&](std::string_view context) {
    ASSERT_OK(solo.node->Step({.type = MessageType::kHeartbeatResp,
                               .to = 1,
                               .from = 2,
                               .term = solo.node->term(),
                               .context = Buffer::Copy(context)}));
  };
  solo.node->ReadIndex(Buffer::Copy("local"));
  Message remote{.type = MessageType::kReadIndex, .to = 1, .from = 3};
  remote.entries.push_back({.data = Buffer::Copy("remote")});
  ASSERT_OK(solo.node->Step(remote));
  const auto heartbeats = OfType(solo.Drain(), MessageType::kHeartbeat);
  ASSERT_EQ(heartbeats.size(), 4u);
  EXPECT_EQ(base::ToHex(heartbeats[0].context.view()), "0100000000000000");
  EXPECT_EQ(base::ToHex(heartbeats[3].context.view()), "0200000000000000");

  echo("\x02");                                // too short
  echo(std::string("\xff\0\0\0\0\0\0\0", 8));  // never asked
  EXPECT_TRUE(solo.Drain().empty());
  EXPECT_TRUE(solo.reads.empty());

  echo(heartbeats[3].context.view());
  const auto answers = OfType(solo.Drain(), MessageType::kReadIndexResp);
  ASSERT_EQ(solo.reads.size(), 1u);
  EXPECT_EQ(solo.reads[0],
            (ReadState{.index = solo.node->commit_index(), .context = Buffer::Copy("local")}));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].to, 3u);
  EXPECT_EQ(answers[0].index, solo.node->commit_index());
  EXPECT_EQ(answers[0].entries[0].data.view(), "remote");

  // Numbers go on counting; without waiting reads there is no context.
  solo.node->Tick();
  EXPECT_TRUE(OfType(solo.Drain(), MessageType::kHeartbeat).at(0).context.empty());
  solo.node->ReadIndex(Buffer::Copy("third"));
  EXPECT_EQ(base::ToHex(OfType(solo.Drain(), MessageType::kHeartbeat).at(0).context.view()),
            "0300000000000000");
}

TEST(RawNode, ReadsWaitForTheFirstCommitOfTheTerm) {
  Solo solo({1, 2, 3});
  solo.node->Campaign();
  solo.Drain();
  ASSERT_OK(solo.node->Step({.type = MessageType::kVoteResp, .to = 1, .from = 2, .term = 2}));
  solo.Drain();
  ASSERT_EQ(solo.node->role(), Role::kLeader);
  EXPECT_FALSE(solo.node->HasCommittedInTerm());
  solo.node->ReadIndex(Buffer::Copy("early"));
  EXPECT_TRUE(OfType(solo.Drain(), MessageType::kHeartbeat).empty());
  solo.Acknowledge(2);
  const auto heartbeats = OfType(solo.Drain(), MessageType::kHeartbeat);
  EXPECT_TRUE(solo.node->HasCommittedInTerm());
  ASSERT_EQ(heartbeats.size(), 2u);
  EXPECT_FALSE(heartbeats[0].context.empty());
}

TEST(RawNode, TheOnlyVoterReadsAtOnce) {
  Solo solo({1});
  solo.Lead({});
  EXPECT_TRUE(solo.node->IsOnlyVoter());
  solo.node->ReadIndex(Buffer::Copy("r"));
  EXPECT_TRUE(solo.Drain().empty());
  ASSERT_EQ(solo.reads.size(), 1u);
}

// A leader that removed itself must not take the one voter that is left for itself.
TEST(RawNode, ARemovedLeaderIsNotTheOnlyVoter) {
  Solo solo({1, 2});
  solo.Lead({2});
  ASSERT_OK(
      solo.node->ProposeConfChange(ConfChange{.type = ConfChangeType::kRemoveNode, .node_id = 1}));
  solo.Drain();
  solo.Acknowledge(2);
  solo.Drain();
  EXPECT_EQ(solo.node->conf_state().voters, std::vector<NodeId>{2});
  EXPECT_FALSE(solo.node->IsOnlyVoter());
  solo.node->ReadIndex(Buffer::Copy("r"));
  solo.Drain();
  EXPECT_TRUE(solo.reads.empty());
}

TEST(RawNode, DropsProposalsBeyondTheUncommittedLimit) {
  Solo solo({1, 2}, {.max_uncommitted_entries_size = 100});
  solo.Lead({2});
  const Buffer data = Buffer::Own(std::string(60, 'x'));
  EXPECT_OK(solo.node->Propose(data));
  EXPECT_THAT(solo.node->Propose(data),
              StatusIs(absl::StatusCode::kUnavailable, "raft proposal dropped"));
  // Entries without payload always pass, such as the one that leaves a joint configuration.
  EXPECT_OK(solo.node->Propose(Buffer()));
  solo.Drain();
  solo.Acknowledge(2);
  solo.Drain();
  EXPECT_OK(solo.node->Propose(data));
}

TEST(RawNode, ProposesABatchInOneAppend) {
  Solo solo({1, 2, 3});
  solo.Lead({2, 3});
  std::vector<Entry> batch(100);
  for (Entry& entry : batch) entry.data = Buffer::Copy("v");
  const char* bytes = batch[0].data.view().data();
  ASSERT_OK(solo.node->ProposeBatch(std::move(batch)));
  Ready ready = solo.node->TakeReady();
  EXPECT_EQ(ready.entries.size(), 100u);
  // Shared, not copied.
  EXPECT_EQ(ready.entries[0].data.view().data(), bytes);
  ASSERT_EQ(ready.messages.size(), 2u);
  EXPECT_EQ(ready.messages[0].entries.size(), 100u);
  EXPECT_EQ(ready.messages[0].entries[0].data.view().data(), bytes);
  EXPECT_TRUE(ready.messages_after_write.empty());
  EXPECT_TRUE(ready.must_sync);
}

TEST(RawNode, OnlyALeaderSendsBeforeItsWrite) {
  Solo solo({1, 2, 3});
  solo.node->Campaign();
  Ready ready = solo.node->TakeReady();
  EXPECT_TRUE(ready.messages.empty());
  EXPECT_EQ(ready.messages_after_write.size(), 2u);
  EXPECT_TRUE(ready.must_sync);
  solo.storage.SetHardState(ready.hard_state);
  solo.node->Advance();
}

TEST(RawNode, HandsOutNoMoreThanTheLimitBeforeItIsApplied) {
  Solo solo({1}, {.max_committed_size_per_ready = 40});
  solo.Lead({});
  for (int i = 0; i < 6; ++i) ASSERT_OK(solo.node->Propose(Buffer::Own(std::string(10, 'x'))));
  solo.applied.clear();
  size_t batches = 0;
  while (solo.node->HasReady()) {
    Ready ready = solo.node->TakeReady();
    EXPECT_LE(ready.committed_entries.size(), 2u);
    batches += ready.committed_entries.empty() ? 0 : 1;
    solo.storage.Append(ready.entries);
    solo.node->Advance();
  }
  EXPECT_EQ(batches, 3u);
}

TEST(RawNode, TransferWaitsUntilTheTargetHasCaughtUp) {
  Solo solo({1, 2, 3});
  solo.Lead({2});
  ASSERT_OK(solo.node->Propose(Buffer::Copy("a")));
  solo.Drain();
  solo.node->TransferLeader(2);
  EXPECT_TRUE(OfType(solo.Drain(), MessageType::kTimeoutNow).empty());
  EXPECT_THAT(solo.node->Propose(Buffer::Copy("b")), StatusIs(absl::StatusCode::kUnavailable));
  solo.Acknowledge(2);
  const auto now = OfType(solo.Drain(), MessageType::kTimeoutNow);
  ASSERT_EQ(now.size(), 1u);
  EXPECT_EQ(now[0].to, 2u);
  for (int i = 0; i < 10; ++i) solo.node->Tick();
  solo.Drain();
  EXPECT_OK(solo.node->Propose(Buffer::Copy("c")));
}

TEST(RawNode, NewMembersAreProbedJustBelowTheEndOfTheLog) {
  Solo solo({1});
  solo.Lead({});
  for (int i = 0; i < 5; ++i) ASSERT_OK(solo.node->Propose(Buffer::Copy("x")));
  solo.Drain();
  ASSERT_OK(
      solo.node->ProposeConfChange(ConfChange{.type = ConfChangeType::kAddNode, .node_id = 2}));
  const auto appends = OfType(solo.Drain(), MessageType::kApp);
  ASSERT_EQ(appends.size(), 1u);
  EXPECT_EQ(appends[0].index, solo.node->last_index() - 1);
}

TEST(RawNode, AConfChangeThatFitsNothingIsRefusedByEveryone) {
  Solo solo({1});
  solo.Lead({});
  const ConfChangeV2 remove{.changes = {{.type = ConfChangeType::kRemoveNode, .node_id = 1}}};
  EXPECT_THAT(solo.node->ApplyConfChange(remove), StatusIs(kInvalid, "removed all voters"));
  const ConfChangeV2 reserved{.changes = {{.node_id = kAppendThread}}};
  EXPECT_THAT(solo.node->ApplyConfChange(reserved), StatusIs(kInvalid));
  EXPECT_EQ(solo.node->conf_state().voters, std::vector<NodeId>{1});
  Entry broken{.type = EntryType::kConfChangeV2, .data = Buffer::Copy("\x08\x09")};
  EXPECT_THAT(solo.node->ProposeBatch({broken}), StatusIs(kInvalid));
}

// Messages of every kind with fields of every kind, from peers that may lie about anything:
// whatever happens, no CHECK fails.
TEST(RawNode, SurvivesHostilePeers) {
  const char* fixed = std::getenv("ENGRAM_TEST_SEED");
  const uint64_t first = fixed != nullptr ? std::strtoull(fixed, nullptr, 10) : 1;
  for (uint64_t seed = first; seed < first + (fixed != nullptr ? 1 : 200); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    base::SeededRandom random(seed);
    Config config;
    config.check_quorum = random.OneIn(2);
    config.pre_vote = random.OneIn(2);
    config.max_inflight_msgs = 2;
    Solo solo({1, 2, 3}, config, 5);
    for (int round = 0; round < 400; ++round) {
      const Index last = solo.node->last_index();
      const auto index = [&]() -> Index {
        return random.OneIn(8) ? random.Next() : random.Below(last + 4);
      };
      const auto term = [&]() -> Term {
        return random.OneIn(16) ? random.Next() : random.Below(solo.node->term() + 2);
      };
      Message m{.type = static_cast<MessageType>(random.Below(kMessageTypeCount)),
                .reject = random.OneIn(2),
                .to = 1,
                .from = 1 + random.Below(4),
                .term = random.OneIn(3) ? solo.node->term() : term(),
                .log_term = term(),
                .index = index(),
                .commit = index(),
                .reject_hint = index()};
      for (uint64_t i = random.Below(3); i > 0; --i) {
        m.entries.push_back({.term = m.term,
                             .index = m.index + m.entries.size() + 1,
                             .type = static_cast<EntryType>(random.Below(3))});
        if (random.OneIn(2)) {
          std::string data;
          EncodeConfChangeV2({.transition = static_cast<ConfChangeTransition>(random.Below(3)),
                              .changes = {{.type = static_cast<ConfChangeType>(random.Below(4)),
                                           .node_id = random.Below(5)}}},
                             &data);
          m.entries.back().data = Buffer::Own(data);
        }
      }
      if (m.type == MessageType::kProp || m.type == MessageType::kReadIndex) m.term = 0;
      if (random.OneIn(2)) m.context = Buffer::Own(std::string(random.Below(10), '\1'));
      if (random.OneIn(2)) {
        m.snapshot = std::make_shared<const Snapshot>(
            Snapshot{.metadata = {.conf_state = {.voters = {1 + random.Below(3), 4}},
                                  .index = index(),
                                  .term = term()}});
      }
      solo.node->Step(m).IgnoreError();
      if (random.OneIn(3)) solo.node->Tick();
      if (random.OneIn(5)) solo.node->Propose(Buffer::Copy("p")).IgnoreError();
      if (random.OneIn(40)) solo.node->Campaign();
      if (random.OneIn(2)) solo.Drain();
    }
  }
}

TEST(MemoryStorage, KeepsTheNewestOfWhatIsAppended) {
  MemoryStorage storage;
  const auto entries = [](Index from, Index to, Term term) {
    std::vector<Entry> out;
    for (Index i = from; i <= to; ++i)
      out.push_back({.term = term, .index = i, .data = Buffer::Copy("abc")});
    return out;
  };
  storage.Append(entries(1, 300, 1));
  EXPECT_EQ(storage.LastIndex(), 300u);
  ASSERT_OK(storage.Compact(250));
  EXPECT_EQ(storage.FirstIndex(), 251u);
  EXPECT_EQ(storage.TermAt(250), 1u);
  EXPECT_EQ(storage.TermAt(249), std::nullopt);
  EXPECT_THAT(storage.Compact(250), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(storage.Compact(301), StatusIs(kInvalid));
  storage.Append(entries(240, 270, 2));
  EXPECT_EQ(storage.LastIndex(), 270u);
  EXPECT_EQ(storage.EntryCount(), 20u);
  EXPECT_EQ(storage.TermAt(260), 2u);
  std::vector<Entry> out;
  EXPECT_THAT(storage.Entries(250, 260, kNoLimit, &out), StatusIs(absl::StatusCode::kOutOfRange));
  ASSERT_OK(storage.Entries(251, 271, 1, &out));
  EXPECT_EQ(out.size(), 1u);
  out.clear();
  ASSERT_OK(
      storage.Entries(251, 271, 3 * out.size() + 3 * entries(251, 251, 2)[0].EncodedBytes(), &out));
  EXPECT_EQ(out.size(), 3u);
  const size_t bytes = storage.MemoryBytes();
  ASSERT_OK(storage.Compact(270));
  EXPECT_LE(storage.MemoryBytes(), bytes - 60);
  ASSERT_OK_AND_ASSIGN(const SnapshotPtr snapshot,
                       storage.CreateSnapshot(270, {.voters = {1}}, Buffer()));
  EXPECT_EQ(snapshot->metadata.term, 2u);
  EXPECT_THAT(storage.ApplySnapshot(snapshot), StatusIs(absl::StatusCode::kOutOfRange));
}

}  // namespace
}  // namespace raft
