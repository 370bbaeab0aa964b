// Socket calls with errors in the words of Go's net package. Thread-safe.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/server.h"

namespace net {

// A file descriptor with an owner. A value.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { Reset(); }
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept {
    Reset();
    fd_ = other.Release();
    return *this;
  }
  int get() const { return fd_; }
  int Release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void Reset();

 private:
  int fd_ = -1;
};

struct ListeningSocket {
  Fd fd;
  std::string address;  // as bound
  uint16_t port = 0;
};

// Opens the sockets for `address`: one, or two for "localhost" where both families work. With port
// 0 both get the same port. Error texts: "listen tcp 127.0.0.1:2379: bind: address already in use".
absl::StatusOr<std::vector<ListeningSocket>> ListenOn(const ListenAddress& address,
                                                      bool reuse_port);

// "1.2.3.4:80", "[::1]:80", the path of a unix socket or "@" for an unnamed one.
std::string AddressText(const sockaddr_storage& address, socklen_t length);
// The address alone, IPv6 without brackets and IPv4 in IPv6 as IPv4; empty for unix sockets.
std::string AddressIp(const sockaddr_storage& address);
// The text of an errno in lower case without the trailing details, as Go prints it ("address
// already in use").
std::string ErrnoText(int error);

}  // namespace net
