#include "sim/model.h"

#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "proto/kv.pb.h"

namespace sim {
namespace {

// The stored form of a change, by the schema alone.
std::string Stored(bool tombstone, const std::string& key, const KeyValue& kv) {
  mvccpb::KeyValue message;
  message.set_key(key);
  if (!tombstone) {
    message.set_create_revision(kv.created);
    message.set_mod_revision(kv.mod);
    message.set_version(kv.version);
    message.set_value(kv.value);
    message.set_lease(kv.lease);
  }
  return message.SerializeAsString();
}

std::string StoredRevision(int64_t main, int64_t sub, bool tombstone) {
  std::string bytes(17, '_');
  base::StoreBe64(bytes.data(), static_cast<uint64_t>(main));
  base::StoreBe64(bytes.data() + 9, static_cast<uint64_t>(sub));
  if (tombstone) bytes.push_back('t');
  return bytes;
}

}  // namespace

std::string TwinKey(int twin, bool second) {
  return std::string("twin/") + (second ? 'b' : 'a') + std::to_string(twin);
}

void Model::Record(bool tombstone, const std::string& key, const KeyValue& kv) {
  changes_.push_back(
      {.main = revision_ + 1, .sub = sub_++, .tombstone = tombstone, .key = key, .kv = kv});
}

void Model::Put(const std::string& key, const std::string& value, int64_t lease) {
  KeyValue& kv = keys_[key];
  if (kv.version == 0) kv.created = revision_ + 1;
  kv.value = value;
  kv.mod = revision_ + 1;
  ++kv.version;
  kv.lease = lease;
  Record(false, key, kv);
}

int64_t Model::Delete(const std::string& key, const std::string& end) {
  int64_t deleted = 0;
  for (auto it = keys_.lower_bound(key);
       it != keys_.end() && (end.empty() ? it->first == key : it->first < end); ++deleted) {
    Record(true, it->first, {});
    it = keys_.erase(it);
  }
  return deleted;
}

int64_t Model::End() {
  if (std::exchange(sub_, 0) > 0) ++revision_;
  return revision_;
}

std::vector<std::string> Model::KeysOf(int64_t lease) const {
  std::vector<std::string> attached;
  for (const auto& [key, kv] : keys_) {
    if (kv.lease == lease) attached.push_back(key);
  }
  return attached;
}

Answer Model::Apply(const Op& op) {
  Answer answer;
  switch (op.kind) {
    case OpKind::kPut:
      if (op.lease != 0 && !leases_.contains(op.lease)) return Now(absl::StatusCode::kNotFound);
      Put(op.key, op.value, op.lease);
      break;
    case OpKind::kDelete:
      answer.deleted = Delete(op.key, op.end);
      break;
    case OpKind::kTwins: {
      const auto it = keys_.find(op.key);
      answer.succeeded = (it == keys_.end() ? 0 : it->second.mod) == op.compare_mod;
      for (const bool second : {false, true}) {
        if (answer.succeeded) {
          Put(TwinKey(op.twin, second), op.value, 0);
        } else {
          Delete(TwinKey(op.twin, second), "");
        }
      }
      break;
    }
    case OpKind::kGrant:
      if (leases_.contains(op.lease)) return Now(absl::StatusCode::kFailedPrecondition);
      leases_[op.lease] = op.ttl;
      break;
    case OpKind::kRevoke:
    case OpKind::kExpire:
      if (!leases_.contains(op.lease)) return Now(absl::StatusCode::kNotFound);
      for (const std::string& key : KeysOf(op.lease)) Delete(key, "");
      leases_.erase(op.lease);
      break;
    case OpKind::kCompact:
      if (op.revision <= compacted_ || op.revision > revision_)
        return Now(absl::StatusCode::kOutOfRange);
      compacted_ = op.revision;
      break;
  }
  answer.revision = End();
  return answer;
}

Keys Model::At(int64_t revision) const {
  Keys keys;
  for (const Change& change : changes_) {
    if (change.main > revision) break;
    if (change.tombstone) {
      keys.erase(change.key);
    } else {
      keys[change.key] = change.kv;
    }
  }
  return keys;
}

std::vector<std::pair<int64_t, int64_t>> Model::Records() const {
  std::map<std::string, const Change*> newest;  // not above the compacted revision
  for (const Change& change : changes_) {
    if (change.main <= compacted_) newest[change.key] = &change;
  }
  std::vector<std::pair<int64_t, int64_t>> records;
  for (const Change& change : changes_) {
    // A tombstone of just that revision stays, so that a watcher from there on is told of it.
    const bool stays = !change.tombstone || change.main == compacted_;
    if (change.main > compacted_ || (newest[change.key] == &change && stays))
      records.emplace_back(change.main, change.sub);
  }
  return records;
}

std::optional<uint32_t> Model::HashAt(int64_t revision) const {
  // Below the compacted revision only what is alive at `revision` counts.
  const Keys alive = At(revision);
  if (compacted_ > 0 && alive.empty()) return std::nullopt;
  // A key changes at most twice in one revision (never, with the requests made here), so the last
  // change of a key at its newest revision is the one that is alive.
  std::map<std::pair<int64_t, std::string>, int64_t> newest;  // (revision, key) -> sub
  for (const Change& change : changes_) newest[{change.main, change.key}] = change.sub;
  uint32_t hash = base::Crc32c(0, "key");
  for (const Change& change : changes_) {
    if (change.main > revision) break;
    if (change.main <= compacted_) {
      const auto it = alive.find(change.key);
      if (it == alive.end() || it->second.mod != change.main || change.tombstone ||
          newest[{change.main, change.key}] != change.sub) {
        continue;
      }
    }
    hash = base::Crc32c(hash, StoredRevision(change.main, change.sub, change.tombstone));
    hash = base::Crc32c(hash, Stored(change.tombstone, change.key, change.kv));
  }
  return hash;
}

}  // namespace sim
