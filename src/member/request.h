// Encoding of the raft entry that carries a client's request: InternalRaftRequest with the bytes
// the client sent embedded unchanged, so that a request is copied once from the socket and once to
// the log. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "raft/types.h"

namespace member {

// Field numbers of InternalRaftRequest (proto/internal.proto).
enum class RequestKind : uint32_t {
  kNone = 0,
  kRange = 3,
  kPut = 4,
  kDeleteRange = 5,
  kTxn = 6,
  kCompaction = 7,
  kLeaseGrant = 8,
  kLeaseRevoke = 9,
  kAlarm = 10,
  kLeaseCheckpoint = 11,
  kClusterVersionSet = 1300,
  kClusterMemberAttrSet = 1301,
  kDowngradeInfoSet = 1302,
  kDowngradeVersionTest = 9900,
};

// {kind: message, header: {ID: id}}. Who asks, and at which auth revision, is empty and 0 while
// auth is off.
std::string EncodeRequest(RequestKind kind, std::string_view message, uint64_t id,
                          std::string_view username = {}, uint64_t auth_revision = 0);

struct RequestView {
  uint64_t id = 0;
  RequestKind kind = RequestKind::kNone;
  uint32_t field = 0;        // the raw field number, also of kinds that have no name here
  std::string_view message;  // borrows from the bytes decoded
  std::string_view username;
  uint64_t auth_revision = 0;
};
// False for bytes that are no InternalRaftRequest.
bool DecodeRequest(std::string_view bytes, RequestView* out);

}  // namespace member
