#include "client/watch.h"

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "proto/kv.pb.h"
#include "proto/rpc.pb.h"

namespace client {
namespace {

constexpr std::chrono::milliseconds kResumePause(50);

class StreamWatcher final : public Watcher {
 public:
  StreamWatcher(Client& client, bool require_leader,
                absl::AnyInvocable<void(const absl::Status&)> interrupted)
      : client_(client), require_leader_(require_leader), interrupted_(std::move(interrupted)) {}

  int Add(WatchSpec spec) override {
    const std::lock_guard lock(mutex_);
    const int number = static_cast<int>(watches_.size());
    watches_.push_back({.spec = std::move(spec)});
    if (stream_ != nullptr) SendCreate(number);
    return number;
  }

  absl::Status RequestProgress() override {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr) return absl::UnavailableError("the watch stream is not open");
    pb::WatchRequest request;
    request.mutable_progress_request();
    return stream_->Write(request);
  }

  absl::Status Next(pb::WatchResponse* response, int* watch) override {
    return NextWithin(response, watch, {});
  }

  absl::Status NextWithin(pb::WatchResponse* response, int* watch,
                          base::Duration timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      RETURN_IF_ERROR(OpenIfNeeded());
      base::Duration remaining{};
      if (timeout.count() > 0) {
        remaining = deadline - std::chrono::steady_clock::now();
        if (remaining.count() <= 0) return absl::DeadlineExceededError("no answer in time");
      }
      // Only this thread replaces stream_, so it may be read without the lock.
      switch (stream_->Read(response, remaining)) {
        case Stream::ReadResult::kTimeout:
          return absl::DeadlineExceededError("no answer in time");
        case Stream::ReadResult::kEnd:
          RETURN_IF_ERROR(AfterEnd());
          break;
        case Stream::ReadResult::kMessage:
          if (Accept(*response, watch)) return absl::OkStatus();
          break;
      }
    }
  }

  void Stop() override {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (stream_ != nullptr) stream_->Cancel();
  }

 private:
  struct Watch {
    WatchSpec spec = {};
    bool ended = false;
  };

  absl::Status OpenIfNeeded() {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return absl::CancelledError("the watch was stopped");
      if (stream_ != nullptr) return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                     client_.OpenStream(kWatchMethod, {.require_leader = require_leader_}));
    const std::lock_guard lock(mutex_);
    if (stopped_) return absl::CancelledError("the watch was stopped");
    stream_ = std::move(stream);
    ids_.clear();
    creating_.clear();
    for (size_t i = 0; i < watches_.size(); ++i) {
      if (!watches_[i].ended) SendCreate(static_cast<int>(i));
    }
    return absl::OkStatus();
  }

  // The stream's end: OK when it is worth another try.
  absl::Status AfterEnd() {
    absl::Status status = stream_->Finish();
    std::unique_ptr<Stream> ended;
    {
      const std::lock_guard lock(mutex_);
      ended = std::move(stream_);
      if (stopped_) return absl::CancelledError("the watch was stopped");
    }
    const bool transient = status.ok() || status.code() == absl::StatusCode::kUnavailable ||
                           status.code() == absl::StatusCode::kInternal ||
                           base::Message(status) == "etcdserver: watch canceled";
    if (!transient) return status;
    if (interrupted_) interrupted_(status);
    std::this_thread::sleep_for(kResumePause);
    return absl::OkStatus();
  }

  // Requires mutex_. A failed write shows as the end of the stream, which resumes the watch.
  void SendCreate(int number) {
    const WatchSpec& spec = watches_[static_cast<size_t>(number)].spec;
    pb::WatchRequest request;
    pb::WatchCreateRequest& create = *request.mutable_create_request();
    create.set_key(spec.key);
    create.set_range_end(spec.range_end);
    create.set_start_revision(spec.start_revision);
    create.set_prev_kv(spec.prev_kv);
    create.set_progress_notify(spec.progress_notify);
    if (stream_->Write(request).ok()) creating_.push_back(number);
  }

  // Books the answer; false when it is not for the user.
  bool Accept(const pb::WatchResponse& response, int* watch) {
    const std::lock_guard lock(mutex_);
    if (response.created()) {
      // Created answers come in the order of the requests.
      if (creating_.empty()) return false;
      *watch = creating_.front();
      creating_.pop_front();
      Watch& created = watches_[static_cast<size_t>(*watch)];
      if (response.canceled()) {
        created.ended = true;
        return true;
      }
      ids_[response.watch_id()] = *watch;
      if (created.spec.start_revision == 0) {
        created.spec.start_revision = response.header().revision() + 1;
      }
      return false;
    }
    if (response.watch_id() == -1) {
      *watch = kAllWatches;
      return true;
    }
    const auto found = ids_.find(response.watch_id());
    if (found == ids_.end()) return false;
    *watch = found->second;
    Watch& known = watches_[static_cast<size_t>(*watch)];
    if (response.canceled()) {
      known.ended = true;
      ids_.erase(found);
    } else if (response.events_size() > 0) {
      known.spec.start_revision =
          response.events(response.events_size() - 1).kv().mod_revision() + 1;
    } else if (response.header().revision() >= known.spec.start_revision) {
      known.spec.start_revision = response.header().revision() + 1;
    }
    return true;
  }

  Client& client_;
  const bool require_leader_;
  absl::AnyInvocable<void(const absl::Status&)> interrupted_;
  std::mutex mutex_;  // guards all below; stream_ is replaced by Next()'s thread alone
  bool stopped_ = false;
  std::vector<Watch> watches_;
  std::deque<int> creating_;    // watches whose created answer is still to come
  std::map<int64_t, int> ids_;  // the server's watch id -> number
  std::unique_ptr<Stream> stream_;
};

}  // namespace

std::unique_ptr<Watcher> Watcher::Create(
    Client& client, bool require_leader,
    absl::AnyInvocable<void(const absl::Status&)> interrupted) {
  return std::make_unique<StreamWatcher>(client, require_leader, std::move(interrupted));
}

}  // namespace client
