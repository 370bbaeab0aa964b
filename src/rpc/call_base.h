// What calls over HTTP/2 and calls inside the process have in common: the handler's side of the
// story, from on_start to on_end. Loop thread only.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "net/loop.h"
#include "rpc/call.h"
#include "rpc/server.h"

namespace rpc {

struct Server::Method {
  MethodInfo info;
  UnaryHandler unary;    // kUnary, kServerStream
  StreamHandler stream;  // kClientStream, kBidiStream
};

struct Server::Impl {
  explicit Impl(ServerOptions o) : options(std::move(o)) {}
  const ServerOptions options;
  std::vector<std::unique_ptr<Method>> methods;
  absl::flat_hash_map<std::string_view, const Method*> by_path;  // keys lie in methods
  absl::flat_hash_map<std::string_view, bool> services;          // likewise

  void Add(std::string_view path, MethodKind kind, UnaryHandler unary, StreamHandler stream);
  // The status of a call to a path that is not registered.
  absl::Status Unknown(std::string_view path) const;
};

class CallBase : public Call {
 public:
  void Send(Message message) final;
  void StartMessage(uint64_t payload_bytes) final;
  void SendPart(std::string bytes) final;
  void Finish(absl::StatusCode code, std::string_view text) final;
  void Respond(Message message) final;
  void NotifyWhenWritable(size_t low_bytes, absl::AnyInvocable<void()> fn) final;
  void PauseReading(bool paused) final;
  void SetCancelCallback(absl::AnyInvocable<void(const absl::Status&)> fn) final;

 protected:
  using ServerImpl = Server::Impl;
  using ServerMethod = Server::Method;

  void Begin(const ServerImpl& server, const ServerMethod& method, net::Loop& loop,
             std::shared_ptr<const net::ConnectionInfo> connection);
  bool takes_one_message() const { return server_method_->unary != nullptr; }
  // Streams: on_start, and the receiver made. Unary kinds start with their message.
  void StartStream();
  // Sets the deadline and its timer.
  void SetTimeout(base::Duration timeout);
  void DeliverMessage(std::string_view payload);
  void DeliverHalfClose();
  // The call ends for a reason outside of the handler, which is told. Nothing is sent.
  void Cancel(const absl::Status& why);
  void DrainedNow();
  bool reading_paused() const { return paused_; }

  // --- what the transport does ---
  virtual void TransportSend(Message message) = 0;
  virtual void TransportStartMessage(uint64_t payload_bytes) = 0;
  virtual void TransportPart(std::string bytes) = 0;
  // Ends a call in the middle of a message: there is no place for a status text.
  virtual void TransportBreak(absl::StatusCode code) = 0;
  virtual void TransportFinish(absl::StatusCode code, std::string_view text) = 0;
  virtual void TransportRespond(Message message) {
    TransportSend(std::move(message));
    TransportFinish(absl::StatusCode::kOk, "");
  }
  virtual void TransportNotify(size_t low_bytes) = 0;
  virtual void TransportResume() = 0;

  const ServerImpl* server_ = nullptr;
  const ServerMethod* server_method_ = nullptr;

 private:
  // Marks the call as over and reports it.
  void End(absl::StatusCode code);
  bool RunOnStart();
  // Ends the transport's part with a status.
  void FinishTransport(absl::StatusCode code, std::string_view text);
  // Counts a message; false when it is too large, and the call ended for that.
  bool CountSent(uint64_t payload_bytes);

  bool started_ = false;  // on_start was called
  bool paused_ = false;
  bool got_message_ = false;
  std::unique_ptr<StreamReceiver> receiver_;
  absl::AnyInvocable<void(const absl::Status&)> on_cancel_;
  absl::AnyInvocable<void()> on_writable_;
  std::unique_ptr<absl::Status> cancelled_;  // why, once cancelled
  net::TimerId deadline_timer_;
  uint64_t messages_received_ = 0;
  uint64_t messages_sent_ = 0;
  uint64_t bytes_received_ = 0;
  uint64_t bytes_sent_ = 0;
  uint64_t part_bytes_left_ = 0;  // of the message that is sent in parts
};

}  // namespace rpc
