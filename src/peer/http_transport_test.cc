#include "peer/http_transport.h"

#include <condition_variable>
#include <functional>
#include <set>
#include <thread>

#include "base/bytes.h"
#include "base/log.h"
#include "base/testing.h"
#include "net/loop.h"
#include "net/server.h"
#include "raft/codec.h"

namespace peer {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kCluster = 0x77;
constexpr base::Duration kPatience = std::chrono::seconds(60);
// As raft does it: what did not arrive is sent again.
constexpr base::Duration kResend = std::chrono::seconds(1);

// A member that notes what it is told.
class RecordingHost final : public Host {
 public:
  void OnMessage(raft::Message message) override {
    Note([&] { messages.push_back(std::move(message)); });
  }
  bool IsRemoved(raft::NodeId id) const override {
    const std::lock_guard lock(mutex_);
    return removed.contains(id);
  }
  void OnUnreachable(raft::NodeId id) override {
    Note([&] { unreachable.push_back(id); });
  }
  void OnSnapshotSent(raft::NodeId, bool ok) override {
    Note([&] { snapshots_sent.push_back(ok); });
  }
  void OnSelfRemoved() override {
    Note([&] { self_removed = true; });
  }
  absl::StatusOr<OutgoingSnapshot> OpenSnapshot() override {
    class Source final : public SnapshotSource {
     public:
      explicit Source(const std::string& bytes) : bytes_(bytes) {}
      uint64_t size_bytes() const override { return bytes_.size(); }
      absl::Status Read(uint64_t offset, char* out, size_t n) const override {
        bytes_.copy(out, n, offset);
        return absl::OkStatus();
      }

     private:
      const std::string bytes_;
    };
    auto snapshot = std::make_shared<raft::Snapshot>();
    snapshot->metadata = {.conf_state = {.voters = {1, 2}}, .index = 9, .term = 2};
    return OutgoingSnapshot{.snapshot = std::move(snapshot),
                            .database = std::make_unique<Source>(database)};
  }
  absl::StatusOr<std::unique_ptr<SnapshotSink>> ReceiveSnapshot(raft::Index) override {
    Note([&] { receiving = true; });
    class Sink final : public SnapshotSink {
     public:
      explicit Sink(RecordingHost& host) : host_(host) {}
      absl::Status Write(std::string_view bytes) override {
        bytes_ += bytes;
        return absl::OkStatus();
      }
      absl::Status Commit() override {
        host_.Note([&] { host_.received = std::move(bytes_); });
        return absl::OkStatus();
      }

     private:
      RecordingHost& host_;
      std::string bytes_;
    };
    return std::make_unique<Sink>(*this);
  }

  bool WaitFor(const std::function<bool()>& holds, base::Duration patience = kPatience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, holds);
  }
  template <typename F>
  void Note(F note) {
    const std::lock_guard lock(mutex_);
    note();
    changed_.notify_all();
  }

  // Guarded by the lock of Note and WaitFor.
  std::vector<raft::Message> messages;
  std::set<raft::NodeId> removed;
  std::vector<raft::NodeId> unreachable;
  std::vector<bool> snapshots_sent;
  bool self_removed = false;
  bool receiving = false;
  std::string received;
  std::string database = "empty";

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
};

// A member's transport with its port.
class Endpoint {
 public:
  explicit Endpoint(raft::NodeId id, uint64_t cluster = kCluster)
      : id_(id), loops_(1), server_(loops_) {
    // The cluster's id, which etcd's handlers send with every answer, is added in front of the
    // transport's own part.
    front_ = std::make_unique<net::FunctionHandler>(
        [this, cluster](std::shared_ptr<net::HttpExchange> exchange) {
          exchange->AddHeader("X-Etcd-Cluster-Id", base::IdToHex(cluster));
          transport_->OnRequest(std::move(exchange));
        });
    net::ListenerOptions options;
    options.address = net::ListenAddress::Tcp("127.0.0.1", 0);
    options.http = front_.get();
    options.http2 = false;
    const auto listener = server_.Listen(std::move(options));
    EXPECT_OK(listener);
    url_ = fmt::format("http://127.0.0.1:{}", (*listener)->port());
    transport_ = std::make_unique<HttpTransport>(HttpTransportOptions{.peer_urls = {url_}});
    transport_->Open({.member_id = id, .cluster_id = cluster}, host);
  }
  ~Endpoint() {
    server_.Shutdown({});
    transport_->Close();
    loops_.Stop();
  }

  raft::NodeId id() const { return id_; }
  const std::string& url() const { return url_; }
  HttpTransport& transport() { return *transport_; }

  void Send(raft::NodeId to, raft::MessageType type, raft::Index index,
            std::vector<raft::Entry> entries = {}) {
    std::vector<raft::Message> messages;
    messages.push_back({.type = type,
                        .to = to,
                        .from = id_,
                        .term = 2,
                        .log_term = 2,
                        .index = index,
                        .entries = std::move(entries)});
    transport_->Send(std::move(messages));
  }

  RecordingHost host;

 private:
  const raft::NodeId id_;
  std::string url_;
  net::LoopPool loops_;
  net::Server server_;
  std::unique_ptr<net::FunctionHandler> front_;
  std::unique_ptr<HttpTransport> transport_;
};

class HttpTransportTest : public ::testing::Test {
 protected:
  HttpTransportTest() { base::SetLogLevel(base::LogLevel::kPanic); }

  static void Connect(Endpoint& a, Endpoint& b) {
    a.transport().AddPeer(b.id(), {b.url()});
    b.transport().AddPeer(a.id(), {a.url()});
  }
  // Sends a message until it arrives: a full pipeline drops it, and so does a stream that breaks.
  static bool SendUntilThere(Endpoint& from, Endpoint& to, raft::MessageType type,
                             raft::Index index, const std::vector<raft::Entry>& entries = {}) {
    const auto arrived = [&] {
      return std::any_of(to.host.messages.begin(), to.host.messages.end(), [&](const auto& m) {
        return m.from == from.id() && m.type == type && m.index == index;
      });
    };
    for (base::Duration waited{}; waited < kPatience; waited += kResend) {
      from.Send(to.id(), type, index, entries);
      if (to.host.WaitFor(arrived, kResend)) return true;
    }
    return false;
  }
  // The status and the body of a request by hand.
  static std::string Ask(Endpoint& to, std::string method, std::string path, Headers headers = {},
                         std::string body = "") {
    const net::Interrupt interrupt;
    const auto answer = net::FetchOnce(*base::ParseUrl(to.url()),
                                       {.method = std::move(method),
                                        .target = std::move(path),
                                        .headers = std::move(headers),
                                        .body = std::move(body)},
                                       {}, kPatience, 1 << 20, interrupt);
    if (!answer.ok()) return std::string(base::Message(answer.status()));
    return fmt::format("{} {}", answer->head.status, answer->body);
  }
  static Headers From(raft::NodeId id, raft::NodeId to = 1) {
    return {{"X-Server-From", base::IdToHex(id)},
            {"X-Server-Version", "3.7.3"},
            {"X-Min-Cluster-Version", "3.0.0"},
            {"X-Etcd-Cluster-ID", base::IdToHex(kCluster)},
            {"X-Raft-To", base::IdToHex(to)}};
  }
  static Headers With(Headers headers, std::string_view name, std::string value) {
    for (auto& [key, present] : headers) {
      if (key == name) present = value;
    }
    return headers;
  }
};

TEST_F(HttpTransportTest, MessagesArriveInBothDirectionsOverStreamsAndWithoutThem) {
  Endpoint one(1);
  Endpoint two(2);
  Connect(one, two);
  const auto entry = [](raft::Index i) {
    return std::vector<raft::Entry>{
        {.term = 2, .index = i + 1, .data = raft::Buffer::Own(std::to_string(i))}};
  };
  // Some go by the pipeline, before the streams are there; none may be mixed up.
  constexpr raft::Index kCount = 400;
  for (raft::Index i = 1; i < kCount; ++i) {
    one.Send(2, raft::MessageType::kApp, i, entry(i));
    two.Send(1, raft::MessageType::kAppResp, i);
    if (i % 40 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  // Raft copes with loss: what counts is that the newest gets through, whole.
  ASSERT_TRUE(SendUntilThere(one, two, raft::MessageType::kApp, kCount, entry(kCount)));
  ASSERT_TRUE(SendUntilThere(two, one, raft::MessageType::kAppResp, kCount));
  two.host.Note([&] {
    for (const raft::Message& m : two.host.messages) {
      EXPECT_EQ(m.from, 1u);
      ASSERT_EQ(m.entries.size(), 1u);
      EXPECT_EQ(m.entries[0].data.view(), std::to_string(m.index));
    }
  });
  // Not at once: a stream asked for before the other side knew of this one counts as a failure.
  bool active = false;
  for (int i = 0; !active && i < 6000; ++i) {
    active = one.transport().ActiveSince(2).has_value();
    if (!active) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(active);
  EXPECT_FALSE(one.transport().ActiveSince(3).has_value());
}

TEST_F(HttpTransportTest, LargeEntriesPassWhole) {
  Endpoint one(1);
  Endpoint two(2);
  Connect(one, two);
  const std::string large(9 << 20, 'x');
  // The pipeline takes such a message as well as the stream.
  ASSERT_TRUE(SendUntilThere(one, two, raft::MessageType::kApp, 1,
                             {{.term = 2, .index = 2, .data = raft::Buffer::Copy(large)}}));
  two.host.Note([&] { EXPECT_EQ(two.host.messages[0].entries[0].data.view(), large); });
}

TEST_F(HttpTransportTest, ASnapshotCarriesItsDatabase) {
  Endpoint one(1);
  Endpoint two(2);
  Connect(one, two);
  std::string database;
  for (int i = 0; database.size() < (20 << 20); ++i) database += std::to_string(i);
  one.host.Note([&] { one.host.database = database; });
  one.Send(2, raft::MessageType::kSnap, 0);
  ASSERT_TRUE(two.host.WaitFor([&] { return !two.host.messages.empty(); }));
  ASSERT_TRUE(one.host.WaitFor([&] { return !one.host.snapshots_sent.empty(); }));
  EXPECT_TRUE(one.host.snapshots_sent[0]);
  EXPECT_EQ(two.host.received, database);
  EXPECT_EQ(two.host.messages[0].type, raft::MessageType::kSnap);
  EXPECT_EQ(two.host.messages[0].snapshot->metadata.index, 9u);
}

TEST_F(HttpTransportTest, ClosesWhileASnapshotArrives) {
  Endpoint one(1);
  const auto snapshot = std::make_shared<raft::Snapshot>(
      raft::Snapshot{.metadata = {.conf_state = {.voters = {1, 2}}, .index = 9, .term = 2}});
  const std::string head = EncodeSnapshotHead(
      {.type = raft::MessageType::kSnap, .to = 1, .from = 2, .term = 2, .snapshot = snapshot});
  const net::Interrupt interrupt;
  ASSERT_OK_AND_ASSIGN(const auto client,
                       net::HttpClient::Connect(*base::ParseUrl(one.url()), {}, interrupt));
  client->set_timeout(kPatience);
  ASSERT_OK(client->SendRequest({.method = "POST",
                                 .target = "/raft/snapshot",
                                 .headers = From(2),
                                 .body_bytes = head.size() + 100}));
  ASSERT_OK(client->SendBody(head + "some of it"));
  ASSERT_TRUE(one.host.WaitFor([&] { return one.host.receiving; }));
  one.transport().Close();
  ASSERT_OK_AND_ASSIGN(const net::HttpResponseHead answer, client->ReadHead());
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(one.host.received, "");
}

TEST_F(HttpTransportTest, WhoCannotBeReachedIsReported) {
  Endpoint one(1);
  one.transport().AddPeer(2, {"http://127.0.0.1:1"});
  one.Send(2, raft::MessageType::kHeartbeat, 0);
  EXPECT_TRUE(one.host.WaitFor([&] { return !one.host.unreachable.empty(); }));
  one.Send(2, raft::MessageType::kSnap, 0);
  EXPECT_TRUE(one.host.WaitFor([&] { return !one.host.snapshots_sent.empty(); }));
  EXPECT_FALSE(one.host.snapshots_sent[0]);
  // Nor one that nobody knows.
  one.Send(3, raft::MessageType::kSnap, 0);
  EXPECT_TRUE(one.host.WaitFor([&] { return one.host.snapshots_sent.size() == 2; }));
}

TEST_F(HttpTransportTest, ARemovedMemberLearnsOfIt) {
  Endpoint one(1);
  Endpoint two(2);
  one.host.Note([&] { one.host.removed.insert(2); });
  two.transport().AddPeer(1, {one.url()});
  EXPECT_TRUE(two.host.WaitFor([&] { return two.host.self_removed; }));
}

TEST_F(HttpTransportTest, ANewStreamTakesThePlaceOfAnOlderOne) {
  Endpoint one(1);
  {
    Endpoint two(2);
    Connect(one, two);
    ASSERT_TRUE(SendUntilThere(one, two, raft::MessageType::kHeartbeat, 0));
  }
  // The same member again, elsewhere.
  Endpoint again(2);
  Connect(one, again);
  ASSERT_TRUE(SendUntilThere(one, again, raft::MessageType::kHeartbeat, 0));
  one.transport().RemovePeer(2);
  EXPECT_FALSE(one.transport().ActiveSince(2).has_value());
}

TEST_F(HttpTransportTest, StreamsAreRefusedAsByEtcd) {
  Endpoint one(1);
  one.transport().AddPeer(2, {"http://127.0.0.1:1"});
  one.host.Note([&] { one.host.removed.insert(9); });
  const std::string path = "/raft/stream/message/";
  EXPECT_EQ(Ask(one, "POST", path + "2", From(2)), "405 Method Not Allowed\n");
  EXPECT_EQ(Ask(one, "GET", path + "2"), "412 incompatible version\n");
  EXPECT_EQ(Ask(one, "GET", path + "2", With(From(2), "X-Server-Version", "2.3.7")),
            "412 incompatible version\n");
  EXPECT_EQ(Ask(one, "GET", path + "2", With(From(2), "X-Min-Cluster-Version", "3.8.0")),
            "412 incompatible version\n");
  EXPECT_EQ(Ask(one, "GET", path + "2", With(From(2), "X-Server-Version", "abc")), "EOF");
  EXPECT_EQ(Ask(one, "GET", path + "2", With(From(2), "X-Etcd-Cluster-ID", "78")),
            "412 cluster ID mismatch\n");
  EXPECT_EQ(Ask(one, "GET", "/raft/stream/other/2", From(2)), "404 invalid path\n");
  EXPECT_EQ(Ask(one, "GET", "/raft/stream/message", From(2)), "404 invalid path\n");
  EXPECT_EQ(Ask(one, "GET", path + "xyz", From(2)), "404 invalid from\n");
  EXPECT_EQ(Ask(one, "GET", path + "9", From(9)), "410 removed member\n");
  EXPECT_EQ(Ask(one, "GET", path + "3", From(3)), "404 error sender not found\n");
  EXPECT_EQ(Ask(one, "GET", path + "2", From(2, /*to=*/5)), "412 to field mismatch\n");
  EXPECT_EQ(Ask(one, "GET", "/raft/other", From(2)), "404 404 page not found\n");
}

TEST_F(HttpTransportTest, MessagesAndSnapshotsAreRefusedAsByEtcd) {
  Endpoint one(1);
  one.host.Note([&] { one.host.removed.insert(9); });
  const auto encoded = [](raft::NodeId to, raft::NodeId from, raft::MessageType type) {
    std::string bytes;
    raft::EncodeMessage({.type = type, .to = to, .from = from, .term = 1}, &bytes);
    return bytes;
  };
  const raft::MessageType heartbeat = raft::MessageType::kHeartbeat;
  EXPECT_EQ(Ask(one, "GET", "/raft", From(2)), "405 Method Not Allowed\n");
  EXPECT_EQ(Ask(one, "POST", "/raft", From(2), "\xff\xff"),
            "400 error unmarshalling raft message\n");
  EXPECT_EQ(Ask(one, "POST", "/raft", From(2), encoded(5, 2, heartbeat)),
            "500 error processing raft message\n");
  EXPECT_EQ(Ask(one, "POST", "/raft", From(9), encoded(1, 9, heartbeat)),
            "500 error processing raft message\n");
  EXPECT_EQ(Ask(one, "POST", "/raft", From(2), encoded(1, 2, raft::MessageType::kHup)), "204 ");
  EXPECT_EQ(Ask(one, "POST", "/raft", From(2), encoded(1, 2, raft::MessageType::kSnap)), "204 ");
  EXPECT_TRUE(one.host.messages.empty());
  EXPECT_EQ(Ask(one, "POST", "/raft", From(2), encoded(1, 2, heartbeat)), "204 ");
  EXPECT_EQ(one.host.messages.size(), 1u);

  EXPECT_EQ(Ask(one, "POST", "/raft/snapshot", From(2), "short"),
            "400 failed to decode raft message (unexpected EOF)\n");
  EXPECT_EQ(Ask(one, "POST", "/raft/snapshot", From(2), std::string(8, '\x7f')),
            "400 failed to decode raft message (rafthttp: error limit exceeded)\n");
  std::string body = EncodeSnapshotHead({.type = heartbeat, .to = 1, .from = 2});
  EXPECT_EQ(Ask(one, "POST", "/raft/snapshot", From(2), body), "400 wrong raft message type\n");
}

TEST_F(HttpTransportTest, AnUnknownSenderThatGivesItsUrlGetsAnswers) {
  Endpoint one(1);
  Endpoint two(2);
  // Two knows one, one does not know two yet.
  two.transport().AddPeer(1, {one.url()});
  ASSERT_TRUE(SendUntilThere(two, one, raft::MessageType::kVote, 1));
  EXPECT_TRUE(SendUntilThere(one, two, raft::MessageType::kVoteResp, 1));
}

TEST_F(HttpTransportTest, QuestionsAreAnswered) {
  Endpoint one(1);
  Endpoint two(2);
  const auto answer = one.transport().Ask(two.url(), {.path = "/raft/nothing"}, kPatience);
  ASSERT_OK(answer);
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->cluster_id, "77");
  EXPECT_THAT(std::string(base::Message(
                  one.transport().Ask("http://127.0.0.1:1", {.path = "/"}, kPatience).status())),
              HasSubstr("dial tcp 127.0.0.1:1: connect: connection refused"));
}

}  // namespace
}  // namespace peer
