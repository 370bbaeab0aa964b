// A call on an HTTP/2 stream: gRPC's framing of messages, its headers and trailers. Loop thread
// only.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/http2.h"
#include "rpc/call_base.h"

namespace rpc {

class Http2Call final : public CallBase, public net::StreamConsumer {
 public:
  // Answers a request that is no call of ours at once (nullptr), or makes the call and begins it.
  static net::StreamConsumer* Start(const Server::Impl& server, net::Http2Stream& stream);

  // For Start only; public because the allocator of shared_ptr makes the object.
  Http2Call() = default;
  ~Http2Call() override;

  // --- Call ---
  std::string_view Metadata(std::string_view key) const override { return head_.Find(key); }
  bool HasMetadata(std::string_view key) const override { return head_.Has(key); }
  std::vector<net::Header> AllMetadata() const override;
  std::string_view authority() const override { return head_.authority(); }
  size_t queued_bytes() const override { return stream_ == nullptr ? 0 : stream_->queued_bytes(); }

  // --- StreamConsumer ---
  void OnStreamData(std::string_view bytes) override;
  void OnStreamEnd() override;
  void OnStreamDrained() override { DrainedNow(); }
  void OnStreamClosed(uint32_t error_code) override;

 private:
  void TransportSend(Message message) override;
  void TransportStartMessage(uint64_t payload_bytes) override;
  void TransportPart(std::string bytes) override;
  void TransportBreak(absl::StatusCode code) override;
  void TransportFinish(absl::StatusCode code, std::string_view text) override;
  void TransportRespond(Message message) override;
  void TransportNotify(size_t low_bytes) override;
  void TransportResume() override;

  void SendHead();
  void WriteMessage(Message message);
  // Takes whole messages off the front of `bytes`; returns how much. Stops when the call is over or
  // reading paused.
  size_t TakeMessages(std::string_view bytes);
  void OnPayload(bool compressed, std::string_view payload);
  void ResumeNow();
  // Keeps bytes of an unfinished message. False: the connection holds too much, the call was ended.
  bool Hold(std::string_view bytes);
  void DropHeld();

  net::Http2Stream* stream_ = nullptr;  // null once closed
  std::shared_ptr<Call> self_;          // while the stream lives
  net::RequestHead head_;
  std::string held_;  // the beginning of a message, prefix included
  size_t unconsumed_bytes_ =
      0;  // of held_, not yet given back to the client's window because reading is paused
  bool half_closed_ = false;  // the client has sent all
  bool half_close_told_ = false;
  bool gzip_ = false;  // grpc-encoding of the request
  bool head_sent_ = false;
};

}  // namespace rpc
