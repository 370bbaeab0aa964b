// Stores around a store. Each owns the one inside, is as thread-safe as every store, and leaves the
// promises of store.h as they are unless it says otherwise. References outlive the decorator.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/clock.h"
#include "base/random.h"
#include "stores/store.h"

namespace stores {

// Passes everything on. What decorators have in common.
class Decorator : public Store {
 public:
  explicit Decorator(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}
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

 protected:
  Store& inner() { return *inner_; }

 private:
  const std::unique_ptr<Store> inner_;
};

struct RetryPolicy {
  int attempts_max = 6;
  base::Duration first_delay = std::chrono::milliseconds(200);  // doubled each time
  base::Duration delay_max = std::chrono::seconds(30);
};

// Repeats what answers Unavailable or Aborted, after a pause of a random length between half of the
// delay and all of it, as long as the deadline allows. All verbs may be repeated (store.h says
// why); a Get goes on behind the last byte that came, and an error of its sink is not the store's.
class Retrying final : public Decorator {
 public:
  Retrying(std::unique_ptr<Store> inner, const base::Clock& clock, base::Random& random,
           Sleeper& sleeper, RetryPolicy policy)
      : Decorator(std::move(inner)),
        clock_(clock),
        random_(random),
        sleeper_(sleeper),
        policy_(policy) {}

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
  template <typename Call>
  auto Repeat(const Deadline& deadline, const Call& call) -> decltype(call());
  // Whether another attempt may follow this one; waits for it.
  bool Pause(const absl::Status& status, int attempt, const Deadline& deadline);

  const base::Clock& clock_;
  base::Random& random_;
  Sleeper& sleeper_;
  const RetryPolicy policy_;
  std::mutex mutex_;  // leaf; guards random_
};

// How fast bytes may go. Thread-safe; what several threads take is counted together.
class Throttle {
 public:
  // Requires bytes_per_second > 0.
  Throttle(uint64_t bytes_per_second, const base::Clock& clock, Sleeper& sleeper)
      : bytes_per_second_(bytes_per_second), clock_(clock), sleeper_(sleeper) {}
  // Waits until the bytes taken before have had their time.
  absl::Status Take(size_t bytes, const Deadline& deadline);

 private:
  const uint64_t bytes_per_second_;
  const base::Clock& clock_;
  Sleeper& sleeper_;
  std::mutex mutex_;  // leaf; guards what follows
  base::Duration free_at_{};
};

// Put and Get move their bytes no faster than that, all calls together.
class BandwidthLimited final : public Decorator {
 public:
  BandwidthLimited(std::unique_ptr<Store> inner, uint64_t bytes_per_second,
                   const base::Clock& clock, Sleeper& sleeper)
      : Decorator(std::move(inner)), throttle_(bytes_per_second, clock, sleeper) {}
  absl::Status Put(std::string_view name, const Content& content,
                   const Deadline& deadline) override;
  absl::Status Get(std::string_view name, uint64_t offset, uint64_t length, vault::Sink& sink,
                   const Deadline& deadline) override;

 private:
  Throttle throttle_;
};

// At most `calls_max` calls are inside at a time; the others wait for their turn or their deadline.
class ConcurrencyLimited final : public Decorator {
 public:
  // Requires calls_max > 0.
  ConcurrencyLimited(std::unique_ptr<Store> inner, int calls_max, const base::Clock& clock)
      : Decorator(std::move(inner)), clock_(clock), free_(calls_max) {}

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
  template <typename Call>
  auto Within(const Deadline& deadline, const Call& call) -> decltype(call());

  const base::Clock& clock_;
  std::mutex mutex_;  // leaf; guards what follows
  std::condition_variable freed_;
  int free_;
};

// Reads, but says what it would write instead of writing it: its writes are OK and without effect.
class DryRun final : public Decorator {
 public:
  // `say` receives one line a write; called by one thread at a time.
  DryRun(std::unique_ptr<Store> inner, absl::AnyInvocable<void(std::string_view)> say)
      : Decorator(std::move(inner)), say_(std::move(say)) {}
  absl::Status Put(std::string_view name, const Content& content,
                   const Deadline& deadline) override;
  absl::Status Replace(std::string_view name, std::string_view bytes,
                       const Deadline& deadline) override;
  absl::Status Delete(std::string_view name, const Deadline& deadline) override;
  absl::StatusOr<Description> Describe(const Deadline& deadline) override;
  absl::StatusOr<uint64_t> Sweep(base::Duration older_than, const Deadline& deadline) override;

 private:
  void Say(std::string_view line);

  std::mutex mutex_;  // leaf; guards say_
  absl::AnyInvocable<void(std::string_view)> say_;
};

// Shows what lies below a prefix as a store of its own. Sweep still concerns the whole store.
class Prefixed final : public Decorator {
 public:
  // `prefix` is a name and a slash: "prod-trade/".
  Prefixed(std::unique_ptr<Store> inner, std::string prefix)
      : Decorator(std::move(inner)), prefix_(std::move(prefix)) {}
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

 private:
  const std::string prefix_;
};

}  // namespace stores
