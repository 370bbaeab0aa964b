#include "peer/outgoing_stream.h"

#include <string>
#include <utility>
#include <vector>

namespace peer {
namespace {

constexpr size_t kQueueMessagesMax = 4096;
constexpr uint64_t kQueueBytesMax = 128 << 20;
// Bytes handed to the connection and not sent; beyond, messages wait in the queue.
constexpr size_t kUnsentBytesMax = 4 << 20;
// The other side gives a stream up that is silent for 5 s.
constexpr base::Duration kLinkHeartbeat = std::chrono::milliseconds(5000 / 3);

uint64_t BytesOf(const raft::Message& message) {
  uint64_t bytes = sizeof message;
  for (const raft::Entry& entry : message.entries) bytes += sizeof entry + entry.data.size();
  return bytes;
}

}  // namespace

OutgoingStream::OutgoingStream(std::shared_ptr<net::HttpExchange> exchange, StreamKind kind,
                               std::shared_ptr<Activity> activity)
    : loop_(exchange->loop()),
      activity_(std::move(activity)),
      exchange_(std::move(exchange)),
      encoder_(kind) {}

void OutgoingStream::Start(absl::AnyInvocable<void(bool)> on_end) {
  on_end_ = std::move(on_end);
  exchange_->OnAbort([self = weak_from_this()] {
    if (const auto stream = self.lock()) stream->End();
  });
  exchange_->Start(200);
  // A first byte right away shows the reader that the stream lives.
  Beat();
}

bool OutgoingStream::Push(raft::Message message) {
  const uint64_t bytes = BytesOf(message);
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || queue_.size() >= kQueueMessagesMax || queue_bytes_ + bytes > kQueueBytesMax)
      return false;
    queue_.push_back(std::move(message));
    queue_bytes_ += bytes;
    if (std::exchange(posted_, true)) return true;
  }
  loop_.Post([self = shared_from_this()] { self->Drain(); });
  return true;
}

bool OutgoingStream::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void OutgoingStream::Close() {
  loop_.Post([self = shared_from_this()] {
    if (self->exchange_ != nullptr) self->exchange_->Abort();
    self->End();
  });
}

void OutgoingStream::Drain() {
  if (exchange_ == nullptr || waiting_for_room_) return;
  while (exchange_->queued_bytes() <= kUnsentBytesMax) {
    std::vector<raft::Message> batch;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) {
        posted_ = false;
        return;
      }
      for (uint64_t bytes = 0; !queue_.empty() && bytes < kUnsentBytesMax;) {
        const uint64_t n = BytesOf(queue_.front());
        bytes += n;
        queue_bytes_ -= n;
        batch.push_back(std::move(queue_.front()));
        queue_.pop_front();
      }
    }
    std::string bytes;
    for (const raft::Message& message : batch) encoder_.Encode(message, &bytes);
    activity_->CountSent(bytes.size());
    exchange_->Write(std::move(bytes));
  }
  waiting_for_room_ = true;
  exchange_->NotifyWhenDrained(kUnsentBytesMax / 4, [self = weak_from_this()] {
    const auto stream = self.lock();
    if (stream == nullptr) return;
    stream->waiting_for_room_ = false;
    stream->Drain();
  });
}

void OutgoingStream::Beat() {
  if (exchange_ == nullptr) return;
  std::string bytes;
  encoder_.LinkHeartbeat(&bytes);
  activity_->CountSent(bytes.size());
  exchange_->Write(std::move(bytes));
  loop_.RunAfter(kLinkHeartbeat, [self = weak_from_this()] {
    if (const auto stream = self.lock()) stream->Beat();
  });
}

void OutgoingStream::End() {
  if (exchange_ == nullptr) return;
  // A function of the exchange may be on the stack.
  loop_.Defer([exchange = std::exchange(exchange_, nullptr)] {});
  bool lost = false;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    lost = !queue_.empty();
    queue_.clear();
    queue_bytes_ = 0;
  }
  if (on_end_) std::exchange(on_end_, nullptr)(lost);
}

}  // namespace peer
