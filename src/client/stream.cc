#include "client/stream.h"

#include <google/protobuf/message_lite.h>

#include <utility>

#include "base/status.h"

namespace client {
namespace {

// Messages received but not yet read; beyond both the stream's flow control holds the server back.
// With less than this a reader and grpc's thread that take equally long wake each other for every
// message, which costs more than the message.
constexpr size_t kReadAheadMin = 4;
constexpr size_t kReadAheadBytes = size_t{1} << 20;

class GrpcStream final : public Stream,
                         public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  GrpcStream(std::shared_ptr<grpc::Channel> channel, std::string_view method,
             std::unique_ptr<grpc::ClientContext> context)
      : channel_(std::move(channel)), context_(std::move(context)), stub_(channel_) {
    stub_.PrepareBidiStreamingCall(context_.get(), std::string(method), {}, this);
    AddHold();  // writes come from outside of the callbacks
    StartRead(&incoming_);
    StartCall();
  }

  ~GrpcStream() override {
    context_->TryCancel();
    ReleaseHold();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }

  absl::Status Write(const google::protobuf::MessageLite& message) override {
    grpc::ByteBuffer buffer = Serialize(message);
    const std::lock_guard lock(mutex_);
    if (ended_ || done_ || half_closed_) {
      return done_ && !status_.ok() ? status_ : absl::UnavailableError("the stream has ended");
    }
    outgoing_.push_back(std::move(buffer));
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
    return absl::OkStatus();
  }

  void WritesDone() override {
    const std::lock_guard lock(mutex_);
    if (ended_ || done_ || half_closed_) return;
    half_closed_ = true;
    if (outgoing_.empty()) StartWritesDone();
  }

  ReadResult Read(google::protobuf::MessageLite* message, base::Duration timeout) override {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return !received_.empty() || ReadsOver(); };
    if (timeout.count() <= 0) {
      changed_.wait(lock, ready);
    } else if (!changed_.wait_until(lock, std::chrono::steady_clock::now() + timeout, ready)) {
      return ReadResult::kTimeout;
    }
    if (received_.empty()) return ReadResult::kEnd;
    const grpc::ByteBuffer buffer = std::move(received_.front());
    received_.pop_front();
    received_bytes_ -= buffer.Length();
    if (!reading_ && !ended_) {
      reading_ = true;
      StartRead(&incoming_);
    }
    lock.unlock();
    if (Parse(buffer, message)) return ReadResult::kMessage;
    context_->TryCancel();
    lock.lock();
    status_ = absl::DataLossError("a message of the stream could not be parsed");
    unparsable_ = true;
    return ReadResult::kEnd;
  }

  absl::Status Finish() override {
    std::unique_lock lock(mutex_);
    // The final status arrives only when grpc's last callback has run, which the hold of this
    // object puts off.
    if (!released_) {
      released_ = true;
      lock.unlock();
      RemoveHold();
      lock.lock();
    }
    changed_.wait(lock, [this] { return done_; });
    return status_;
  }

  void Cancel() override { context_->TryCancel(); }

  void OnReadDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    reading_ = false;
    if (!ok) {
      ended_ = true;
    } else {
      received_bytes_ += incoming_.Length();
      received_.push_back(std::move(incoming_));
      incoming_.Clear();
      if (received_.size() < kReadAheadMin || received_bytes_ < kReadAheadBytes) {
        reading_ = true;
        StartRead(&incoming_);
      }
    }
    changed_.notify_all();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    outgoing_.pop_front();
    if (!ok) {
      outgoing_.clear();
      half_closed_ = true;
    } else if (!outgoing_.empty()) {
      StartWrite(&outgoing_.front());
    } else if (half_closed_) {
      StartWritesDone();
    }
  }

  void OnDone(const grpc::Status& status) override {
    const std::lock_guard lock(mutex_);
    if (!unparsable_) status_ = FromGrpc(status);
    done_ = true;
    changed_.notify_all();
  }

 private:
  bool ReadsOver() const { return ended_ || done_ || unparsable_; }

  void ReleaseHold() {
    {
      const std::lock_guard lock(mutex_);
      if (released_) return;
      released_ = true;
    }
    RemoveHold();
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<grpc::ClientContext> context_;
  grpc::GenericStub stub_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  grpc::ByteBuffer incoming_;  // grpc's while reading_
  bool reading_ = true;        // a StartRead is under way
  std::deque<grpc::ByteBuffer> received_;
  size_t received_bytes_ = 0;              // of received_
  std::deque<grpc::ByteBuffer> outgoing_;  // the front one is being written
  bool half_closed_ = false;               // no more writes are accepted
  bool ended_ = false;                     // the last read has failed: the server ended the stream
  bool unparsable_ = false;
  bool released_ = false;  // the hold is given up
  bool done_ = false;      // OnDone has run; status_ is final
  absl::Status status_;
};

}  // namespace

std::unique_ptr<Stream> StartStream(std::shared_ptr<grpc::Channel> channel, std::string_view method,
                                    std::unique_ptr<grpc::ClientContext> context) {
  return std::make_unique<GrpcStream>(std::move(channel), method, std::move(context));
}

}  // namespace client
