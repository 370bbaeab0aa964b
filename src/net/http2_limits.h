// What one HTTP/2 connection may do, in one place: each counter stands beside its bound. The
// session asks, the answer is "go on" or the reason to close. Loop thread only (a value inside the
// session).
#pragma once

#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace net {

struct Http2Options {
  // Announced as SETTINGS_MAX_CONCURRENT_STREAMS only when below 4294967295.
  uint32_t concurrent_streams_max = 4294967295;
  uint32_t header_list_bytes_max = 1 << 20;  // of one request, decoded, 32 bytes an entry added
  uint32_t header_fields_max = 1000;         // of one request
  uint32_t stream_window_bytes = 1 << 20;    // receive windows
  uint32_t connection_window_bytes = 16 << 20;
  // Output that waits in the connection, flow control or socket. While more than this waits, a
  // stream that adds to it is reset with ENHANCE_YOUR_CALM (gRPC clients report
  // RESOURCE_EXHAUSTED).
  uint64_t output_bytes_max = 256 << 20;
  // Streams beyond the announced bound (or beyond this, where none is announced) are refused.
  uint32_t open_streams_max = 1 << 20;
  // Streams the client reset before they were answered. Refilled by time; requests that end well
  // give theirs back.
  uint32_t resets_burst_max = 10000;
  uint32_t resets_per_second = 1000;
  // Frames that ask for nothing (SETTINGS, PING, PRIORITY, WINDOW_UPDATE, empty DATA, unknown
  // ones). Refilled by time, and in full whenever a request or data moves in either direction.
  uint32_t control_frames_burst_max = 10000;
  uint32_t control_frames_per_second = 1000;
  uint32_t continuation_frames_max = 64;      // of one header block
  uint32_t header_block_bytes_max = 1 << 20;  // of one request, as sent (compressed)
  // Keep-alive enforcement as gRPC does it: a ping sooner than this after the last (or, without
  // streams, sooner than 2 h) is a strike; the third gets GOAWAY ENHANCE_YOUR_CALM
  // "too_many_pings". Zero or less: no enforcement.
  base::Duration client_ping_interval_min = std::chrono::seconds(5);
  // The server pings a connection that was silent for this long and closes it without an answer in
  // time; 0 disables.
  base::Duration keepalive_interval = std::chrono::hours(2);
  base::Duration keepalive_timeout = std::chrono::seconds(20);
  // A connection that has not finished its preface and SETTINGS by then is closed.
  base::Duration preface_timeout = std::chrono::seconds(10);
  // Output that makes no progress for this long closes the connection.
  base::Duration write_stall_max = std::chrono::minutes(5);
  // Prints `http2: decoded hpack field header field ":authority" = "<value>"` to stderr for each
  // request.
  bool print_authority = false;
};

}  // namespace net
