#include "client/endpoint.h"

namespace client {
namespace {

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

bool ConsumePrefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::string HostOf(std::string_view host_port) {
  if (!host_port.empty() && host_port.front() == '[') {
    const size_t end = host_port.find(']');
    if (end != std::string_view::npos) return std::string(host_port.substr(1, end - 1));
  }
  return std::string(host_port.substr(0, host_port.rfind(':')));
}

Endpoint UnixEndpoint(std::string_view typed, std::string_view path, EndpointSecurity security) {
  Endpoint endpoint{.typed = std::string(typed), .security = security};
  endpoint.target = "unix:" + std::string(path);
  // A path with slashes is no legal authority; grpc then says "localhost".
  if (path.find('/') == std::string_view::npos) endpoint.authority = std::string(path);
  endpoint.host = HostOf(path);
  return endpoint;
}

}  // namespace

Endpoint ParseEndpoint(std::string_view text) {
  const std::string_view typed = Trim(text);
  std::string_view rest = typed;
  if (ConsumePrefix(rest, "unixs://") || ConsumePrefix(rest, "unixs:")) {
    return UnixEndpoint(typed, rest, EndpointSecurity::kAlways);
  }
  if (ConsumePrefix(rest, "unix://") || ConsumePrefix(rest, "unix:")) {
    return UnixEndpoint(typed, rest, EndpointSecurity::kNever);
  }
  Endpoint endpoint{.typed = std::string(typed)};
  if (ConsumePrefix(rest, "https://")) {
    endpoint.security = EndpointSecurity::kAlways;
  } else if (ConsumePrefix(rest, "http://")) {
    endpoint.security = EndpointSecurity::kNever;
  }
  if (endpoint.security != EndpointSecurity::kAsConfigured) rest = rest.substr(0, rest.find('/'));
  endpoint.target = "dns:///" + std::string(rest);
  endpoint.authority = std::string(rest);
  endpoint.host = HostOf(rest);
  return endpoint;
}

}  // namespace client
