// The cluster under guard, seen through its public API: one client over all endpoints and one for
// each, since what matters of a member is asked of that member. Thread-safe; calls block.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "capture/timeline.h"
#include "client/client.h"

namespace capture {

// What one endpoint answered to Status.
struct MemberState {
  std::string endpoint;
  absl::Status status;  // why there is no answer; the rest is empty then
  uint64_t cluster_id = 0;
  uint64_t member_id = 0;
  uint64_t leader = 0;  // 0: it knows none
  int64_t revision = 0;
  uint64_t raft_index = 0;
  std::string version;
  std::string storage_version;
  int64_t db_bytes = 0;
  bool is_learner = false;
  std::vector<std::string> errors;  // alarms, "etcdserver: no leader"

  bool Leads() const { return leader != 0 && leader == member_id; }
};

class Cluster {
 public:
  // `options` with the endpoints of all members. Makes no connection, unless there is a user: that
  // one's token is asked for. Errors: Client::Open's.
  static absl::StatusOr<std::unique_ptr<Cluster>> Open(client::Options options);

  // Over all endpoints, with failover.
  client::Client& any() { return *any_; }
  const std::vector<std::string>& endpoints() const { return any_->endpoints(); }

  // Asks all endpoints at once, each for at most `timeout`; in the order of the endpoints.
  std::vector<MemberState> Survey(base::Duration timeout);

  // The cluster's id and newest revision by a linearizable read, and the leader's raft index where
  // the leader is among the endpoints.
  absl::StatusOr<HistoryMark> Now(base::Duration timeout);

  // A client of the one endpoint; `read_ahead_bytes` as in client::Options.
  absl::StatusOr<std::unique_ptr<client::Client>> Only(const std::string& endpoint,
                                                       uint32_t read_ahead_bytes = 0) const;

 private:
  explicit Cluster(client::Options options) : options_(std::move(options)) {}

  const client::Options options_;
  std::unique_ptr<client::Client> any_;
};

// The member a full is best taken from: one that answers, knows a leader and is no learner; of
// these a follower, whose reads cost the leader nothing. Unavailable, with what each endpoint said,
// when there is none; FailedPrecondition when the endpoints belong to different clusters.
absl::StatusOr<MemberState> ChooseMember(const std::vector<MemberState>& members);

}  // namespace capture
