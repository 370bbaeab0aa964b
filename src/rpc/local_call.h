// A call made inside the process: handler and client on one loop, no wire between. Loop thread
// only.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rpc/call_base.h"

namespace rpc {

class LocalCallImpl final : public CallBase {
 public:
  // The client's handle on the call.
  static std::shared_ptr<LocalCall> Start(const Server::Impl& server, net::Loop& loop,
                                          LocalCallOptions options,
                                          std::unique_ptr<LocalClient> client);

  LocalCallImpl() = default;  // for Start only

  std::string_view Metadata(std::string_view key) const override;
  bool HasMetadata(std::string_view key) const override;
  std::vector<net::Header> AllMetadata() const override;
  std::string_view authority() const override { return {}; }
  size_t queued_bytes() const override { return undelivered_bytes_ + held_bytes_; }

 private:
  class Handle;
  // What goes to one of the two sides in a later turn.
  struct Event {
    enum class Kind : uint8_t { kMessage, kHalfClose } kind = Kind::kMessage;
    std::string payload;
  };

  void TransportSend(Message message) override;
  void TransportStartMessage(uint64_t payload_bytes) override;
  void TransportPart(std::string bytes) override;
  void TransportBreak(absl::StatusCode code) override;
  void TransportFinish(absl::StatusCode code, std::string_view text) override;
  void TransportNotify(size_t low_bytes) override;
  void TransportResume() override { Schedule(); }

  // Gives a message to the client, in a later turn.
  void Deliver(std::string payload);
  void Schedule();
  // Hands over what waits, in both directions.
  void Pump();
  void ToHandler();
  void ToClient();
  void Abandon();  // the client is no longer interested

  std::vector<std::pair<std::string, std::string>> metadata_;
  std::unique_ptr<LocalClient> client_;  // null once it had OnFinish or gave up
  std::deque<Event> requests_;
  std::deque<std::string> responses_;
  std::string in_parts_;                 // the message whose parts arrive
  uint64_t part_bytes_left_ = 0;         // of it
  std::unique_ptr<absl::Status> final_;  // after the last response
  size_t undelivered_bytes_ = 0;         // of responses_
  size_t held_bytes_ = 0;                // what the client said it holds
  size_t low_bytes_ = 0;
  bool notify_ = false;
  bool scheduled_ = false;
  bool stream_started_ = false;
};

}  // namespace rpc
