// One RPC as its handler sees it. Thread rule: a call lives on the loop of its connection: all
// functions and callbacks run on loop()'s thread, except where "any thread" is said. A CallPtr may
// be moved or copied to other threads, which answer by posting to loop(). A call that nobody
// finishes leaves its client waiting: the handler owes exactly one Finish or Respond, unless the
// call was cancelled (then they are ignored).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "net/http.h"
#include "rpc/message.h"

namespace net {
class Loop;
}

namespace rpc {

enum class MethodKind : uint8_t { kUnary, kClientStream, kServerStream, kBidiStream };

// Immutable once registered; any thread.
struct MethodInfo {
  std::string path;     // "/etcdserverpb.KV/Range"
  std::string service;  // "etcdserverpb.KV"
  std::string name;     // "Range"
  MethodKind kind = MethodKind::kUnary;
  size_t index = 0;  // position in the order of registration, for tables of counters
};

class Call;
using CallPtr = std::shared_ptr<Call>;

class Call : public std::enable_shared_from_this<Call> {
 public:
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // --- facts, any thread, valid as long as the call ---
  const MethodInfo& method() const { return *method_; }
  const net::ConnectionInfo& connection() const { return *connection_; }
  net::Loop& loop() const { return *loop_; }
  // First value of a metadata key (lower case); empty when absent. "-bin" values are as sent
  // (base64).
  virtual std::string_view Metadata(std::string_view key) const = 0;
  virtual bool HasMetadata(std::string_view key) const = 0;
  // All metadata, reserved headers included; for rare uses (copies the list of views).
  virtual std::vector<net::Header> AllMetadata() const = 0;
  // The :authority of the request; "" for local calls.
  virtual std::string_view authority() const = 0;
  // Monotonic time (base::SystemClock().Monotonic()) at which the client gives up; Duration::max()
  // when it named none.
  base::Duration deadline() const { return deadline_; }
  bool has_deadline() const { return deadline_ != base::Duration::max(); }
  base::Duration started_at() const { return started_at_; }  // monotonic
  // Whether this call came from inside the process (the JSON gateway).
  bool local() const { return local_; }

  // --- the response, loop thread ---
  // Sends one message. Ignored once the call is over.
  virtual void Send(Message message) = 0;
  // Sends one message of `payload_bytes` in parts, for one too large to be held: the parts, as long
  // together, follow by SendPart. Between them the handler waits for room as between messages; it
  // may end the call with an error, but sends nothing else before the last part.
  virtual void StartMessage(uint64_t payload_bytes) = 0;
  virtual void SendPart(std::string bytes) = 0;
  // Ends the call. Queued messages go out first. `text` may be any UTF-8. Later calls of Send,
  // Finish, Respond are ignored.
  virtual void Finish(absl::StatusCode code, std::string_view text) = 0;
  void Finish(const absl::Status& status);
  // Send + Finish(OK) in one; the fast path of unary calls.
  virtual void Respond(Message message) = 0;
  // Bytes sent that have not left for the kernel. A producer of many messages stops at a bound of
  // its choice (64 KiB is good; one message more does no harm) and goes on in the writable
  // callback.
  virtual size_t queued_bytes() const = 0;
  // Calls `fn` once, as soon as queued_bytes() <= low_bytes; in a later turn, never from inside
  // this function. Replaces a callback set before. Not called once the call is over.
  virtual void NotifyWhenWritable(size_t low_bytes, absl::AnyInvocable<void()> fn) = 0;
  // Stops or resumes the delivery of the client's messages (streaming kinds); the client feels it
  // through flow control. The message being delivered may be followed by those that arrived in the
  // same frame only after a resume.
  virtual void PauseReading(bool paused) = 0;
  // `fn` is called once if the call ends other than by Finish/Respond: the client cancelled
  // (Cancelled "context canceled"), its deadline passed (DeadlineExceeded "context deadline
  // exceeded"), or the connection broke. For unary and server-streaming handlers; receivers of
  // streams get OnCancel instead. Called in a later turn when that already happened. Cleared when
  // the call ends.
  virtual void SetCancelCallback(absl::AnyInvocable<void(const absl::Status&)> fn) = 0;
  // Whether the call is over: finished or cancelled. Loop thread.
  bool done() const { return done_; }

  // A word and a pointer for the interceptors and handlers to keep with the call (say, a metric's
  // start or the auth identity).
  uint64_t user_word = 0;
  std::shared_ptr<void> user_data;

 protected:
  Call() = default;

  const MethodInfo* method_ = nullptr;
  std::shared_ptr<const net::ConnectionInfo> connection_;
  net::Loop* loop_ = nullptr;
  base::Duration deadline_ = base::Duration::max();
  base::Duration started_at_{};
  bool local_ = false;
  bool done_ = false;
};

// What a streaming handler makes for each call: it gets the client's messages. Loop thread. Owned
// by the call and destroyed, never from inside one of its own functions, after the call is over; it
// should hold the CallPtr only weakly or drop it in its last notification, lest they keep each
// other alive.
//
// Exactly one of these ends it: the handler calls Finish (nothing is called afterwards), or
// OnCancel is called.
class StreamReceiver {
 public:
  virtual ~StreamReceiver() = default;
  // One message, valid during the call.
  virtual void OnMessage(std::string_view message) = 0;
  // The client will send no more. The handler may go on sending; it still owes a Finish.
  virtual void OnHalfClose() = 0;
  // The client cancelled, its deadline passed or the connection broke; nothing can be sent any
  // more.
  virtual void OnCancel(const absl::Status& why) = 0;
};

}  // namespace rpc
