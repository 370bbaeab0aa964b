#include "api/lease.h"

#include <deque>
#include <limits>
#include <utility>

#include "api/write.h"
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

void TimeToLive(const Context& context, rpc::CallPtr call, std::string_view request) {
  pb::LeaseTimeToLiveRequest ask;
  if (!Parse(request, &ask)) return call->Finish(UnmarshalError());
  lease::Lessor& lessor = context.member.lessor();
  pb::LeaseTimeToLiveResponse response;
  response.set_id(ask.id());
  const auto info = lessor.Find(ask.id());
  if (info) {
    response.set_ttl(info->remaining_seconds);
    response.set_grantedttl(info->granted_ttl_seconds);
    if (ask.keys()) {
      const auto keys = lessor.Keys(ask.id());
      if (keys.ok()) {
        for (const std::string& key : *keys) response.add_keys(key);
      }
    }
  } else {
    response.set_ttl(-1);
  }
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
        if (renewal.clear_checkpoint) ClearCheckpoint(request.id());
        break;
      case lease::Lessor::RenewOutcome::kNotFound:
        answer->ready = true;
        break;
      case lease::Lessor::RenewOutcome::kNotPrimary:
        return shared_->Finish(member::NoLeaderError());
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

  class Forget final : public member::Proposal {
   public:
    void Done(member::ApplyResult) override {}  // the next renewal asks again
  };

  void ClearCheckpoint(int64_t id) {
    pb::LeaseCheckpointRequest request;
    request.add_checkpoints()->set_id(id);
    context_.member.Propose(member::RequestKind::kLeaseCheckpoint, request.SerializeAsString(),
                            std::make_unique<Forget>());
  }

  const Context& context_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace

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
