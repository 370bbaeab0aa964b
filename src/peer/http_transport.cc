#include "peer/http_transport.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "base/split.h"
#include "base/status.h"
#include "raft/codec.h"

namespace peer {
namespace {

constexpr std::string_view kTextPlain = "text/plain; charset=utf-8";
constexpr std::string_view kStreamPath = "/raft/stream/";
constexpr size_t kMessageBytesMax = 64 << 20;
constexpr size_t kAnswerBytesMax = 16 << 20;
constexpr size_t kReceiversMax = 4;
// Senders that are no members, as far as this one knows: more than any cluster has, and few enough
// for what each costs.
constexpr size_t kUnknownSendersMax = 32;

void Refuse(net::HttpExchange& exchange, int status, std::string_view text) {
  exchange.AddHeader("X-Content-Type-Options", "nosniff");
  exchange.Respond(status, kTextPlain, std::string(text) + "\n");
}

bool RequireMethod(net::HttpExchange& exchange, std::string_view method) {
  if (exchange.method() == method) return true;
  exchange.AddHeader("Allow", method);
  Refuse(exchange, 405, "Method Not Allowed");
  return false;
}

}  // namespace

HttpTransport::HttpTransport(HttpTransportOptions options) { link_.options = std::move(options); }

HttpTransport::~HttpTransport() { Close(); }

void HttpTransport::Open(const Identity& identity, Host& host) {
  const std::lock_guard lock(mutex_);
  link_.identity = identity;
  link_.host = &host;
  phase_ = Phase::kRunning;
}

void HttpTransport::Close() {
  interrupt_.Set();
  decltype(peers_) peers;
  decltype(removed_) removed;
  decltype(receivers_) receivers;
  {
    const std::lock_guard lock(mutex_);
    phase_ = Phase::kStopped;
    peers.swap(peers_);
    removed.swap(removed_);
    receivers.swap(receivers_);
  }
  // All are told first, then waited for: peers by their destructors, receivers while they are
  // owned, because their threads hand them on to the loop.
  for (const auto& [id, peer] : peers) peer->Interrupt();
  for (const auto& receiver : receivers) receiver->Interrupt();
  for (const auto& receiver : receivers) receiver->Wait();
}

bool HttpTransport::running() const {
  const std::lock_guard lock(mutex_);
  return phase_ == Phase::kRunning;
}

std::shared_ptr<RemoteMember> HttpTransport::Find(raft::NodeId id) const {
  const std::lock_guard lock(mutex_);
  const auto it = peers_.find(id);
  return it == peers_.end() ? nullptr : it->second;
}

void HttpTransport::Send(std::vector<raft::Message> messages) {
  std::shared_ptr<RemoteMember> peer;
  raft::NodeId last = raft::kNoNode;
  for (raft::Message& message : messages) {
    if (message.to != last) {
      last = message.to;
      peer = Find(last);
    }
    if (peer != nullptr) {
      peer->Send(std::move(message));
    } else if (message.type == raft::MessageType::kSnap && running()) {
      link_.host->OnSnapshotSent(last, /*ok=*/false);
    }
  }
}

void HttpTransport::AddLocked(raft::NodeId id, const std::vector<std::string>& urls,
                              bool pipeline_only) {
  if (phase_ != Phase::kRunning || id == link_.identity.member_id) return;
  if (pipeline_only && !peers_.contains(id) &&
      std::count_if(peers_.begin(), peers_.end(), [](const auto& p) {
        return p.second->pipeline_only();
      }) >= static_cast<ptrdiff_t>(kUnknownSendersMax)) {
    return;
  }
  auto& peer = peers_[id];
  if (peer != nullptr && (pipeline_only || !peer->pipeline_only())) {
    if (!pipeline_only) peer->Update(urls);
    return;
  }
  if (peer != nullptr) {  // known so far by its own word alone
    peer->Interrupt();
    removed_.push_back(std::move(peer));
  }
  peer = std::make_shared<RemoteMember>(link_, id, urls, pipeline_only);
  LOG_INFO(pipeline_only ? "added new remote peer" : "added remote peer",
           {"local-member-id", base::IdToHex(link_.identity.member_id)},
           {"remote-peer-id", base::IdToHex(id)}, {"remote-peer-urls", urls});
}

void HttpTransport::AddPeer(raft::NodeId id, const std::vector<std::string>& urls) {
  const std::lock_guard lock(mutex_);
  AddLocked(id, urls, /*pipeline_only=*/false);
}

void HttpTransport::RemovePeer(raft::NodeId id) {
  const std::lock_guard lock(mutex_);
  const auto it = peers_.find(id);
  if (it == peers_.end()) return;
  it->second->Interrupt();
  removed_.push_back(std::move(it->second));
  peers_.erase(it);
  LOG_INFO("removed remote peer", {"local-member-id", base::IdToHex(link_.identity.member_id)},
           {"removed-remote-peer-id", base::IdToHex(id)});
}

std::optional<base::Duration> HttpTransport::ActiveSince(raft::NodeId id) const {
  const auto peer = Find(id);
  return peer == nullptr ? std::nullopt : peer->active_since();
}

std::vector<PeerFacts> HttpTransport::Peers() const {
  std::vector<PeerFacts> facts;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, peer] : peers_) facts.push_back(peer->facts());
  return facts;
}

absl::StatusOr<Answer> HttpTransport::Ask(const std::string& url, const Question& question,
                                          base::Duration timeout) {
  ASSIGN_OR_RETURN(const base::Url parsed, base::ParseUrl(url));
  ASSIGN_OR_RETURN(net::HttpAnswer answer,
                   net::FetchOnce(parsed,
                                  {.method = question.method,
                                   .target = question.path,
                                   .headers = question.headers,
                                   .body = question.body},
                                  link_.options.client, timeout, kAnswerBytesMax, interrupt_));
  return Answer{.status = answer.head.status,
                .cluster_id = std::string(answer.head.header("X-Etcd-Cluster-Id")),
                .body = std::move(answer.body)};
}

void HttpTransport::OnRequest(std::shared_ptr<net::HttpExchange> exchange) {
  if (!running()) return Refuse(*exchange, 503, "not serving yet");
  const std::string_view path = exchange->path();
  if (path.starts_with(kStreamPath)) {
    OnStream(exchange);
  } else if (path == "/raft") {
    OnMessage(exchange);
  } else if (path == "/raft/snapshot") {
    OnSnapshot(exchange);
  } else {
    Refuse(*exchange, 404, "404 page not found");
  }
}

bool HttpTransport::Admit(net::HttpExchange& exchange) {
  const absl::Status status =
      CheckSender(link_, exchange.header("X-Server-Version"),
                  exchange.header("X-Min-Cluster-Version"), exchange.header("X-Etcd-Cluster-ID"));
  if (absl::IsInvalidArgument(status)) {
    // etcd's handler ends on such a version, and with it the connection.
    exchange.Abort();
    return false;
  }
  if (!status.ok()) {
    LOG_WARN("request sent was ignored by remote peer due to an incompatibility",
             {"remote-peer-server-version", exchange.header("X-Server-Version")},
             {"remote-peer-cluster-id", exchange.header("X-Etcd-Cluster-ID")},
             {"local-member-id", base::IdToHex(link_.identity.member_id)},
             {"local-member-cluster-id", base::IdToHex(link_.identity.cluster_id)},
             {"error", status});
    Refuse(exchange, 412, base::Message(status));
    return false;
  }
  uint64_t from = 0;
  const std::string header(exchange.header("X-PeerURLs"));
  const std::vector<std::string_view> parts = base::SplitAtCommas(header);
  const std::vector<std::string> urls(parts.begin(), parts.end());
  if (!urls.empty() && base::ParseHexId(exchange.header("X-Server-From"), &from) && from != 0 &&
      !link_.host->IsRemoved(from)) {
    const std::lock_guard lock(mutex_);
    AddLocked(from, urls, /*pipeline_only=*/true);
  }
  return true;
}

void HttpTransport::OnStream(const std::shared_ptr<net::HttpExchange>& exchange) {
  net::HttpExchange& x = *exchange;
  if (!RequireMethod(x, "GET")) return;
  x.AddHeader("X-Server-Version", link_.options.version);
  if (!Admit(x)) return;
  std::string_view rest = x.path().substr(kStreamPath.size());
  const size_t slash = rest.find('/');
  const std::string_view name = rest.substr(0, slash);
  const bool appends = name == StreamName(StreamKind::kMsgApp);
  if (slash == std::string_view::npos || (!appends && name != StreamName(StreamKind::kMessage)))
    return Refuse(x, 404, "invalid path");
  uint64_t from = 0;
  if (!base::ParseHexId(rest.substr(slash + 1), &from)) return Refuse(x, 404, "invalid from");
  if (link_.host->IsRemoved(from)) return Refuse(x, 410, "removed member");
  const auto peer = Find(from);
  if (peer == nullptr || peer->pipeline_only()) return Refuse(x, 404, "error sender not found");
  if (x.header("X-Raft-To") != base::IdToHex(link_.identity.member_id))
    return Refuse(x, 412, "to field mismatch");
  peer->Attach(exchange, appends ? StreamKind::kMsgApp : StreamKind::kMessage);
}

void HttpTransport::OnMessage(const std::shared_ptr<net::HttpExchange>& exchange) {
  if (!RequireMethod(*exchange, "POST") || !Admit(*exchange)) return;
  exchange->ReadBody(kMessageBytesMax, [this, exchange](absl::StatusOr<std::string> body) {
    if (!body.ok()) return Refuse(*exchange, 400, "error reading raft message");
    auto message = raft::DecodeMessage(*body);
    if (!message.ok()) return Refuse(*exchange, 400, "error unmarshalling raft message");
    if (!running() || message->to != link_.identity.member_id ||
        message->from == link_.identity.member_id || link_.host->IsRemoved(message->from)) {
      return Refuse(*exchange, 500, "error processing raft message");
    }
    if (const auto peer = Find(message->from)) peer->CountReceived(body->size());
    // A snapshot without its database is worth nothing.
    if (!raft::IsLocalMessage(message->type) && message->type != raft::MessageType::kSnap)
      link_.host->OnMessage(*std::move(message));
    exchange->Respond(204, "", "");
  });
}

void HttpTransport::OnSnapshot(const std::shared_ptr<net::HttpExchange>& exchange) {
  if (!RequireMethod(*exchange, "POST") || !Admit(*exchange)) return;
  const auto receiver = std::make_shared<SnapshotReceiver>(link_, exchange);
  decltype(receivers_) ended;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = receivers_.begin(); it != receivers_.end();) {
      const auto here = it++;
      if ((*here)->done()) ended.splice(ended.end(), receivers_, here);
    }
    if (phase_ != Phase::kRunning || receivers_.size() >= kReceiversMax)
      return Refuse(*exchange, 500, "failed to save KV snapshot (too many at once)");
    receivers_.push_back(receiver);
  }
  receiver->Start();
}

}  // namespace peer
