#include "peer/incoming_stream.h"

#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "base/status.h"

namespace peer {
namespace {

constexpr int kOk = 200;
constexpr int kGone = 410;
// Between two attempts.
constexpr base::Duration kRetry = std::chrono::milliseconds(100);
// A stream carries something, a link heartbeat if nothing else, every 5/3 s.
constexpr base::Duration kSilenceMax = std::chrono::seconds(5);
constexpr size_t kErrorBytesMax = 4 << 10;

}  // namespace

IncomingStream::IncomingStream(const Link& link, raft::NodeId remote, StreamKind kind,
                               UrlPicker& urls, Activity& activity)
    : link_(link), remote_(remote), kind_(kind), urls_(urls), activity_(activity), thread_([this] {
        ThreadMain();
      }) {}

IncomingStream::~IncomingStream() {
  interrupt_.Set();
  thread_.join();
}

void IncomingStream::ThreadMain() {
  while (!interrupt_.is_set()) {
    if (const auto url = urls_.Pick()) {
      const absl::Status ended = Run(*url);
      if (absl::IsCancelled(ended)) return;
      if (std::exchange(working_, false)) {
        LOG_WARN("lost TCP streaming connection with remote peer",
                 {"stream-reader-type", StreamName(kind_)},
                 {"local-member-id", base::IdToHex(link_.identity.member_id)},
                 {"remote-peer-id", base::IdToHex(remote_)}, {"error", ended});
      }
      activity_.OnFailure("reading a stream", base::Message(ended));
      urls_.Unreachable(*url);
      if (absl::IsPermissionDenied(ended)) {
        link_.host->OnSelfRemoved();
        return;
      }
    }
    if (interrupt_.WaitFor(kRetry)) return;
  }
}

absl::Status IncomingStream::Run(const base::Url& url) {
  ASSIGN_OR_RETURN(const auto client,
                   net::HttpClient::Connect(url, link_.options.client, interrupt_));
  client->set_timeout(kSilenceMax);
  net::HttpRequest request{.target = "/raft/stream/" + std::string(StreamName(kind_)) + "/" +
                                     base::IdToHex(link_.identity.member_id),
                           .headers = link_.RequestHeaders()};
  request.headers.emplace_back("X-Raft-To", base::IdToHex(remote_));
  RETURN_IF_ERROR(client->SendRequest(request));
  ASSIGN_OR_RETURN(const net::HttpResponseHead head, client->ReadHead());
  if (head.status != kOk) {
    const auto body = client->ReadBody(kErrorBytesMax);
    std::string text = body.ok() ? *body : "";
    while (!text.empty() && text.back() == '\n') text.pop_back();
    if (head.status == kGone) return absl::PermissionDeniedError(text);
    return base::MakeStatus(absl::StatusCode::kUnavailable,
                            "peer {} answered status {} to a request for a stream: {}",
                            base::IdToHex(remote_), head.status, text);
  }
  RETURN_IF_ERROR(CheckAnswer(head));
  activity_.OnSuccess();
  working_ = true;
  LOG_INFO("established TCP streaming connection with remote peer",
           {"stream-reader-type", StreamName(kind_)},
           {"local-member-id", base::IdToHex(link_.identity.member_id)},
           {"remote-peer-id", base::IdToHex(remote_)});
  StreamDecoder decoder(kind_, link_.identity.member_id, remote_);
  while (true) {
    ASSIGN_OR_RETURN(const std::string_view bytes, client->ReadSome());
    if (bytes.empty()) return absl::UnavailableError("EOF");
    activity_.CountReceived(bytes.size());
    RETURN_IF_ERROR(
        decoder.Feed(bytes, [this](raft::Message message) { Deliver(std::move(message)); }));
  }
}

absl::Status IncomingStream::CheckAnswer(const net::HttpResponseHead& head) {
  const std::string_view version = head.header("X-Server-Version");
  const absl::Status status = CheckSender(link_, version, /*min_cluster_version=*/"3.0.0",
                                          head.header("X-Etcd-Cluster-Id"));
  if (status.ok()) return status;
  return base::MakeStatus(absl::StatusCode::kUnavailable, "peer {} of version \"{}\": {}",
                          base::IdToHex(remote_), version, base::Message(status));
}

void IncomingStream::Deliver(raft::Message message) {
  // The request named both ends; what claims to be between others is not believed. A snapshot
  // without its database is worth nothing.
  if (message.to != link_.identity.member_id || message.from != remote_ ||
      raft::IsLocalMessage(message.type) || message.type == raft::MessageType::kSnap) {
    return;
  }
  link_.host->OnMessage(std::move(message));
}

}  // namespace peer
