#include "peer/pipeline.h"

#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "raft/codec.h"

namespace peer {
namespace {

constexpr size_t kQueueMessagesMax = 64;
constexpr base::Duration kAnswerTimeout = std::chrono::seconds(5);
constexpr size_t kAnswerBytesMax = 4 << 10;
constexpr int kNoContent = 204;

}  // namespace

Pipeline::Pipeline(const Link& link, raft::NodeId remote, UrlPicker& urls, Activity& activity)
    : link_(link), remote_(remote), urls_(urls), activity_(activity) {}

Pipeline::~Pipeline() {
  Interrupt();
  if (thread_.joinable()) thread_.join();
}

bool Pipeline::Push(raft::Message message) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || queue_.size() >= kQueueMessagesMax) return false;
    queue_.push_back(std::move(message));
    if (!thread_.joinable()) thread_ = std::thread([this] { ThreadMain(); });
  }
  wake_.notify_one();
  return true;
}

void Pipeline::Interrupt() {
  interrupt_.Set();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
}

void Pipeline::ThreadMain() {
  while (true) {
    raft::Message message;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      message = std::move(queue_.front());
      queue_.pop_front();
    }
    const absl::Status posted = Post(message);
    if (absl::IsCancelled(posted)) return;
    if (posted.ok()) {
      activity_.OnSuccess();
    } else {
      activity_.OnFailure("posting a message", base::Message(posted));
      link_.host->OnUnreachable(remote_);
    }
  }
}

absl::Status Pipeline::Post(const raft::Message& message) {
  const auto url = urls_.Pick();
  if (!url) return absl::UnavailableError("no usable URL");
  net::HttpRequest request{.method = "POST", .target = "/raft", .headers = link_.RequestHeaders()};
  request.headers.emplace_back("Content-Type", "application/protobuf");
  raft::EncodeMessage(message, &request.body);
  const absl::Status status = PostOn(*url, request);
  if (status.ok()) {
    activity_.CountSent(request.body.size());
  } else {
    client_.reset();
    urls_.Unreachable(*url);
  }
  return status;
}

absl::Status Pipeline::PostOn(const base::Url& url, const net::HttpRequest& request) {
  while (true) {
    const bool kept = client_ != nullptr && client_->reusable();
    if (!kept) {
      ASSIGN_OR_RETURN(client_, net::HttpClient::Connect(url, link_.options.client, interrupt_));
      client_->set_timeout(kAnswerTimeout);
    }
    absl::Status status = client_->SendRequest(request);
    absl::StatusOr<net::HttpResponseHead> head;
    if (status.ok()) {
      head = client_->ReadHead();
      status = head.status();
    }
    if (!status.ok()) {
      // The other side closes connections that lie idle, perhaps just as one is used.
      if (kept && !client_->got_bytes() && absl::IsUnavailable(status)) {
        client_.reset();
        continue;
      }
      return status;
    }
    ASSIGN_OR_RETURN(const std::string body, client_->ReadBody(kAnswerBytesMax));
    if (head->status == kNoContent) return absl::OkStatus();
    return base::MakeStatus(absl::StatusCode::kUnavailable,
                            "peer {} answered status {} to a message: {}", base::IdToHex(remote_),
                            head->status, body);
  }
}

}  // namespace peer
