#include "api/write.h"

#include "member/errors.h"

namespace api {
namespace {

class CallProposal final : public member::Proposal {
 public:
  CallProposal(const Context& context, rpc::CallPtr call)
      : context_(context), call_(std::move(call)) {}

  void Done(member::ApplyResult result) override {
    net::Loop& loop = call_->loop();
    context_.answers.Deliver(
        loop, [&context = context_, call = std::move(call_), result = std::move(result)] {
          if (!result.status.ok()) {
            call->Finish(result.status);
            return;
          }
          rpc::Message message = context.WithHeader(result.revision);
          message.bytes()->append(result.body);
          call->Respond(std::move(message));
        });
  }

 private:
  const Context& context_;
  rpc::CallPtr call_;
};

}  // namespace

bool CheckRoom(const Context& context, const rpc::CallPtr& call, uint64_t cost) {
  if (context.member.HasRoom(cost)) return true;
  context.member.RaiseNoSpace([&context, call](const absl::Status&) {
    context.answers.Deliver(call->loop(), [call] { call->Finish(member::NoSpaceError()); });
  });
  return false;
}

void ProposeFor(const Context& context, rpc::CallPtr call, member::RequestKind kind,
                std::string_view message, uint64_t cost) {
  if (cost > 0 && !CheckRoom(context, call, cost)) return;
  context.member.Propose(kind, message, std::make_unique<CallProposal>(context, std::move(call)));
}

void WhenLinearizable(const Context& context, rpc::CallPtr call, absl::AnyInvocable<void()> then) {
  context.member.Read([&context, call = std::move(call),
                       then = std::move(then)](const absl::Status& status) mutable {
    net::Loop& loop = call->loop();
    context.answers.Deliver(loop,
                            [call = std::move(call), then = std::move(then), status]() mutable {
                              if (call->done()) return;
                              if (!status.ok()) {
                                call->Finish(status);
                                return;
                              }
                              then();
                            });
  });
}

}  // namespace api
