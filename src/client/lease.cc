#include "client/lease.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/status.h"
#include "proto/rpc.pb.h"

namespace client {
namespace {

constexpr std::chrono::milliseconds kReconnectPause(500);

}  // namespace

absl::Status KeepLeaseAliveOnce(Stream& stream, int64_t id, base::Duration timeout,
                                pb::LeaseKeepAliveResponse* response) {
  pb::LeaseKeepAliveRequest request;
  request.set_id(id);
  RETURN_IF_ERROR(stream.Write(request));
  switch (stream.Read(response, timeout)) {
    case Stream::ReadResult::kMessage:
      return absl::OkStatus();
    case Stream::ReadResult::kTimeout:
      return absl::DeadlineExceededError("context deadline exceeded");
    case Stream::ReadResult::kEnd:
      break;
  }
  const absl::Status status = stream.Finish();
  return status.ok() ? absl::UnavailableError("the keep-alive stream has ended") : status;
}

LeaseKeeper::LeaseKeeper(Client& client, int64_t id, int64_t ttl_seconds,
                         std::function<void()> on_lost)
    : client_(client),
      id_(id),
      on_lost_(std::move(on_lost)),
      thread_([this, ttl_seconds] { Run(ttl_seconds); }) {}

LeaseKeeper::~LeaseKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (stream_ != nullptr) stream_->Cancel();
  }
  changed_.notify_all();
  thread_.join();
}

bool LeaseKeeper::WaitStopped(base::Duration pause) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, pause, [this] { return stopped_; });
}

void LeaseKeeper::Run(int64_t ttl_seconds) {
  using std::chrono::steady_clock;
  auto expires = steady_clock::now() + std::chrono::seconds(ttl_seconds);
  for (;;) {
    const base::Duration left = expires - steady_clock::now();
    if (left.count() <= 0) return on_lost_();
    if (stream_ == nullptr) {
      auto opened = client_.OpenStream(kLeaseKeepAliveMethod, {.require_leader = true});
      const std::lock_guard lock(mutex_);
      if (stopped_) return;
      if (opened.ok()) stream_ = *std::move(opened);
    }
    pb::LeaseKeepAliveResponse response;
    const absl::Status status = stream_ == nullptr
                                    ? absl::UnavailableError("no connection")
                                    : KeepLeaseAliveOnce(*stream_, id_, left, &response);
    base::Duration pause = kReconnectPause;
    if (status.ok()) {
      if (response.ttl() <= 0) return on_lost_();
      expires = steady_clock::now() + std::chrono::seconds(response.ttl());
      pause = std::chrono::milliseconds(response.ttl() * 1000 / 3);
    } else {
      const std::lock_guard lock(mutex_);
      if (stopped_) return;
      stream_.reset();
    }
    if (WaitStopped(pause)) return;
  }
}

}  // namespace client
