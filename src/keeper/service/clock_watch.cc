#include "service/clock_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/time_text.h"

namespace service {
namespace {

// A clock that moves by more than this against the steady one was set, or the machine was
// suspended.
constexpr base::Duration kStepMin = std::chrono::minutes(1);
// A keeper that was away for less is taken at the clock's word: it costs a recovery window no more.
constexpr base::Duration kAwayMax = std::chrono::hours(1);
constexpr base::Duration kConfirmedAfterMin = std::chrono::hours(24);
constexpr base::Duration kAskTimeout = std::chrono::seconds(10);

std::string Seconds(base::Duration time) {
  return fmt::format("{} s", std::chrono::duration_cast<std::chrono::seconds>(time).count());
}

}  // namespace

void ClockWatch::GoOn(const ClockState& remembered) {
  const std::lock_guard lock(mutex_);
  state_ = remembered;
  const base::Instant now = base::Now(clock_);
  before_ = now;
  if (state_.looked > catalog::Time(0)) {
    const base::Duration away = now.wall - state_.looked;
    if (away > kAwayMax || away < -kStepMin) SetByLocked(away, now.wall);
  }
  state_.looked = now.wall;
}

catalog::Time ClockWatch::Look() {
  const std::lock_guard lock(mutex_);
  const base::Instant now = base::Now(clock_);
  const base::Duration step = before_.has_value() ? StepBetween(*before_, now) : base::Duration(0);
  before_ = now;
  state_.looked = now.wall;
  if (std::chrono::abs(step) >= kStepMin) SetByLocked(step, now.wall);
  const base::Duration since = now.wall - state_.set_at;
  if (state_.ahead > base::Duration(0) && since >= confirmed_after_) {
    ConfirmLocked("nothing contradicted it for as long as retention waits");
  } else if (state_.ahead < base::Duration(0) && since >= -state_.ahead) {
    ConfirmLocked("it is past every time that it showed before");
  }
  return now.wall;
}

void ClockWatch::SetByLocked(base::Duration step, catalog::Time wall) {
  ++steps_;
  state_.ahead += step;
  state_.set_at = wall;
  if (std::chrono::abs(state_.ahead) < kStepMin) return ConfirmLocked("it was set back to rights");
  LOG_WARN(step > base::Duration(0)
               ? "this machine's clock is ahead of what it was: it was set, or nothing ran"
               : "this machine's clock was set back",
           {"cluster", cluster_}, {"by", Seconds(std::chrono::abs(step))},
           {"now", base::Rfc3339(wall)},
           {"retention", state_.ahead > base::Duration(0) ? "waits" : "goes on"});
}

void ClockWatch::ConfirmLocked(const std::string& why) {
  LOG_INFO("this machine's clock is believed", {"cluster", cluster_}, {"why", why});
  state_.ahead = base::Duration(0);
}

void ClockWatch::Confirm() {
  const std::lock_guard lock(mutex_);
  if (state_.ahead != base::Duration(0)) ConfirmLocked("the clocks of stores agree");
}

ClockState ClockWatch::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

uint64_t ClockWatch::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

base::Duration ConfirmedAfter(const config::Retention& retention) {
  return std::max(retention.window, kConfirmedAfterMin);
}

std::string ClockText(const ClockState& state, const config::Retention& retention) {
  if (state.ahead > base::Duration(0)) {
    return fmt::format(
        "this machine's clock is {} ahead of what it was: it was set at {}, or no keeper ran "
        "before "
        "that; retention waits until it is set back, a store's clock agrees, or {}",
        Seconds(state.ahead), base::Rfc3339(state.set_at),
        base::Rfc3339(state.set_at + ConfirmedAfter(retention)));
  }
  if (state.ahead < base::Duration(0)) {
    return fmt::format(
        "this machine's clock was set back by {} at {}: it shows that time twice, where only "
        "revisions name a moment exactly",
        Seconds(-state.ahead), base::Rfc3339(state.set_at));
  }
  return {};
}

bool StoreClocks::Agree() const { return !store.empty() && farthest < kStepMin; }

StoreClocks AskClocks(Environment env, const std::vector<OpenedStore>& stores) {
  StoreClocks clocks;
  for (const OpenedStore& store : stores) {
    if (store.store == nullptr) continue;
    // A store that does not answer says nothing of clocks; that it does not is said elsewhere.
    const auto said = store.store->Describe(stores::Deadline::In(env.clock, kAskTimeout));
    if (!said.ok() || !said->clock_skew.has_value()) continue;
    const base::Duration ahead = -*said->clock_skew;
    if (clocks.store.empty() || ahead > clocks.ahead) {
      clocks.store = store.name;
      clocks.ahead = ahead;
    }
    clocks.farthest = std::max(clocks.farthest, std::chrono::abs(ahead));
  }
  return clocks;
}

std::string ClockObjection(const StoreClocks& clocks) {
  if (clocks.store.empty() || clocks.ahead < kStepMin) return {};
  return fmt::format("this machine's clock is {} ahead of store {}'s: set it",
                     Seconds(clocks.ahead), clocks.store);
}

}  // namespace service
