#include "api/watch.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "base/wire.h"
#include "member/errors.h"
#include "mvcc/watch_hub.h"
#include "proto/rpc.pb.h"

namespace api {
namespace {

namespace pb = etcdserverpb;
namespace wire = base::wire;

// Field numbers of WatchResponse.
constexpr uint32_t kWatchId = 2;
constexpr uint32_t kCreated = 3;
constexpr uint32_t kCanceled = 4;
constexpr uint32_t kCompactRevision = 5;
constexpr uint32_t kCancelReason = 6;
constexpr uint32_t kFragment = 7;
constexpr uint32_t kEvents = 11;
constexpr int64_t kInvalidWatchId = -1;
// Event bodies from this size on are shared between streams instead of being copied.
constexpr size_t kShareBytes = 4096;
// Tag and length of an event at most.
constexpr size_t kEventHeadBytes = 8;

constexpr std::string_view kFromKey("\0", 1);

}  // namespace

// What the streams of one loop share: the watcher group and its draining. Loop thread, but for the
// wake.
class WatchLoop {
 public:
  WatchLoop(const Context& context, net::Loop& loop)
      : context_(context),
        loop_(loop),
        group_(context.member.watch_hub(), [this] { PostDrain(); }) {}

  const Context& context() const { return context_; }
  net::Loop& loop() { return loop_; }
  mvcc::WatcherGroup& group() { return group_; }
  // Brings every synced watcher of the loop up to date at once.
  void DrainNow() {
    if (group_.Drain()) PostDrain();
  }
  void PostDrain() {
    loop_.Post([this] { DrainNow(); });
  }
  std::atomic<uint64_t> streams{0};

 private:
  const Context& context_;
  net::Loop& loop_;
  mvcc::WatcherGroup group_;
};

namespace {

class WatchStream final : public rpc::StreamReceiver, public mvcc::WatchSink {
 public:
  WatchStream(WatchLoop& loop, rpc::CallPtr call)
      : loop_(loop), context_(loop.context()), call_(std::move(call)) {
    loop_.streams.fetch_add(1, std::memory_order_relaxed);
    const base::Duration interval = std::max<base::Duration>(
        context_.options.watch_progress_interval, std::chrono::milliseconds(100));
    progress_interval_ =
        interval + base::Duration(static_cast<int64_t>(context_.random.Below(
                       static_cast<uint64_t>(std::max<int64_t>(interval.count() / 10, 1)))));
  }

  ~WatchStream() override {
    RemoveAll();
    loop_.streams.fetch_sub(1, std::memory_order_relaxed);
  }

  // --- rpc::StreamReceiver ---
  void OnMessage(std::string_view bytes) override {
    pb::WatchRequest request;
    if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      RemoveAll();
      auto call = std::move(call_);
      call->Finish(UnmarshalError());
      return;
    }
    switch (request.request_union_case()) {
      case pb::WatchRequest::kCreateRequest:
        return Create(request.create_request());
      case pb::WatchRequest::kCancelRequest:
        return Cancel(request.cancel_request().watch_id());
      case pb::WatchRequest::kProgressRequest:
        return Progress();
      default:
        return;
    }
  }
  // Events keep flowing until the client cancels or disconnects.
  void OnHalfClose() override {}
  void OnCancel(const absl::Status&) override {
    RemoveAll();
    call_.reset();
  }

  // --- mvcc::WatchSink ---
  bool HasRoom() override {
    if (call_ == nullptr || call_->queued_bytes() < context_.options.watch_stream_bytes_max) {
      return true;
    }
    WaitWritable();
    return false;
  }
  bool OnEvents(mvcc::Watcher& watcher, const mvcc::WatchDelivery& delivery) override {
    if (call_ == nullptr) return true;
    Entry& entry = *static_cast<Entry*>(watcher.user);
    entry.told_since_tick = true;
    const bool prev = watcher.spec().prev_kv;
    const size_t limit = context_.options.max_request_bytes + 512 * 1024;
    size_t copied_bytes = 0;
    for (const mvcc::Event* event : delivery.events) {
      const size_t size = prev ? event->body_with_prev.size() : event->body.size();
      if (size < kShareBytes) copied_bytes += size + kEventHeadBytes;
    }
    size_t next = 0;
    while (next < delivery.events.size()) {
      rpc::Message message = context_.WithHeader(delivery.header_revision);
      // What a fragment does not take it has reserved in vain.
      message.bytes()->reserve(message.bytes()->size() + std::min(copied_bytes, limit) +
                               kEventHeadBytes);
      wire::AppendNonZero(message.bytes(), kWatchId, static_cast<uint64_t>(watcher.id));
      size_t bytes = 0;
      const size_t first = next;
      for (; next < delivery.events.size(); ++next) {
        const mvcc::Event& event = *delivery.events[next];
        const std::string_view body = prev ? event.body_with_prev : event.body;
        if (entry.fragment && next > first && bytes + body.size() >= limit) break;
        bytes += body.size();
        AppendEvent(&message, body, delivery);
      }
      if (next < delivery.events.size()) wire::AppendUint(message.bytes(), kFragment, 1);
      call_->Send(std::move(message));
    }
    return HasRoom();
  }

  void OnCompacted(mvcc::Watcher& watcher, int64_t compact_revision) override {
    // The revision of this header is 0: clients take it as no statement about progress.
    rpc::Message message = context_.WithHeader(0);
    wire::AppendNonZero(message.bytes(), kWatchId, static_cast<uint64_t>(watcher.id));
    wire::AppendUint(message.bytes(), kCanceled, 1);
    wire::AppendNonZero(message.bytes(), kCompactRevision, static_cast<uint64_t>(compact_revision));
    entries_.erase(watcher.id);
    if (call_ != nullptr) call_->Send(std::move(message));
  }

  void OnFailed(mvcc::Watcher& watcher, const absl::Status& status) override {
    const int64_t id = watcher.id;
    entries_.erase(id);
    if (call_ != nullptr) SendCanceled(id, base::Message(status));
  }

 private:
  struct Entry {
    mvcc::Watcher* watcher = nullptr;
    bool fragment = false;
    bool progress_notify = false;
    bool told_since_tick = false;
  };

  // The batch of `delivery` whose buffer holds `body`; null when none does.
  static std::shared_ptr<const void> Holder(const mvcc::WatchDelivery& delivery,
                                            std::string_view body) {
    for (const auto& batch : delivery.batches) {
      const std::less_equal<const char*> not_after;
      if (not_after(batch->buffer.data(), body.data()) &&
          not_after(body.data() + body.size(), batch->buffer.data() + batch->buffer.size())) {
        return batch;
      }
    }
    return nullptr;
  }

  static void AppendEvent(rpc::Message* message, std::string_view body,
                          const mvcc::WatchDelivery& delivery) {
    std::string* out = message->bytes();
    wire::AppendTag(out, kEvents, wire::Type::kBytes);
    wire::AppendVarint(out, body.size());
    auto holder = body.size() < kShareBytes ? nullptr : Holder(delivery, body);
    if (holder == nullptr) {
      out->append(body);
    } else {
      message->AddShared(std::move(holder), body);
    }
  }

  void Create(const pb::WatchCreateRequest& request) {
    mvcc::WatchSpec spec{.key = request.key(),
                         .range_end = request.range_end(),
                         .start_revision = request.start_revision(),
                         .prev_kv = request.prev_kv()};
    if (spec.key.empty()) spec.key = kFromKey;
    if (spec.start_revision < 0) return Reject(base::Message(mvcc::CompactedError()));
    if (!spec.range_end.empty() && spec.range_end != kFromKey && spec.key >= spec.range_end) {
      return Reject("mvcc: watcher range is empty");
    }
    for (const int filter : request.filters()) {
      if (filter == pb::WatchCreateRequest::NOPUT) spec.no_put = true;
      if (filter == pb::WatchCreateRequest::NODELETE) spec.no_delete = true;
    }
    int64_t id = request.watch_id();
    if (id == 0) {
      while (entries_.contains(next_id_)) ++next_id_;
      id = next_id_++;
    } else if (entries_.contains(id)) {
      return Reject("mvcc: duplicate watch ID provided on the WatchStream");
    }
    auto entry = std::make_unique<Entry>();
    entry->fragment = request.fragment();
    entry->progress_notify = request.progress_notify();
    const auto added = loop_.group().Add(std::move(spec), this, id, entry.get());
    entry->watcher = added.watcher;
    if (entry->progress_notify) StartTimer();
    entries_[id] = std::move(entry);
    rpc::Message message = context_.WithHeader(added.current_revision);
    wire::AppendNonZero(message.bytes(), kWatchId, static_cast<uint64_t>(id));
    wire::AppendUint(message.bytes(), kCreated, 1);
    call_->Send(std::move(message));
    loop_.PostDrain();
  }

  // A refused create is answered as created and cancelled in one, since clients pair answers with
  // requests by their order.
  void Reject(std::string_view reason) {
    rpc::Message message = context_.WithHeader(context_.member.store().current_revision());
    wire::AppendUint(message.bytes(), kWatchId, static_cast<uint64_t>(kInvalidWatchId));
    wire::AppendUint(message.bytes(), kCreated, 1);
    wire::AppendUint(message.bytes(), kCanceled, 1);
    wire::AppendNonEmpty(message.bytes(), kCancelReason, reason);
    call_->Send(std::move(message));
  }

  void SendCanceled(int64_t id, std::string_view reason) {
    rpc::Message message = context_.WithHeader(context_.member.store().current_revision());
    wire::AppendNonZero(message.bytes(), kWatchId, static_cast<uint64_t>(id));
    wire::AppendUint(message.bytes(), kCanceled, 1);
    wire::AppendNonEmpty(message.bytes(), kCancelReason, reason);
    call_->Send(std::move(message));
  }

  void Cancel(int64_t id) {
    const auto it = entries_.find(id);
    if (it == entries_.end()) return;
    loop_.group().Remove(it->second->watcher);
    entries_.erase(it);
    SendCanceled(id, "");
  }

  void Progress() {
    if (entries_.empty()) return;
    // Delivers what is there first, so that the answer is as new as it can be and nothing it covers
    // comes after it.
    loop_.DrainNow();
    if (call_ == nullptr) return;
    for (const auto& [id, entry] : entries_) {
      if (!loop_.group().IsSynced(entry->watcher)) return;
    }
    SendProgress(kInvalidWatchId);
  }

  void SendProgress(int64_t id) {
    rpc::Message message = context_.WithHeader(loop_.group().revision());
    wire::AppendNonZero(message.bytes(), kWatchId, static_cast<uint64_t>(id));
    call_->Send(std::move(message));
  }

  void StartTimer() {
    if (timer_.generation != 0) return;
    timer_ = loop_.loop().RunAfter(progress_interval_, [this] { OnTimer(); });
  }

  void OnTimer() {
    timer_ = {};
    if (call_ == nullptr) return;
    loop_.DrainNow();
    bool any = false;
    for (const auto& [id, entry] : entries_) {
      if (!entry->progress_notify) continue;
      any = true;
      if (!std::exchange(entry->told_since_tick, false) && loop_.group().IsSynced(entry->watcher))
        SendProgress(id);
    }
    if (any) StartTimer();
  }

  void WaitWritable() {
    if (std::exchange(waiting_writable_, true)) return;
    call_->NotifyWhenWritable(context_.options.watch_stream_bytes_max / 4, [this] {
      waiting_writable_ = false;
      for (const auto& [id, entry] : entries_) loop_.group().Unblock(entry->watcher);
      loop_.PostDrain();
    });
  }

  void RemoveAll() {
    loop_.loop().Cancel(&timer_);
    for (const auto& [id, entry] : entries_) loop_.group().Remove(entry->watcher);
    entries_.clear();
  }

  WatchLoop& loop_;
  const Context& context_;
  rpc::CallPtr call_;  // null once the stream is over
  absl::flat_hash_map<int64_t, std::unique_ptr<Entry>> entries_;
  int64_t next_id_ = 0;
  bool waiting_writable_ = false;
  base::Duration progress_interval_{};
  net::TimerId timer_;
};

}  // namespace

WatchService::WatchService(rpc::Server& server, const Context& context) {
  for (size_t i = 0; i < context.loops.size(); ++i) {
    loops_.push_back(std::make_unique<WatchLoop>(context, context.loops.at(i)));
  }
  server.RegisterBidiStream("/etcdserverpb.Watch/Watch", [this](rpc::CallPtr call) {
    WatchLoop& loop = *loops_[call->loop().index()];
    return std::make_unique<WatchStream>(loop, std::move(call));
  });
}

WatchService::~WatchService() = default;

uint64_t WatchService::streams() const {
  uint64_t total = 0;
  for (const auto& loop : loops_) total += loop->streams.load(std::memory_order_relaxed);
  return total;
}

}  // namespace api
