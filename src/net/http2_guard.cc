#include "net/http2_guard.h"

#include <algorithm>
#include <cstring>

namespace net {
namespace {

constexpr uint8_t kData = 0x0;
constexpr uint8_t kHeaders = 0x1;
constexpr uint8_t kRstStream = 0x3;
constexpr uint8_t kContinuation = 0x9;

}  // namespace

const char* Http2Guard::Scan(std::string_view bytes, base::Duration now) {
  if (refilled_at_ == base::Duration::zero()) refilled_at_ = now;
  while (!bytes.empty()) {
    if (preface_left_ > 0) {
      const size_t n = std::min<size_t>(preface_left_, bytes.size());
      preface_left_ -= static_cast<uint32_t>(n);
      bytes.remove_prefix(n);
      continue;
    }
    if (payload_left_ > 0) {
      const size_t n = std::min<size_t>(payload_left_, bytes.size());
      payload_left_ -= static_cast<uint32_t>(n);
      bytes.remove_prefix(n);
      continue;
    }
    const size_t n = std::min<size_t>(kFrameHeaderBytes - header_fill_, bytes.size());
    std::memcpy(header_ + header_fill_, bytes.data(), n);
    header_fill_ += static_cast<uint32_t>(n);
    bytes.remove_prefix(n);
    if (header_fill_ < kFrameHeaderBytes) break;
    header_fill_ = 0;
    if (const char* reason = OnFrame(now); reason != nullptr) return reason;
  }
  return nullptr;
}

const char* Http2Guard::OnFrame(base::Duration now) {
  payload_left_ =
      static_cast<uint32_t>(header_[0]) << 16 | static_cast<uint32_t>(header_[1]) << 8 | header_[2];
  const uint8_t type = header_[3];
  if (type == kContinuation) {
    header_block_bytes_ += payload_left_;
    if (++continuations_ > options_.continuation_frames_max) return "too many CONTINUATION frames";
    if (header_block_bytes_ > options_.header_block_bytes_max) return "header block too large";
    return nullptr;
  }
  if (type == kHeaders) {
    continuations_ = 0;
    header_block_bytes_ = payload_left_;
    control_tokens_ = options_.control_frames_burst_max;
    return nullptr;
  }
  if (type == kData && payload_left_ > 0) {
    control_tokens_ = options_.control_frames_burst_max;
    return nullptr;
  }
  if (type == kRstStream) return nullptr;  // judged by what was reset, see OnUnansweredReset
  if (control_tokens_ == 0) Refill(now);
  if (control_tokens_ == 0) return "too many control frames";
  --control_tokens_;
  return nullptr;
}

void Http2Guard::Refill(base::Duration now) {
  const double seconds = std::chrono::duration<double>(now - refilled_at_).count();
  if (seconds < 0.01) return;
  refilled_at_ = now;
  const auto gain = [&](uint32_t per_second, uint64_t have, uint32_t max) {
    const double more = std::min(seconds * per_second, static_cast<double>(max));
    return std::min<uint64_t>(max, have + static_cast<uint64_t>(more));
  };
  control_tokens_ =
      gain(options_.control_frames_per_second, control_tokens_, options_.control_frames_burst_max);
  reset_tokens_ = gain(options_.resets_per_second, reset_tokens_, options_.resets_burst_max);
}

const char* Http2Guard::OnUnansweredReset(base::Duration now) {
  if (reset_tokens_ == 0) Refill(now);
  if (reset_tokens_ == 0) return "too many streams reset before they were answered";
  --reset_tokens_;
  return nullptr;
}

}  // namespace net
