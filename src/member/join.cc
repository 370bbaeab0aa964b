#include "member/join.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "base/status.h"

namespace member {
namespace {

constexpr base::Duration kJoinTimeout = std::chrono::seconds(10);
constexpr base::Duration kBootstrapCheckTimeout = std::chrono::seconds(1);
constexpr int kOk = 200;

absl::Status Failed(std::string text) { return absl::FailedPreconditionError(text); }

struct RemoteView {
  uint64_t cluster_id = 0;
  std::vector<cluster::Member> members;
};

absl::StatusOr<RemoteView> AskMembers(peer::Transport& transport, const std::string& url,
                                      base::Duration timeout) {
  ASSIGN_OR_RETURN(const peer::Answer answer, transport.Ask(url, {.path = "/members"}, timeout));
  if (answer.status != kOk)
    return base::MakeStatus(absl::StatusCode::kUnavailable, "status {}", answer.status);
  RemoteView view;
  const auto list = nlohmann::json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array() || !base::ParseHexId(answer.cluster_id, &view.cluster_id))
    return absl::UnavailableError("the answer is no list of members");
  for (const auto& item : list) {
    ASSIGN_OR_RETURN(cluster::Member member, cluster::DecodeMember(item.dump()));
    view.members.push_back(std::move(member));
  }
  return view;
}

// All peer URLs of the others, sorted.
std::vector<std::string> OtherUrls(const MemberOptions& options) {
  std::vector<std::string> urls;
  for (const auto& [name, theirs] : options.initial_cluster) {
    if (name != options.name) urls.insert(urls.end(), theirs.begin(), theirs.end());
  }
  std::sort(urls.begin(), urls.end());
  return urls;
}

std::vector<std::string> Sorted(std::vector<std::string> urls) {
  std::sort(urls.begin(), urls.end());
  return urls;
}

absl::Status CheckVersions(const MemberOptions& options, const std::vector<cluster::Member>& others,
                           peer::Transport& transport) {
  ASSIGN_OR_RETURN(const cluster::Version own, cluster::ParseVersion(options.version));
  constexpr std::pair kOldest(3, 0);
  bool compatible = false;
  for (const cluster::Member& other : others) {
    const auto versions = AskVersions(transport, other.peer_urls, kBootstrapCheckTimeout);
    if (!versions.ok()) {
      LOG_WARN("failed to get version", {"remote-member-id", base::IdToHex(other.id)},
               {"error", versions.status()});
      continue;
    }
    const auto cluster = cluster::ParseVersion(versions->cluster);
    if (!cluster.ok()) continue;  // not decided yet
    const std::pair minor(cluster->major, cluster->minor);
    if (minor < kOldest || minor > std::pair(own.major, own.minor)) {
      compatible = false;
      break;
    }
    compatible = true;
  }
  return compatible ? absl::OkStatus() : Failed("incompatible with current running cluster");
}

}  // namespace

absl::StatusOr<JoinedCluster> JoinCluster(const MemberOptions& options,
                                          peer::Transport& transport) {
  const auto own = options.initial_cluster.find(options.name);
  if (own == options.initial_cluster.end()) {
    return Failed(fmt::format(
        "couldn't find local name \"{}\" in the initial cluster configuration", options.name));
  }
  std::optional<RemoteView> remote;
  for (const std::string& url : OtherUrls(options)) {
    auto asked = AskMembers(transport, url, kJoinTimeout);
    if (asked.ok()) {
      remote = *std::move(asked);
      break;
    }
    LOG_WARN("failed to get cluster response", {"address", url + "/members"},
             {"error", asked.status()});
  }
  if (!remote) {
    return Failed(
        "cannot fetch cluster info from peer urls: could not retrieve cluster information from the "
        "given URLs");
  }
  const auto invalid = [&](std::string_view why) {
    std::string members;
    for (const cluster::Member& member : remote->members)
      members += (members.empty() ? "" : " ") + cluster::EncodeMember(member);
    return Failed(fmt::format(
        "error validating peerURLs {{ClusterID:{} Members:[{}] RemovedMemberIDs:[]}}: {}",
        base::IdToHex(remote->cluster_id), members, why));
  };
  if (remote->members.size() != options.initial_cluster.size())
    return invalid("member count is unequal");
  JoinedCluster joined{.cluster_id = remote->cluster_id};
  size_t learners = 0;
  for (cluster::Member& member : remote->members) {
    learners += member.is_learner ? 1 : 0;
    const auto named = std::find_if(
        options.initial_cluster.begin(), options.initial_cluster.end(),
        [&](const auto& entry) { return Sorted(entry.second) == Sorted(member.peer_urls); });
    if (named == options.initial_cluster.end()) {
      return invalid(fmt::format("unmatched member while checking PeerURLs (\"{}\")",
                                 fmt::join(member.peer_urls, ",")));
    }
    if (named == own) {
      joined.member_id = member.id;
    } else {
      joined.others.push_back(std::move(member));
    }
  }
  if (joined.member_id == 0) return invalid("unmatched member while checking PeerURLs");
  if (learners > options.max_learners)
    return Failed("membership: too many learner members in cluster");
  RETURN_IF_ERROR(CheckVersions(options, joined.others, transport));
  return joined;
}

absl::Status CheckNotBootstrapped(const MemberOptions& options, uint64_t member_id,
                                  peer::Transport& transport) {
  for (const std::string& url : OtherUrls(options)) {
    const auto remote = AskMembers(transport, url, kBootstrapCheckTimeout);
    if (!remote.ok()) continue;  // in a new cluster the others may not have started yet
    for (const cluster::Member& member : remote->members) {
      if (member.id == member_id && !member.client_urls.empty()) {
        return Failed(
            fmt::format("member {} has already been bootstrapped", base::IdToHex(member_id)));
      }
    }
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::StatusOr<MemberVersions> AskVersions(peer::Transport& transport,
                                           const std::vector<std::string>& urls,
                                           base::Duration timeout) {
  absl::Status failure = absl::UnavailableError("no URL");
  for (const std::string& url : urls) {
    const auto answer = transport.Ask(url, {.path = "/version"}, timeout);
    if (!answer.ok()) {
      failure = answer.status();
      continue;
    }
    const auto json = nlohmann::json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
    if (answer->status != kOk || !json.is_object()) {
      failure = base::MakeStatus(absl::StatusCode::kUnavailable, "status {}", answer->status);
      continue;
    }
    MemberVersions versions;
    for (const auto& [key, to] :
         {std::pair("etcdserver", &versions.server), std::pair("etcdcluster", &versions.cluster)}) {
      const auto it = json.find(key);
      if (it != json.end() && it->is_string()) *to = it->get<std::string>();
    }
    return versions;
  }
  return failure;
}

}  // namespace member
