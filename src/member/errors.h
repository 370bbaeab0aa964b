// The errors of etcd's client API that clients compare literally: one place for code and text. Pure
// functions, thread-safe. Source: reference client-api.md 11.1.
#pragma once

#include "absl/status/status.h"

namespace member {

#define ENGRAM_ERROR(name, code, text) \
  inline absl::Status name() { return absl::Status(absl::StatusCode::code, text); }

ENGRAM_ERROR(EmptyKeyError, kInvalidArgument, "etcdserver: key is not provided")
ENGRAM_ERROR(KeyNotFoundError, kInvalidArgument, "etcdserver: key not found")
ENGRAM_ERROR(ValueProvidedError, kInvalidArgument, "etcdserver: value is provided")
ENGRAM_ERROR(LeaseProvidedError, kInvalidArgument, "etcdserver: lease is provided")
ENGRAM_ERROR(TooManyOpsError, kInvalidArgument, "etcdserver: too many operations in txn request")
ENGRAM_ERROR(DuplicateKeyError, kInvalidArgument, "etcdserver: duplicate key given in txn request")
ENGRAM_ERROR(InvalidClientApiVersionError, kInvalidArgument,
             "etcdserver: invalid client api version")
ENGRAM_ERROR(InvalidSortOptionError, kInvalidArgument, "etcdserver: invalid sort option")
ENGRAM_ERROR(NoSpaceError, kResourceExhausted, "etcdserver: mvcc: database space exceeded")
ENGRAM_ERROR(CorruptError, kDataLoss, "etcdserver: corrupt cluster")
ENGRAM_ERROR(MemberNotFoundError, kNotFound, "etcdserver: member not found")
ENGRAM_ERROR(BadMemberUrlsError, kInvalidArgument, "etcdserver: given member URLs are invalid")
// Unknown on the wire, as TooManyRequests below.
ENGRAM_ERROR(NotEnoughStartedError, kUnknown,
             "etcdserver: re-configuration failed due to not enough started members")
ENGRAM_ERROR(UnhealthyError, kUnavailable, "etcdserver: unhealthy cluster")
ENGRAM_ERROR(LearnerNotReadyError, kFailedPrecondition,
             "etcdserver: can only promote a learner member which is in sync with leader")
ENGRAM_ERROR(MemberNotLearnerError, kFailedPrecondition,
             "etcdserver: can only promote a learner member")
ENGRAM_ERROR(TimeoutLeaderTransferError, kUnavailable,
             "etcdserver: request timed out, leader transfer took too long")
ENGRAM_ERROR(RequestTooLargeError, kInvalidArgument, "etcdserver: request is too large")
// Unknown on the wire although etcd's table says ResourceExhausted, because its server returns the
// client's form of the error.
ENGRAM_ERROR(TooManyRequestsError, kUnknown, "etcdserver: too many requests")
ENGRAM_ERROR(NoLeaderError, kUnavailable, "etcdserver: no leader")
ENGRAM_ERROR(NotLeaderError, kFailedPrecondition, "etcdserver: not leader")
ENGRAM_ERROR(LeaderChangedError, kUnavailable, "etcdserver: leader changed")
ENGRAM_ERROR(StoppedError, kUnavailable, "etcdserver: server stopped")
ENGRAM_ERROR(TimeoutError, kUnavailable, "etcdserver: request timed out")
ENGRAM_ERROR(TimeoutLeaderFailError, kUnavailable,
             "etcdserver: request timed out, possibly due to previous leader failure")
ENGRAM_ERROR(TimeoutWaitAppliedError, kUnavailable,
             "etcdserver: request timed out, waiting for the applied index took too long")
ENGRAM_ERROR(NotSupportedForLearnerError, kFailedPrecondition,
             "etcdserver: rpc not supported for learner")
ENGRAM_ERROR(BadLeaderTransfereeError, kFailedPrecondition, "etcdserver: bad leader transferee")
ENGRAM_ERROR(UnknownMethodError, kUnknown, "etcdserver: unknown method")

#undef ENGRAM_ERROR

}  // namespace member
