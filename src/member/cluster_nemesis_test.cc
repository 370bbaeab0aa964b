// Whole members, three of them, on simulated disks and a network that loses, delays and parts: what
// was acknowledged is there at the end, and all hold the same. Deterministic by seed.
#include <cstdlib>
#include <deque>
#include <map>
#include <set>

#include "member/fixture_for_test.h"
#include "wal/snap_file.h"

namespace member {
namespace {

class Network;

// Messages wait in the network; snapshots go over at once.
class WireTransport final : public peer::Transport {
 public:
  explicit WireTransport(Network& network) : network_(network) {}
  void Open(const peer::Identity& identity, peer::Host& host) override;
  void Close() override;
  void Send(std::vector<raft::Message> messages) override;
  std::optional<base::Duration> ActiveSince(raft::NodeId) const override {
    return base::Duration::zero();
  }

 private:
  Network& network_;
  raft::NodeId id_ = raft::kNoNode;
};

class Network {
 public:
  explicit Network(base::Random& random) : random_(random) {}

  void Attach(raft::NodeId id, peer::Host* host) { hosts_[id] = host; }
  void Detach(raft::NodeId id) { hosts_.erase(id); }
  void Part(std::set<raft::NodeId> side) { parted_ = std::move(side); }
  void set_loss_percent(uint64_t percent) { loss_percent_ = percent; }

  void Send(raft::Message message) {
    if (message.type == raft::MessageType::kSnap) {
      snapshots_.push_back(std::move(message));
    } else {
      messages_.push_back(std::move(message));
    }
  }

  void Deliver() {
    for (auto& message : std::exchange(snapshots_, {})) Transfer(std::move(message));
    std::deque<raft::Message> later;
    for (auto& message : std::exchange(messages_, {})) {
      const uint64_t dice = random_.Next() % 100;
      if (dice < loss_percent_) continue;
      if (dice < 2 * loss_percent_) {
        later.push_back(std::move(message));  // overtaken by those behind it
        continue;
      }
      if (peer::Host* host = HostFor(message.from, message.to)) host->OnMessage(std::move(message));
    }
    for (auto& message : later) messages_.push_back(std::move(message));
  }

  uint64_t snapshots_sent = 0;

 private:
  peer::Host* HostFor(raft::NodeId from, raft::NodeId to) {
    const auto it = hosts_.find(to);
    if (it == hosts_.end() || parted_.contains(from) != parted_.contains(to)) return nullptr;
    return it->second;
  }

  void Transfer(raft::Message message) {
    const auto from = hosts_.find(message.from);
    if (from == hosts_.end()) return;
    peer::Host* const to = HostFor(message.from, message.to);
    const absl::Status sent = to == nullptr || random_.Next() % 100 < loss_percent_
                                  ? absl::UnavailableError("lost")
                                  : TransferTo(*from->second, *to, message);
    from->second->OnSnapshotSent(message.to, sent.ok());
  }

  absl::Status TransferTo(peer::Host& from, peer::Host& to, raft::Message message) {
    ASSIGN_OR_RETURN(const peer::OutgoingSnapshot outgoing, from.OpenSnapshot());
    message.snapshot = outgoing.snapshot;
    ASSIGN_OR_RETURN(const auto sink, to.ReceiveSnapshot(message.snapshot->metadata.index));
    std::string bytes(outgoing.database->size_bytes(), '\0');
    RETURN_IF_ERROR(outgoing.database->Read(0, bytes.data(), bytes.size()));
    RETURN_IF_ERROR(sink->Write(bytes));
    RETURN_IF_ERROR(sink->Commit());
    to.OnMessage(std::move(message));
    ++snapshots_sent;
    return absl::OkStatus();
  }

  base::Random& random_;
  std::map<raft::NodeId, peer::Host*> hosts_;
  std::set<raft::NodeId> parted_;  // cut off from all others
  std::deque<raft::Message> messages_;
  std::vector<raft::Message> snapshots_;
  uint64_t loss_percent_ = 0;
};

void WireTransport::Open(const peer::Identity& identity, peer::Host& host) {
  id_ = identity.member_id;
  network_.Attach(id_, &host);
}
void WireTransport::Close() { network_.Detach(id_); }
void WireTransport::Send(std::vector<raft::Message> messages) {
  for (raft::Message& message : messages) network_.Send(std::move(message));
}

struct Node {
  Node(Network& network, base::Clock& clock, base::Random& random, int number)
      : transport(network) {
    options.name = fmt::format("m{}", number);
    options.data_dir = "/data";
    options.peer_urls = {Url(number)};
    options.client_urls = {fmt::format("http://127.0.0.1:{}", 100 + number)};
    for (int i = 0; i < 3; ++i) options.initial_cluster[fmt::format("m{}", i)] = {Url(i)};
    options.wal_segment_bytes = 1 << 14;
    options.snapshot_count = 30;
    options.snapshot_catchup_entries = 10;
    options.files = &disk;
    options.clock = &clock;
    options.random = &random;
    options.threads = false;
  }
  static std::string Url(int number) { return fmt::format("http://127.0.0.1:{}", 200 + number); }

  absl::Status Start() {
    observer = RecordingObserver();
    ASSIGN_OR_RETURN(member, Member::Start(options, transport, observer));
    return absl::OkStatus();
  }
  // The process ends; with the power each unsynced write is kept, lost or torn.
  void Kill(base::Random* power) {
    transport.Close();
    if (power != nullptr) {
      disk.Crash(*power);
    } else {
      disk.CrashAll(/*keep=*/true);
    }
    member.reset();
    doomed = false;
  }

  test_support::MemoryFiles disk;
  WireTransport transport;
  RecordingObserver observer;
  MemberOptions options;
  std::unique_ptr<Member> member;
  bool doomed = false;  // one of its next operations on the disk fails, and the power with it
};

class Nemesis {
 public:
  explicit Nemesis(uint64_t seed) : random_(seed), network_(random_) {
    base::SetLogLevel(base::LogLevel::kPanic);
    for (int i = 0; i < 3; ++i)
      nodes_.push_back(std::make_unique<Node>(network_, clock_, random_, i));
  }
  ~Nemesis() {
    for (auto& node : nodes_) node->Kill(nullptr);
  }

  void StartAll() {
    for (auto& node : nodes_) {
      if (node->member != nullptr) continue;
      ASSERT_OK(node->Start());
    }
  }
  void Step() {
    clock_.now += std::chrono::milliseconds(20);
    for (auto& node : nodes_) {
      if (node->member == nullptr) continue;
      node->member->RunOnce();
      EndIfDoomed(*node);
      ASSERT_OK(node->observer.fatal);
    }
    network_.Deliver();
    for (auto& node : nodes_) EndIfDoomed(*node);
  }
  bool Until(const std::function<bool()>& holds) {
    for (int i = 0; i < 5000; ++i) {
      if (holds()) return true;
      Step();
      if (::testing::Test::HasFatalFailure()) return false;
    }
    return false;
  }

  void Put() {
    Node& node = Any();
    if (node.member == nullptr) return;
    const std::string key = fmt::format("k{:05}", ++puts_);
    pb::PutRequest put;
    put.set_key(key);
    put.set_value(std::string(random_.Next() % 200, 'v'));
    node.member->Propose(RequestKind::kPut, put.SerializeAsString(),
                         std::make_unique<CallbackProposal>([this, key](const ApplyResult& result) {
                           if (result.status.ok()) acknowledged_.insert(key);
                         }));
  }

  void Disturb() {
    switch (random_.Below(7)) {
      case 0:
        if (Node& node = Any(); node.member != nullptr && Alive() > 1)
          node.Kill(random_.OneIn(2) ? &random_ : nullptr);
        break;
      case 5:
        if (Node& node = Any(); node.member != nullptr && Alive() > 1) {
          node.doomed = true;
          node.disk.FailAt(1 + random_.Below(100), absl::UnavailableError("the power goes"));
        }
        break;
      case 1:
        StartAll();
        break;
      case 2:
        if (Node& node = Any(); node.member != nullptr) network_.Part({node.member->id()});
        break;
      case 3:
        network_.Part({});
        break;
      case 4:
        network_.set_loss_percent(random_.Next() % 20);
        break;
      default:
        if (Node& from = Any(), &to = Any(); from.member != nullptr && to.member != nullptr)
          from.member->MoveLeader(to.member->id(), [](const absl::Status&) {});
        break;
    }
  }

  void Run() {
    StartAll();
    ASSERT_TRUE(Until([this] { return AllReady(); })) << "no leader to begin with";
    for (int i = 0; i < 1500; ++i) {
      if (random_.OneIn(3)) Put();
      if (random_.OneIn(60)) Disturb();
      Step();
      if (::testing::Test::HasFatalFailure()) return;
    }
    network_.Part({});
    network_.set_loss_percent(0);
    for (auto& node : nodes_) {
      if (node->doomed) node->Kill(&random_);
    }
    StartAll();
    const size_t before = acknowledged_.size();
    ASSERT_TRUE(Until([&] {
      if (acknowledged_.size() == before && random_.OneIn(10)) Put();
      return AllReady() && acknowledged_.size() > before && Applied();
    })) << "no progress after the end of all faults";
    Check();
  }

  void Check() {
    std::vector<uint32_t> hashes;
    for (auto& node : nodes_) {
      const auto hash = node->member->store().HashByRevision(0);
      ASSERT_OK(hash);
      hashes.push_back(hash->hash);
      for (const std::string& key : acknowledged_) {
        std::string found;
        const auto range = node->member->store().Range({.key = key}, &found);
        ASSERT_OK(range);
        ASSERT_EQ(range->count, 1) << key << " was acknowledged and is gone";
      }
    }
    EXPECT_EQ(hashes[0], hashes[1]);
    EXPECT_EQ(hashes[0], hashes[2]);
  }

  bool AllReady() const {
    return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
      return node->member != nullptr && node->member->ready() && node->member->leader() != 0;
    });
  }
  bool Applied() const {
    std::set<uint64_t> applied;
    for (const auto& node : nodes_) {
      applied.insert(node->member->applied_index());
      applied.insert(node->member->committed_index());
    }
    return applied.size() == 1;
  }
  size_t acknowledged() const { return acknowledged_.size(); }
  uint64_t snapshots_sent() const { return network_.snapshots_sent; }

 private:
  void EndIfDoomed(Node& node) {
    if (!node.doomed || !node.disk.failure_reached()) return;
    node.Kill(&random_);
    node.observer.fatal = absl::OkStatus();
  }
  Node& Any() { return *nodes_[random_.Next() % nodes_.size()]; }
  size_t Alive() const {
    return static_cast<size_t>(std::count_if(
        nodes_.begin(), nodes_.end(), [](const auto& node) { return node->member != nullptr; }));
  }

  ManualClock clock_;
  base::SeededRandom random_;
  Network network_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::set<std::string> acknowledged_;
  uint64_t puts_ = 0;
};

// ENGRAM_NEMESIS_SEEDS: how many, for longer runs.
uint64_t SeedCount() {
  const char* count = std::getenv("ENGRAM_NEMESIS_SEEDS");
  return count != nullptr ? std::strtoull(count, nullptr, 10) : 50;
}

TEST(ClusterNemesisTest, NothingAcknowledgedIsLostAndAllEndAlike) {
  size_t acknowledged = 0;
  uint64_t snapshots = 0;
  for (uint64_t seed = 1; seed <= SeedCount(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Nemesis nemesis(seed);
    nemesis.Run();
    if (::testing::Test::HasFailure()) return;
    acknowledged += nemesis.acknowledged();
    snapshots += nemesis.snapshots_sent();
  }
  // The rare paths were taken.
  EXPECT_GT(acknowledged, 4000u);
  EXPECT_GT(snapshots, 20u);
}

}  // namespace
}  // namespace member
