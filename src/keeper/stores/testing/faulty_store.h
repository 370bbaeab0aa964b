// A store that goes wrong in every way stores do, by chance or at a test's word. Thread-safe; a run
// is reproducible from its seed only if the order of the calls is.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "stores/decorators.h"

namespace stores {

// Each is "one in n calls"; 0 is never.
struct FaultRates {
  uint64_t unavailable = 0;  // no effect, Unavailable
  uint64_t lost_answer = 0;  // the effect of a write, but Unavailable
  uint64_t cut = 0;          // a Get gives some of its bytes, then Unavailable
  uint64_t slow = 0;         // `slow_for` passes first
  uint64_t lie = 0;          // a write is OK and has no effect
  uint64_t lose = 0;         // a Put is OK, and the object is gone afterwards
  uint64_t damage = 0;       // a Put is OK, and one byte of the object differs
  uint64_t truncate = 0;     // a Put is OK, and the object ends early
  uint64_t late_list = 0;    // a List does not know of the latest writes
  base::Duration slow_for = std::chrono::seconds(5);
};

class FaultyStore final : public Decorator {
 public:
  FaultyStore(std::unique_ptr<Store> inner, uint64_t seed, FaultRates rates, Sleeper& sleeper)
      : Decorator(std::move(inner)), sleeper_(sleeper), random_(seed), rates_(rates) {}

  // From now on: every write fails (ResourceExhausted, PermissionDenied), every call fails.
  void SetFull(bool full);
  void SetReadOnly(bool read_only);
  void SetDown(bool down);
  void SetRates(const FaultRates& rates);

  // Does it to a stored object. The object must be there; a damaged one must not be empty.
  absl::Status DamageObject(std::string_view name, size_t at, const Deadline& deadline);
  absl::Status TruncateObject(std::string_view name, size_t bytes, const Deadline& deadline);
  absl::Status LoseObject(std::string_view name, const Deadline& deadline);

  // How many faults of chance there were.
  uint64_t faults() const;

  absl::Status Put(std::string_view name, const Content& content,
                   const Deadline& deadline) override;
  absl::Status Replace(std::string_view name, std::string_view bytes,
                       const Deadline& deadline) override;
  absl::Status Get(std::string_view name, uint64_t offset, uint64_t length, vault::Sink& sink,
                   const Deadline& deadline) override;
  absl::StatusOr<uint64_t> Stat(std::string_view name, const Deadline& deadline) override;
  absl::StatusOr<std::vector<ObjectInfo>> List(const ListRequest& request,
                                               const Deadline& deadline) override;
  absl::Status Delete(std::string_view name, const Deadline& deadline) override;
  absl::StatusOr<Description> Describe(const Deadline& deadline) override;
  absl::StatusOr<uint64_t> Sweep(base::Duration older_than, const Deadline& deadline) override;

 private:
  struct Write {
    std::string name;
    bool deleted = false;
    uint64_t bytes = 0;  // of what was deleted
  };

  bool Happens(uint64_t FaultRates::*rate);
  uint64_t Below(uint64_t bound);
  // What comes before any call, or before a write.
  absl::Status Before(const Deadline& deadline);
  absl::Status BeforeWrite(const Deadline& deadline);
  absl::Status Answer(absl::Status status);
  void Remember(Write write);
  absl::Status Rewrite(std::string_view name, std::string_view bytes, const Deadline& deadline);

  Sleeper& sleeper_;
  mutable std::mutex mutex_;  // leaf; guards what follows
  base::SeededRandom random_;
  FaultRates rates_;
  bool full_ = false;
  bool read_only_ = false;
  bool down_ = false;
  uint64_t faults_ = 0;
  std::deque<Write> latest_;  // what a late list does not know of; bounded
};

}  // namespace stores
