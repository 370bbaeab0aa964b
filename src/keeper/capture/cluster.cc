#include "capture/cluster.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/status.h"
#include "client/methods.h"
#include "proto/rpc.pb.h"

namespace capture {
namespace {

// A call that waited for a connection in vain says no more than that; one that does not wait says
// why there is none.
absl::Status WhyNot(client::Client& client, const absl::Status& status) {
  if (!absl::IsDeadlineExceeded(status)) return status;
  const auto again =
      client.Call(client::kStatus, {}, {.timeout = std::chrono::seconds(1), .fail_fast = true});
  return absl::IsUnavailable(again.status()) ? again.status() : status;
}

MemberState Ask(client::Client& client, const std::string& endpoint, base::Duration timeout) {
  MemberState state{.endpoint = endpoint};
  const auto answer = client.Call(client::kStatus, {}, {.timeout = timeout});
  if (!answer.ok()) {
    state.status = WhyNot(client, answer.status());
    return state;
  }
  state.cluster_id = answer->header().cluster_id();
  state.member_id = answer->header().member_id();
  state.leader = answer->leader();
  state.revision = answer->header().revision();
  state.raft_index = answer->raftindex();
  state.version = answer->version();
  state.storage_version = answer->storageversion();
  state.db_bytes = answer->dbsize();
  state.is_learner = answer->islearner();
  state.errors.assign(answer->errors().begin(), answer->errors().end());
  return state;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Open(client::Options options) {
  std::unique_ptr<Cluster> cluster(new Cluster(options));
  ASSIGN_OR_RETURN(cluster->any_, client::Client::Open(std::move(options)));
  return cluster;
}

absl::StatusOr<std::unique_ptr<client::Client>> Cluster::Only(const std::string& endpoint,
                                                              uint32_t read_ahead_bytes) const {
  client::Options options = options_;
  options.read_ahead_bytes = read_ahead_bytes;
  options.endpoints = {endpoint};
  return client::Client::Open(std::move(options));
}

std::vector<MemberState> Cluster::Survey(base::Duration timeout) {
  std::vector<MemberState> states(endpoints().size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < states.size(); ++i) {
    threads.emplace_back([this, i, timeout, &states] {
      const std::string& endpoint = endpoints()[i];
      auto client = Only(endpoint);
      if (client.ok()) {
        states[i] = Ask(**client, endpoint, timeout);
      } else {
        states[i] = {.endpoint = endpoint, .status = client.status()};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return states;
}

absl::StatusOr<HistoryMark> Cluster::Now(base::Duration timeout) {
  // One key that cannot be there: only the header is wanted.
  etcdserverpb::RangeRequest request;
  request.set_key(std::string(1, '\0'));
  request.set_count_only(true);
  const auto called = any_->Call(client::kRange, request, {.timeout = timeout});
  RETURN_IF_ERROR(base::Annotate(WhyNot(*any_, called.status()),
                                 fmt::format("{}", fmt::join(endpoints(), ", "))));
  const etcdserverpb::RangeResponse& answer = *called;
  HistoryMark now{.cluster_id = answer.header().cluster_id(),
                  .revision = answer.header().revision()};
  for (const MemberState& member : Survey(timeout)) {
    if (member.status.ok() && member.Leads() && member.cluster_id == now.cluster_id) {
      now.raft_index = member.raft_index;
    }
  }
  return now;
}

absl::StatusOr<MemberState> ChooseMember(const std::vector<MemberState>& members) {
  const MemberState* best = nullptr;
  uint64_t cluster_id = 0;
  std::string reasons;
  for (const MemberState& member : members) {
    const auto reason = [&](std::string_view why) {
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", member.endpoint, why);
    };
    if (!member.status.ok()) {
      reason(client::ErrorText(member.status));
      continue;
    }
    if (cluster_id != 0 && member.cluster_id != cluster_id) {
      return base::MakeStatus(
          absl::StatusCode::kFailedPrecondition,
          "the endpoints belong to different clusters: {} to {:x}, others to {:x}", member.endpoint,
          member.cluster_id, cluster_id);
    }
    cluster_id = member.cluster_id;
    if (member.is_learner) {
      reason("it is a learner");
    } else if (member.leader == 0) {
      reason("it knows no leader");
    } else if (best == nullptr || (best->Leads() && !member.Leads())) {
      best = &member;
    }
  }
  if (best != nullptr) return *best;
  return base::MakeStatus(absl::StatusCode::kUnavailable,
                          "no member can be asked for a snapshot: {}", reasons);
}

}  // namespace capture
