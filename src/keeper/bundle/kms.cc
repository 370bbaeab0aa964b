#include "bundle/kms.h"

#include "base/status.h"
#include "client/client.h"
#include "proto/kms.pb.h"

namespace bundle {
namespace {

constexpr client::Unary<v2::StatusRequest, v2::StatusResponse> kStatus{
    "/v2.KeyManagementService/Status"};

}  // namespace

absl::StatusOr<KmsStatus> AskKmsPlugin(const std::string& endpoint, base::Duration timeout) {
  ASSIGN_OR_RETURN(const auto plugin, client::Client::Open({.endpoints = {endpoint}}));
  ASSIGN_OR_RETURN(
      const v2::StatusResponse answer,
      plugin->Call(kStatus, v2::StatusRequest(), {.timeout = timeout, .fail_fast = true}));
  return KmsStatus{
      .version = answer.version(), .healthz = answer.healthz(), .key_id = answer.key_id()};
}

}  // namespace bundle
