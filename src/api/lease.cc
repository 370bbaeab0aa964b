#include "api/lease.h"

#include <deque>
#include <limits>
#include <thread>
#include <utility>

#include "api/write.h"
#include "base/status.h"
#include "base/wire.h"
#include "lease/lessor.h"
#include "member/applier.h"
#include "member/errors.h"
#include "proto/rpc.pb.h"

namespace api {
namespace {

namespace pb = etcdserverpb;
namespace wire = base::wire;

void Grant(const Context& context, rpc::CallPtr call, std::string_view request) {
  pb::LeaseGrantRequest grant;
  if (!Parse(request, &grant)) return call->Finish(UnmarshalError());
  // Chosen here, so that all members grant the same one.
  while (grant.id() == 0) {
    grant.set_id(
        static_cast<int64_t>(context.member.NextRequestId() & std::numeric_limits<int64_t>::max()));
  }
  ProposeFor(context, std::move(call), member::RequestKind::kLeaseGrant, grant.SerializeAsString(),
             member::kLeaseGrantCost);
}

void Revoke(const Context& context, rpc::CallPtr call, std::string_view request) {
  pb::LeaseRevokeRequest revoke;
  if (!Parse(request, &revoke)) return call->Finish(UnmarshalError());
  ProposeFor(context, std::move(call), member::RequestKind::kLeaseRevoke, request);
}

constexpr base::Duration kLeaderTimeout = std::chrono::seconds(2);
constexpr int kOk = 200;
constexpr int kNotFound = 404;

// Asks the leader until it answers `wanted` statuses, or the request's time is over.
absl::StatusOr<peer::Answer> AskLeaderFor(const Context& context, const peer::Question& question) {
  const base::Duration deadline = context.clock.Monotonic() + context.member.request_timeout();
  while (true) {
    auto answer = context.member.AskLeader(question, kLeaderTimeout);
    if (answer.ok() && (answer->status == kOk || answer->status == kNotFound)) return answer;
    if (context.clock.Monotonic() >= deadline) return member::TimeoutError();
    // The leader may be changing.
    constexpr base::Duration kPause = std::chrono::milliseconds(50);
    std::this_thread::sleep_for(kPause);
  }
}

absl::StatusOr<int64_t> RenewAtLeader(const Context& context, int64_t id) {
  pb::LeaseKeepAliveRequest request;
  request.set_id(id);
  ASSIGN_OR_RETURN(const peer::Answer answer,
                   AskLeaderFor(context, {.method = "POST",
                                          .path = "/leases",
                                          .headers = {{"Content-Type", "application/protobuf"}},
                                          .body = request.SerializeAsString()}));
  if (answer.status == kNotFound) return 0;
  pb::LeaseKeepAliveResponse response;
  if (!Parse(answer.body, &response)) return UnmarshalError();
  return response.ttl();
}

void TimeToLiveAtLeader(const Context& context, rpc::CallPtr call,
                        const pb::LeaseTimeToLiveRequest& ask) {
  OnHelper(
      context, std::move(call),
      [&context, ask]() -> absl::StatusOr<pb::LeaseTimeToLiveResponse> {
        ASSIGN_OR_RETURN(
            const peer::Answer answer,
            AskLeaderFor(context, {.method = "POST",
                                   .path = "/leases/internal",
                                   .headers = {{"Content-Type", "application/protobuf"}},
                                   .body = WrapInternal(ask.SerializeAsString())}));
        pb::LeaseTimeToLiveResponse response;
        if (answer.status == kNotFound) {
          response.set_id(ask.id());
          response.set_ttl(-1);
          return response;
        }
        const auto inner = UnwrapInternal(answer.body);
        if (!inner || !Parse(*inner, &response)) return UnmarshalError();
        return response;
      },
      [&context](const rpc::CallPtr& done, absl::StatusOr<pb::LeaseTimeToLiveResponse> response) {
        if (!response.ok()) return done->Finish(response.status());
        response->clear_header();
        rpc::Message message = context.WithHeader(context.member.store().current_revision());
        response->AppendToString(message.bytes());
        done->Respond(std::move(message));
      });
}

void TimeToLive(const Context& context, rpc::CallPtr call, std::string_view request) {
  pb::LeaseTimeToLiveRequest ask;
  if (!Parse(request, &ask)) return call->Finish(UnmarshalError());
  if (!context.member.lessor().is_primary())
    return TimeToLiveAtLeader(context, std::move(call), ask);
  pb::LeaseTimeToLiveResponse response;
  if (!FillTimeToLive(context.member.lessor(), ask, &response)) response.set_ttl(-1);
  rpc::Message message = context.WithHeader(context.member.store().current_revision());
  response.AppendToString(message.bytes());
  call->Respond(std::move(message));
}

void Leases(const Context& context, rpc::CallPtr call, std::string_view) {
  pb::LeaseLeasesResponse response;
  for (const lease::LeaseInfo& info : context.member.lessor().Leases())
    response.add_leases()->set_id(info.id);
  rpc::Message message = context.WithHeader(context.member.store().current_revision());
  response.AppendToString(message.bytes());
  call->Respond(std::move(message));
}

// One keep-alive stream: answers in the order of the requests, also when one of them has to wait
// for a revocation.
class KeepAliveStream final : public rpc::StreamReceiver {
 public:
  KeepAliveStream(const Context& context, rpc::CallPtr call)
      : context_(context), shared_(std::make_shared<Shared>()) {
    shared_->call = std::move(call);
  }
  ~KeepAliveStream() override { shared_->call.reset(); }

  void OnMessage(std::string_view bytes) override {
    pb::LeaseKeepAliveRequest request;
    if (!Parse(bytes, &request)) return shared_->Finish(UnmarshalError());
    // The header states the revision before the renewal.
    auto answer = std::make_shared<Answer>();
    answer->id = request.id();
    answer->revision = context_.member.store().current_revision();
    shared_->answers.push_back(answer);
    const auto renewal = context_.member.lessor().Renew(request.id());
    switch (renewal.outcome) {
      case lease::Lessor::RenewOutcome::kRenewed:
        answer->ttl = renewal.ttl_seconds;
        answer->ready = true;
        if (renewal.clear_checkpoint) ClearCheckpoint(context_, request.id());
        break;
      case lease::Lessor::RenewOutcome::kNotFound:
        answer->ready = true;
        break;
      case lease::Lessor::RenewOutcome::kNotPrimary:
        AskLeader(answer);
        break;
      case lease::Lessor::RenewOutcome::kExpired:
        // Its end is decided: the answer is TTL 0, once the lease is gone.
        context_.member.lessor().OnceRevoked(
            request.id(),
            [&context = context_, shared = shared_, answer, loop = &shared_->call->loop()](bool) {
              context.answers.Deliver(*loop, [&context, shared, answer] {
                answer->ready = true;
                shared->SendReady(context);
              });
            });
        break;
    }
    shared_->SendReady(context_);
  }

  void OnHalfClose() override {
    shared_->half_closed = true;
    shared_->SendReady(context_);
  }
  void OnCancel(const absl::Status&) override { shared_->call.reset(); }

 private:
  struct Answer {
    int64_t id = 0;
    int64_t ttl = 0;
    int64_t revision = 0;
    bool ready = false;
  };
  // Outlives the receiver while a revocation is awaited. Loop thread.
  struct Shared {
    rpc::CallPtr call;  // null once the stream is over
    std::deque<std::shared_ptr<Answer>> answers;
    bool half_closed = false;

    void Finish(const absl::Status& status) {
      if (call == nullptr) return;
      const rpc::CallPtr ended = std::exchange(call, nullptr);
      ended->Finish(status);
    }
    void SendReady(const Context& context) {
      if (call == nullptr) return;
      while (!answers.empty() && answers.front()->ready) {
        const Answer& answer = *answers.front();
        rpc::Message message = context.WithHeader(answer.revision);
        wire::AppendNonZero(message.bytes(), 2, static_cast<uint64_t>(answer.id));
        wire::AppendNonZero(message.bytes(), 3, static_cast<uint64_t>(answer.ttl));
        call->Send(std::move(message));
        answers.pop_front();
      }
      if (half_closed && answers.empty()) Finish(absl::OkStatus());
    }
  };

  // Only the leader knows how long leases live. Asked by a helper; the answers keep their order.
  void AskLeader(std::shared_ptr<Answer> answer) {
    const bool posted =
        context_.helpers.Post([&context = context_, shared = shared_, answer = std::move(answer),
                               loop = &shared_->call->loop()]() mutable {
          auto ttl = RenewAtLeader(context, answer->id);
          loop->Post([&context, shared = std::move(shared), answer = std::move(answer),
                      ttl = std::move(ttl)] {
            if (!ttl.ok()) return shared->Finish(ttl.status());
            answer->ttl = *ttl;
            answer->ready = true;
            shared->SendReady(context);
          });
        });
    if (!posted) shared_->Finish(member::TooManyRequestsError());
  }

  const Context& context_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace

bool FillTimeToLive(const lease::Lessor& lessor, const pb::LeaseTimeToLiveRequest& ask,
                    pb::LeaseTimeToLiveResponse* response) {
  response->set_id(ask.id());
  const auto info = lessor.Find(ask.id());
  if (!info) return false;
  response->set_ttl(info->remaining_seconds);
  response->set_grantedttl(info->granted_ttl_seconds);
  if (!ask.keys()) return true;
  const auto keys = lessor.Keys(ask.id());
  if (keys.ok()) {
    for (const std::string& key : *keys) response->add_keys(key);
  }
  return true;
}

std::string WrapInternal(std::string_view message) {
  std::string out;
  wire::AppendBytes(&out, 1, message);
  return out;
}

std::optional<std::string_view> UnwrapInternal(std::string_view bytes) {
  std::string_view inner;
  wire::Reader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1) inner = reader.bytes();
  }
  if (!reader.ok()) return std::nullopt;
  return inner;
}

void ClearCheckpoint(const Context& context, int64_t id) {
  class Forget final : public member::Proposal {
   public:
    void Done(member::ApplyResult) override {}  // the next renewal asks again
  };
  pb::LeaseCheckpointRequest request;
  request.add_checkpoints()->set_id(id);
  context.member.Propose(member::RequestKind::kLeaseCheckpoint, request.SerializeAsString(),
                         std::make_unique<Forget>());
}

void RegisterLease(rpc::Server& server, const Context& context) {
  RegisterUnary(server, context, "/etcdserverpb.Lease/LeaseGrant", Grant);
  RegisterUnary(server, context, "/etcdserverpb.Lease/LeaseRevoke", Revoke);
  RegisterUnary(server, context, "/etcdserverpb.Lease/LeaseTimeToLive", TimeToLive);
  RegisterUnary(server, context, "/etcdserverpb.Lease/LeaseLeases", Leases);
  server.RegisterBidiStream("/etcdserverpb.Lease/LeaseKeepAlive", [&context](rpc::CallPtr call) {
    return std::make_unique<KeepAliveStream>(context, std::move(call));
  });
}

}  // namespace api
