#include "net/sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/status.h"

namespace net {
namespace {

constexpr int kBacklog = 4096;

struct Bindable {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

Bindable FromIpv4(in_addr ip, uint16_t port) {
  Bindable b;
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr = ip;
  in.sin_port = htons(port);
  std::memcpy(&b.storage, &in, sizeof in);
  b.length = sizeof in;
  return b;
}

Bindable FromIpv6(in6_addr ip, uint16_t port) {
  Bindable b;
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_addr = ip;
  in.sin6_port = htons(port);
  std::memcpy(&b.storage, &in, sizeof in);
  b.length = sizeof in;
  return b;
}

absl::Status ListenError(const char* network, std::string_view address, const char* call,
                         int error) {
  absl::StatusCode code = absl::StatusCode::kInternal;
  if (error == EADDRINUSE) code = absl::StatusCode::kAlreadyExists;
  if (error == EACCES || error == EPERM) code = absl::StatusCode::kPermissionDenied;
  if (error == EADDRNOTAVAIL) code = absl::StatusCode::kFailedPrecondition;
  return base::MakeStatus(code, "listen {} {}: {}: {}", network, address, call, ErrnoText(error));
}

absl::StatusOr<ListeningSocket> ListenTcp(const Bindable& bindable, bool reuse_port,
                                          bool only_ipv6) {
  const std::string text = AddressText(bindable.storage, bindable.length);
  Fd fd(::socket(bindable.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return ListenError("tcp", text, "socket", errno);
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (reuse_port && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) {
    return ListenError("tcp", text, "setsockopt", errno);
  }
  if (bindable.storage.ss_family == AF_INET6) {
    const int only = only_ipv6 ? 1 : 0;
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  }
  // Inherited by accepted sockets on Linux, which saves calls for each. The probes find clients
  // that vanished without a word.
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int probe_seconds = 30;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_KEEPIDLE, &probe_seconds, sizeof probe_seconds);
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_KEEPINTVL, &probe_seconds, sizeof probe_seconds);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&bindable.storage), bindable.length) !=
      0) {
    return ListenError("tcp", text, "bind", errno);
  }
  if (::listen(fd.get(), kBacklog) != 0) return ListenError("tcp", text, "listen", errno);
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return ListenError("tcp", text, "getsockname", errno);
  }
  ListeningSocket socket;
  socket.fd = std::move(fd);
  socket.address = AddressText(bound, length);
  if (bound.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &bound, sizeof in);
    socket.port = ntohs(in.sin_port);
  } else {
    sockaddr_in6 in{};
    std::memcpy(&in, &bound, sizeof in);
    socket.port = ntohs(in.sin6_port);
  }
  return socket;
}

// True when nobody answers on the socket file, so that it may be replaced.
bool IsStale(const sockaddr_un& address, socklen_t length) {
  Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (probe.get() < 0) return false;
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0)
    return false;
  return errno == ECONNREFUSED;
}

absl::StatusOr<ListeningSocket> ListenUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return ListenError("unix", path, "bind", EINVAL);
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode) && IsStale(address, length)) {
    ::unlink(path.c_str());
  }
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return ListenError("unix", path, "socket", errno);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return ListenError("unix", path, "bind", errno);
  }
  if (::listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    ::unlink(path.c_str());
    return ListenError("unix", path, "listen", error);
  }
  ListeningSocket socket;
  socket.fd = std::move(fd);
  socket.address = path;
  return socket;
}

absl::StatusOr<std::vector<ListeningSocket>> ListenLocalhost(uint16_t port, bool reuse_port) {
  const in_addr ipv4{htonl(INADDR_LOOPBACK)};
  // With port 0 the second family may find the first one's port taken; then both start over.
  constexpr int kTries = 16;
  for (int i = 0; i < kTries; ++i) {
    std::vector<ListeningSocket> sockets;
    auto first = ListenTcp(FromIpv4(ipv4, port), reuse_port, false);
    if (!first.ok()) return first.status();
    const uint16_t chosen = first->port;
    sockets.push_back(std::move(*first));
    auto second = ListenTcp(FromIpv6(in6addr_loopback, chosen), reuse_port, true);
    if (second.ok()) {
      sockets.push_back(std::move(*second));
      return sockets;
    }
    // No IPv6 here, or somebody else has [::1] with a fixed port: the IPv4 address serves.
    if (port != 0 || !absl::IsAlreadyExists(second.status())) return sockets;
  }
  return absl::UnavailableError("listen tcp localhost:0: no port is free in both families");
}

}  // namespace

void Fd::Reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string ErrnoText(int error) {
  std::string text = std::generic_category().message(error);
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') {
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
  }
  return text;
}

absl::StatusOr<std::vector<ListeningSocket>> ListenOn(const ListenAddress& address,
                                                      bool reuse_port) {
  std::vector<ListeningSocket> sockets;
  if (!address.path.empty()) {
    ASSIGN_OR_RETURN(ListeningSocket socket, ListenUnix(address.path));
    sockets.push_back(std::move(socket));
    return sockets;
  }
  if (address.host == "localhost") return ListenLocalhost(address.port, reuse_port);
  in_addr ipv4{};
  in6_addr ipv6{};
  std::string host = address.host;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (::inet_pton(AF_INET, host.c_str(), &ipv4) == 1) {
    if (ipv4.s_addr == htonl(INADDR_ANY)) {
      // As in Go, the IPv4 wildcard takes IPv6 clients too where the system can.
      auto both = ListenTcp(FromIpv6(in6addr_any, address.port), reuse_port, false);
      if (both.ok()) {
        sockets.push_back(std::move(*both));
        return sockets;
      }
    }
    ASSIGN_OR_RETURN(ListeningSocket socket,
                     ListenTcp(FromIpv4(ipv4, address.port), reuse_port, false));
    sockets.push_back(std::move(socket));
  } else if (::inet_pton(AF_INET6, host.c_str(), &ipv6) == 1) {
    ASSIGN_OR_RETURN(ListeningSocket socket,
                     ListenTcp(FromIpv6(ipv6, address.port), reuse_port, false));
    sockets.push_back(std::move(socket));
  } else {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "listen tcp: \"{}\" is neither an IP address nor localhost",
                            address.host);
  }
  return sockets;
}

std::string AddressText(const sockaddr_storage& address, socklen_t length) {
  if (address.ss_family == AF_UNIX) {
    sockaddr_un un{};
    std::memcpy(&un, &address, std::min<size_t>(length, sizeof un));
    const size_t prefix = offsetof(sockaddr_un, sun_path);
    if (length <= prefix || un.sun_path[0] == '\0') return "@";
    return std::string(un.sun_path, ::strnlen(un.sun_path, sizeof un.sun_path));
  }
  const std::string ip = AddressIp(address);
  uint16_t port = 0;
  bool brackets = false;
  if (address.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    port = ntohs(in.sin_port);
  } else {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    port = ntohs(in.sin6_port);
    brackets = ip.find(':') != std::string::npos;
  }
  return fmt::format("{}{}{}:{}", brackets ? "[" : "", ip, brackets ? "]" : "", port);
}

std::string AddressIp(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
  } else if (address.ss_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    if (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {
      ::inet_ntop(AF_INET, in.sin6_addr.s6_addr + 12, text, sizeof text);
    } else {
      ::inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text);
    }
  }
  return text;
}

}  // namespace net
