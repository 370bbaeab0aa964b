#include "net/http1_response.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/status.h"
#include "net/http.h"
#include "net/http_text.h"

namespace net {
namespace {

constexpr size_t kHeadBytesMax = 64 << 10;
constexpr size_t kChunkLineBytesMax = 4 << 10;
constexpr size_t kChunkDigitsMax = 15;

absl::Status Malformed(std::string_view what) {
  return base::MakeStatus(absl::StatusCode::kInvalidArgument, "malformed HTTP response: {}", what);
}

}  // namespace

std::string_view HttpResponseHead::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (EqualsIgnoringCase(key, name)) return value;
  }
  return {};
}

absl::StatusOr<size_t> Http1Response::Feed(std::string_view bytes,
                                           absl::FunctionRef<void(std::string_view)> on_body) {
  size_t taken = 0;
  if (!bytes.empty()) any_ = true;
  while (taken < bytes.size() && state_ != State::kDone) {
    const std::string_view rest = bytes.substr(taken);
    if (state_ == State::kUntilEof) {
      on_body(rest);
      return bytes.size();
    }
    if (state_ == State::kLength || state_ == State::kChunk) {
      const auto n = static_cast<size_t>(std::min<uint64_t>(body_left_, rest.size()));
      on_body(rest.substr(0, n));
      body_left_ -= n;
      taken += n;
      if (body_left_ == 0) state_ = state_ == State::kChunk ? State::kChunkEnd : State::kDone;
      continue;
    }
    const bool in_head =
        state_ == State::kStatusLine || state_ == State::kFields || state_ == State::kTrailer;
    const size_t bytes_max = in_head ? kHeadBytesMax - head_bytes_ : kChunkLineBytesMax;
    const size_t end = rest.find('\n');
    const size_t n = end == std::string_view::npos ? rest.size() : end + 1;
    if (line_.size() + n > bytes_max)
      return Malformed(in_head ? "head too long" : "chunk line too long");
    line_.append(rest.substr(0, n));
    taken += n;
    if (end == std::string_view::npos) return taken;
    if (in_head) head_bytes_ += line_.size();
    std::string line;
    line.swap(line_);
    line.pop_back();
    if (line.empty() || line.back() != '\r') return Malformed("bare line feed");
    line.pop_back();
    RETURN_IF_ERROR(OnLine(line));
  }
  return taken;
}

absl::Status Http1Response::OnLine(std::string_view line) {
  switch (state_) {
    case State::kStatusLine:
      return OnStatusLine(line);
    case State::kFields:
      return line.empty() ? OnHeadEnd() : OnField(line);
    case State::kChunkSize:
      return OnChunkSize(line);
    case State::kChunkEnd:
      if (!line.empty()) return Malformed("chunk longer than its length");
      state_ = State::kChunkSize;
      return absl::OkStatus();
    default:  // the trailer's fields mean nothing here
      if (line.empty()) state_ = State::kDone;
      return absl::OkStatus();
  }
}

absl::Status Http1Response::OnStatusLine(std::string_view line) {
  // "HTTP/1.1 200 OK"
  constexpr size_t kVersionBytes = 9;
  constexpr size_t kStatusBytes = 3;
  if (line.size() < kVersionBytes + kStatusBytes || !line.starts_with("HTTP/1.") || line[8] != ' ')
    return Malformed("status line");
  const auto status = ParseDecimal(line.substr(kVersionBytes, kStatusBytes));
  const std::string_view rest = line.substr(kVersionBytes + kStatusBytes);
  if (!status || *status < 100 || (!rest.empty() && rest[0] != ' '))
    return Malformed("status line");
  head_.status = static_cast<int>(*status);
  keep_alive_ = line[7] == '1';
  state_ = State::kFields;
  return absl::OkStatus();
}

absl::Status Http1Response::OnField(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return Malformed("header line");
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = TrimBlanks(line.substr(colon + 1));
  if (!IsToken(name) || !IsHeaderValue(value)) return Malformed("header line");
  head_.headers.emplace_back(name, value);
  return absl::OkStatus();
}

absl::Status Http1Response::OnHeadEnd() {
  if (head_.status < 200) {
    if (head_.status == 101) return Malformed("unexpected change of protocol");
    head_ = {};
    state_ = State::kStatusLine;
    return absl::OkStatus();
  }
  head_bytes_ = 0;
  bool chunked = false;
  std::optional<uint64_t> length;
  for (const auto& [name, value] : head_.headers) {
    if (EqualsIgnoringCase(name, "transfer-encoding")) {
      if (chunked || !EqualsIgnoringCase(value, "chunked")) return Malformed("transfer encoding");
      chunked = true;
    } else if (EqualsIgnoringCase(name, "content-length")) {
      const auto parsed = ParseDecimal(value);
      if (!parsed || (length && *length != *parsed)) return Malformed("Content-Length");
      length = parsed;
    } else if (EqualsIgnoringCase(name, "connection") && ListContains(value, "close")) {
      keep_alive_ = false;
    }
  }
  if (chunked && length) return Malformed("transfer encoding beside a length");
  if (HasNoBody("GET", head_.status) || (length && *length == 0)) {
    state_ = State::kDone;
  } else if (chunked) {
    state_ = State::kChunkSize;
  } else if (length) {
    body_left_ = *length;
    state_ = State::kLength;
  } else {
    keep_alive_ = false;
    state_ = State::kUntilEof;
  }
  return absl::OkStatus();
}

absl::Status Http1Response::OnChunkSize(std::string_view line) {
  const std::string_view digits = TrimBlanks(line.substr(0, line.find(';')));
  uint64_t size = 0;
  const auto [last, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), size, 16);
  if (digits.empty() || digits.size() > kChunkDigitsMax || error != std::errc() ||
      last != digits.data() + digits.size()) {
    return Malformed("chunk length");
  }
  body_left_ = size;
  state_ = size == 0 ? State::kTrailer : State::kChunk;
  return absl::OkStatus();
}

absl::Status Http1Response::OnEof() {
  keep_alive_ = false;
  if (state_ == State::kUntilEof) state_ = State::kDone;
  if (state_ == State::kDone) return absl::OkStatus();
  return absl::UnavailableError(any_ ? "unexpected EOF" : "EOF");
}

}  // namespace net
