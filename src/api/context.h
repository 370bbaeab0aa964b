// What all services share. Made once at start, immutable afterwards; the parts are thread-safe by
// themselves.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/clock.h"
#include "base/random.h"
#include "member/errors.h"
#include "member/member.h"
#include "net/loop.h"
#include "rpc/call.h"
#include "rpc/message.h"
#include "rpc/server.h"

namespace api {

struct ApiOptions {
  std::string version = "3.7.3";
  uint64_t max_request_bytes = 1572864;
  uint64_t max_txn_ops = 128;
  base::Duration watch_progress_interval = std::chrono::minutes(10);
  base::Duration warning_unary_duration = std::chrono::milliseconds(300);
  // Unsent bytes of one watch stream; beyond, its watchers wait and read on from the store.
  size_t watch_stream_bytes_max = 4 << 20;
  // Ranges of more keys than this are read by a helper (long_range.h).
  size_t inline_keys_max = 1000;
  // A client that takes nothing of a long answer for this long loses it.
  base::Duration range_stall_max = std::chrono::minutes(1);
  // What long ranges built as a whole may hold together.
  uint64_t answer_bytes_max = 128 << 20;
  int helpers = 2;
};

// Threads for what may take long: hashes, snapshots, defragmentation, cold ranges. Thread-safe.
class HelperPool {
 public:
  HelperPool(int threads, size_t queue_max);
  ~HelperPool();
  // False when the queue is full; the caller answers "too many requests".
  bool Post(absl::AnyInvocable<void()> task);
  // Runs what is queued, then joins. Idempotent.
  void Stop();

 private:
  void Main();
  const size_t queue_max_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<absl::AnyInvocable<void()>> queue_;  // guarded by mutex_
  bool stopping_ = false;                         // guarded by mutex_
  std::vector<std::thread> threads_;
};

// A number of bytes shared by many. Thread-safe.
class ByteBudget {
 public:
  explicit ByteBudget(uint64_t max) : left_(max) {}
  // False, with nothing taken, when that much is not left.
  bool TryTake(uint64_t bytes) {
    uint64_t left = left_.load(std::memory_order_relaxed);
    do {
      if (left < bytes) return false;
    } while (!left_.compare_exchange_weak(left, left - bytes, std::memory_order_relaxed));
    return true;
  }
  void Give(uint64_t bytes) { left_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> left_;
};

// Carries results of applied writes to the loops of their calls: collected per loop, and each loop
// is woken once a batch. Thread-safe.
class Answers {
 public:
  explicit Answers(net::LoopPool& loops);
  // `task` runs on `loop`: at the end of the batch when called while entries are applied, else at
  // once.
  void Deliver(net::Loop& loop, net::Task task);
  // The batch ended.
  void Flush();

 private:
  struct Bucket {
    std::mutex mutex;
    std::vector<net::Task> tasks;  // guarded by mutex
  };
  static void FlushBucket(Bucket& bucket, net::Loop& loop);
  net::LoopPool& loops_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
};

struct Context {
  member::Member& member;
  net::LoopPool& loops;
  HelperPool& helpers;
  Answers& answers;
  std::shared_ptr<ByteBudget> answer_bytes;
  const ApiOptions& options;
  const base::Clock& clock;
  base::Random& random;

  // Appends field 1 of a response: cluster, member, `revision` (left out when 0) and the present
  // term.
  void AppendHeader(std::string* out, int64_t revision) const;
  // A message that begins with that header.
  rpc::Message WithHeader(int64_t revision) const;
};

// Malformed protobuf, as grpc-go words it.
absl::Status UnmarshalError();

// Reads a protobuf message; false when it is malformed.
template <typename P>
bool Parse(std::string_view bytes, P* message) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

// Runs `work` on a helper and hands its result to `answer` on the call's loop, unless the call is
// over by then. `answer` lives until it has run, so it is what keeps alive what `work` refers to.
template <typename Work, typename Answer>
void OnHelper(const Context& context, rpc::CallPtr call, Work work, Answer answer) {
  const bool posted =
      context.helpers.Post([call, work = std::move(work), answer = std::move(answer)]() mutable {
        auto result = work();
        net::Loop& loop = call->loop();
        loop.Post([call = std::move(call), result = std::move(result),
                   answer = std::move(answer)]() mutable {
          if (!call->done()) answer(call, std::move(result));
        });
      });
  if (!posted) call->Finish(member::TooManyRequestsError());
}

// Registers a handler that wants the context. At start-up.
using UnaryHandler = void (*)(const Context&, rpc::CallPtr, std::string_view request);
void RegisterUnary(rpc::Server& server, const Context& context, std::string_view path,
                   UnaryHandler handler);

}  // namespace api
