#include "net/http1_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "net/http1_exchange.h"
#include "net/http_text.h"

namespace net {
namespace {

// Body that nobody reads is read and thrown away up to this much, so that the connection can serve
// the next request; beyond it, closing is cheaper.
constexpr uint64_t kDiscardBytesMax = 256 << 10;
// Input kept while a request is being answered: requests sent ahead.
constexpr size_t kReadAheadBytesMax = 64 << 10;
constexpr size_t kChunkLineBytesMax = 4096;
constexpr uint64_t kTrailerBytesMax = 64 << 10;

}  // namespace

Http1Session::Http1Session(ProtocolHost& host, const Http1Options& options, HttpHandler* http)
    : host_(host), options_(options), http_(http) {
  SetDeadline(options_.header_timeout);
}

Http1Session::~Http1Session() { OnClosed(); }

void Http1Session::OnInput(std::string_view bytes) {
  if (state_ == State::kClosing || closed_) return;
  if (input_.empty() && !processing_) return Process(bytes, nullptr);
  input_.append(bytes);
  if (processing_) return;
  std::string all;
  all.swap(input_);
  Process(all, &all);
}

void Http1Session::Process(std::string_view bytes, std::string* owned) {
  processing_ = true;
  while (!bytes.empty() && state_ != State::kClosing && !closed_ && !input_paused_) {
    const size_t n = Take(bytes);
    if (n == 0) break;
    bytes.remove_prefix(n);
  }
  processing_ = false;
  if (state_ == State::kClosing || closed_) {
    input_.clear();
    return;
  }
  if (owned != nullptr && input_.empty()) {
    // A head that comes byte by byte must not be copied as a whole for each of them.
    owned->erase(0, owned->size() - bytes.size());
    input_.swap(*owned);
  } else {
    input_.insert(0, bytes);
  }
  if (state_ == State::kAnswering && input_.size() > kReadAheadBytesMax) host_.PauseInput(true);
}

size_t Http1Session::Take(std::string_view bytes) {
  switch (state_) {
    case State::kHead:
      return TakeHead(bytes);
    case State::kBody:
    case State::kChunk:
      return TakeBody(bytes);
    case State::kChunkSize:
    case State::kChunkEnd:
    case State::kTrailer:
      return TakeLine(bytes);
    case State::kWebSocket: {
      size_t taken = 0;
      OnWebSocket(web_socket_->Next(bytes, &taken));
      return std::max<size_t>(taken, 1);
    }
    case State::kAnswering:
    case State::kClosing:
      return 0;
  }
  return 0;
}

size_t Http1Session::TakeHead(std::string_view bytes) {
  // An empty line before a request is skipped, as RFC 9112 section 2.2 asks.
  if (head_scanned_ == 0 && (bytes[0] == '\r' || bytes[0] == '\n')) {
    if (bytes[0] == '\n') return 1;
    if (bytes.size() == 1) return 0;
    if (bytes[1] == '\n') return 2;
  }
  if (!head_begun_ && useful_) SetDeadline(options_.header_timeout);
  head_begun_ = true;
  size_t at = std::min(head_scanned_, bytes.size());
  for (;;) {
    const size_t end = bytes.find('\n', at);
    if (end == std::string_view::npos) break;
    // The head ends with a line that is empty but for a CR.
    const size_t next = end + 1;
    if (next < bytes.size() && bytes[next] == '\n') {
      OnHead(bytes.substr(0, next));
      return next + 1;
    }
    if (next + 1 < bytes.size() && bytes[next] == '\r' && bytes[next + 1] == '\n') {
      OnHead(bytes.substr(0, next));
      return next + 2;
    }
    if (next + 1 >= bytes.size()) {
      at = end;  // what follows this line break decides, and is not here yet
      break;
    }
    at = next;
  }
  head_scanned_ = at;
  if (bytes.size() > options_.header_bytes_max) {
    Refuse(431, "");
  } else if (bytes.size() > options_.request_line_bytes_max &&
             bytes.substr(0, options_.request_line_bytes_max).find('\n') ==
                 std::string_view::npos) {
    Refuse(414, "");
  }
  return 0;
}

void Http1Session::OnHead(std::string_view head) {
  head_scanned_ = 0;
  head_begun_ = false;
  if (!useful_) {
    useful_ = true;
    host_.MarkUseful();
  }
  if (head.size() > options_.header_bytes_max) return Refuse(431, "");
  if (head.find('\n') > options_.request_line_bytes_max) return Refuse(414, "");
  auto exchange = std::make_shared<Http1Exchange>(this, std::string(head));
  std::string reason;
  const int status = exchange->Parse(options_.header_fields_max, &reason);
  if (status != 0) {
    exchange->ended_ = true;
    exchange->Detach();
    return Refuse(status, reason);
  }
  if (!exchange->keep_alive_) keep_alive_ = false;
  discarded_bytes_ = 0;
  trailer_bytes_ = 0;
  content_left_ = exchange->length_.value_or(0);
  if (exchange->chunked_) {
    state_ = State::kChunkSize;
  } else if (content_left_ > 0) {
    state_ = State::kBody;
  } else {
    state_ = State::kAnswering;
    exchange->body_ended_ = true;
  }
  SetDeadline(state_ == State::kAnswering ? base::Duration::zero() : options_.read_timeout);
  exchange_ = exchange;
  if (http_ == nullptr) {
    exchange->AddHeader("Connection", "close");
    exchange->Respond(415, "text/plain; charset=utf-8", "invalid gRPC request content-type\n");
    return;
  }
  http_->OnRequest(std::move(exchange));
}

size_t Http1Session::TakeBody(std::string_view bytes) {
  const size_t n = static_cast<size_t>(std::min<uint64_t>(bytes.size(), content_left_));
  content_left_ -= n;
  if (options_.read_timeout > base::Duration::zero()) SetDeadline(options_.read_timeout);
  if (exchange_ != nullptr && !exchange_->ended_) {
    const auto exchange = exchange_;
    exchange->OnBody(bytes.substr(0, n));
  } else {
    discarded_bytes_ += n;
    if (discarded_bytes_ > kDiscardBytesMax) {
      state_ = State::kClosing;
      host_.CloseAfterFlush();
      return n;
    }
  }
  if (content_left_ == 0) {
    if (state_ == State::kChunk) {
      state_ = State::kChunkEnd;
    } else if (state_ == State::kBody) {
      OnBodyEnd();
    }
  }
  return n;
}

size_t Http1Session::TakeLine(std::string_view bytes) {
  const size_t end = bytes.find('\n');
  if (end == std::string_view::npos || end > kChunkLineBytesMax) {
    if (bytes.size() > kChunkLineBytesMax) Refuse(400, "chunk line too long");
    return 0;
  }
  const size_t taken = end + 1;
  std::string_view line = bytes.substr(0, end);
  // A bare line feed is read differently by different servers, so here it is refused.
  if (line.empty() || line.back() != '\r') {
    Refuse(400, "malformed chunked encoding");
    return taken;
  }
  line.remove_suffix(1);
  switch (state_) {
    case State::kChunkSize: {
      const std::string_view digits = TrimBlanks(line.substr(0, line.find(';')));
      uint64_t size = 0;
      const auto [last, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), size, 16);
      if (digits.empty() || digits.size() > 15 || error != std::errc() ||
          last != digits.data() + digits.size()) {
        Refuse(400, "invalid byte in chunk length");
        return taken;
      }
      content_left_ = size;
      state_ = size == 0 ? State::kTrailer : State::kChunk;
      return taken;
    }
    case State::kChunkEnd:
      if (!line.empty()) {
        Refuse(400, "malformed chunked encoding");
        return taken;
      }
      state_ = State::kChunkSize;
      return taken;
    default:
      trailer_bytes_ += taken;
      if (trailer_bytes_ > kTrailerBytesMax) {
        Refuse(431, "");
      } else if (line.empty()) {
        OnBodyEnd();
      }
      return taken;
  }
}

void Http1Session::OnBodyEnd() {
  state_ = State::kAnswering;
  SetDeadline(base::Duration::zero());
  if (exchange_ == nullptr || exchange_->ended_) return NextRequest();
  const auto exchange = exchange_;
  exchange->OnBodyEnd();
}

void Http1Session::OnResponseEnd() {
  // Called by the exchange, which its handler may still be using: only the connection lets go of
  // it.
  const auto exchange = exchange_;
  if (exchange->closes_) keep_alive_ = false;
  exchange->session_ = nullptr;
  if (!keep_alive_) {
    exchange_ = nullptr;
    state_ = State::kClosing;
    host_.CloseAfterFlush();
    return;
  }
  const bool body_left = state_ != State::kAnswering;
  if (body_left && content_left_ > kDiscardBytesMax) {
    exchange_ = nullptr;
    state_ = State::kClosing;
    host_.CloseAfterFlush();
    return;
  }
  if (input_paused_) {
    input_paused_ = false;
    resume_ = true;
  }
  if (!body_left) NextRequest();
  host_.WantFlush();
}

void Http1Session::NextRequest() {
  exchange_ = nullptr;
  state_ = State::kHead;
  head_scanned_ = 0;
  on_drained_ = nullptr;
  SetDeadline(options_.idle_timeout > base::Duration::zero() ? options_.idle_timeout
                                                             : options_.header_timeout);
  resume_ = true;
  host_.WantFlush();
}

void Http1Session::OnInputEnd() {
  if (closed_) return;
  // What the client asked for no longer matters to it, except an answer that is complete and on its
  // way.
  if (state_ == State::kClosing) return;
  state_ = State::kClosing;
  if (exchange_ != nullptr) {
    const auto exchange = std::exchange(exchange_, nullptr);
    exchange->Detach();
  }
  CloseWebSocket();
  host_.CloseAfterFlush();
}

void Http1Session::Produce() {
  if (closed_) return;
  if (resume_ && !processing_) {
    resume_ = false;
    host_.PauseInput(false);
    if (!input_.empty() && state_ != State::kClosing) {
      std::string all;
      all.swap(input_);
      Process(all, &all);
    }
  }
  if (on_drained_ && host_.output().size() <= drained_low_bytes_) {
    auto fn = std::move(on_drained_);
    on_drained_ = nullptr;
    fn();
  }
}

void Http1Session::OnClosed() {
  if (closed_) return;
  closed_ = true;
  host_.loop().Cancel(&timer_);
  on_drained_ = nullptr;
  if (exchange_ != nullptr) {
    const auto exchange = std::exchange(exchange_, nullptr);
    exchange->Detach();
  }
  CloseWebSocket();
}

void Http1Session::Drain() {
  keep_alive_ = false;
  if (state_ == State::kWebSocket) {
    DrainWebSocket();
  } else if (state_ == State::kHead && exchange_ == nullptr) {
    state_ = State::kClosing;
    host_.CloseAfterFlush();
  }
}

void Http1Session::Refuse(int status, std::string_view reason) {
  const bool answered = exchange_ != nullptr && (exchange_->started_ || exchange_->ended_);
  if (exchange_ != nullptr) {
    const auto exchange = std::exchange(exchange_, nullptr);
    exchange->Detach();
  }
  state_ = State::kClosing;
  if (!answered) {
    const std::string line = fmt::format("{} {}", status, StatusText(status));
    Append(fmt::format(
        "HTTP/1.1 {}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
        "{}{}{}",
        line, line, reason.empty() ? "" : ": ", reason));
  }
  host_.CloseAfterFlush();
}

void Http1Session::Append(std::string_view bytes) {
  host_.output().Append(bytes);
  host_.WantFlush();
}

void Http1Session::Append(Piece piece) {
  host_.output().Append(std::move(piece));
  host_.WantFlush();
}

bool Http1Session::CheckOutput() {
  if (host_.output().size() <= options_.output_bytes_max) return true;
  host_.Abort();
  return false;
}

void Http1Session::SetDeadline(base::Duration delay) {
  Loop& loop = host_.loop();
  if (delay <= base::Duration::zero()) {
    deadline_ = base::Duration::zero();
    return;
  }
  deadline_ = loop.Now() + delay;
  // A timer that fires too early finds the later deadline and sets itself again, so it is touched
  // only when it is late.
  if (timer_.generation != 0 && timer_at_ <= deadline_) return;
  loop.Cancel(&timer_);
  timer_at_ = deadline_;
  timer_ = loop.RunAfter(delay, [this] { OnTimer(); });
}

void Http1Session::OnTimer() {
  timer_ = TimerId{};
  if (deadline_ == base::Duration::zero()) return;
  const base::Duration left = deadline_ - host_.loop().Now();
  if (left <= base::Duration::zero()) return host_.Abort();
  timer_at_ = deadline_;
  timer_ = host_.loop().RunAfter(left, [this] { OnTimer(); });
}

}  // namespace net
