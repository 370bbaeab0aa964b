// The URLs of listeners and members: http, https, unix, unixs. Pure functions, thread-safe. Error
// texts are etcd's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace base {

struct Url {
  std::string scheme;     // http, https, unix, unixs
  std::string host_port;  // "127.0.0.1:2379", "[::1]:2379"; for unix schemes everything after "//"
  std::string host;       // without port and brackets
  std::string port;       // may be empty for unix schemes

  bool tls() const { return scheme == "https" || scheme == "unixs"; }
  bool is_unix() const { return scheme == "unix" || scheme == "unixs"; }
  std::string Text() const { return scheme + "://" + host_port; }
};

absl::StatusOr<Url> ParseUrl(std::string_view text);
// Split at commas, trimmed, sorted; an empty entry is an error. Order and duplicates as etcd's
// flag: sorted, without duplicates.
absl::StatusOr<std::vector<Url>> ParseUrlList(std::string_view text);
std::vector<std::string> UrlTexts(const std::vector<Url>& urls);
std::string JoinUrls(const std::vector<Url>& urls, std::string_view separator);
// A host that one can listen on: an IP literal or "localhost".
bool IsBindable(const Url& url);
bool IsIpLiteral(std::string_view host);

}  // namespace base
