// A store beside which a process is killed at one of its calls, and a loop that tries each.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/testing.h"
#include "stores/decorators.h"

namespace stores {

// When the process dies, counted in calls to any of its stores.
struct Death {
  uint64_t at = 0;     // the call; 0: never
  bool after = false;  // its effect is there, and only the answer is lost
  uint64_t calls = 0;
  bool dead() const { return at > 0 && calls >= at; }
};

// Not thread-safe. `death` outlives it.
class MortalStore final : public Decorator {
 public:
  MortalStore(std::unique_ptr<Store> inner, Death& death)
      : Decorator(std::move(inner)), death_(death) {}
  absl::Status Put(std::string_view name, const Content& content,
                   const Deadline& deadline) override {
    return Call([&] { return Decorator::Put(name, content, deadline); });
  }
  absl::Status Replace(std::string_view name, std::string_view bytes,
                       const Deadline& deadline) override {
    return Call([&] { return Decorator::Replace(name, bytes, deadline); });
  }
  absl::Status Get(std::string_view name, uint64_t offset, uint64_t length, vault::Sink& sink,
                   const Deadline& deadline) override {
    return Call([&] { return Decorator::Get(name, offset, length, sink, deadline); });
  }
  absl::StatusOr<uint64_t> Stat(std::string_view name, const Deadline& deadline) override {
    uint64_t bytes = 0;
    RETURN_IF_ERROR(Call([&]() -> absl::Status {
      ASSIGN_OR_RETURN(bytes, Decorator::Stat(name, deadline));
      return absl::OkStatus();
    }));
    return bytes;
  }
  absl::StatusOr<std::vector<ObjectInfo>> List(const ListRequest& request,
                                               const Deadline& deadline) override {
    std::vector<ObjectInfo> listed;
    RETURN_IF_ERROR(Call([&]() -> absl::Status {
      ASSIGN_OR_RETURN(listed, Decorator::List(request, deadline));
      return absl::OkStatus();
    }));
    return listed;
  }
  absl::Status Delete(std::string_view name, const Deadline& deadline) override {
    if (keeps_) return absl::PermissionDeniedError("no right to delete");
    return Call([&] { return Decorator::Delete(name, deadline); });
  }
  void SetKeeps(bool keeps) { keeps_ = keeps; }

 private:
  template <typename F>
  absl::Status Call(F call) {
    const bool was_dead = death_.dead();
    ++death_.calls;
    const absl::Status killed = absl::UnavailableError("killed");
    if (was_dead || (death_.dead() && !death_.after)) return killed;
    const absl::Status status = call();
    return death_.dead() ? killed : status;
  }

  Death& death_;
  bool keeps_ = false;
};

// Kills what `attempt` does at its first call to a store, then anew at its second, and so on until
// it comes through; first before each call has its effect, then after. `begin` makes the world anew
// before each attempt, `check` looks at what a kill left. The one that came through must be OK, and
// must have taken more than `kills_min` calls.
template <typename Begin, typename Attempt, typename Check>
void ExpectGoesOnAfterEachKill(Death& death, uint64_t kills_min, Begin begin, Attempt attempt,
                               Check check) {
  for (const bool after : {false, true}) {
    uint64_t kills = 0;
    for (uint64_t at = 1;; ++at) {
      SCOPED_TRACE(fmt::format("killed {} call {}", after ? "after" : "before", at));
      begin();
      death = {.at = at, .after = after};
      const absl::Status status = attempt();
      const bool died = death.dead();
      death = {};
      if (!died) {
        ASSERT_OK(status);
        break;
      }
      ++kills;
      check();
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(kills, kills_min);
  }
}

}  // namespace stores
