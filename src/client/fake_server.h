// For tests: a gRPC server on a loopback port whose answers a test scripts by method name.
// Thread-safe.
#pragma once

#include <fmt/format.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "client/channel.h"

namespace client {

// What a handler does with one received message: bytes to send back, and whether the call ends with
// `status` after them.
struct FakeReaction {
  std::vector<grpc::ByteBuffer> answers = {};
  bool end = true;
  grpc::Status status = {};
};

class FakeServer {
 public:
  using Metadata = std::multimap<std::string, std::string>;
  using Handler = std::function<FakeReaction(const grpc::ByteBuffer& message, const Metadata&)>;

  // port 0: any free one.
  explicit FakeServer(int port = 0) { Start(port); }
  ~FakeServer() { Stop(); }

  void Handle(std::string_view method, Handler handler) {
    const std::lock_guard lock(mutex_);
    handlers_[std::string(method)] = std::move(handler);
  }

  // "unix:/path" instead of a port.
  explicit FakeServer(const std::string& address) { Listen(address); }

  void Start(int port) { Listen(fmt::format("127.0.0.1:{}", port)); }
  void Listen(const std::string& address) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    service_ = std::make_unique<Service>(*this);  // a service serves one server only
    builder.RegisterCallbackGenericService(service_.get());
    server_ = builder.BuildAndStart();
  }
  // Ends all calls at once.
  void Stop() {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    server_ = nullptr;
  }

  std::string endpoint() const { return fmt::format("127.0.0.1:{}", port_); }
  int port() const { return port_; }

 private:
  class Reactor : public grpc::ServerGenericBidiReactor {
   public:
    Reactor(Handler handler, Metadata metadata)
        : handler_(std::move(handler)), metadata_(std::move(metadata)) {
      StartRead(&incoming_);
    }
    void OnReadDone(bool ok) override {
      const std::lock_guard lock(mutex_);
      if (!ok) return FinishOnce(grpc::Status::OK, outgoing_.empty());
      FakeReaction reaction = handler_(incoming_, metadata_);
      for (grpc::ByteBuffer& answer : reaction.answers) outgoing_.push_back(std::move(answer));
      end_ = reaction.end;
      status_ = reaction.status;
      if (!writing_) WriteNext();
      if (!end_) StartRead(&incoming_);
    }
    void OnWriteDone(bool ok) override {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      outgoing_.pop_front();
      if (!ok) return FinishOnce(grpc::Status::CANCELLED, true);
      WriteNext();
    }
    void OnCancel() override {
      const std::lock_guard lock(mutex_);
      FinishOnce(grpc::Status::CANCELLED, true);
    }
    void OnDone() override { delete this; }

   private:
    void WriteNext() {
      if (!outgoing_.empty()) {
        writing_ = true;
        StartWrite(&outgoing_.front());
      } else if (end_) {
        FinishOnce(status_, true);
      }
    }
    void FinishOnce(const grpc::Status& status, bool now) {
      if (!now || finished_) return;
      finished_ = true;
      Finish(status);
    }

    const Handler handler_;
    const Metadata metadata_;
    std::mutex mutex_;
    grpc::ByteBuffer incoming_;
    std::deque<grpc::ByteBuffer> outgoing_;
    bool writing_ = false, end_ = false, finished_ = false;
    grpc::Status status_;
  };

  class Service : public grpc::CallbackGenericService {
   public:
    explicit Service(FakeServer& owner) : owner_(owner) {}

   private:
    grpc::ServerGenericBidiReactor* CreateReactor(
        grpc::GenericCallbackServerContext* context) override {
      Metadata metadata;
      for (const auto& [key, value] : context->client_metadata()) {
        metadata.emplace(std::string(key.data(), key.size()),
                         std::string(value.data(), value.size()));
      }
      metadata.emplace(":authority", context->host());
      return new Reactor(owner_.HandlerOf(context->method()), std::move(metadata));
    }

    FakeServer& owner_;
  };

  Handler HandlerOf(const std::string& method) {
    const std::lock_guard lock(mutex_);
    const auto found = handlers_.find(method);
    if (found != handlers_.end()) return found->second;
    return [](const auto&, const auto&) {
      return FakeReaction{.status = grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no handler")};
    };
  }

  std::mutex mutex_;
  std::map<std::string, Handler> handlers_;  // guarded by mutex_
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace client
