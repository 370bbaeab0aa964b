#include "rpc/local_call.h"

#include "base/status.h"

namespace rpc {

// Dropping it cancels the call.
class LocalCallImpl::Handle final : public LocalCall {
 public:
  explicit Handle(std::shared_ptr<LocalCallImpl> call) : call_(std::move(call)) {}
  ~Handle() override { call_->Abandon(); }

  void Send(std::string_view payload) override {
    call_->requests_.push_back({Event::Kind::kMessage, std::string(payload)});
    call_->Schedule();
  }
  void HalfClose() override {
    call_->requests_.push_back({Event::Kind::kHalfClose, ""});
    call_->Schedule();
  }
  void Cancel() override { call_->Abandon(); }
  void SetHeldBytes(size_t bytes) override {
    call_->held_bytes_ = bytes;
    if (call_->notify_) call_->Schedule();
  }

 private:
  const std::shared_ptr<LocalCallImpl> call_;
};

namespace {

// Tells the client of a path that leads nowhere.
class FailedCall final : public LocalCall {
 public:
  FailedCall(net::Loop& loop, std::unique_ptr<LocalClient> client, absl::Status status)
      : client_(std::make_shared<std::unique_ptr<LocalClient>>(std::move(client))) {
    loop.Post([client_slot = client_, status = std::move(status)] {
      if (*client_slot == nullptr) return;
      const std::unique_ptr<LocalClient> told = std::move(*client_slot);
      told->OnFinish(status);
    });
  }
  ~FailedCall() override { client_->reset(); }
  void Send(std::string_view) override {}
  void HalfClose() override {}
  void Cancel() override { client_->reset(); }
  void SetHeldBytes(size_t) override {}

 private:
  std::shared_ptr<std::unique_ptr<LocalClient>> client_;
};

}  // namespace

std::shared_ptr<LocalCall> LocalCallImpl::Start(const Server::Impl& server, net::Loop& loop,
                                                LocalCallOptions options,
                                                std::unique_ptr<LocalClient> client) {
  const auto found = server.by_path.find(options.path);
  if (found == server.by_path.end()) {
    return std::make_shared<FailedCall>(loop, std::move(client), server.Unknown(options.path));
  }
  if (options.connection == nullptr) options.connection = std::make_shared<net::ConnectionInfo>();
  auto call = std::make_shared<LocalCallImpl>();
  call->local_ = true;
  call->Begin(server, *found->second, loop, std::move(options.connection));
  call->metadata_ = std::move(options.metadata);
  call->client_ = std::move(client);
  call->SetTimeout(options.timeout);
  call->Schedule();
  return std::make_shared<Handle>(std::move(call));
}

std::string_view LocalCallImpl::Metadata(std::string_view key) const {
  for (const auto& [name, value] : metadata_) {
    if (name == key) return value;
  }
  return {};
}

bool LocalCallImpl::HasMetadata(std::string_view key) const {
  for (const auto& [name, value] : metadata_) {
    if (name == key) return true;
  }
  return false;
}

std::vector<net::Header> LocalCallImpl::AllMetadata() const {
  std::vector<net::Header> all;
  for (const auto& [name, value] : metadata_) all.push_back({name, value});
  return all;
}

void LocalCallImpl::TransportSend(Message message) { Deliver(message.Payload()); }

// The client takes whole messages only, so the parts are put together for it.
void LocalCallImpl::TransportStartMessage(uint64_t payload_bytes) {
  part_bytes_left_ = payload_bytes;
  in_parts_ = std::string();
  if (payload_bytes == 0) Deliver("");
}

void LocalCallImpl::TransportPart(std::string bytes) {
  part_bytes_left_ -= bytes.size();
  in_parts_.append(bytes);
  if (part_bytes_left_ == 0) Deliver(std::move(in_parts_));
}

void LocalCallImpl::Deliver(std::string payload) {
  if (client_ == nullptr) return;
  undelivered_bytes_ += payload.size();
  responses_.push_back(std::move(payload));
  Schedule();
}

void LocalCallImpl::TransportBreak(absl::StatusCode code) {
  TransportFinish(code, "the answer broke off");
}

void LocalCallImpl::TransportFinish(absl::StatusCode code, std::string_view text) {
  if (client_ == nullptr || final_ != nullptr) return;
  final_ = std::make_unique<absl::Status>(code, base::ToAbsl(text));
  Schedule();
}

void LocalCallImpl::TransportNotify(size_t low_bytes) {
  low_bytes_ = low_bytes;
  notify_ = true;
  if (queued_bytes() <= low_bytes) Schedule();
}

void LocalCallImpl::Schedule() {
  if (scheduled_) return;
  scheduled_ = true;
  loop().Post([self = shared_from_this()] { static_cast<LocalCallImpl*>(self.get())->Pump(); });
}

void LocalCallImpl::Pump() {
  scheduled_ = false;
  if (!stream_started_ && !done()) {
    stream_started_ = true;
    if (!takes_one_message()) StartStream();
  }
  ToHandler();
  ToClient();
  if (notify_ && queued_bytes() <= low_bytes_) {
    notify_ = false;
    DrainedNow();
  }
}

void LocalCallImpl::ToHandler() {
  while (!requests_.empty() && !done() && !reading_paused()) {
    const Event event = std::move(requests_.front());
    requests_.pop_front();
    if (event.kind == Event::Kind::kHalfClose) {
      DeliverHalfClose();
    } else if (event.payload.size() > server_->options.receive_bytes_max) {
      Finish(absl::StatusCode::kResourceExhausted,
             fmt::format("grpc: received message larger than max ({} vs. {})", event.payload.size(),
                         server_->options.receive_bytes_max));
    } else {
      DeliverMessage(event.payload);
    }
  }
  if (done()) requests_.clear();
}

void LocalCallImpl::ToClient() {
  while (!responses_.empty() && client_ != nullptr) {
    const std::string payload = std::move(responses_.front());
    responses_.pop_front();
    undelivered_bytes_ -= payload.size();
    client_->OnMessage(payload);
  }
  if (client_ == nullptr || final_ == nullptr) return;
  const std::unique_ptr<LocalClient> client = std::move(client_);
  client->OnFinish(*final_);
}

void LocalCallImpl::Abandon() {
  if (client_ != nullptr) {
    // The client may be on the stack.
    loop().Defer([client = std::move(client_)] {});
  }
  responses_.clear();
  undelivered_bytes_ = 0;
  if (done()) return;
  loop().Post([self = shared_from_this()] {
    static_cast<LocalCallImpl*>(self.get())->Cancel(absl::CancelledError("context canceled"));
  });
}

}  // namespace rpc
