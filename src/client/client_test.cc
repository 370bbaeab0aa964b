#include "client/client.h"

#include <atomic>
#include <thread>

#include "base/testing.h"
#include "client/fake_server.h"
#include "client/lease.h"
#include "client/snapshot.h"
#include "client/watch.h"
#include "proto/kv.pb.h"
#include "proto/rpc.pb.h"

namespace client {
namespace {

using base::StatusIs;
using std::chrono::seconds;
constexpr CallOptions kTenSeconds{.timeout = seconds(10)};

FakeReaction Fails(grpc::StatusCode code, const std::string& text) {
  return {.status = grpc::Status(code, text)};
}

FakeReaction Answers(const google::protobuf::MessageLite& message) {
  return {.answers = {Serialize(message)}};
}

pb::RangeResponse WithCount(int64_t count) {
  pb::RangeResponse response;
  response.set_count(count);
  return response;
}

std::unique_ptr<Client> Open(std::vector<std::string> endpoints, const std::string& user = "") {
  Options options;
  options.endpoints = std::move(endpoints);
  options.user = user;
  options.dial_timeout = seconds(10);
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Open(std::move(options));
  EXPECT_OK(client);
  return *std::move(client);
}

TEST(Client, PassesTheServersErrorOn) {
  FakeServer server;
  server.Handle(kRange.name, [](const auto&, const auto&) {
    return Fails(grpc::StatusCode::INVALID_ARGUMENT, "etcdserver: key is not provided");
  });
  EXPECT_THAT(Open({server.endpoint()})->Call(kRange, pb::RangeRequest(), kTenSeconds),
              StatusIs(absl::StatusCode::kInvalidArgument, "etcdserver: key is not provided"));
}

TEST(Client, SaysWhoItIs) {
  FakeServer server;
  FakeServer::Metadata seen;
  server.Handle(kRange.name, [&seen](const auto&, const FakeServer::Metadata& metadata) {
    seen = metadata;
    return Answers(WithCount(1));
  });
  ASSERT_OK(Open({"http://" + server.endpoint()})->Call(kRange, pb::RangeRequest(), kTenSeconds));
  EXPECT_EQ(seen.find("client-api-version")->second, "3.7");
  EXPECT_EQ(seen.find(":authority")->second, server.endpoint());
  EXPECT_EQ(seen.count("token"), 0u);
}

TEST(Client, RepeatsReadsElsewhereButNotWrites) {
  FakeServer broken;
  FakeServer good;
  std::atomic<int> writes{0};
  for (const std::string_view method : {kRange.name, kPut.name}) {
    broken.Handle(method, [&writes, method](const auto&, const auto&) {
      if (method == kPut.name) ++writes;
      return Fails(grpc::StatusCode::UNAVAILABLE, "etcdserver: no leader");
    });
  }
  good.Handle(kRange.name, [](const auto&, const auto&) { return Answers(WithCount(7)); });
  good.Handle(kPut.name, [](const auto&, const auto&) { return Answers(pb::PutResponse()); });
  const auto writer = Open({broken.endpoint()});
  EXPECT_THAT(writer->Call(kPut, pb::PutRequest(), kTenSeconds),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(writes, 1);
  const auto reader = Open({broken.endpoint(), good.endpoint()});
  const auto response = reader->Call(kRange, pb::RangeRequest(), kTenSeconds);
  ASSERT_OK(response);
  EXPECT_EQ(response->count(), 7);
}

TEST(Client, FindsTheLiveEndpoint) {
  FakeServer dead;
  const std::string dead_endpoint = dead.endpoint();
  dead.Stop();
  FakeServer good;
  good.Handle(kPut.name, [](const auto&, const auto&) { return Answers(pb::PutResponse()); });
  EXPECT_OK(Open({dead_endpoint, good.endpoint()})->Call(kPut, pb::PutRequest(), kTenSeconds));
}

TEST(Client, WaitsForAnUnreachableServerUntilTheDeadline) {
  FakeServer dead;
  const auto client = Open({dead.endpoint()});
  dead.Stop();
  EXPECT_THAT(client->Call(kPut, pb::PutRequest(), {.timeout = std::chrono::milliseconds(100)}),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "context deadline exceeded"));
}

TEST(Client, RenewsItsToken) {
  FakeServer server;
  std::atomic<int> logins{0};
  server.Handle(kAuthenticate.name, [&logins](const auto&, const auto&) {
    pb::AuthenticateResponse response;
    response.set_token("token-" + std::to_string(++logins));
    return Answers(response);
  });
  server.Handle(kPut.name, [](const auto&, const FakeServer::Metadata& metadata) {
    const auto token = metadata.find("token");
    if (token == metadata.end() || token->second != "token-2") {
      return Fails(grpc::StatusCode::UNAUTHENTICATED, "etcdserver: invalid auth token");
    }
    return Answers(pb::PutResponse());
  });
  EXPECT_OK(Open({server.endpoint()}, "root")->Call(kPut, pb::PutRequest(), kTenSeconds));
  EXPECT_EQ(logins, 2);
}

TEST(Client, RefusesRequestsThatAreTooLarge) {
  const auto client = Open({"127.0.0.1:1"});
  pb::PutRequest request;
  request.set_value(std::string(3 << 20, 'x'));
  EXPECT_THAT(client->Call(kPut, request, kTenSeconds),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(Client, NoticesAnswersItCannotRead) {
  FakeServer server;
  server.Handle(kRange.name, [](const auto&, const auto&) {
    grpc::Slice slice("\xff\xff\xff");
    return FakeReaction{.answers = {grpc::ByteBuffer(&slice, 1)}};
  });
  EXPECT_THAT(Open({server.endpoint()})->Call(kRange, pb::RangeRequest(), kTenSeconds),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(Client, NeedsAnEndpointAndReadableCertificates) {
  Options options;
  options.endpoints.clear();
  EXPECT_THAT(Client::Open(options), StatusIs(absl::StatusCode::kFailedPrecondition,
                                              "etcdclient: no available endpoints"));
  options.endpoints = {"127.0.0.1:1"};
  options.tls.cert_file = "/nosuch";
  EXPECT_THAT(Client::Open(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "KeyFile and CertFile must both be present[key: , cert: /nosuch]"));
  options.tls.key_file = "/nosuch";
  EXPECT_THAT(Client::Open(options),
              StatusIs(absl::StatusCode::kNotFound, "open /nosuch: no such file or directory"));
}

// A watch server: answers each create, then sends one event at the revision asked for.
FakeReaction CreatedWithEvent(const grpc::ByteBuffer& message, std::vector<int64_t>* starts) {
  pb::WatchRequest request;
  Parse(message, &request);
  const int64_t start = request.create_request().start_revision();
  starts->push_back(start);
  pb::WatchResponse created;
  created.set_created(true);
  created.mutable_header()->set_revision(9);
  pb::WatchResponse event;
  const int64_t revision = start == 0 ? 10 : start;
  event.mutable_header()->set_revision(revision);
  event.add_events()->mutable_kv()->set_mod_revision(revision);
  return {.answers = {Serialize(created), Serialize(event)}, .end = false};
}

TEST(Watcher, GoesOnAfterTheLastEvent) {
  FakeServer server;
  std::vector<int64_t> starts;
  server.Handle(kWatchMethod, [&starts](const grpc::ByteBuffer& message, const auto&) {
    return CreatedWithEvent(message, &starts);
  });
  const auto client = Open({server.endpoint()});
  const auto watcher = Watcher::Create(*client, true);
  watcher->Add({.key = "k"});
  pb::WatchResponse response;
  int watch = -1;
  ASSERT_OK(watcher->NextWithin(&response, &watch, seconds(10)));
  EXPECT_EQ(watch, 0);
  EXPECT_EQ(response.events(0).kv().mod_revision(), 10);
  const int port = server.port();
  server.Stop();
  server.Start(port);
  ASSERT_OK(watcher->NextWithin(&response, &watch, seconds(30)));
  EXPECT_EQ(response.events(0).kv().mod_revision(), 11);
  EXPECT_EQ(starts, (std::vector<int64_t>{0, 11}));
}

TEST(Watcher, PairsAnswersWithWatchesByOrder) {
  FakeServer server;
  std::atomic<int> created_count{0};
  server.Handle(kWatchMethod, [&](const auto&, const auto&) {
    pb::WatchResponse created;
    created.set_created(true);
    const int number = created_count++;
    created.set_watch_id(number == 0 ? -1 : 0);
    created.set_canceled(number == 0);
    return FakeReaction{.answers = {Serialize(created)}, .end = false};
  });
  const auto client = Open({server.endpoint()});
  const auto watcher = Watcher::Create(*client, false);
  watcher->Add({.key = "refused"});
  watcher->Add({.key = "good"});
  pb::WatchResponse response;
  int watch = -1;
  ASSERT_OK(watcher->NextWithin(&response, &watch, seconds(10)));
  EXPECT_EQ(watch, 0);
  EXPECT_TRUE(response.canceled());
  EXPECT_THAT(watcher->NextWithin(&response, &watch, std::chrono::milliseconds(20)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(Watcher, StopWakesTheReader) {
  FakeServer server;
  server.Handle(kWatchMethod, [](const auto&, const auto&) { return FakeReaction{.end = false}; });
  const auto client = Open({server.endpoint()});
  const auto watcher = Watcher::Create(*client, false);
  watcher->Add({.key = "k"});
  std::thread stopper([&watcher] { watcher->Stop(); });
  pb::WatchResponse response;
  int watch = 0;
  EXPECT_THAT(watcher->Next(&response, &watch), StatusIs(absl::StatusCode::kCancelled));
  stopper.join();
}

TEST(LeaseKeeper, NoticesALostLease) {
  FakeServer server;
  server.Handle(kLeaseKeepAliveMethod, [](const auto&, const auto&) {
    FakeReaction reaction{.answers = {Serialize(pb::LeaseKeepAliveResponse())}, .end = false};
    return reaction;
  });
  const auto client = Open({server.endpoint()});
  std::mutex mutex;
  std::condition_variable changed;
  bool lost = false;
  const LeaseKeeper keeper(*client, 7, 60, [&] {
    const std::lock_guard lock(mutex);
    lost = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, seconds(30), [&lost] { return lost; }));
}

// A snapshot in two chunks: a db of 512 times 'x', then `digest`.
FakeReaction SnapshotOf(const std::string& digest, uint64_t remaining_at_end = 0) {
  pb::SnapshotResponse first;
  first.set_version("3.7.0");
  first.set_blob(std::string(512, 'x'));
  first.set_remaining_bytes(digest.size());
  pb::SnapshotResponse second;
  second.set_blob(digest);
  second.set_remaining_bytes(remaining_at_end);
  return {.answers = {Serialize(first), Serialize(second)}};
}

// sha256 of 512 times 'x'.
const std::string kDigest(
    "\x64\x16\x44\x43\xbb\x63\xe3\x38\xef\x1c\xfd\xb1\x2a\x57\x11\x7c"
    "\xd1\x21\x22\x70\xcc\x93\x5a\x79\x8f\x6e\x8a\x66\x5c\xdf\x46\x59",
    32);

class Snapshot : public testing::Test {
 protected:
  absl::StatusOr<SnapshotResult> Save(FakeReaction reaction) {
    FakeServer server;
    server.Handle(kSnapshotMethod, [&](const auto&, const auto&) { return reaction; });
    const auto client = Open({server.endpoint()});
    return SaveSnapshot(*client, base::PosixFiles(), path_, {.timeout = seconds(10)});
  }
  std::vector<std::string> Left() { return *base::PosixFiles().List(directory_.path()); }

  base::ScratchDirectory directory_;
  const std::string path_ = directory_.path() + "/s.db";
};

TEST_F(Snapshot, IsSavedWhole) {
  const auto result = Save(SnapshotOf(kDigest));
  ASSERT_OK(result);
  EXPECT_EQ(result->version, "3.7.0");
  EXPECT_EQ(result->bytes, 544u);
  EXPECT_EQ(Left(), std::vector<std::string>{"s.db"});
  EXPECT_EQ(base::PosixFiles().Stat(path_)->mode & 0777, 0600u);
}

TEST_F(Snapshot, LeavesNothingBehindWhenItFails) {
  EXPECT_THAT(Save(SnapshotOf(std::string(32, 'y'))), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Save(SnapshotOf(kDigest, 5)), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Save(SnapshotOf("short")), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Save(Fails(grpc::StatusCode::PERMISSION_DENIED, "etcdserver: permission denied")),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_TRUE(Left().empty());
}

TEST_F(Snapshot, NamesTheFileItCannotCreate) {
  FakeServer server;
  const auto client = Open({server.endpoint()});
  EXPECT_THAT(SaveSnapshot(*client, base::PosixFiles(), "/nosuch/s.db", {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "could not open /nosuch/s.db.part (open /nosuch/s.db.part: no such file or "
                       "directory)"));
}

}  // namespace
}  // namespace client
