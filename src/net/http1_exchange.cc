#include "net/http1_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "net/http_text.h"
#include "net/loop.h"

namespace net {
namespace {

// Body kept for a handler that has not asked for it yet; more waits in the socket.
constexpr size_t kPendingBodyMax = 64 << 10;

}  // namespace

Http1Exchange::Http1Exchange(Http1Session* session, std::string head)
    : session_(session),
      loop_(session->host_.loop()),
      connection_(session->host_.info()),
      head_(std::move(head)) {}

int Http1Exchange::Parse(uint32_t header_fields_max, std::string* reason) {
  std::string_view rest = head_;
  bool first = true;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) break;
    const int status = first ? ParseRequestLine(line, reason) : ParseField(line, reason);
    if (status != 0) return status;
    first = false;
    if (headers_.size() > header_fields_max) {
      *reason = "too many header fields";
      return 431;
    }
  }
  return CheckFraming(reason);
}

int Http1Exchange::ParseRequestLine(std::string_view line, std::string* reason) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  *reason = "malformed HTTP request";
  if (first == std::string_view::npos || first == last) return 400;
  method_ = line.substr(0, first);
  target_ = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!IsToken(method_)) return 400;
  if (version.size() != 8 || version.substr(0, 5) != "HTTP/") {
    *reason = "malformed HTTP version";
    return 400;
  }
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    *reason = "unsupported protocol version";
    return 505;
  }
  minor_ = version.back() - '0';
  if (target_.empty() || target_.find(' ') != std::string_view::npos || !IsHeaderValue(target_)) {
    return 400;
  }
  // The absolute form, as sent to proxies: its authority overrides the Host header (RFC 9112
  // section 3.2.2).
  for (const std::string_view scheme :
       {std::string_view("http://"), std::string_view("https://")}) {
    if (target_.substr(0, scheme.size()) != scheme) continue;
    const std::string_view after = target_.substr(scheme.size());
    const size_t slash = after.find_first_of("/?");
    host_ = after.substr(0, slash);
    target_ = slash == std::string_view::npos ? std::string_view("/") : after.substr(slash);
    if (target_[0] == '?') return 400;
  }
  if (target_[0] != '/' && !(target_ == "*" && method_ == "OPTIONS")) return 400;
  return 0;
}

int Http1Exchange::ParseField(std::string_view line, std::string* reason) {
  *reason = "malformed MIME header line";
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return 400;
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = TrimBlanks(line.substr(colon + 1));
  if (!IsToken(name)) {  // also folded lines and blanks before the colon
    *reason = "invalid header name";
    return 400;
  }
  if (!IsHeaderValue(value)) {
    *reason = "invalid header value";
    return 400;
  }
  headers_.push_back({name, value});
  return 0;
}

int Http1Exchange::CheckFraming(std::string* reason) {
  if (method_.empty()) {
    *reason = "malformed HTTP request";
    return 400;
  }
  int hosts = 0;
  bool coded = false;
  keep_alive_ = minor_ >= 1;
  for (const Header& h : headers_) {
    if (EqualsIgnoringCase(h.name, "host")) {
      ++hosts;
      if (host_.empty()) host_ = h.value;
    } else if (EqualsIgnoringCase(h.name, "content-length")) {
      const auto length = ParseDecimal(h.value);
      *reason = "bad Content-Length";
      if (!length || (length_ && *length_ != *length)) return 400;
      length_ = length;
    } else if (EqualsIgnoringCase(h.name, "transfer-encoding")) {
      if (coded) {
        *reason = "too many transfer encodings";
        return 400;
      }
      coded = true;
      if (!EqualsIgnoringCase(h.value, "chunked")) {
        *reason = "Unsupported transfer encoding";
        return 501;
      }
      chunked_ = true;
    } else if (EqualsIgnoringCase(h.name, "connection")) {
      if (ListContains(h.value, "close")) keep_alive_ = false;
      if (minor_ == 0 && ListContains(h.value, "keep-alive")) keep_alive_ = true;
    } else if (EqualsIgnoringCase(h.name, "expect")) {
      if (!EqualsIgnoringCase(h.value, "100-continue")) {
        *reason = "unknown expectation";
        return 417;
      }
      expects_continue_ = minor_ >= 1;
    }
  }
  if (hosts > 1 || (hosts == 0 && minor_ >= 1)) {
    *reason = hosts == 0 ? "missing required Host header" : "too many Host headers";
    return 400;
  }
  if (chunked_ && (length_ || minor_ == 0)) {
    *reason = "transfer encoding beside a length";
    return 400;
  }
  return 0;
}

void Http1Exchange::Detach() {
  session_ = nullptr;
  on_piece_ = nullptr;
  if (ended_ || aborted_) return;
  aborted_ = true;
  if (on_abort_) {
    auto fn = std::move(on_abort_);
    on_abort_ = nullptr;
    fn();
  }
}

void Http1Exchange::ReadBodyPieces(absl::AnyInvocable<void(std::string_view, bool)> on_piece) {
  on_piece_ = std::move(on_piece);
  if (expects_continue_ && !body_ended_) SendContinue();
  DeliverPending();
}

void Http1Exchange::SendContinue() {
  expects_continue_ = false;
  if (session_ != nullptr && !started_) session_->Append("HTTP/1.1 100 Continue\r\n\r\n");
}

void Http1Exchange::PauseBody(bool paused) {
  paused_ = paused;
  if (!paused) DeliverPending();
}

void Http1Exchange::OnBody(std::string_view bytes) {
  if (on_piece_ && !paused_ && pending_.empty() && !delivering_) {
    const auto keep = shared_from_this();
    on_piece_(bytes, false);
    return;
  }
  pending_.append(bytes);
  if (pending_.size() > kPendingBodyMax && session_ != nullptr) {
    session_->input_paused_ = true;
    session_->host_.PauseInput(true);
  }
}

void Http1Exchange::OnBodyEnd() {
  body_ended_ = true;
  DeliverPending();
}

void Http1Exchange::DeliverPending() {
  if (!on_piece_ || paused_ || body_done_ || delivering_) return;
  const auto keep = shared_from_this();
  delivering_ = true;
  if (!pending_.empty()) {
    std::string bytes;
    bytes.swap(pending_);
    on_piece_(bytes, false);
  }
  delivering_ = false;
  if (paused_) return;
  if (session_ != nullptr && session_->input_paused_) {
    session_->input_paused_ = false;
    session_->resume_ = true;
    session_->host_.WantFlush();
  }
  if (body_ended_ && on_piece_ && !body_done_) {
    body_done_ = true;
    auto fn = std::move(on_piece_);
    on_piece_ = nullptr;
    fn({}, true);
  }
}

void Http1Exchange::AddHeader(std::string_view name, std::string_view value) {
  if (started_ || !IsToken(name) || !IsHeaderValue(value)) return;
  if (EqualsIgnoringCase(name, "content-length")) has_content_length_ = true;
  if (EqualsIgnoringCase(name, "date")) has_date_ = true;
  if (EqualsIgnoringCase(name, "transfer-encoding")) return;  // ours to decide
  if (EqualsIgnoringCase(name, "connection")) {
    if (ListContains(value, "close")) closes_ = true;
    return;
  }
  response_fields_.append(name).append(": ").append(value).append("\r\n");
}

void Http1Exchange::Start(int status) {
  if (started_ || session_ == nullptr) return;
  started_ = true;
  no_body_ = HasNoBody(method_, status);
  chunk_response_ = !no_body_ && !has_content_length_ && minor_ >= 1;
  // A body whose end only the connection's end can show.
  if (!no_body_ && !has_content_length_ && minor_ == 0) closes_ = true;
  if (!keep_alive_ || !session_->keep_alive_) closes_ = true;
  // The client still waits with its body for a go-ahead that will not come: only a new connection
  // is unambiguous.
  if (expects_continue_ && !body_ended_) closes_ = true;
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", status, StatusText(status));
  head += response_fields_;
  if (!has_date_) head.append("Date: ").append(HttpDate()).append("\r\n");
  if (chunk_response_) head += "Transfer-Encoding: chunked\r\n";
  if (closes_) {
    head += "Connection: close\r\n";
  } else if (minor_ == 0) {
    head += "Connection: keep-alive\r\n";
  }
  head += "\r\n";
  session_->Append(head);
}

void Http1Exchange::Write(Piece piece) {
  if (session_ == nullptr || !started_ || ended_ || no_body_ || piece.size() == 0) return;
  if (chunk_response_) {
    session_->Append(fmt::format("{:x}\r\n", piece.size()));
    session_->Append(std::move(piece));
    session_->Append("\r\n");
  } else {
    session_->Append(std::move(piece));
  }
  session_->CheckOutput();
}

void Http1Exchange::End() {
  if (session_ == nullptr || !started_ || ended_) return;
  ended_ = true;
  on_abort_ = nullptr;
  if (chunk_response_) session_->Append("0\r\n\r\n");
  session_->OnResponseEnd();
}

void Http1Exchange::Abort() {
  if (session_ == nullptr) return;
  ended_ = true;
  on_abort_ = nullptr;
  session_->state_ = Http1Session::State::kClosing;
  session_->host_.Abort();
}

size_t Http1Exchange::queued_bytes() const {
  return session_ == nullptr ? 0 : session_->host_.output().size();
}

void Http1Exchange::NotifyWhenDrained(size_t low_bytes, absl::AnyInvocable<void()> fn) {
  if (session_ == nullptr) return;
  session_->drained_low_bytes_ = low_bytes;
  session_->on_drained_ = std::move(fn);
  session_->host_.WantFlush();
}

void Http1Exchange::OnAbort(absl::AnyInvocable<void()> fn) {
  if (aborted_) {
    loop_.Post(std::move(fn));
  } else if (!ended_) {
    on_abort_ = std::move(fn);
  }
}

}  // namespace net
