#include "api/cluster.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api/write.h"
#include "base/status.h"
#include "base/urls.h"
#include "member/errors.h"
#include "proto/rpc.pb.h"

namespace api {
namespace {

namespace pb = etcdserverpb;

void Fill(const cluster::Member& member, pb::Member* out) {
  out->set_id(member.id);
  out->set_name(member.name);
  for (const std::string& url : member.peer_urls) out->add_peerurls(url);
  for (const std::string& url : member.client_urls) out->add_clienturls(url);
  out->set_islearner(member.is_learner);
}

template <typename Response>
void FillMembers(const Context& context, Response* response) {
  for (const auto& [id, member] : context.member.membership()->members)
    Fill(member, response->add_members());
}

// A membership change on its way; answers with all members once it is applied.
template <typename Response>
class ChangeProposal final : public member::Proposal {
 public:
  ChangeProposal(const Context& context, rpc::CallPtr call)
      : context_(context), call_(std::move(call)) {}
  // Of an addition: whose record the answer shows. Set before the change is proposed.
  std::shared_ptr<uint64_t> added;

  void Done(member::ApplyResult result) override {
    net::Loop& loop = call_->loop();
    context_.answers.Deliver(loop, [&context = context_, call = std::move(call_), added = added,
                                    status = result.status] {
      if (!status.ok()) return call->Finish(status);
      Response response;
      FillMembers(context, &response);
      if constexpr (std::is_same_v<Response, pb::MemberAddResponse>) {
        const auto view = context.member.membership();
        if (const cluster::Member* member = view->Find(*added))
          Fill(*member, response.mutable_member());
      }
      rpc::Message message = context.WithHeader(0);
      response.AppendToString(message.bytes());
      call->Respond(std::move(message));
    });
  }

 private:
  const Context& context_;
  rpc::CallPtr call_;
};

// The URLs in their parsed form; empty when one is bad or there is none.
std::vector<std::string> CheckedUrls(const google::protobuf::RepeatedPtrField<std::string>& texts) {
  std::vector<std::string> urls;
  for (const std::string& text : texts) {
    const auto url = base::ParseUrl(text);
    if (!url.ok()) return {};
    urls.push_back(url->Text());
  }
  return urls;
}

void MemberAdd(const Context& context, rpc::CallPtr call, std::string_view request) {
  pb::MemberAddRequest add;
  if (!Parse(request, &add)) return call->Finish(UnmarshalError());
  auto urls = CheckedUrls(add.peerurls());
  if (urls.empty()) return call->Finish(member::BadMemberUrlsError());
  auto proposal = std::make_unique<ChangeProposal<pb::MemberAddResponse>>(context, std::move(call));
  // The id is known only once the change is made; the answer is built later still, on this loop.
  const auto added = std::make_shared<uint64_t>();
  proposal->added = added;
  *added = context.member.AddMember(std::move(urls), add.islearner(), std::move(proposal));
}

void MemberRemove(const Context& context, rpc::CallPtr call, std::string_view request) {
  pb::MemberRemoveRequest remove;
  if (!Parse(request, &remove)) return call->Finish(UnmarshalError());
  context.member.RemoveMember(
      remove.id(),
      std::make_unique<ChangeProposal<pb::MemberRemoveResponse>>(context, std::move(call)));
}

void MemberUpdate(const Context& context, rpc::CallPtr call, std::string_view request) {
  pb::MemberUpdateRequest update;
  if (!Parse(request, &update)) return call->Finish(UnmarshalError());
  auto urls = CheckedUrls(update.peerurls());
  // etcd commits a bad URL, and every member that has a transport ends on it.
  if (urls.empty()) return call->Finish(member::BadMemberUrlsError());
  context.member.UpdateMember(
      update.id(), std::move(urls),
      std::make_unique<ChangeProposal<pb::MemberUpdateResponse>>(context, std::move(call)));
}

// What another member answered to a promotion, as an error of this one.
absl::Status PromotionStatus(const peer::Answer& answer) {
  constexpr int kOk = 200;
  constexpr int kNotFound = 404;
  constexpr int kPreconditionFailed = 412;
  if (answer.status == kOk) return absl::OkStatus();
  if (answer.status == kNotFound) return member::MemberNotFoundError();
  if (answer.status == kPreconditionFailed) {
    return answer.body.starts_with("membership:") ? member::MemberNotLearnerError()
                                                  : member::LearnerNotReadyError();
  }
  return base::MakeStatus(absl::StatusCode::kUnknown, "member promote: unknown error({})",
                          answer.body);
}

void MemberPromote(const Context& context, rpc::CallPtr call, std::string_view request) {
  pb::MemberPromoteRequest promote;
  if (!Parse(request, &promote)) return call->Finish(UnmarshalError());
  if (context.member.is_leader()) {
    return context.member.PromoteMember(
        promote.id(),
        std::make_unique<ChangeProposal<pb::MemberPromoteResponse>>(context, std::move(call)));
  }
  // Only the leader knows how far a learner has come.
  OnHelper(
      context, std::move(call),
      [&context, id = promote.id()] {
        return context.member.AskLeader(
            {.method = "POST", .path = fmt::format("/members/promote/{}", id)},
            context.member.request_timeout());
      },
      [&context](const rpc::CallPtr& done, const absl::StatusOr<peer::Answer>& answer) {
        const absl::Status status = answer.ok() ? PromotionStatus(*answer) : answer.status();
        if (!status.ok()) return done->Finish(status);
        // As the leader sees it, which may be ahead of this member.
        pb::MemberPromoteResponse response;
        const auto list = nlohmann::json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
        for (const auto& item : list) {
          const auto member = cluster::DecodeMember(item.dump());
          if (member.ok()) Fill(*member, response.add_members());
        }
        rpc::Message message = context.WithHeader(0);
        response.AppendToString(message.bytes());
        done->Respond(std::move(message));
      });
}

void AnswerMemberList(const Context& context, const rpc::CallPtr& call) {
  pb::MemberListResponse response;
  FillMembers(context, &response);
  rpc::Message message = context.WithHeader(0);
  response.AppendToString(message.bytes());
  call->Respond(std::move(message));
}

void MemberList(const Context& context, rpc::CallPtr call, std::string_view request) {
  pb::MemberListRequest list;
  if (!Parse(request, &list)) return call->Finish(UnmarshalError());
  if (!list.linearizable() || context.member.ReadNow()) return AnswerMemberList(context, call);
  WhenLinearizable(context, call, [&context, call] { AnswerMemberList(context, call); });
}

}  // namespace

void RegisterCluster(rpc::Server& server, const Context& context) {
  RegisterUnary(server, context, "/etcdserverpb.Cluster/MemberList", MemberList);
  RegisterUnary(server, context, "/etcdserverpb.Cluster/MemberAdd", MemberAdd);
  RegisterUnary(server, context, "/etcdserverpb.Cluster/MemberRemove", MemberRemove);
  RegisterUnary(server, context, "/etcdserverpb.Cluster/MemberUpdate", MemberUpdate);
  RegisterUnary(server, context, "/etcdserverpb.Cluster/MemberPromote", MemberPromote);
}

}  // namespace api
