#include "rpc/call_base.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace rpc {

void Call::Finish(const absl::Status& status) { Finish(status.code(), base::Message(status)); }

void CallBase::Begin(const ServerImpl& server, const ServerMethod& method, net::Loop& loop,
                     std::shared_ptr<const net::ConnectionInfo> connection) {
  server_ = &server;
  server_method_ = &method;
  method_ = &method.info;
  loop_ = &loop;
  connection_ = std::move(connection);
  started_at_ = loop.Now();
}

bool CallBase::RunOnStart() {
  started_ = true;
  if (!server_->options.on_start) return true;
  const absl::Status status = server_->options.on_start(*this);
  if (status.ok()) return true;
  Call::Finish(status);
  return false;
}

void CallBase::StartStream() {
  if (!RunOnStart()) return;
  auto receiver = server_method_->stream(shared_from_this());
  if (done_) {
    loop_->Defer([receiver = std::move(receiver)] {});
  } else {
    receiver_ = std::move(receiver);
  }
}

void CallBase::SetTimeout(base::Duration timeout) {
  if (timeout == base::Duration::max()) return;
  deadline_ = started_at_ + timeout;
  deadline_timer_ = loop_->RunAfter(timeout, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr || self->done()) return;
    auto* call = static_cast<CallBase*>(self.get());
    call->FinishTransport(absl::StatusCode::kDeadlineExceeded, "context deadline exceeded");
    call->Cancel(absl::DeadlineExceededError("context deadline exceeded"));
  });
}

void CallBase::DeliverMessage(std::string_view payload) {
  if (done_) return;
  ++messages_received_;
  bytes_received_ += payload.size();
  if (!takes_one_message()) {
    if (receiver_ != nullptr) receiver_->OnMessage(payload);
    return;
  }
  if (std::exchange(got_message_, true)) return;  // a second request of a unary call means nothing
  if (!RunOnStart()) return;
  server_method_->unary(shared_from_this(), payload);
}

void CallBase::DeliverHalfClose() {
  if (done_) return;
  if (takes_one_message()) {
    if (!got_message_) Finish(absl::StatusCode::kInternal, "grpc: the request has no message");
    return;
  }
  if (receiver_ != nullptr) receiver_->OnHalfClose();
}

void CallBase::End(absl::StatusCode code) {
  done_ = true;
  loop_->Cancel(&deadline_timer_);
  on_writable_ = nullptr;
  if (started_ && server_->options.on_end) {
    server_->options.on_end(CallSummary{*method_, code, messages_received_, messages_sent_,
                                        bytes_received_, bytes_sent_, loop_->Now() - started_at_});
  }
  if (receiver_ != nullptr) {
    // Its functions may be on the stack.
    loop_->Defer([receiver = std::move(receiver_)] {});
  }
}

void CallBase::Cancel(const absl::Status& why) {
  if (done_) return;
  StreamReceiver* receiver = receiver_.get();
  auto on_cancel = std::move(on_cancel_);
  on_cancel_ = nullptr;
  cancelled_ = std::make_unique<absl::Status>(why);
  End(why.code());  // keeps the receiver until the end of the turn
  if (receiver != nullptr) receiver->OnCancel(why);
  if (on_cancel) on_cancel(why);
}

bool CallBase::CountSent(uint64_t payload_bytes) {
  if (payload_bytes > server_->options.send_bytes_max) {
    Finish(absl::StatusCode::kResourceExhausted,
           fmt::format("grpc: trying to send message larger than max ({} vs. {})", payload_bytes,
                       server_->options.send_bytes_max));
    return false;
  }
  ++messages_sent_;
  bytes_sent_ += payload_bytes;
  return true;
}

void CallBase::Send(Message message) {
  if (done_ || !CountSent(message.payload_bytes())) return;
  CHECK_OP(part_bytes_left_, ==, 0U);
  TransportSend(std::move(message));
}

void CallBase::StartMessage(uint64_t payload_bytes) {
  if (done_ || !CountSent(payload_bytes)) return;
  CHECK_OP(part_bytes_left_, ==, 0U);
  part_bytes_left_ = payload_bytes;
  TransportStartMessage(payload_bytes);
}

void CallBase::SendPart(std::string bytes) {
  if (done_ || bytes.empty()) return;
  CHECK_OP(bytes.size(), <=, part_bytes_left_);
  part_bytes_left_ -= bytes.size();
  TransportPart(std::move(bytes));
}

void CallBase::Respond(Message message) {
  if (done_ || !CountSent(message.payload_bytes())) return;
  TransportRespond(std::move(message));
  on_cancel_ = nullptr;
  End(absl::StatusCode::kOk);
}

void CallBase::FinishTransport(absl::StatusCode code, std::string_view text) {
  if (part_bytes_left_ == 0) return TransportFinish(code, text);
  CHECK(code != absl::StatusCode::kOk);
  TransportBreak(code);
}

void CallBase::Finish(absl::StatusCode code, std::string_view text) {
  if (done_) return;
  FinishTransport(code, text);
  on_cancel_ = nullptr;
  End(code);
}

void CallBase::NotifyWhenWritable(size_t low_bytes, absl::AnyInvocable<void()> fn) {
  if (done_) return;
  on_writable_ = std::move(fn);
  TransportNotify(low_bytes);
}

void CallBase::DrainedNow() {
  if (done_ || !on_writable_) return;
  auto fn = std::move(on_writable_);
  on_writable_ = nullptr;
  fn();
}

void CallBase::PauseReading(bool paused) {
  if (paused_ == paused) return;
  paused_ = paused;
  if (!paused && !done_) TransportResume();
}

void CallBase::SetCancelCallback(absl::AnyInvocable<void(const absl::Status&)> fn) {
  if (cancelled_ != nullptr) {
    loop_->Post([fn = std::move(fn), why = *cancelled_]() mutable { fn(why); });
  } else if (!done_) {
    on_cancel_ = std::move(fn);
  }
}

}  // namespace rpc
