#include "stores/testing/scripted_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/check.h"

namespace stores {
namespace {

// Sends all, or as much as the other side wants.
void SendAll(int connection, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::send(connection, data.data(), data.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    data.remove_prefix(static_cast<size_t>(n));
  }
}

// Reads until `data` holds n bytes; false when the other side ends before.
bool ReadUntil(int connection, size_t n, std::string* data) {
  char piece[65536];
  while (data->size() < n) {
    const ssize_t got = ::recv(connection, piece, sizeof piece, 0);
    if (got <= 0) return false;
    data->append(piece, static_cast<size_t>(got));
  }
  return true;
}

HttpRequest ParseHead(std::string_view head) {
  HttpRequest request;
  std::string_view line = head.substr(0, head.find("\r\n"));
  request.method = line.substr(0, line.find(' '));
  line.remove_prefix(request.method.size() + 1);
  request.target = line.substr(0, line.find(' '));
  head.remove_prefix(head.find("\r\n") + 2);
  while (!head.empty()) {
    line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(head.size(), line.size() + 2));
    const size_t colon = line.find(": ");
    if (colon == std::string_view::npos) continue;
    std::string name(line.substr(0, colon));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    request.headers[name] = line.substr(colon + 2);
  }
  return request;
}

}  // namespace

ScriptedServer::ScriptedServer(Script answer) : script_(std::move(answer)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  stop_ = ::eventfd(0, EFD_CLOEXEC);
  CHECK(listener_ >= 0 && stop_ >= 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  CHECK(::bind(listener_, any, length) == 0);
  CHECK(::listen(listener_, 64) == 0);
  CHECK(::getsockname(listener_, any, &length) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Serve(); });
}

ScriptedServer::~ScriptedServer() {
  const uint64_t one = 1;
  CHECK(::write(stop_, &one, sizeof one) == sizeof one);
  thread_.join();
  ::close(listener_);
  ::close(stop_);
}

std::string ScriptedServer::url() const { return fmt::format("http://127.0.0.1:{}", port_); }

std::vector<HttpRequest> ScriptedServer::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}

std::string ScriptedServer::Answer(int status, const std::string& body,
                                   const std::vector<std::string>& headers) {
  std::string answer = fmt::format("HTTP/1.1 {} Status\r\nconnection: close\r\n", status);
  for (const std::string& header : headers) answer += header + "\r\n";
  return answer + fmt::format("content-length: {}\r\n\r\n{}", body.size(), body);
}

void ScriptedServer::Serve() {
  while (true) {
    pollfd ready[] = {{.fd = listener_, .events = POLLIN, .revents = 0},
                      {.fd = stop_, .events = POLLIN, .revents = 0}};
    if (::poll(ready, 2, -1) < 0) continue;
    if (ready[1].revents != 0) return;
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    ServeOne(connection);
    ::close(connection);
  }
}

void ScriptedServer::ServeOne(int connection) {
  std::string data;
  while (data.find("\r\n\r\n") == std::string::npos) {
    if (!ReadUntil(connection, data.size() + 1, &data)) return;
  }
  const size_t head_bytes = data.find("\r\n\r\n") + 4;
  HttpRequest request = ParseHead(data.substr(0, head_bytes - 2));
  if (!request.Header("expect").empty()) SendAll(connection, "HTTP/1.1 100 Continue\r\n\r\n");
  const std::string length = request.Header("content-length");
  data.erase(0, head_bytes);
  if (!ReadUntil(connection, length.empty() ? 0 : std::stoul(length), &data)) return;
  request.body = std::move(data);
  {
    std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  SendAll(connection, script_(request));
  // Closing while bytes are unread would make the other side lose ours.
  ::shutdown(connection, SHUT_WR);
  char rest[4096];
  while (::recv(connection, rest, sizeof rest, 0) > 0) {
  }
}

}  // namespace stores
