// Internal to the library: the grpc channels of one client and how an absl status comes out of a
// grpc one. Thread-safe.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/endpoint.h"

namespace client {

using Deadline = std::chrono::system_clock::time_point;
// max() for a timeout of 0.
Deadline DeadlineAfter(base::Duration timeout);

struct Connection {
  Endpoint endpoint;
  std::shared_ptr<grpc::Channel> channel;
};

class Connections {
 public:
  static absl::StatusOr<std::unique_ptr<Connections>> Open(const Options& options);

  // A connected endpoint, the one used last if it still is; with a single endpoint that one,
  // connected or not (calls wait for it). DeadlineExceeded when none connects in time.
  absl::StatusOr<const Connection*> Pick(Deadline deadline);
  // The next Pick prefers another endpoint than `failed`.
  void MoveOn(const Connection* failed);
  size_t size() const { return connections_.size(); }

 private:
  std::vector<Connection> connections_;
  std::atomic<size_t> preferred_{0};
};

absl::Status FromGrpc(const grpc::Status& status);
grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message);
// False when the bytes are no such message.
bool Parse(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message);

}  // namespace client
