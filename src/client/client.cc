#include "client/client.h"

#include <google/protobuf/message_lite.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "base/status.h"
#include "client/channel.h"
#include "client/stream.h"
#include "proto/rpc.pb.h"

namespace client {
namespace {

constexpr int kAttemptsMax = 100;
constexpr std::chrono::milliseconds kRetryPause(25);
constexpr std::string_view kApiVersion = "3.7";

// Calls that may be repeated whatever became of the first attempt, as in etcd's client: reads, and
// the lease and leadership calls whose repetition does no harm.
constexpr std::string_view kRepeatable[] = {
    kRange.name,       kLeaseGrant.name, kLeaseRevoke.name, kLeaseTimeToLive.name,
    kLeaseLeases.name, kMemberList.name, kAlarm.name,       kStatus.name,
    kHash.name,        kHashKV.name,     kMoveLeader.name,  kAuthStatus.name,
    kUserGet.name,     kUserList.name,   kRoleGet.name,     kRoleList.name,
};

bool MayRepeat(std::string_view method) {
  return std::find(std::begin(kRepeatable), std::end(kRepeatable), method) != std::end(kRepeatable);
}

bool AsksForNewToken(const absl::Status& status) {
  const std::string_view text = base::Message(status);
  return text == "etcdserver: invalid auth token" ||
         text == "etcdserver: revision of auth store is old" ||
         text == "etcdserver: user name is empty";
}

class GrpcClient final : public Client {
 public:
  GrpcClient(Options options, std::unique_ptr<Connections> connections)
      : options_(std::move(options)), connections_(std::move(connections)) {
    token_ = options_.jwt_token;
  }

  absl::Status Authenticate(base::Duration timeout) {
    pb::AuthenticateRequest request;
    request.set_name(options_.user);
    request.set_password(options_.password);
    pb::AuthenticateResponse response;
    RETURN_IF_ERROR(
        CallOnce(kAuthenticate.name, request, &response, DeadlineAfter(timeout), {}, 0).status);
    const std::lock_guard lock(token_mutex_);
    token_ = response.token();
    return absl::OkStatus();
  }

  absl::Status CallRaw(std::string_view method, const google::protobuf::MessageLite& request,
                       google::protobuf::MessageLite* response,
                       const CallOptions& options) override {
    if (const size_t size = request.ByteSizeLong(); size > options_.request_bytes_max) {
      absl::Status status = base::MakeStatus(absl::StatusCode::kResourceExhausted,
                                             "trying to send message larger than max ({} vs. {})",
                                             size, options_.request_bytes_max);
      Report({.endpoint = options_.endpoints.front(), .method = method, .status = status});
      return status;
    }
    const Deadline deadline = DeadlineAfter(options.timeout);
    absl::Status last;
    for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
      const Attempt outcome = CallOnce(method, request, response, deadline, options, attempt);
      last = outcome.status;
      if (last.ok() || last.code() == absl::StatusCode::kDeadlineExceeded) return last;
      if (options.fail_fast) return last;
      if (AsksForNewToken(last) && !options_.user.empty() && attempt + 1 < kAttemptsMax) {
        RETURN_IF_ERROR(Authenticate(Remaining(deadline)));
        continue;
      }
      if (last.code() != absl::StatusCode::kUnavailable || !MayRepeat(method)) return last;
      if (outcome.connection != nullptr) connections_->MoveOn(outcome.connection);
      // A full round over the endpoints failed: do not spin.
      if (attempt % static_cast<int>(connections_->size()) ==
          static_cast<int>(connections_->size()) - 1) {
        if (deadline - std::chrono::system_clock::now() < kRetryPause) {
          return absl::DeadlineExceededError("context deadline exceeded");
        }
        std::this_thread::sleep_for(kRetryPause);
      }
    }
    return last;
  }

  absl::StatusOr<std::unique_ptr<Stream>> OpenStream(std::string_view method,
                                                     const CallOptions& options) override {
    const Deadline deadline = DeadlineAfter(options.timeout);
    ASSIGN_OR_RETURN(const Connection* connection, connections_->Pick(deadline));
    return StartStream(connection->channel, method, NewContext(deadline, options));
  }

  const std::vector<std::string>& endpoints() const override { return options_.endpoints; }

 private:
  struct Attempt {
    absl::Status status;
    const Connection* connection = nullptr;
  };

  static base::Duration Remaining(Deadline deadline) {
    if (deadline == Deadline::max()) return {};
    return std::max<base::Duration>(deadline - std::chrono::system_clock::now(),
                                    std::chrono::milliseconds(1));
  }

  std::unique_ptr<grpc::ClientContext> NewContext(Deadline deadline, const CallOptions& options) {
    auto context = std::make_unique<grpc::ClientContext>();
    if (deadline != Deadline::max()) context->set_deadline(deadline);
    context->set_wait_for_ready(!options.fail_fast);
    context->AddMetadata("client-api-version", std::string(kApiVersion));
    if (options.require_leader) context->AddMetadata("hasleader", "true");
    const std::lock_guard lock(token_mutex_);
    if (!token_.empty()) context->AddMetadata("token", token_);
    return context;
  }

  Attempt CallOnce(std::string_view method, const google::protobuf::MessageLite& request,
                   google::protobuf::MessageLite* response, Deadline deadline,
                   const CallOptions& options, int attempt) {
    absl::StatusOr<const Connection*> picked = connections_->Pick(deadline);
    if (!picked.ok()) {
      Report({.endpoint = options_.endpoints.front(),
              .method = method,
              .attempt = attempt,
              .status = picked.status()});
      return {picked.status(), nullptr};
    }
    const std::unique_ptr<grpc::ClientContext> context = NewContext(deadline, options);
    grpc::CompletionQueue queue;
    grpc::GenericStub stub((*picked)->channel);
    const grpc::ByteBuffer request_bytes = Serialize(request);
    const auto reader =
        stub.PrepareUnaryCall(context.get(), std::string(method), request_bytes, &queue);
    reader->StartCall();
    grpc::ByteBuffer response_bytes;
    grpc::Status grpc_status;
    reader->Finish(&response_bytes, &grpc_status, this);
    void* tag = nullptr;
    bool ok = false;
    CHECK(queue.Next(&tag, &ok));
    absl::Status status = FromGrpc(grpc_status);
    if (status.ok() && !Parse(response_bytes, response)) {
      status = base::MakeStatus(absl::StatusCode::kDataLoss,
                                "the answer to {} from {} could not be parsed", method,
                                (*picked)->endpoint.typed);
    }
    if (!status.ok()) {
      const std::string peer = context->peer();
      Report({.endpoint = (*picked)->endpoint.typed,
              .peer = peer,
              .method = method,
              .attempt = attempt,
              .status = status});
    }
    return {std::move(status), *picked};
  }

  void Report(const AttemptFailure& failure) const {
    if (options_.on_attempt_failed) options_.on_attempt_failed(failure);
  }

  const Options options_;
  const std::unique_ptr<Connections> connections_;
  std::mutex token_mutex_;
  std::string token_;  // guarded by token_mutex_
};

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Open(Options options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Connections> connections, Connections::Open(options));
  const bool has_user = !options.user.empty();
  const base::Duration dial_timeout = options.dial_timeout;
  const auto on_auth_not_enabled = options.on_auth_not_enabled;
  auto client = std::make_unique<GrpcClient>(std::move(options), std::move(connections));
  if (has_user) {
    const absl::Status status = client->Authenticate(dial_timeout);
    if (base::Message(status) == "etcdserver: authentication is not enabled") {
      if (on_auth_not_enabled) on_auth_not_enabled();
    } else if (!status.ok()) {
      return status;
    }
  }
  return client;
}

absl::StatusOr<std::unique_ptr<Stream>> Client::OpenServerStream(
    std::string_view method, const google::protobuf::MessageLite& request,
    const CallOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, OpenStream(method, options));
  RETURN_IF_ERROR(stream->Write(request));
  stream->WritesDone();
  return stream;
}

}  // namespace client
