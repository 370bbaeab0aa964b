// WebSocket framing (RFC 6455) without sockets. Pure but for its own state; loop thread only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace net {

enum class WebSocketOpcode : uint8_t {
  kContinuation = 0x0,
  kText = 0x1,
  kBinary = 0x2,
  kClose = 0x8,
  kPing = 0x9,
  kPong = 0xa,
};

// The value of Sec-WebSocket-Accept for a client's key.
std::string WebSocketAcceptKey(std::string_view key);
// Appends one unmasked frame, as servers send them.
void AppendWebSocketFrame(std::string* out, WebSocketOpcode opcode, std::string_view payload);

// Reads the frames of a client: masked ones, whole messages out.
class WebSocketParser {
 public:
  struct Event {
    enum class Kind : uint8_t { kNone, kMessage, kPing, kPong, kClose, kError };
    Kind kind = Kind::kNone;  // kNone: more bytes are needed
    std::string payload;      // message, ping payload, or the reason of a close
    uint16_t code = 1005;     // of a close or error (RFC 6455 section 7.4)
  };

  explicit WebSocketParser(size_t message_bytes_max) : message_bytes_max_(message_bytes_max) {}
  // Takes a prefix of `bytes` that makes at most one event; *taken says how much. After an error
  // nothing more is read.
  Event Next(std::string_view bytes, size_t* taken);

 private:
  Event Error(uint16_t code, std::string_view reason);
  Event OnFrame();

  const size_t message_bytes_max_;
  // The frame being read.
  uint8_t header_[14] = {};
  size_t header_fill_ = 0;
  size_t header_need_ = 2;
  uint64_t payload_left_ = 0;
  uint64_t payload_read_ = 0;
  uint8_t mask_[4] = {};
  bool in_payload_ = false;
  bool failed_ = false;
  std::string control_;  // payload of a control frame
  // The message being assembled.
  std::string message_;
  bool in_message_ = false;
};

}  // namespace net
