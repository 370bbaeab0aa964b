// A member on a simulated disk with a clock that tests turn, stepped by hand. Test code; one
// thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "base/testing.h"
#include "base/wire.h"
#include "member/member.h"
#include "mvcc/key_value.h"
#include "proto/rpc.pb.h"
#include "support/memory_files.h"

namespace member {

namespace pb = etcdserverpb;

class ManualClock final : public base::Clock {
 public:
  base::Duration Monotonic() const override { return now; }
  base::Duration Wall() const override { return now; }
  base::Duration now = std::chrono::seconds(1000);
};

class NoTransport final : public peer::Transport {
 public:
  void Send(std::vector<raft::Message>) override {}
};

class RecordingObserver final : public MemberObserver {
 public:
  void OnFatal(const absl::Status& status) override { fatal = status; }
  void OnSnapshotSaved(uint64_t index) override { snapshots.push_back(index); }
  void OnCompactionFinished(int64_t, base::Duration) override { ++compactions_finished; }
  absl::Status fatal;
  std::vector<uint64_t> snapshots;
  int compactions_finished = 0;
};

class CallbackProposal final : public Proposal {
 public:
  explicit CallbackProposal(std::function<void(ApplyResult)> done) : done_(std::move(done)) {}
  void Done(ApplyResult result) override { done_(std::move(result)); }

 private:
  std::function<void(ApplyResult)> done_;
};

class TestMember {
 public:
  TestMember() {
    base::SetLogLevel(base::LogLevel::kError);  // starts and kills by the dozen are no news
    options.name = "one";
    options.data_dir = "/data";
    options.peer_urls = {"http://127.0.0.1:2380"};
    options.client_urls = {"http://127.0.0.1:2379"};
    options.initial_cluster = {{"one", options.peer_urls}};
    options.wal_segment_bytes = 1 << 16;
    options.files = &disk;
    options.clock = &clock;
    options.random = &random;
    options.threads = false;
  }
  ~TestMember() { Kill(); }

  absl::Status Start() {
    member.reset();
    observer = RecordingObserver();
    ASSIGN_OR_RETURN(member, Member::Start(options, transport, observer));
    return absl::OkStatus();
  }
  // Started, leading and published.
  absl::Status StartReady() {
    RETURN_IF_ERROR(Start());
    return Until([this] { return member->ready(); });
  }
  // Ends the process as a kill does (`power` false), or takes the power and all that was not
  // synced.
  void Kill(bool power = false) {
    disk.CrashAll(/*keep=*/!power);
    member.reset();
  }
  absl::Status Restart() {
    Kill();
    return StartReady();
  }

  void Step(base::Duration passed = std::chrono::milliseconds(20)) {
    clock.now += passed;
    member->RunOnce();
  }
  absl::Status Until(const std::function<bool()>& holds) {
    for (int i = 0; i < 2000; ++i) {
      if (holds()) return absl::OkStatus();
      Step();
    }
    return absl::DeadlineExceededError("it does not come");
  }

  // The result comes when it is there; empty until then.
  std::shared_ptr<std::optional<ApplyResult>> Propose(RequestKind kind, std::string_view message) {
    auto result = std::make_shared<std::optional<ApplyResult>>();
    member->Propose(kind, message, std::make_unique<CallbackProposal>([result](ApplyResult done) {
                      *result = std::move(done);
                    }));
    return result;
  }
  ApplyResult Do(RequestKind kind, const google::protobuf::MessageLite& message) {
    const auto result = Propose(kind, message.SerializeAsString());
    EXPECT_OK(Until([&] { return result->has_value(); }));
    return result->value_or(ApplyResult{.status = absl::UnknownError("no result")});
  }
  ApplyResult Put(const std::string& key, const std::string& value, int64_t lease = 0) {
    pb::PutRequest put;
    put.set_key(key);
    put.set_value(value);
    put.set_lease(lease);
    return Do(RequestKind::kPut, put);
  }
  ApplyResult Delete(const std::string& key, const std::string& end = "") {
    pb::DeleteRangeRequest request;
    request.set_key(key);
    request.set_range_end(end);
    return Do(RequestKind::kDeleteRange, request);
  }
  ApplyResult Grant(int64_t id, int64_t ttl) {
    pb::LeaseGrantRequest grant;
    grant.set_id(id);
    grant.set_ttl(ttl);
    return Do(RequestKind::kLeaseGrant, grant);
  }
  ApplyResult SetAlarm(pb::AlarmRequest::AlarmAction action, pb::AlarmType type) {
    pb::AlarmRequest alarm;
    alarm.set_action(action);
    alarm.set_memberid(member->id());
    alarm.set_alarm(type);
    return Do(RequestKind::kAlarm, alarm);
  }

  // "key=value c<created> m<mod> v<version> l<lease>" of each key.
  std::vector<std::string> Keys(int64_t revision = 0) {
    std::string found;
    EXPECT_OK(member->store().Range(
        {.key = " ", .range_end = std::string_view("\0", 1), .revision = revision}, &found));
    std::vector<std::string> keys;
    base::wire::Reader reader(found);
    while (reader.Next()) {
      const auto kv = mvcc::DecodeKeyValue(reader.bytes());
      EXPECT_OK(kv);
      if (!kv.ok()) break;
      keys.push_back(fmt::format("{}={} c{} m{} v{} l{}", kv->key, kv->value, kv->create_revision,
                                 kv->mod_revision, kv->version, kv->lease));
    }
    return keys;
  }
  int64_t revision() { return member->store().current_revision(); }

  test_support::MemoryFiles disk;
  ManualClock clock;
  base::SeededRandom random{42};
  NoTransport transport;
  RecordingObserver observer;
  MemberOptions options;
  std::unique_ptr<Member> member;
};

}  // namespace member
