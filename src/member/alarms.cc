#include "member/alarms.h"

#include <algorithm>

#include "base/status.h"
#include "base/wire.h"

namespace member {

std::string EncodeAlarm(const Alarm& alarm) {
  std::string out;
  base::wire::AppendNonZero(&out, 1, alarm.member_id);
  base::wire::AppendNonZero(&out, 2, static_cast<uint64_t>(alarm.type));
  return out;
}

absl::Status Alarms::Load() {
  std::vector<Alarm> loaded;
  absl::Status bad;
  RETURN_IF_ERROR(
      backend_.View()->ForEach(mvcc::Bucket::kAlarm, [&](std::string_view key, std::string_view) {
        Alarm alarm;
        base::wire::Reader r(key);
        while (r.Next()) {
          if (r.field() == 1) alarm.member_id = r.varint();
          if (r.field() == 2) alarm.type = static_cast<int>(r.varint());
        }
        if (!r.ok()) {
          bad = base::MakeStatus(absl::StatusCode::kDataLoss,
                                 "db file {}: bucket alarm holds a key that is no alarm",
                                 backend_.path());
          return false;
        }
        loaded.push_back(alarm);
        return true;
      }));
  RETURN_IF_ERROR(bad);
  std::sort(loaded.begin(), loaded.end());
  const std::lock_guard lock(mutex_);
  alarms_ = std::move(loaded);
  Refresh();
  return absl::OkStatus();
}

std::vector<Alarm> Alarms::Activate(const Alarm& alarm) {
  if (alarm.type == 0) return {};
  const std::lock_guard lock(mutex_);
  const auto at = std::lower_bound(alarms_.begin(), alarms_.end(), alarm);
  if (at == alarms_.end() || *at != alarm) {
    alarms_.insert(at, alarm);
    backend_.Put(mvcc::Bucket::kAlarm, EncodeAlarm(alarm), "");
    Refresh();
  }
  return {alarm};
}

std::vector<Alarm> Alarms::Deactivate(const Alarm& alarm) {
  const std::lock_guard lock(mutex_);
  const auto at = std::lower_bound(alarms_.begin(), alarms_.end(), alarm);
  if (at == alarms_.end() || *at != alarm) return {};
  alarms_.erase(at);
  backend_.Delete(mvcc::Bucket::kAlarm, EncodeAlarm(alarm));
  Refresh();
  return {alarm};
}

std::vector<Alarm> Alarms::List(int type) const {
  const std::lock_guard lock(mutex_);
  std::vector<Alarm> result;
  for (const Alarm& alarm : alarms_) {
    if (type == 0 || alarm.type == type) result.push_back(alarm);
  }
  return result;
}

void Alarms::Refresh() {
  const auto has = [&](AlarmType type) {
    return std::any_of(alarms_.begin(), alarms_.end(),
                       [&](const Alarm& alarm) { return alarm.type == static_cast<int>(type); });
  };
  no_space_.store(has(AlarmType::kNoSpace), std::memory_order_release);
  corrupt_.store(has(AlarmType::kCorrupt), std::memory_order_release);
}

}  // namespace member
