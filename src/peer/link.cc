#include "peer/link.h"

#include "base/bytes.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/status.h"
#include "cluster/membership.h"

namespace peer {
namespace {

constexpr std::string_view kMinClusterVersion = "3.0.0";
constexpr cluster::Version kOldestServer{.major = 3, .minor = 0, .patch = 0};
// What a request without version headers is taken for.
constexpr std::string_view kUnstatedVersion = "2.0.0";

bool MinorLess(const cluster::Version& a, const cluster::Version& b) {
  return std::pair(a.major, a.minor) < std::pair(b.major, b.minor);
}

}  // namespace

Headers Link::RequestHeaders() const {
  Headers headers = {{"X-Server-From", base::IdToHex(identity.member_id)},
                     {"X-Server-Version", options.version},
                     {"X-Min-Cluster-Version", std::string(kMinClusterVersion)},
                     {"X-Etcd-Cluster-ID", base::IdToHex(identity.cluster_id)}};
  std::string urls;
  for (const std::string& url : options.peer_urls) urls += (urls.empty() ? "" : ",") + url;
  if (!urls.empty()) headers.emplace_back("X-PeerURLs", urls);
  return headers;
}

absl::Status CheckSender(const Link& link, std::string_view version,
                         std::string_view min_cluster_version, std::string_view cluster_id) {
  const auto server = cluster::ParseVersion(version.empty() ? kUnstatedVersion : version);
  const auto minimum =
      cluster::ParseVersion(min_cluster_version.empty() ? kUnstatedVersion : min_cluster_version);
  const auto own = cluster::ParseVersion(link.options.version);
  for (const auto* parsed : {&server, &minimum, &own}) {
    if (!parsed->ok()) return absl::InvalidArgumentError(parsed->status().message());
  }
  if (MinorLess(*server, kOldestServer) || MinorLess(*own, *minimum))
    return absl::FailedPreconditionError("incompatible version");
  if (cluster_id != base::IdToHex(link.identity.cluster_id))
    return absl::FailedPreconditionError("cluster ID mismatch");
  return absl::OkStatus();
}

void UrlPicker::Update(const std::vector<std::string>& urls) {
  std::vector<base::Url> parsed;
  for (const std::string& text : urls) {
    auto url = base::ParseUrl(text);
    if (url.ok()) {
      parsed.push_back(*std::move(url));
    } else {
      LOG_WARN("a member's peer URL cannot be used", {"url", text}, {"error", url.status()});
    }
  }
  const std::lock_guard lock(mutex_);
  urls_ = std::move(parsed);
  current_ = 0;
}

std::optional<base::Url> UrlPicker::Pick() const {
  const std::lock_guard lock(mutex_);
  if (urls_.empty()) return std::nullopt;
  return urls_[current_];
}

void UrlPicker::Unreachable(const base::Url& url) {
  const std::lock_guard lock(mutex_);
  if (!urls_.empty() && urls_[current_].Text() == url.Text())
    current_ = (current_ + 1) % urls_.size();
}

void Activity::OnSuccess() {
  {
    const std::lock_guard lock(mutex_);
    if (since_) return;
    since_ = base::SystemClock().Monotonic();
  }
  LOG_INFO("peer became active", {"peer-id", base::IdToHex(id_)});
}

void Activity::OnFailure(std::string_view what, std::string_view why) {
  {
    const std::lock_guard lock(mutex_);
    if (!since_) return;
    since_.reset();
  }
  LOG_WARN("peer became inactive (message send to peer failed)", {"peer-id", base::IdToHex(id_)},
           {"while", what}, {"error", why});
}

std::optional<base::Duration> Activity::since() const {
  const std::lock_guard lock(mutex_);
  return since_;
}

}  // namespace peer
