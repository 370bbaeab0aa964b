// Plays the scenarios of tests/data/raft: each command drives one node or a whole cluster, and what
// happens must be, word for word, what the file says. The command language is described in
// docs/internals/raft.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "base/status.h"
#include "raft/datadriven.h"
#include "raft/describe.h"
#include "raft/raw_node.h"

namespace raft {
namespace {

using datadriven::Case;
using describe::Describe;
using describe::Indent;

// A log whose snapshot is always the newest state of the application.
class ScenarioStorage final : public LogStorage {
 public:
  absl::StatusOr<InitialState> Load() override { return memory.Load(); }
  Index FirstIndex() const override { return memory.FirstIndex(); }
  Index LastIndex() const override { return memory.LastIndex(); }
  std::optional<Term> TermAt(Index index) const override { return memory.TermAt(index); }
  absl::Status Entries(Index low, Index high, uint64_t bytes_max,
                       std::vector<Entry>* out) const override {
    return memory.Entries(low, high, bytes_max, out);
  }
  absl::StatusOr<SnapshotPtr> GetSnapshot() override { return newest; }

  MemoryStorage memory;
  SnapshotPtr newest = std::make_shared<const Snapshot>();
};

struct Node {
  Config config;
  ScenarioStorage storage;
  base::SeededRandom random{1};
  std::unique_ptr<RawNode> raw;
  std::deque<Message> append_work;
  std::deque<Message> apply_work;
};

bool StaysOnNode(const Message& m) {
  return m.from == m.to || m.from == kAppendThread || m.from == kApplyThread ||
         m.to == kAppendThread || m.to == kApplyThread;
}

class Scenario {
 public:
  std::string Run(const Case& c) {
    out_.clear();
    const std::string level = c.Value("log-level", "");
    const bool was_silent = silent_;
    if (!level.empty()) silent_ = level == "none";
    Dispatch(c);
    if (!level.empty()) silent_ = was_silent;
    return out_.empty() ? "ok\n" : out_;
  }

 private:
  Node& At(uint64_t id) { return *nodes_.at(id - 1); }

  void Print(std::string_view text) {
    if (!silent_) out_ += text;
  }
  // Errors are shown whatever the level.
  void PrintError(const absl::Status& status) {
    if (!status.ok()) out_ += fmt::format("{}\n", base::Message(status));
  }
  void Nested(const std::function<void()>& body) {
    std::string before;
    before.swap(out_);
    body();
    out_ = before + Indent(out_);
  }

  void Dispatch(const Case& c) {
    const std::vector<uint64_t> ids = c.Ids();
    const std::string& command = c.command;
    if (command == "log-level") {
      silent_ = c.arguments.at(0).key == "none";
    } else if (command == "add-nodes") {
      AddNodes(c, ids.at(0));
    } else if (command == "campaign") {
      At(ids.at(0)).raw->Campaign();
    } else if (command == "propose") {
      PrintError(At(ids.at(0)).raw->Propose(Buffer::Copy(c.arguments.at(1).key)));
    } else if (command == "propose-conf-change") {
      ProposeConfChange(c, ids.at(0));
    } else if (command == "process-ready") {
      ForEach(ids, "handling Ready", [this](uint64_t id) { ProcessReady(id); });
    } else if (command == "process-append-thread") {
      ForEach(ids, "processing append thread", [this](uint64_t id) { ProcessAppend(id); });
    } else if (command == "process-apply-thread") {
      ForEach(ids, "processing apply thread", [this](uint64_t id) { ProcessApply(id); });
    } else if (command == "deliver-msgs") {
      DeliverCommand(c, ids);
    } else if (command == "stabilize") {
      Stabilize(ids);
    } else if (command == "tick-election" || command == "tick-heartbeat") {
      Node& node = At(ids.at(0));
      const int ticks =
          command == "tick-election" ? node.config.election_ticks : node.config.heartbeat_ticks;
      for (int i = 0; i < ticks; ++i) node.raw->Tick();
    } else if (command == "set-randomized-election-timeout") {
      At(ids.at(0)).raw->SetRandomizedElectionTimeout(static_cast<int>(c.Number("timeout", 0)));
    } else if (command == "compact") {
      PrintError(At(ids.at(0)).storage.memory.Compact(ids.at(1)));
      PrintLog(ids.at(0));
    } else if (command == "raft-log") {
      PrintLog(ids.at(0));
    } else if (command == "raft-state") {
      PrintRoles();
    } else if (command == "status") {
      for (const MemberProgress& progress : At(ids.at(0)).raw->GetStatus().progress) {
        Print(fmt::format("{}: {}\n", progress.id, Describe(progress)));
      }
    } else if (command == "transfer-leadership") {
      At(c.Number("from", 0)).raw->TransferLeader(c.Number("to", 0));
    } else if (command == "forget-leader") {
      // With lease-based reads this is refused, of which the file has only a log line.
      At(ids.at(0)).raw->ForgetLeader().IgnoreError();
    } else if (command == "report-unreachable") {
      At(ids.at(0)).raw->ReportUnreachable(ids.at(1));
    } else if (command == "send-snapshot") {
      SendSnapshot(ids.at(0), ids.at(1));
    } else if (command != "_breakpoint") {
      out_ += "unknown command\n";
    }
  }

  void ForEach(const std::vector<uint64_t>& ids, std::string_view what,
               const std::function<void(uint64_t)>& body) {
    for (const uint64_t id : ids) {
      if (ids.size() == 1) {
        body(id);
        continue;
      }
      Print(fmt::format("> {} {}\n", id, what));
      Nested([&] { body(id); });
    }
  }

  void AddNodes(const Case& c, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      auto node = std::make_unique<Node>();
      Config& config = node->config;
      config = {.id = nodes_.size() + 1, .election_ticks = 3, .heartbeat_ticks = 1};
      config.applied = c.Number("index", 0);
      config.async_storage_writes = c.Flag("async-storage-writes");
      config.max_size_per_msg = kNoLimit;
      config.max_committed_size_per_ready = c.Number("max-committed-size-per-ready", 0);
      config.max_inflight_msgs = c.Number("inflight", INT32_MAX);
      config.check_quorum = c.Flag("checkquorum");
      config.pre_vote = c.Flag("prevote");
      config.disable_conf_change_validation = c.Flag("disable-conf-change-validation");
      config.step_down_on_removal = c.Flag("step-down-on-removal");
      if (c.Value("read-only", "safe") == "lease-based") {
        config.read_only_option = ReadOnlyOption::kLeaseBased;
      }
      if (config.applied != 0) {
        node->storage.newest = std::make_shared<const Snapshot>(Snapshot{
            .data = Buffer::Copy(c.Value("content", "")),
            .metadata = {
                .conf_state = {.voters = c.Numbers("voters"), .learners = c.Numbers("learners")},
                .index = config.applied,
                .term = 1}});
        CHECK(node->storage.memory.ApplySnapshot(node->storage.newest).ok());
      }
      auto raw = RawNode::Create(config, &node->storage, &node->random);
      if (!raw.ok()) return PrintError(raw.status());
      node->raw = *std::move(raw);
      nodes_.push_back(std::move(node));
    }
  }

  void ProposeConfChange(const Case& c, uint64_t id) {
    const std::vector<ConfChangeSingle> changes = describe::ParseChanges(c.input);
    if (c.Flag("v1")) {
      PrintError(At(id).raw->ProposeConfChange(
          ConfChange{.type = changes.at(0).type, .node_id = changes.at(0).node_id}));
      return;
    }
    ConfChangeV2 change{.changes = changes};
    const std::string transition = c.Value("transition", "auto");
    if (transition == "implicit") change.transition = ConfChangeTransition::kJointImplicit;
    if (transition == "explicit") change.transition = ConfChangeTransition::kJointExplicit;
    PrintError(At(id).raw->ProposeConfChange(change));
  }

  void ProcessReady(uint64_t id) {
    Node& node = At(id);
    Ready ready = node.raw->TakeReady();
    Print(Describe(ready));
    if (node.config.async_storage_writes) {
      for (Message& message : ready.messages) {
        if (message.to == kAppendThread) {
          node.append_work.push_back(std::move(message));
        } else if (message.to == kApplyThread) {
          node.apply_work.push_back(std::move(message));
        } else {
          network_.push_back(std::move(message));
        }
      }
      return;
    }
    Store(&node, ready.hard_state, ready.entries, ready.snapshot);
    Apply(&node, ready.committed_entries);
    for (Message& message : ready.messages) network_.push_back(std::move(message));
    for (Message& message : ready.messages_after_write) network_.push_back(std::move(message));
    node.raw->Advance();
  }

  void Store(Node* node, const HardState& state, const std::vector<Entry>& entries,
             const SnapshotPtr& snapshot) {
    if (!state.empty()) node->storage.memory.SetHardState(state);
    if (snapshot) {
      CHECK(node->storage.memory.ApplySnapshot(snapshot).ok());
      node->storage.newest = snapshot;
    }
    node->storage.memory.Append(entries);
  }

  void Apply(Node* node, const std::vector<Entry>& entries) {
    for (const Entry& entry : entries) {
      const Snapshot& last = *node->storage.newest;
      std::string state(last.data.view());
      ConfState conf_state = last.metadata.conf_state;
      if (entry.type == EntryType::kNormal) {
        state += entry.data.view();
      } else {
        const absl::StatusOr<ConfChangeV2> change = DecodeConfChangeEntry(entry);
        CHECK(change.ok());
        state += change->context;
        const absl::StatusOr<ConfState> applied = node->raw->ApplyConfChange(*change);
        PrintError(applied.status());
        if (applied.ok()) conf_state = *applied;
      }
      node->storage.newest = std::make_shared<const Snapshot>(Snapshot{
          .data = Buffer::Own(std::move(state)),
          .metadata = {.conf_state = conf_state, .index = entry.index, .term = entry.term}});
    }
  }

  void ProcessAppend(uint64_t id) {
    Node& node = At(id);
    if (node.append_work.empty()) return Print("no append work to perform");
    Message work = std::move(node.append_work.front());
    node.append_work.pop_front();
    std::vector<Message> responses;
    responses.swap(work.responses);
    PrintWork(work, responses);
    Store(&node, {.term = work.term, .vote = work.vote, .commit = work.commit}, work.entries,
          work.snapshot);
    for (Message& response : responses) network_.push_back(std::move(response));
  }

  void ProcessApply(uint64_t id) {
    Node& node = At(id);
    if (node.apply_work.empty()) return Print("no apply work to perform");
    Message work = std::move(node.apply_work.front());
    node.apply_work.pop_front();
    std::vector<Message> responses;
    responses.swap(work.responses);
    PrintWork(work, responses);
    Apply(&node, work.entries);
    for (Message& response : responses) network_.push_back(std::move(response));
  }

  void PrintWork(const Message& work, const std::vector<Message>& responses) {
    Print("Processing:\n" + Describe(work) + "\nResponses:\n");
    for (const Message& response : responses) Print(Describe(response) + "\n");
  }

  void DeliverCommand(const Case& c, const std::vector<uint64_t>& ids) {
    const std::string type = c.Value("type", "");
    size_t count = 0;
    for (const uint64_t id : ids) count += Deliver(id, type, false);
    for (const uint64_t id : c.Numbers("drop")) count += Deliver(id, type, true);
    if (count == 0) Print("no messages\n");
  }

  // Takes the messages for `to` out of the network in order.
  std::vector<Message> Take(uint64_t to, std::string_view type, bool drop) {
    std::vector<Message> taken;
    std::vector<Message> rest;
    for (Message& m : network_) {
      const bool wanted = m.to == to && !(drop && StaysOnNode(m)) &&
                          (type.empty() || MessageTypeName(m.type) == type);
      (wanted ? taken : rest).push_back(std::move(m));
    }
    network_.swap(rest);
    return taken;
  }

  size_t Deliver(uint64_t to, std::string_view type, bool drop) {
    std::vector<Message> messages = Take(to, type, drop);
    for (Message& message : messages) {
      Print((drop ? "dropped: " : "") + Describe(message) + "\n");
      if (!drop) PrintError(At(to).raw->Step(std::move(message)));
    }
    return messages.size();
  }

  void Stabilize(std::vector<uint64_t> ids) {
    if (ids.empty()) {
      for (uint64_t id = 1; id <= nodes_.size(); ++id) ids.push_back(id);
    }
    const auto round = [&](std::string_view what, const std::function<bool(uint64_t)>& has,
                           const std::function<void(uint64_t)>& body) {
      bool any = false;
      for (const uint64_t id : ids) {
        if (!has(id)) continue;
        any = true;
        Print(fmt::format("> {} {}\n", id, what));
        Nested([&] { body(id); });
      }
      return any;
    };
    for (bool busy = true; busy;) {
      busy = round(
          "handling Ready", [this](uint64_t id) { return At(id).raw->HasReady(); },
          [this](uint64_t id) { ProcessReady(id); });
      busy |= round(
          "receiving messages",
          [this](uint64_t id) {
            return std::any_of(network_.begin(), network_.end(),
                               [id](const Message& m) { return m.to == id; });
          },
          [this](uint64_t id) { Deliver(id, "", false); });
      busy |= round(
          "processing append thread", [this](uint64_t id) { return !At(id).append_work.empty(); },
          [this](uint64_t id) {
            while (!At(id).append_work.empty()) ProcessAppend(id);
          });
      busy |= round(
          "processing apply thread", [this](uint64_t id) { return !At(id).apply_work.empty(); },
          [this](uint64_t id) {
            while (!At(id).apply_work.empty()) ProcessApply(id);
          });
    }
  }

  void PrintLog(uint64_t id) {
    const MemoryStorage& log = At(id).storage.memory;
    if (log.FirstIndex() > log.LastIndex()) {
      return Print(fmt::format("log is empty: first index={}, last index={}\n", log.FirstIndex(),
                               log.LastIndex()));
    }
    std::vector<Entry> entries;
    CHECK(log.Entries(log.FirstIndex(), log.LastIndex() + 1, kNoLimit, &entries).ok());
    for (const Entry& entry : entries) Print(Describe(entry) + "\n");
  }

  void PrintRoles() {
    for (const auto& node : nodes_) {
      const NodeStatus status = node->raw->GetStatus();
      const ConfState& state = status.conf_state;
      const auto in = [&](const std::vector<NodeId>& set) {
        return std::find(set.begin(), set.end(), status.id) != set.end();
      };
      const bool voter = in(state.voters) || in(state.voters_outgoing);
      Print(fmt::format("{}: {} ({}) Term:{} Lead:{}\n", status.id,
                        RoleName(status.soft_state.role), voter ? "Voter" : "Non-Voter",
                        status.hard_state.term, status.soft_state.lead));
    }
  }

  void SendSnapshot(uint64_t from, uint64_t to) {
    Message message{.type = MessageType::kSnap,
                    .to = to,
                    .from = from,
                    .term = At(from).raw->term(),
                    .snapshot = At(from).storage.newest};
    Print(Describe(message) + "\n");
    network_.push_back(std::move(message));
  }

  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Message> network_;
  bool silent_ = false;
  std::string out_;
};

class ScenarioTest : public testing::TestWithParam<std::string> {};

TEST_P(ScenarioTest, PlaysAsWritten) {
  const std::vector<Case> cases = datadriven::ReadFile(GetParam());
  ASSERT_FALSE(cases.empty());
  Scenario scenario;
  for (const Case& c : cases) {
    ASSERT_EQ(scenario.Run(c), datadriven::Normalize(c.expected))
        << GetParam() << ":" << c.line << ": " << c.text;
  }
}

std::vector<std::string> ScenarioFiles() {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(ENGRAM_SOURCE_DIR "/tests/data/raft")) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

INSTANTIATE_TEST_SUITE_P(Files, ScenarioTest, testing::ValuesIn(ScenarioFiles()),
                         [](const auto& file) {
                           return std::filesystem::path(file.param).stem().string();
                         });

}  // namespace
}  // namespace raft
