// Watches the frames a client sends, before nghttp2 sees them, and says when a client works against
// the server instead of with it: floods of frames that ask for nothing, endless header blocks,
// streams opened only to be reset. Only frame headers are looked at. Loop thread only.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "net/http2_limits.h"

namespace net {

class Http2Guard {
 public:
  // `options` outlives the guard.
  explicit Http2Guard(const Http2Options& options)
      : options_(options),
        control_tokens_(options.control_frames_burst_max),
        reset_tokens_(options.resets_burst_max) {}

  // Looks at the next bytes of the connection. The reason to close it, or nullptr.
  const char* Scan(std::string_view bytes, base::Duration now);
  // The client reset a stream that had no answer yet. The reason to close, or nullptr.
  const char* OnUnansweredReset(base::Duration now);
  // A request was answered in full.
  void OnAnswered() {
    if (reset_tokens_ < options_.resets_burst_max) ++reset_tokens_;
  }
  // Data or headers went out to the client.
  void OnSent() { control_tokens_ = options_.control_frames_burst_max; }

 private:
  static constexpr uint32_t kFrameHeaderBytes = 9;

  const char* OnFrame(base::Duration now);
  void Refill(base::Duration now);

  const Http2Options& options_;
  uint32_t preface_left_ = 24;
  uint8_t header_[kFrameHeaderBytes] = {};
  uint32_t header_fill_ = 0;
  uint32_t payload_left_ = 0;
  uint32_t continuations_ = 0;       // <= options_.continuation_frames_max
  uint64_t header_block_bytes_ = 0;  // <= options_.header_block_bytes_max
  uint64_t control_tokens_;  // of options_.control_frames_burst_max; at 0 the client is closed
  uint64_t reset_tokens_;    // of options_.resets_burst_max
  base::Duration refilled_at_{};
};

}  // namespace net
