// The members of a cluster as every member sees them after applying the same log. Membership has
// one writer (the apply thread); readers on any thread take a View, which never changes. Source:
// etcd's member JSON and membership rules (reference on-disk.md 2.5, raft-and-peers.md 4.4).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cluster {

struct Member {
  uint64_t id = 0;
  std::vector<std::string> peer_urls;
  bool is_learner = false;
  std::string name;                      // empty until the member has started and published itself
  std::vector<std::string> client_urls;  // likewise
  // A learner that was added in place of a voter: the leader promotes it once it has caught up. In
  // the JSON a key that etcd passes over.
  bool promote_when_ready = false;
  friend bool operator==(const Member&, const Member&) = default;
};

// The JSON etcd writes: id, peerURLs, isLearner, name, clientURLs in this order, the last three
// left out when empty; and promoteWhenReady where it holds.
std::string EncodeMember(const Member& member);
// DataLoss for anything that is no such object. Unknown members are passed over, so a ConfChange
// context is read as well.
absl::StatusOr<Member> DecodeMember(std::string_view json);

// The context of a membership change in the raft log.
struct ChangeContext {
  Member member;
  bool is_promote = false;
};
absl::StatusOr<ChangeContext> DecodeChangeContext(std::string_view json);
std::string EncodeChangeContext(const ChangeContext& context);

// "m1=http://a:2380,m1=http://b:2380,m2=..." of --initial-cluster: URLs by name, in the order of
// the text. InvalidArgument with etcd's text.
absl::StatusOr<std::map<std::string, std::vector<std::string>>> ParseInitialCluster(
    std::string_view text);

class Membership {
 public:
  struct View {
    std::map<uint64_t, Member> members;  // by id
    std::set<uint64_t> removed;
    std::string cluster_version;  // "3.7.0"; empty while undecided
    const Member* Find(uint64_t id) const {
      const auto it = members.find(id);
      return it == members.end() ? nullptr : &it->second;
    }
    // Ids of voters and learners, ascending.
    std::vector<uint64_t> Voters() const;
    std::vector<uint64_t> Learners() const;
    // Voters that have published their name, which they do once they run; without `except`.
    size_t StartedVoters(uint64_t except = 0) const;
  };
  using ViewPtr = std::shared_ptr<const View>;

  Membership();

  // --- any thread ---
  ViewPtr view() const;

  // --- the writer ---
  void Reset(View view);
  // Whether a change may be made now, with etcd's error texts: AlreadyExists-like conditions are
  // FailedPrecondition.
  absl::Status Validate(int type, const ChangeContext& context, uint64_t node_id) const;
  // Before the first change: how many learners there may be. 1 unless set.
  void set_max_learners(size_t max) { max_learners_ = max; }
  void Add(const Member& member);
  void Remove(uint64_t id);
  // Peer URLs only; name, client URLs and the learner flag stay.
  void UpdatePeerUrls(uint64_t id, std::vector<std::string> peer_urls);
  void Promote(uint64_t id);
  // False when the member is unknown.
  bool UpdateAttributes(uint64_t id, std::string name, std::vector<std::string> client_urls);
  void SetClusterVersion(std::string version);

 private:
  template <typename F>
  void Change(F change);

  size_t max_learners_ = 1;
  mutable std::mutex mutex_;
  ViewPtr view_;  // guarded by mutex_; what it points to is immutable
};

// "3.7.3" -> {3, 7, 3}; nullopt unless three dot-separated numbers (a suffix like "-alpha" is
// allowed and ignored).
struct Version {
  int major = 0;
  int minor = 0;
  int patch = 0;
  auto operator<=>(const Version&) const = default;
};
absl::StatusOr<Version> ParseVersion(std::string_view text);

// Whether a server of `own` may open a file of `storage` version (empty: a file without one;
// then 3.5). OK, or the reason in etcd's words: `version "3.8.0" is not supported`, `changing major
// storage version is not supported`.
absl::Status CheckStorageVersion(const Version& own, std::string_view storage);

}  // namespace cluster
