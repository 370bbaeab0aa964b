// The JSON inside a raft snapshot: a dump of the key-value store etcd had before version 3, of
// which only the membership is left. etcd 3.6 restores its member list from it. Plain values and
// pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace wal {

struct V2Member {
  uint64_t id = 0;
  std::vector<std::string> peer_urls;
  bool is_learner = false;
  // Attributes a member publishes once it runs; not written while both are empty.
  std::string name;
  std::vector<std::string> client_urls;
  friend bool operator==(const V2Member&, const V2Member&) = default;
};

struct V2Membership {
  std::vector<V2Member> members;          // any order; written by id
  std::vector<uint64_t> removed_members;  // any order; written by id
  std::string cluster_version;            // "3.7.0"; empty: not yet decided, not written
  friend bool operator==(const V2Membership&, const V2Membership&) = default;
};

// Never empty, also for an empty membership. Bytes that are not UTF-8 become U+FFFD.
std::string EncodeV2Store(const V2Membership& membership);
// Takes dumps of etcd as well as ours. Members and removed members come ordered by id.
// InvalidArgument for anything that is not such a dump; a dump without membership ("{}") is an
// empty membership.
absl::StatusOr<V2Membership> DecodeV2Store(std::string_view json);

}  // namespace wal
