// The client's half of HTTP/1.1: response bytes in, head and body out. Knows no socket, so tests
// and fuzzers feed it. A value of one thread. Nothing from the peer is trusted: heads and chunk
// lines have bounds, and what could be read in two ways is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace net {

struct HttpResponseHead {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;
  // First value of the header, any case; empty when absent.
  std::string_view header(std::string_view name) const;
};

class Http1Response {
 public:
  // Takes bytes as they arrive, up to the end of the response; returns how many, and hands the
  // body's to `on_body` in pieces. InvalidArgument for what is no HTTP/1.1 response; nothing may be
  // fed after that. Interim responses (1xx) are passed over.
  absl::StatusOr<size_t> Feed(std::string_view bytes,
                              absl::FunctionRef<void(std::string_view)> on_body);
  // The connection ended. OK when that, too, is an end of the body; else Unavailable with Go's
  // "unexpected EOF", or "EOF" before the first byte.
  absl::Status OnEof();

  bool head_done() const { return state_ > State::kFields; }
  const HttpResponseHead& head() const { return head_; }
  bool done() const { return state_ == State::kDone; }
  // Whether the connection may carry another request once done().
  bool keep_alive() const { return keep_alive_; }

 private:
  enum class State : uint8_t {
    kStatusLine,
    kFields,
    kLength,     // body_left_ bytes follow
    kUntilEof,   // everything that follows
    kChunkSize,  // a chunk's size line
    kChunk,      // body_left_ bytes of the chunk follow
    kChunkEnd,
    kTrailer,
    kDone,
  };
  absl::Status OnLine(std::string_view line);
  absl::Status OnStatusLine(std::string_view line);
  absl::Status OnField(std::string_view line);
  absl::Status OnHeadEnd();
  absl::Status OnChunkSize(std::string_view line);

  State state_ = State::kStatusLine;
  HttpResponseHead head_;
  std::string line_;       // the part of a line received so far
  size_t head_bytes_ = 0;  // of the head or the trailer
  uint64_t body_left_ = 0;
  bool keep_alive_ = true;
  bool any_ = false;
};

}  // namespace net
