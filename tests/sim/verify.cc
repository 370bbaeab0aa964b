// Whether the member holds what the model holds, and the file is whole.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/status.h"
#include "base/wire.h"
#include "bolt/check.h"
#include "bolt/db.h"
#include "mvcc/key_value.h"
#include "sim/history.h"

namespace sim {
namespace {

constexpr uint64_t kFreshBytes = 4 * 4096;

absl::Status Differs(const std::string& what) { return absl::InternalError(what); }

std::string Describe(const Keys& keys) {
  std::string text;
  for (const auto& [key, kv] : keys) {
    text += fmt::format(" {}={}:c{}m{}v{}l{}", key, kv.value.substr(0, kv.value.find('.')),
                        kv.created, kv.mod, kv.version, kv.lease);
  }
  return text;
}

}  // namespace

absl::StatusOr<Keys> History::ReadKeys(int64_t revision) {
  std::string found;
  RETURN_IF_ERROR(process_->member()
                      .store()
                      .Range({.key = " ", .range_end = {"\0", 1}, .revision = revision}, &found)
                      .status());
  Keys keys;
  base::wire::Reader reader(found);
  while (reader.Next()) {
    ASSIGN_OR_RETURN(const mvcc::KeyValue kv, mvcc::DecodeKeyValue(reader.bytes()));
    keys[std::string(kv.key)] = {.value = std::string(kv.value),
                                 .created = kv.create_revision,
                                 .mod = kv.mod_revision,
                                 .version = kv.version,
                                 .lease = kv.lease};
  }
  return keys;
}

absl::Status History::CheckTwins() {
  ASSIGN_OR_RETURN(const Keys keys, ReadKeys(0));
  for (int twin = 0; twin < kTwins; ++twin) {
    const auto one = keys.find(TwinKey(twin, false));
    const auto other = keys.find(TwinKey(twin, true));
    if ((one == keys.end()) != (other == keys.end()) ||
        (one != keys.end() && one->second != other->second)) {
      return Differs(fmt::format("half a transaction is seen: twins {} differ", twin));
    }
  }
  return absl::OkStatus();
}

absl::Status History::Compare(const Model& model) {
  member::Member& member = process_->member();
  if (const int64_t got = member.store().current_revision(); got != model.revision())
    return Differs(fmt::format("revision {}, expected {}", got, model.revision()));
  if (const int64_t got = member.store().compact_revision(); got != model.compacted())
    return Differs(fmt::format("compacted revision {}, expected {}", got, model.compacted()));
  ASSIGN_OR_RETURN(const Keys keys, ReadKeys(0));
  if (keys != model.keys()) {
    return Differs(fmt::format("keys at {}:{}, expected{}", model.revision(), Describe(keys),
                               Describe(model.keys())));
  }
  std::map<int64_t, int64_t> leases;
  for (const auto& lease : member.lessor().Leases()) leases[lease.id] = lease.granted_ttl_seconds;
  if (leases != model.leases()) {
    return Differs(
        fmt::format("{} leases, expected {}, or their TTLs", leases.size(), model.leases().size()));
  }
  for (const auto& [id, ttl] : leases) {
    ASSIGN_OR_RETURN(const auto attached, member.lessor().AttachedKeys(id));
    if (attached != model.KeysOf(id))
      return Differs(fmt::format("lease {} has {} keys, expected {}", id, attached.size(),
                                 model.KeysOf(id).size()));
  }
  return absl::OkStatus();
}

// Old revisions, and HashKV.
absl::Status History::CompareHistory() {
  const int64_t oldest = std::max<int64_t>(model_.compacted(), 1);
  const auto draw = [&] {
    return oldest + static_cast<int64_t>(
                        random_.Below(static_cast<uint64_t>(model_.revision() - oldest + 1)));
  };
  for (int i = 0; i < 3; ++i) {
    const int64_t revision = draw();
    ASSIGN_OR_RETURN(const Keys keys, ReadKeys(revision));
    if (const Keys want = model_.At(revision); keys != want) {
      return Differs(fmt::format("keys at the old revision {}:{}, expected{}", revision,
                                 Describe(keys), Describe(want)));
    }
  }
  if (model_.compacted() > 1 && ReadKeys(model_.compacted() - 1).ok())
    return Differs(fmt::format("a read below the compacted revision {}", model_.compacted()));
  for (int64_t revision : {model_.revision(), draw()}) {
    if (revision <= model_.compacted()) continue;  // stored ones follow the compaction before
    const auto want = model_.HashAt(revision);
    if (!want) continue;
    ASSIGN_OR_RETURN(const mvcc::HashKv got, process_->member().store().HashByRevision(
                                                 revision == model_.revision() ? 0 : revision));
    if (got.hash != *want || got.hash_revision != revision)
      return Differs(
          fmt::format("HashKV at {} is {:08x}, expected {:08x}", revision, got.hash, *want));
  }
  return absl::OkStatus();
}

// Once no compaction is under way, what they had to remove is gone, and nothing else.
absl::Status History::CompareRecords() {
  if (process_->member().store().stats().compactions_running > 0) return absl::OkStatus();
  std::vector<std::pair<int64_t, int64_t>> records;
  RETURN_IF_ERROR(process_->member().backend().View()->Scan({}, [&](const mvcc::Record& record) {
    records.emplace_back(record.revision.main, record.revision.sub);
    return true;
  }));
  const auto want = model_.Records();
  if (records == want) return absl::OkStatus();
  std::vector<std::pair<int64_t, int64_t>> differing;
  std::set_symmetric_difference(records.begin(), records.end(), want.begin(), want.end(),
                                std::back_inserter(differing));
  return Differs(
      fmt::format("{} records, expected {}; the first that differs is {}_{}, compacted "
                  "is {}",
                  records.size(), want.size(), differing.front().first, differing.front().second,
                  model_.compacted()));
}

// The db file as the fault left it.
absl::Status History::CheckFile() {
  const auto info = disk_.Stat(kDbPath);
  // One that is no longer than a fresh file may be half made; the member makes it again.
  if (!info.ok() || info->size_bytes <= kFreshBytes) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      const auto db,
      bolt::DB::Open(disk_, kDbPath, {.read_only = true, .map_reserve_bytes = 1 << 20}, clock_));
  const bolt::CheckReport report = bolt::Check(*db->BeginRead());
  if (report.ok()) return absl::OkStatus();
  return Differs("check: " + report.findings.front());
}

// After a restart: everything acknowledged is there, and of what was under way the first requests
// or none.
absl::Status History::Settle() {
  Model candidate = model_;
  const absl::Status without = Compare(candidate);
  absl::Status status = without;
  size_t kept = 0;
  for (; !status.ok() && kept < pending_.size(); ++kept) {
    candidate.Apply(pending_[kept].op);
    status = Compare(candidate);
  }
  if (!status.ok()) {
    return base::Annotate(
        without, fmt::format("after a restart, with {} requests unanswered", pending_.size()));
  }
  counters_.kept_unanswered += kept;
  counters_.lost_unanswered += pending_.size() - kept;
  Mix(kept);
  model_ = std::move(candidate);
  pending_.clear();
  expected_.clear();
  settled_ = true;
  RETURN_IF_ERROR(CheckTwins());
  return CompareHistory();
}

}  // namespace sim
