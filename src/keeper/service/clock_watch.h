// Whether this machine's wall clock can be believed. A clock that was set ahead makes everything
// old, and retention would delete what it is to keep; so it waits until the clock is confirmed:
// because it was set back by as much, because a store with a clock of its own agrees, or because as
// much time went by since as the recovery window is long. By then nothing is within the window that
// was stored before, whichever clock was right; and a keeper that stood still for a month, which
// looks the same, waits no longer than that. Thread-safe.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "catalog/inventory.h"
#include "config/config.h"
#include "service/setup.h"

namespace service {

// What is remembered of it between two runs.
struct ClockState {
  catalog::Time looked{0};  // the last time; 0: never
  // By how much it was set ahead since it was last believed; negative: back, until it has passed
  // every time that it showed before. 0: it is believed.
  base::Duration ahead{0};
  catalog::Time set_at{0};  // when it was last set, by the clock as it is since; 0: never
};

class ClockWatch {
 public:
  // `confirmed_after` is the longest time for which retention waits.
  ClockWatch(base::Clock& clock, std::string cluster, base::Duration confirmed_after)
      : clock_(clock), cluster_(std::move(cluster)), confirmed_after_(confirmed_after) {}

  // Goes on from what an earlier run remembered. A clock that is behind that was set back; one that
  // is more than an hour ahead of it was set, or no keeper ran: nobody knows.
  void GoOn(const ClockState& remembered);
  // Compares the wall clock with the steady one, and says in the log when it was set. Returns the
  // wall time that was compared.
  catalog::Time Look();
  // A clock elsewhere agrees.
  void Confirm();

  ClockState state() const;
  uint64_t steps() const;  // seen by this object

 private:
  void SetByLocked(base::Duration step, catalog::Time wall);
  void ConfirmLocked(const std::string& why);

  base::Clock& clock_;
  const std::string cluster_;
  const base::Duration confirmed_after_;
  mutable std::mutex mutex_;
  ClockState state_;
  std::optional<base::Instant> before_;
  uint64_t steps_ = 0;
};

// How long retention waits for a clock that nothing confirms.
base::Duration ConfirmedAfter(const config::Retention& retention);
// In words, for people; empty: it is believed.
std::string ClockText(const ClockState& state, const config::Retention& retention);

// What the stores that have a clock of their own say of ours.
struct StoreClocks {
  std::string store;           // the one that ours is farthest ahead of; empty: none has one
  base::Duration ahead{0};     // of that one; negative: behind
  base::Duration farthest{0};  // the largest difference to any, either way
  bool Agree() const;
};
StoreClocks AskClocks(Environment env, const std::vector<OpenedStore>& stores);
// Why nothing may be deleted by this clock; empty: it may.
std::string ClockObjection(const StoreClocks& clocks);

}  // namespace service
