#include "net/websocket.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"

namespace net {
namespace {

constexpr uint8_t kFinal = 0x80;
constexpr uint8_t kReserved = 0x70;
constexpr uint8_t kMasked = 0x80;
constexpr size_t kControlBytesMax = 125;
constexpr uint16_t kProtocolError = 1002;
constexpr uint16_t kTooBig = 1009;

}  // namespace

std::string WebSocketAcceptKey(std::string_view key) {
  const std::string text = std::string(key) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  CHECK_OP(EVP_Digest(text.data(), text.size(), digest, &length, EVP_sha1(), nullptr), ==, 1);
  unsigned char encoded[64];
  const int n = EVP_EncodeBlock(encoded, digest, static_cast<int>(length));
  return {reinterpret_cast<const char*>(encoded), static_cast<size_t>(n)};
}

void AppendWebSocketFrame(std::string* out, WebSocketOpcode opcode, std::string_view payload) {
  out->push_back(static_cast<char>(kFinal | static_cast<uint8_t>(opcode)));
  if (payload.size() <= 125) {
    out->push_back(static_cast<char>(payload.size()));
  } else if (payload.size() <= 0xffff) {
    out->push_back(126);
    out->push_back(static_cast<char>(payload.size() >> 8));
    out->push_back(static_cast<char>(payload.size() & 0xff));
  } else {
    out->push_back(127);
    char length[8];
    base::StoreBe64(length, payload.size());
    out->append(length, sizeof length);
  }
  out->append(payload);
}

WebSocketParser::Event WebSocketParser::Error(uint16_t code, std::string_view reason) {
  failed_ = true;
  return {Event::Kind::kError, std::string(reason), code};
}

WebSocketParser::Event WebSocketParser::Next(std::string_view bytes, size_t* taken) {
  *taken = 0;
  if (failed_) {
    *taken = bytes.size();
    return {};
  }
  while (*taken < bytes.size() || (in_payload_ && payload_left_ == 0)) {
    if (!in_payload_) {
      header_[header_fill_++] = static_cast<uint8_t>(bytes[(*taken)++]);
      if (header_fill_ == 2) {
        if ((header_[0] & kReserved) != 0) return Error(kProtocolError, "reserved bits set");
        if ((header_[1] & kMasked) == 0) return Error(kProtocolError, "frame is not masked");
        const uint8_t length = header_[1] & 0x7f;
        const bool control = (header_[0] & 0x08) != 0;
        if (control && (length > kControlBytesMax || (header_[0] & kFinal) == 0)) {
          return Error(kProtocolError, "control frame too long or fragmented");
        }
        header_need_ = 2U + 4U + (length == 126 ? 2U : length == 127 ? 8U : 0U);
      }
      if (header_fill_ < header_need_) continue;
      const uint8_t length = header_[1] & 0x7f;
      size_t at = 2;
      payload_left_ = length;
      if (length == 126) {
        payload_left_ = static_cast<uint64_t>(header_[2]) << 8 | header_[3];
        at = 4;
      } else if (length == 127) {
        payload_left_ = base::LoadBe64(reinterpret_cast<const char*>(header_ + 2));
        at = 10;
      }
      std::memcpy(mask_, header_ + at, 4);
      const auto opcode = static_cast<WebSocketOpcode>(header_[0] & 0x0f);
      switch (opcode) {
        case WebSocketOpcode::kContinuation:
          if (!in_message_) return Error(kProtocolError, "continuation without a message");
          break;
        case WebSocketOpcode::kText:
        case WebSocketOpcode::kBinary:
          if (in_message_) return Error(kProtocolError, "message inside a message");
          in_message_ = true;
          break;
        case WebSocketOpcode::kClose:
        case WebSocketOpcode::kPing:
        case WebSocketOpcode::kPong:
          control_.clear();
          break;
        default:
          return Error(kProtocolError, "unknown opcode");
      }
      if ((header_[0] & 0x08) == 0 && payload_left_ > message_bytes_max_ - message_.size()) {
        return Error(kTooBig, "message too big");
      }
      payload_read_ = 0;
      in_payload_ = true;
    }
    std::string& target = (header_[0] & 0x08) != 0 ? control_ : message_;
    const size_t n = static_cast<size_t>(std::min<uint64_t>(payload_left_, bytes.size() - *taken));
    const size_t begin = target.size();
    target.append(bytes.substr(*taken, n));
    for (size_t i = 0; i < n; ++i) {
      target[begin + i] = static_cast<char>(static_cast<uint8_t>(target[begin + i]) ^
                                            mask_[(payload_read_ + i) & 3]);
    }
    payload_read_ += n;
    payload_left_ -= n;
    *taken += n;
    if (payload_left_ > 0) break;
    in_payload_ = false;
    header_fill_ = 0;
    header_need_ = 2;
    Event event = OnFrame();
    if (event.kind != Event::Kind::kNone) return event;
  }
  return {};
}

WebSocketParser::Event WebSocketParser::OnFrame() {
  const auto opcode = static_cast<WebSocketOpcode>(header_[0] & 0x0f);
  switch (opcode) {
    case WebSocketOpcode::kPing:
      return {Event::Kind::kPing, control_, 0};
    case WebSocketOpcode::kPong:
      return {Event::Kind::kPong, control_, 0};
    case WebSocketOpcode::kClose: {
      failed_ = true;
      if (control_.size() < 2) return {Event::Kind::kClose, "", 1005};
      const auto code = static_cast<uint16_t>(static_cast<uint8_t>(control_[0]) << 8 |
                                              static_cast<uint8_t>(control_[1]));
      return {Event::Kind::kClose, control_.substr(2), code};
    }
    default:
      if ((header_[0] & kFinal) == 0) return {};
      in_message_ = false;
      Event event{Event::Kind::kMessage, std::move(message_), 0};
      message_.clear();
      return event;
  }
}

}  // namespace net
