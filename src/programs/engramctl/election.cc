#include "election.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/status.h"
#include "kv_requests.h"
#include "proto/kv.pb.h"
#include "proto/rpc.pb.h"

namespace engramctl {

struct SignalWaiter::State {
  int signals = -1;
  int wake = -1;
  std::thread thread;
  std::function<void()> action;
};

SignalWaiter::SignalWaiter() : state_(std::make_unique<State>()) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  state_->signals = signalfd(-1, &set, SFD_CLOEXEC);
  state_->wake = eventfd(0, EFD_CLOEXEC);
  CHECK(state_->signals >= 0 && state_->wake >= 0);
}

void SignalWaiter::Wait() {
  pollfd fds[2] = {{state_->signals, POLLIN, 0}, {state_->wake, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0) {
  }
}

void SignalWaiter::OnSignal(std::function<void()> action) {
  state_->action = std::move(action);
  state_->thread = std::thread([this] {
    Wait();
    state_->action();
  });
}

void SignalWaiter::Raise() {
  const uint64_t one = 1;
  // The counter can only be full when it is set already.
  [[maybe_unused]] const ssize_t written = ::write(state_->wake, &one, sizeof(one));
}

void SignalWaiter::Finish() {
  Raise();
  if (state_->thread.joinable()) state_->thread.join();
}

SignalWaiter::~SignalWaiter() {
  Finish();
  ::close(state_->signals);
  ::close(state_->wake);
}

Contender::~Contender() = default;

absl::Status Contender::Start(int64_t ttl_seconds, std::function<void()> on_lost) {
  pb::LeaseGrantRequest request;
  request.set_ttl(ttl_seconds);
  ASSIGN_OR_RETURN(const pb::LeaseGrantResponse granted,
                   client_.Call(client::kLeaseGrant, request));
  lease_ = granted.id();
  keeper_ =
      std::make_unique<client::LeaseKeeper>(client_, lease_, granted.ttl(), std::move(on_lost));
  return absl::OkStatus();
}

absl::Status Contender::Acquire(std::string_view name, std::string_view value) {
  const std::string prefix = fmt::format("{}/", name);
  key_ = fmt::format("{}{:x}", prefix, static_cast<uint64_t>(lease_));
  pb::TxnRequest request;
  pb::Compare& absent = *request.add_compare();
  absent.set_key(key_);
  absent.set_target(pb::Compare::CREATE);
  absent.set_result(pb::Compare::EQUAL);
  absent.set_create_revision(0);
  pb::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(key_);
  put.set_value(value.data(), value.size());
  put.set_lease(lease_);
  request.add_failure()->mutable_request_range()->set_key(key_);
  ASSIGN_OR_RETURN(const pb::TxnResponse entered, client_.Call(client::kTxn, request));
  revision_ = entered.header().revision();
  if (!entered.succeeded() && entered.responses_size() > 0 &&
      entered.responses(0).response_range().kvs_size() > 0) {
    revision_ = entered.responses(0).response_range().kvs(0).create_revision();
  }
  return WaitForOlder(prefix);
}

// Waits until no key of the queue is older than the own one.
absl::Status Contender::WaitForOlder(const std::string& prefix) {
  for (;;) {
    pb::RangeRequest request;
    request.set_key(prefix);
    request.set_range_end(PrefixEnd(prefix));
    request.set_max_create_revision(revision_ - 1);
    request.set_sort_order(pb::RangeRequest::DESCEND);
    request.set_sort_target(pb::RangeRequest::CREATE);
    request.set_limit(1);
    ASSIGN_OR_RETURN(const pb::RangeResponse older, client_.Call(client::kRange, request));
    if (older.kvs_size() == 0) return absl::OkStatus();
    RETURN_IF_ERROR(WaitForDeletion(older.kvs(0).key(), older.header().revision()));
  }
}

absl::Status Contender::WaitForDeletion(const std::string& key, int64_t revision) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return absl::CancelledError("context canceled");
    watcher_ = client::Watcher::Create(client_, /*require_leader=*/true);
    watcher_->Add({.key = key, .start_revision = revision + 1});
  }
  for (;;) {
    pb::WatchResponse response;
    int watch = 0;
    const absl::Status status = watcher_->Next(&response, &watch);
    if (!status.ok()) {
      const std::lock_guard lock(mutex_);
      return stopped_ ? absl::CancelledError("context canceled") : status;
    }
    if (response.canceled()) return absl::OkStatus();  // compacted: look again
    for (const mvccpb::Event& event : response.events()) {
      if (event.type() == mvccpb::Event::DELETE) return absl::OkStatus();
    }
  }
}

void Contender::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  if (watcher_ != nullptr) watcher_->Stop();
}

absl::Status Contender::Release() {
  keeper_.reset();
  if (!key_.empty()) {
    pb::DeleteRangeRequest request;
    request.set_key(key_);
    RETURN_IF_ERROR(client_.Call(client::kDeleteRange, request).status());
  }
  if (lease_ == 0) return absl::OkStatus();
  pb::LeaseRevokeRequest request;
  request.set_id(lease_);
  return client_.Call(client::kLeaseRevoke, request).status();
}

}  // namespace engramctl
