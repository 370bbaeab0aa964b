// What a member must hold after a sequence of requests: every revision of every key, and the
// leases, in the plainest way. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace sim {

enum class OpKind { kPut, kDelete, kTwins, kGrant, kRevoke, kExpire, kCompact };

// A request of a client, or (kExpire) what the member asks of itself.
struct Op {
  OpKind kind = OpKind::kPut;
  std::string key;
  std::string end;  // of a delete; empty: one key
  std::string value;
  int64_t lease = 0;  // of a put, grant, revoke
  int64_t ttl = 0;
  // kTwins: if `key` was changed last at `compare_mod`, both twins of number `twin` get `value`,
  // else both are deleted.
  int64_t compare_mod = 0;
  int twin = 0;
  int64_t revision = 0;  // of a compaction
  bool physical = false;
};

// The keys that are only ever written together, in pairs.
inline constexpr int kTwins = 3;
std::string TwinKey(int twin, bool second);

// What the answer must say.
struct Answer {
  absl::StatusCode code = absl::StatusCode::kOk;
  int64_t revision = 0;
  int64_t deleted = 0;     // kDelete
  bool succeeded = false;  // kTwins
  friend bool operator==(const Answer&, const Answer&) = default;
};

struct KeyValue {
  std::string value;
  int64_t created = 0;
  int64_t mod = 0;
  int64_t version = 0;
  int64_t lease = 0;
  friend bool operator==(const KeyValue&, const KeyValue&) = default;
};
using Keys = std::map<std::string, KeyValue>;

class Model {
 public:
  Answer Apply(const Op& op);

  int64_t revision() const { return revision_; }
  int64_t compacted() const { return compacted_; }  // -1: never
  const Keys& keys() const { return keys_; }
  const std::map<int64_t, int64_t>& leases() const { return leases_; }  // id -> TTL
  std::vector<std::string> KeysOf(int64_t lease) const;                 // sorted
  // At a revision that is not compacted.
  Keys At(int64_t revision) const;
  // (main, sub) of every record that is left once the compactions are through.
  std::vector<std::pair<int64_t, int64_t>> Records() const;
  // HashKV at a revision above the compacted one. None where it depends on how far a compaction has
  // come: when nothing is alive at that revision.
  std::optional<uint32_t> HashAt(int64_t revision) const;

 private:
  struct Change {
    int64_t main = 0;
    int64_t sub = 0;
    bool tombstone = false;
    std::string key;
    KeyValue kv;
  };
  void Put(const std::string& key, const std::string& value, int64_t lease);
  int64_t Delete(const std::string& key, const std::string& end);
  void Record(bool tombstone, const std::string& key, const KeyValue& kv);
  // Ends what one request did; returns the revision after it.
  int64_t End();
  Answer Now(absl::StatusCode code = absl::StatusCode::kOk) const {
    return {.code = code, .revision = revision_};
  }

  int64_t revision_ = 1;
  int64_t compacted_ = -1;
  int64_t sub_ = 0;  // changes of the request under way
  Keys keys_;
  std::vector<Change> changes_;  // all there ever were
  std::map<int64_t, int64_t> leases_;
};

}  // namespace sim
