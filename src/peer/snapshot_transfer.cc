#include "peer/snapshot_transfer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "base/status.h"
#include "net/loop.h"

namespace peer {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
constexpr size_t kWaitingBytesMax = 4 << 20;
constexpr base::Duration kWriteTimeout = std::chrono::seconds(30);
constexpr size_t kAnswerBytesMax = 4 << 10;
constexpr int kNoContent = 204;
constexpr int kBadRequest = 400;
constexpr int kInternalError = 500;
constexpr std::string_view kTextPlain = "text/plain; charset=utf-8";

}  // namespace

SnapshotSender::~SnapshotSender() {
  interrupt_.Set();
  if (thread_.joinable()) thread_.join();
}

bool SnapshotSender::Send(raft::Message message) {
  if (running_.exchange(true)) return false;
  if (thread_.joinable()) thread_.join();
  thread_ = std::thread([this, message = std::move(message)]() mutable {
    const absl::Status sent = Transfer(std::move(message));
    running_.store(false);
    if (absl::IsCancelled(sent)) return;
    if (sent.ok()) {
      activity_.OnSuccess();
    } else {
      LOG_WARN("failed to send database snapshot", {"to", base::IdToHex(remote_)}, {"error", sent});
      activity_.OnFailure("sending a snapshot", base::Message(sent));
      link_.host->OnUnreachable(remote_);
    }
    link_.host->OnSnapshotSent(remote_, sent.ok());
  });
  return true;
}

absl::Status SnapshotSender::Transfer(raft::Message message) {
  const auto url = urls_.Pick();
  if (!url) return absl::UnavailableError("no usable URL");
  ASSIGN_OR_RETURN(const OutgoingSnapshot outgoing, link_.host->OpenSnapshot());
  message.snapshot = outgoing.snapshot;
  const std::string head = EncodeSnapshotHead(message);
  const uint64_t size = outgoing.database->size_bytes();
  LOG_INFO("sending database snapshot", {"snapshot-index", message.snapshot->metadata.index},
           {"remote-peer-id", base::IdToHex(remote_)}, {"bytes", size});
  const auto send = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto client,
                     net::HttpClient::Connect(*url, link_.options.client, interrupt_));
    client->set_timeout(kWriteTimeout);
    net::HttpRequest request{.method = "POST",
                             .target = "/raft/snapshot",
                             .headers = link_.RequestHeaders(),
                             .body_bytes = head.size() + size};
    request.headers.emplace_back("Content-Type", "application/octet-stream");
    RETURN_IF_ERROR(client->SendRequest(request));
    RETURN_IF_ERROR(client->SendBody(head));
    std::vector<char> piece(kPieceBytes);
    for (uint64_t at = 0; at < size;) {
      const auto n = static_cast<size_t>(std::min<uint64_t>(piece.size(), size - at));
      RETURN_IF_ERROR(outgoing.database->Read(at, piece.data(), n));
      RETURN_IF_ERROR(client->SendBody({piece.data(), n}));
      at += n;
      activity_.CountSent(n);
    }
    client->set_timeout(link_.options.snapshot_answer_timeout);
    ASSIGN_OR_RETURN(const net::HttpResponseHead answer, client->ReadHead());
    if (answer.status == kNoContent) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string body, client->ReadBody(kAnswerBytesMax));
    return base::MakeStatus(absl::StatusCode::kUnavailable,
                            "peer {} answered status {} to a snapshot: {}", base::IdToHex(remote_),
                            answer.status, body);
  };
  const absl::Status sent = send();
  if (!sent.ok()) {
    urls_.Unreachable(*url);
    return sent;
  }
  LOG_INFO("sent database snapshot", {"snapshot-index", message.snapshot->metadata.index},
           {"remote-peer-id", base::IdToHex(remote_)}, {"bytes", size});
  return sent;
}

SnapshotReceiver::SnapshotReceiver(const Link& link, std::shared_ptr<net::HttpExchange> exchange)
    : link_(link), loop_(exchange->loop()), exchange_(std::move(exchange)) {}

SnapshotReceiver::~SnapshotReceiver() { Wait(); }

void SnapshotReceiver::Start() {
  thread_ = std::thread([this] { ThreadMain(); });
  exchange_->OnAbort([self = weak_from_this()] {
    if (const auto receiver = self.lock()) receiver->Break();
  });
  exchange_->ReadBodyPieces([self = weak_from_this()](std::string_view piece, bool last) {
    if (const auto receiver = self.lock()) receiver->OnPiece(piece, last);
  });
}

void SnapshotReceiver::Interrupt() { Break(); }

void SnapshotReceiver::Wait() {
  if (thread_.joinable()) thread_.join();
}

void SnapshotReceiver::OnPiece(std::string_view piece, bool last) {
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    if (!piece.empty()) pieces_.emplace_back(piece);
    pieces_bytes_ += piece.size();
    ended_ = ended_ || last;
    full = pieces_bytes_ > kWaitingBytesMax;
  }
  wake_.notify_one();
  if (full && !last && !paused_) {
    paused_ = true;
    exchange_->PauseBody(true);
  }
}

void SnapshotReceiver::Break() {
  {
    const std::lock_guard lock(mutex_);
    broken_ = true;
  }
  wake_.notify_all();
}

absl::StatusOr<std::optional<std::string>> SnapshotReceiver::NextPiece() {
  std::string piece;
  bool resume = false;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return broken_ || ended_ || !pieces_.empty(); });
    if (!pieces_.empty() && !broken_) {
      piece = std::move(pieces_.front());
      pieces_.pop_front();
      pieces_bytes_ -= piece.size();
      resume = pieces_.empty();
    } else if (broken_) {
      return absl::CancelledError("unexpected EOF");
    } else {
      return std::nullopt;
    }
  }
  if (resume) {
    loop_.Post([self = weak_from_this()] {
      const auto receiver = self.lock();
      if (receiver == nullptr || !receiver->paused_ || receiver->exchange_ == nullptr) return;
      receiver->paused_ = false;
      receiver->exchange_->PauseBody(false);
    });
  }
  return piece;
}

void SnapshotReceiver::ThreadMain() {
  Outcome outcome = Receive();
  loop_.Post([self = shared_from_this(), outcome = std::move(outcome)]() mutable {
    const auto exchange = std::exchange(self->exchange_, nullptr);
    exchange->Respond(outcome.status, outcome.status == kNoContent ? "" : kTextPlain,
                      std::move(outcome.body));
    // The thread ends on its own; whoever waits for it must not be this loop.
    self->done_.store(true);
  });
}

SnapshotReceiver::Outcome SnapshotReceiver::Receive() {
  const auto undecodable = [](std::string_view why) {
    return Outcome{kBadRequest, fmt::format("failed to decode raft message ({})\n", why)};
  };
  const auto unsaved = [](const absl::Status& why) {
    LOG_WARN("failed to save incoming database snapshot", {"error", why});
    return Outcome{kInternalError,
                   fmt::format("failed to save KV snapshot ({})\n", base::Message(why))};
  };
  SnapshotHeadReader head;
  std::string beginning;  // of the database, received with the end of the message
  while (!head.done()) {
    auto piece = NextPiece();
    if (!piece.ok() || !piece->has_value()) return undecodable("unexpected EOF");
    const absl::Status fed =
        head.Feed(**piece, [&beginning](std::string_view bytes) { beginning = bytes; });
    if (!fed.ok()) return undecodable(base::Message(fed));
  }
  raft::Message message = head.message();
  if (message.type != raft::MessageType::kSnap || message.snapshot == nullptr ||
      message.snapshot->empty()) {
    return {kBadRequest, "wrong raft message type\n"};
  }
  if (message.to != link_.identity.member_id || link_.host->IsRemoved(message.from)) {
    return {kInternalError, "failed to process raft message (not for this member)\n"};
  }
  const uint64_t index = message.snapshot->metadata.index;
  LOG_INFO("receiving database snapshot",
           {"remote-snapshot-sender-id", base::IdToHex(message.from)},
           {"incoming-snapshot-index", index});
  auto sink = link_.host->ReceiveSnapshot(index);
  if (!sink.ok()) return unsaved(sink.status());
  uint64_t bytes = beginning.size();
  absl::Status written = (*sink)->Write(beginning);
  while (written.ok()) {
    auto piece = NextPiece();
    if (!piece.ok()) {
      written = piece.status();
    } else if (!piece->has_value()) {
      break;
    } else {
      bytes += (*piece)->size();
      written = (*sink)->Write(**piece);
    }
  }
  if (written.ok()) written = (*sink)->Commit();
  if (!written.ok()) return unsaved(written);
  LOG_INFO("received and saved database snapshot",
           {"remote-snapshot-sender-id", base::IdToHex(message.from)},
           {"incoming-snapshot-index", index}, {"bytes", bytes});
  link_.host->OnMessage(std::move(message));
  return {kNoContent, ""};
}

}  // namespace peer
