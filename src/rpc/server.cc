#include "rpc/server.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "rpc/call_base.h"
#include "rpc/http2_call.h"
#include "rpc/local_call.h"

namespace rpc {

void Server::Impl::Add(std::string_view path, MethodKind kind, UnaryHandler unary,
                       StreamHandler stream) {
  const size_t slash = path.rfind('/');
  CHECK(path.size() > 1 && path[0] == '/' && slash > 0 && slash + 1 < path.size());
  auto method = std::make_unique<Method>();
  method->info.path = std::string(path);
  method->info.service = std::string(path.substr(1, slash - 1));
  method->info.name = std::string(path.substr(slash + 1));
  method->info.kind = kind;
  method->info.index = methods.size();
  method->unary = std::move(unary);
  method->stream = std::move(stream);
  services.emplace(method->info.service, true);
  const bool added = by_path.emplace(method->info.path, method.get()).second;
  CHECK(added);
  methods.push_back(std::move(method));
}

absl::Status Server::Impl::Unknown(std::string_view path) const {
  const size_t slash = path.rfind('/');
  if (path.empty() || path[0] != '/' || slash == 0) {
    return base::MakeStatus(absl::StatusCode::kUnimplemented, "malformed method name: \"{}\"",
                            path);
  }
  const std::string_view service = path.substr(1, slash - 1);
  if (!services.contains(service)) {
    return base::MakeStatus(absl::StatusCode::kUnimplemented, "unknown service {}", service);
  }
  return base::MakeStatus(absl::StatusCode::kUnimplemented, "unknown method {} for service {}",
                          path.substr(slash + 1), service);
}

Server::Server(ServerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Server::~Server() = default;

void Server::RegisterUnary(std::string_view path, UnaryHandler handler) {
  impl_->Add(path, MethodKind::kUnary, std::move(handler), nullptr);
}
void Server::RegisterServerStream(std::string_view path, UnaryHandler handler) {
  impl_->Add(path, MethodKind::kServerStream, std::move(handler), nullptr);
}
void Server::RegisterBidiStream(std::string_view path, StreamHandler factory) {
  impl_->Add(path, MethodKind::kBidiStream, nullptr, std::move(factory));
}
void Server::RegisterClientStream(std::string_view path, StreamHandler factory) {
  impl_->Add(path, MethodKind::kClientStream, nullptr, std::move(factory));
}

std::vector<const MethodInfo*> Server::methods() const {
  std::vector<const MethodInfo*> all;
  for (const auto& method : impl_->methods) all.push_back(&method->info);
  return all;
}

const ServerOptions& Server::options() const { return impl_->options; }

std::shared_ptr<LocalCall> Server::StartLocal(net::Loop& loop, LocalCallOptions options,
                                              std::unique_ptr<LocalClient> client) {
  return LocalCallImpl::Start(*impl_, loop, std::move(options), std::move(client));
}

net::StreamConsumer* Server::OnGrpcStream(net::Http2Stream& stream) {
  return Http2Call::Start(*impl_, stream);
}

}  // namespace rpc
