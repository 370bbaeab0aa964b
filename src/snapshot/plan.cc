#include <algorithm>
#include <set>

#include "base/bytes.h"
#include "base/go_text.h"
#include "base/ids.h"
#include "base/split.h"
#include "base/status.h"
#include "base/urls.h"
#include "snapshot/restore.h"
#include "snapshot/restoring.h"

namespace snapshot {
namespace {

using UrlsByName = std::map<std::string, std::vector<std::string>>;

absl::Status Invalid(std::string_view text) {
  return absl::InvalidArgumentError(base::ToAbsl(text));
}

std::string Joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ",") + part;
  return out;
}

std::string WithoutTrailingSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// URLs by member name, sorted. A pair without "=" is a name without URL, which no URL can be made
// of.
absl::StatusOr<UrlsByName> ParseCluster(std::string_view text) {
  UrlsByName cluster;
  for (const std::string_view pair : base::SplitAtCommas(text)) {
    const size_t equals = pair.find('=');
    const std::string_view url_text =
        equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1);
    ASSIGN_OR_RETURN(const base::Url url, base::ParseUrl(url_text));
    cluster[std::string(pair.substr(0, equals))].push_back(url.Text());
  }
  for (auto& [name, urls] : cluster) std::sort(urls.begin(), urls.end());
  return cluster;
}

// The whole map as one text, by name.
std::string ClusterText(const UrlsByName& cluster) {
  std::vector<std::string> pairs;
  for (const auto& [name, urls] : cluster) {
    for (const std::string& url : urls) pairs.push_back(name + "=" + url);
  }
  return Joined(pairs);
}

// With the host as an address, where it is a name that resolves.
absl::StatusOr<std::vector<std::string>> Resolved(const std::vector<std::string>& urls,
                                                  RestoreOptions& options) {
  std::vector<std::string> out;
  for (const std::string& text : urls) {
    ASSIGN_OR_RETURN(const base::Url url, base::ParseUrl(text));
    if (url.is_unix() || url.host == "localhost" || url.host.empty() ||
        base::IsIpLiteral(url.host) || !options.resolve) {
      out.push_back(text);
      continue;
    }
    ASSIGN_OR_RETURN(const std::string address, options.resolve(url.host));
    const bool v6 = address.find(':') != std::string::npos;
    out.push_back(
        fmt::format("{}://{}{}{}:{}", url.scheme, v6 ? "[" : "", address, v6 ? "]" : "", url.port));
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> Missing(const std::vector<std::string>& from,
                                 const std::vector<std::string>& in) {
  std::vector<std::string> out;
  for (const std::string& url : from) {
    if (std::find(in.begin(), in.end(), url) == in.end()) out.push_back(url);
  }
  return out;
}

// The member's own URLs must be the same in both lists, by text or by address.
absl::Status CheckOwnUrls(const std::vector<std::string>& advertised,
                          const std::vector<std::string>& listed, RestoreOptions& options) {
  if (advertised == listed) return absl::OkStatus();
  std::string reason;
  const auto advertised_resolved = Resolved(advertised, options);
  const auto listed_resolved = Resolved(listed, options);
  if (!advertised_resolved.ok() || !listed_resolved.ok()) {
    reason = base::Message(advertised_resolved.ok() ? listed_resolved.status()
                                                    : advertised_resolved.status());
  } else {
    if (*advertised_resolved == *listed_resolved) return absl::OkStatus();
    for (size_t i = 0; i < std::min(advertised.size(), listed.size()) && reason.empty(); ++i) {
      if ((*advertised_resolved)[i] == (*listed_resolved)[i]) continue;
      reason = fmt::format("resolved urls: {} != {}", base::GoQuote((*advertised_resolved)[i]),
                           base::GoQuote((*listed_resolved)[i]));
    }
  }
  std::vector<std::string> missing = Missing(listed, advertised);
  for (std::string& url : missing) url = options.name + "=" + url;
  if (!missing.empty()) {
    return Invalid(fmt::format(
        "--initial-cluster has {} but missing from --initial-advertise-peer-urls={} ({})",
        Joined(missing), Joined(advertised), reason));
  }
  return Invalid(
      fmt::format("--initial-advertise-peer-urls has {} but missing from --initial-cluster={}",
                  Joined(Missing(advertised, listed)), ClusterText({{options.name, advertised}})));
}

absl::Status CheckBootstrap(const UrlsByName& cluster, const std::vector<std::string>& advertised,
                            RestoreOptions& options) {
  const auto own = cluster.find(options.name);
  if (own == cluster.end()) {
    return Invalid(fmt::format("couldn't find local name {} in the initial cluster configuration",
                               base::GoQuote(options.name)));
  }
  RETURN_IF_ERROR(CheckOwnUrls(advertised, own->second, options));
  std::set<std::string_view> seen;
  for (const auto& [name, urls] : cluster) {
    for (const std::string& url : urls) {
      if (!seen.insert(url).second) {
        return Invalid(fmt::format("initial cluster {} has duplicate url", ClusterText(cluster)));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status AddMembers(const UrlsByName& cluster, const std::string& token,
                        const std::string& own_name, RestorePlan* plan) {
  std::vector<uint64_t> ids;
  for (const auto& [name, urls] : cluster) {
    const uint64_t id = base::MemberId(urls, token);
    if (id == 0) return Invalid("cannot use 0 as member id");
    cluster::Member member{
        .id = id, .peer_urls = urls, .is_learner = false, .name = name, .client_urls = {}};
    if (!plan->members.emplace(id, std::move(member)).second) {
      return Invalid(fmt::format("member exists with identical ID {}", base::IdToHex(id)));
    }
    if (name == own_name) plan->local_id = id;
    ids.push_back(id);
  }
  plan->cluster_id = base::ClusterId(ids);
  return absl::OkStatus();
}

}  // namespace

// Nothing but what a killed restore left may be there.
bool IsFreeForRestore(base::Files& files, const std::string& data_dir) {
  const auto info = files.Stat(data_dir);
  // What cannot be looked at for another reason than that it is missing shows itself when it is
  // made.
  if (!info.ok()) return true;
  if (!info->is_directory) return false;
  const auto names = files.List(data_dir);
  return names.ok() && std::all_of(names->begin(), names->end(),
                                   [](const std::string& name) { return name == kRestoringName; });
}

absl::StatusOr<RestorePlan> PlanRestore(base::Files& files, RestoreOptions& options) {
  if ((options.bump_revision > 0) != options.mark_compacted) {
    return Invalid("--mark-compacted required if --revision-bump > 0");
  }
  RestorePlan plan;
  ASSIGN_OR_RETURN(const std::vector<base::Url> own_urls,
                   base::ParseUrlList(options.initial_advertise_peer_urls));
  std::vector<std::string> advertised = base::UrlTexts(own_urls);
  std::sort(advertised.begin(), advertised.end());
  ASSIGN_OR_RETURN(const UrlsByName cluster, ParseCluster(options.initial_cluster));
  RETURN_IF_ERROR(CheckBootstrap(cluster, advertised, options));
  RETURN_IF_ERROR(AddMembers(cluster, options.initial_cluster_token, options.name, &plan));

  plan.snapshot_path = options.snapshot_path;
  plan.data_dir =
      WithoutTrailingSlash(options.data_dir.empty() ? options.name + ".etcd" : options.data_dir);
  plan.snap_dir = base::JoinPath(plan.data_dir, "member/snap");
  plan.wal_dir = options.wal_dir.empty() ? base::JoinPath(plan.data_dir, "member/wal")
                                         : WithoutTrailingSlash(options.wal_dir);
  plan.map_reserve_bytes =
      options.map_reserve_bytes == 0 ? uint64_t{10} << 30 : options.map_reserve_bytes;
  if (!IsFreeForRestore(files, plan.data_dir)) {
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition,
                            "data-dir {} not empty or could not be read",
                            base::GoQuote(plan.data_dir));
  }
  if (base::Exists(files, plan.wal_dir)) {
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition, "wal-dir {} exists",
                            base::GoQuote(plan.wal_dir));
  }
  return plan;
}

}  // namespace snapshot
