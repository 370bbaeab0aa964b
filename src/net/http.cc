#include "net/http.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <utility>

#include "net/http_text.h"

namespace net {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = Lower(c);
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

constexpr auto kTokenCharacters = [] {
  std::array<bool, 256> table{};
  for (int c = 'a'; c <= 'z'; ++c) table[static_cast<size_t>(c)] = true;
  for (int c = 'A'; c <= 'Z'; ++c) table[static_cast<size_t>(c)] = true;
  for (int c = '0'; c <= '9'; ++c) table[static_cast<size_t>(c)] = true;
  for (const char c : std::string_view("!#$%&'*+-.^_`|~")) table[static_cast<uint8_t>(c)] = true;
  return table;
}();

// The state of a HttpExchange::ReadBody.
struct BodyReader {
  std::string body;
  absl::AnyInvocable<void(absl::StatusOr<std::string>)> done;

  void Finish(absl::StatusOr<std::string> result) {
    if (!done) return;
    auto call = std::move(done);
    done = nullptr;
    call(std::move(result));
  }
};

}  // namespace

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (Lower(a[i]) != Lower(b[i])) return false;
  }
  return true;
}

std::string_view StatusText(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 101:
      return "Switching Protocols";
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 301:
      return "Moved Permanently";
    case 302:
      return "Found";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 406:
      return "Not Acceptable";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 411:
      return "Length Required";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Request Entity Too Large";
    case 414:
      return "Request URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 426:
      return "Upgrade Required";
    case 428:
      return "Precondition Required";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "";
  }
}

std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_blank) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = HexDigit(text[i + 1]);
      const int low = HexDigit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      out.push_back(static_cast<char>(high * 16 + low));
      i += 2;
    } else if (text[i] == '+' && plus_is_blank) {
      out.push_back(' ');
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> ParseQuery(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view item = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view() : query.substr(end + 1);
    if (item.empty() || item.find(';') != std::string_view::npos) continue;
    const size_t equals = item.find('=');
    auto key = PercentDecode(item.substr(0, equals), true);
    auto value = PercentDecode(
        equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1), true);
    if (key && value) pairs.emplace_back(std::move(*key), std::move(*value));
  }
  return pairs;
}

std::string_view HttpDate() {
  thread_local std::string text;
  thread_local time_t formatted_for = -1;
  const time_t now = ::time(nullptr);
  if (now == formatted_for) return text;
  formatted_for = now;
  tm parts{};
  ::gmtime_r(&now, &parts);
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  text = fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[parts.tm_wday], parts.tm_mday,
                     kMonths[parts.tm_mon], parts.tm_year + 1900, parts.tm_hour, parts.tm_min,
                     parts.tm_sec);
  return text;
}

bool IsToken(std::string_view name) {
  bool good = !name.empty();
  for (const char c : name) good &= kTokenCharacters[static_cast<uint8_t>(c)];
  return good;
}

bool IsHeaderValue(std::string_view value) {
  bool bad = false;
  for (const char c : value) {
    const auto byte = static_cast<uint8_t>(c);
    bad |= (byte < 0x20 && byte != '\t') || byte == 0x7f;
  }
  return !bad;
}

std::optional<uint64_t> ParseDecimal(std::string_view text) {
  if (text.empty() || text.size() > 19) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

std::string_view TrimBlanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool ListContains(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const size_t end = list.find(',');
    if (EqualsIgnoringCase(TrimBlanks(list.substr(0, end)), token)) return true;
    if (end == std::string_view::npos) return false;
    list.remove_prefix(end + 1);
  }
  return false;
}

std::string ToLowerAscii(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = Lower(c);
  return out;
}

bool HasNoBody(std::string_view method, int status) {
  return method == "HEAD" || status / 100 == 1 || status == 204 || status == 304;
}

std::string_view HttpExchange::path() const {
  const std::string_view all = target();
  return all.substr(0, all.find('?'));
}

std::string_view HttpExchange::query() const {
  const std::string_view all = target();
  const size_t mark = all.find('?');
  return mark == std::string_view::npos ? std::string_view() : all.substr(mark + 1);
}

std::string_view HttpExchange::header(std::string_view name) const {
  for (const Header& h : headers()) {
    if (EqualsIgnoringCase(h.name, name)) return h.value;
  }
  return {};
}

void HttpExchange::ReadBody(size_t bytes_max,
                            absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) {
  if (content_length().value_or(0) > bytes_max) {
    return done(absl::ResourceExhaustedError("http: request body too large"));
  }
  auto reader = std::make_shared<BodyReader>();
  reader->done = std::move(done);
  if (const uint64_t length = content_length().value_or(0); length > 0) {
    // Only a part up front: a length alone must not make the server spend memory.
    reader->body.reserve(static_cast<size_t>(std::min<uint64_t>(length, 64 << 10)));
  }
  OnAbort([reader] { reader->Finish(absl::CancelledError("context canceled")); });
  ReadBodyPieces([reader, bytes_max](std::string_view piece, bool last) {
    if (!reader->done) return;
    if (piece.size() > bytes_max - reader->body.size()) {
      return reader->Finish(absl::ResourceExhaustedError("http: request body too large"));
    }
    reader->body.append(piece);
    if (last) reader->Finish(std::move(reader->body));
  });
}

void HttpExchange::Respond(int status, std::string_view content_type, std::string body) {
  if (started() || aborted()) return;
  if (!content_type.empty()) AddHeader("Content-Type", content_type);
  if (status != 204 && status != 304 && status / 100 != 1) {
    AddHeader("Content-Length", fmt::format_int(body.size()).str());
  }
  Start(status);
  if (!body.empty() && !HasNoBody(method(), status)) Write(Piece(std::move(body)));
  End();
}

bool HttpExchange::WantsWebSocket() const {
  return http_major() == 1 && http_minor() >= 1 && method() == "GET" &&
         ListContains(header("Connection"), "upgrade") &&
         ListContains(header("Upgrade"), "websocket") && header("Sec-WebSocket-Version") == "13" &&
         header("Sec-WebSocket-Key").size() == 24;
}

}  // namespace net
