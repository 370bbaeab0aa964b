// Alarms of all members: NOSPACE and CORRUPT. The apply thread changes them; any thread reads.
// Stored in bucket `alarm`, the encoded AlarmMember being the key (reference on-disk.md 2.4).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "mvcc/backend.h"

namespace member {

enum class AlarmType : int { kNone = 0, kNoSpace = 1, kCorrupt = 2 };

struct Alarm {
  uint64_t member_id = 0;
  int type = 0;
  auto operator<=>(const Alarm&) const = default;
};

// {1: memberID, 2: alarm}, zeros left out.
std::string EncodeAlarm(const Alarm& alarm);

class Alarms {
 public:
  explicit Alarms(mvcc::Backend& backend) : backend_(backend) {}

  // --- apply thread ---
  absl::Status Load();
  // Both return what is to be answered: the entry, or nothing (type NONE; or nothing to take back).
  std::vector<Alarm> Activate(const Alarm& alarm);
  std::vector<Alarm> Deactivate(const Alarm& alarm);

  // --- any thread ---
  // Of all types for kNone, sorted by member and type.
  std::vector<Alarm> List(int type) const;
  bool HasNoSpace() const { return no_space_.load(std::memory_order_acquire); }
  bool HasCorrupt() const { return corrupt_.load(std::memory_order_acquire); }

 private:
  void Refresh();

  mvcc::Backend& backend_;
  mutable std::mutex mutex_;
  std::vector<Alarm> alarms_;  // sorted; guarded by mutex_
  std::atomic<bool> no_space_{false};
  std::atomic<bool> corrupt_{false};
};

}  // namespace member
