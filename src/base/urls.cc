#include "base/urls.h"

#include <arpa/inet.h>

#include <algorithm>

#include "base/go_text.h"
#include "base/status.h"

namespace base {
namespace {

absl::Status Invalid(std::string_view what, std::string_view text) {
  return MakeStatus(absl::StatusCode::kInvalidArgument, "{}: {}", what, text);
}

std::string_view Trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t' || s.front() == '\n'))
    s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\n'))
    s.remove_suffix(1);
  return s;
}

// Splits "host:port" or "[v6]:port"; false where there is no port.
bool SplitHostPort(std::string_view host_port, std::string* host, std::string* port) {
  if (!host_port.empty() && host_port.front() == '[') {
    const size_t close = host_port.find("]:");
    if (close == std::string_view::npos) return false;
    *host = host_port.substr(1, close - 1);
    *port = host_port.substr(close + 2);
  } else {
    const size_t colon = host_port.rfind(':');
    if (colon == std::string_view::npos || host_port.find(':') != colon) return false;
    *host = host_port.substr(0, colon);
    *port = host_port.substr(colon + 1);
  }
  return true;
}

bool AllDigits(std::string_view s) {
  return std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

absl::StatusOr<Url> ParseUrl(std::string_view raw) {
  const std::string_view text = Trim(raw);
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      return Invalid("parse " + GoQuote(text), "net/url: invalid control character in URL");
    }
  }
  const size_t colon = text.find(':');
  const std::string_view scheme =
      colon == std::string_view::npos ? std::string_view() : text.substr(0, colon);
  if (colon == 0) return Invalid("parse " + GoQuote(text), "missing protocol scheme");
  if (!scheme.empty() && (scheme.front() >= '0' && scheme.front() <= '9')) {
    return Invalid("parse " + GoQuote(text), "first path segment in URL cannot contain colon");
  }
  if (scheme != "http" && scheme != "https" && scheme != "unix" && scheme != "unixs") {
    return Invalid("URL scheme must be http, https, unix, or unixs", text);
  }
  Url url;
  url.scheme = scheme;
  std::string_view rest = text.substr(colon + 1);
  if (!rest.starts_with("//"))
    return Invalid("URL address does not have the form \"host:port\"", text);
  rest.remove_prefix(2);
  if (url.is_unix()) {
    url.host_port = rest;
    SplitHostPort(rest, &url.host, &url.port);
    return url;
  }
  const size_t slash = rest.find_first_of("/?#");
  const std::string_view authority = rest.substr(0, slash);
  if (!SplitHostPort(authority, &url.host, &url.port) || url.port.empty()) {
    return Invalid("URL address does not have the form \"host:port\"", text);
  }
  if (!AllDigits(url.port)) {
    return MakeStatus(absl::StatusCode::kInvalidArgument, "parse {}: invalid port {} after host",
                      GoQuote(text), GoQuote(":" + url.port));
  }
  const size_t bad = url.host.find_first_of(" \"<>\\^`{|}");
  if (bad != std::string::npos) {
    return MakeStatus(absl::StatusCode::kInvalidArgument,
                      "parse {}: invalid character {} in host name", GoQuote(text),
                      GoQuote(url.host.substr(bad, 1)));
  }
  if (slash != std::string_view::npos) return Invalid("URL must not contain a path", text);
  url.host_port = authority;
  return url;
}

absl::StatusOr<std::vector<Url>> ParseUrlList(std::string_view text) {
  std::vector<Url> urls;
  while (true) {
    const size_t comma = text.find(',');
    ASSIGN_OR_RETURN(Url url, ParseUrl(text.substr(0, comma)));
    urls.push_back(std::move(url));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  std::sort(urls.begin(), urls.end(),
            [](const Url& a, const Url& b) { return a.Text() < b.Text(); });
  urls.erase(std::unique(urls.begin(), urls.end(),
                         [](const Url& a, const Url& b) { return a.Text() == b.Text(); }),
             urls.end());
  return urls;
}

std::vector<std::string> UrlTexts(const std::vector<Url>& urls) {
  std::vector<std::string> texts;
  for (const Url& url : urls) texts.push_back(url.Text());
  return texts;
}

std::string JoinUrls(const std::vector<Url>& urls, std::string_view separator) {
  std::string out;
  for (const Url& url : urls) {
    if (!out.empty()) out += separator;
    out += url.Text();
  }
  return out;
}

bool IsIpLiteral(std::string_view host) {
  in6_addr address{};
  const std::string text(host.substr(0, host.find('%')));
  return ::inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

bool IsBindable(const Url& url) {
  return url.is_unix() || url.host == "localhost" || IsIpLiteral(url.host);
}

}  // namespace base
