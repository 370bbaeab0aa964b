#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/status.h"
#include "client/client.h"

namespace client {
namespace {

// The texts that etcd's Go client turns into errors of their own, printed without their code.
constexpr std::string_view kKnownTexts[] = {
    "etcdserver: key is not provided",
    "etcdserver: key not found",
    "etcdserver: value is provided",
    "etcdserver: lease is provided",
    "etcdserver: too many operations in txn request",
    "etcdserver: duplicate key given in txn request",
    "etcdserver: invalid client api version",
    "etcdserver: invalid sort option",
    "etcdserver: mvcc: required revision has been compacted",
    "etcdserver: mvcc: required revision is a future revision",
    "etcdserver: mvcc: database space exceeded",
    "etcdserver: requested lease not found",
    "etcdserver: lease already exists",
    "etcdserver: too large lease TTL",
    "etcdserver: member ID already exist",
    "etcdserver: Peer URLs already exists",
    "etcdserver: re-configuration failed due to not enough started members",
    "etcdserver: given member URLs are invalid",
    "etcdserver: member not found",
    "etcdserver: can only promote a learner member",
    "etcdserver: can only promote a learner member which is in sync with leader",
    "etcdserver: too many learner members in cluster",
    "etcdserver: cluster ID mismatch",
    "etcdserver: request is too large",
    "etcdserver: too many requests",
    "etcdserver: root user does not exist",
    "etcdserver: root user does not have root role",
    "etcdserver: user name already exists",
    "etcdserver: user name is empty",
    "etcdserver: user name not found",
    "etcdserver: role name already exists",
    "etcdserver: role name not found",
    "etcdserver: role name is empty",
    "etcdserver: authentication failed, invalid user ID or password",
    "etcdserver: permission not given",
    "etcdserver: permission denied",
    "etcdserver: role is not granted to the user",
    "etcdserver: permission is not granted to the role",
    "etcdserver: authentication is not enabled",
    "etcdserver: invalid auth token",
    "etcdserver: invalid auth management",
    "etcdserver: revision of auth store is old",
    "etcdserver: no leader",
    "etcdserver: not leader",
    "etcdserver: leader changed",
    "etcdserver: not capable",
    "etcdserver: server stopped",
    "etcdserver: request timed out",
    "etcdserver: request timed out, possibly due to previous leader failure",
    "etcdserver: request timed out, possibly due to connection lost",
    "etcdserver: request timed out, waiting for the applied index took too long",
    "etcdserver: unhealthy cluster",
    "etcdserver: corrupt cluster",
    "etcdserver: rpc not supported for learner",
    "etcdserver: bad leader transferee",
    "etcdserver: wrong downgrade target version format",
    "etcdserver: invalid downgrade target version",
    "etcdserver: cluster version not found during downgrade",
    "etcdserver: cluster has a downgrade job in progress",
    "etcdserver: no inflight downgrade job",
    "etcdserver: request canceled",
    "etcdserver: watch canceled",
};

constexpr std::array<std::string_view, 17> kCodeNames = {
    "OK",       "Canceled",        "Unknown",          "InvalidArgument",   "DeadlineExceeded",
    "NotFound", "AlreadyExists",   "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
    "Aborted",  "OutOfRange",      "Unimplemented",    "Internal",          "Unavailable",
    "DataLoss", "Unauthenticated",
};

}  // namespace

std::string_view CodeName(absl::StatusCode code) {
  const auto index = static_cast<size_t>(code);
  return index < kCodeNames.size() ? kCodeNames[index] : "Unknown";
}

std::string RpcErrorText(const absl::Status& status) {
  return fmt::format("rpc error: code = {} desc = {}", CodeName(status.code()),
                     base::Message(status));
}

std::string ErrorText(const absl::Status& status) {
  const std::string_view text = base::Message(status);
  const bool known =
      std::find(std::begin(kKnownTexts), std::end(kKnownTexts), text) != std::end(kKnownTexts);
  if (known || status.code() == absl::StatusCode::kDeadlineExceeded) return std::string(text);
  return RpcErrorText(status);
}

}  // namespace client
