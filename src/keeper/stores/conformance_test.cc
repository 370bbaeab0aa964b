// Every store and decorator that needs nothing from outside, against the one suite.
#include "base/random.h"
#include "stores/conformance_for_test.h"
#include "stores/decorators.h"
#include "stores/file_store.h"
#include "stores/testing/faulty_store.h"
#include "stores/testing/manual_time.h"
#include "stores/testing/memory_store.h"
#include "support/memory_files.h"

namespace stores {
namespace {

class Holder : public StoreFixture {
 public:
  Store& store() override { return *store_; }
  const base::Clock& clock() override { return clock_; }

 protected:
  ManualClock clock_;
  ManualSleeper sleeper_{clock_};
  base::SeededRandom random_{1};
  std::unique_ptr<Store> store_;
};

class InMemory final : public Holder {
 public:
  InMemory() { store_ = std::make_unique<MemoryStore>(clock_); }
};

class OnDisk final : public Holder {
 public:
  OnDisk() {
    store_ =
        FileStore::Open(base::PosixFiles(), clock_, random_, {.root = scratch_.path()}).value();
  }

 private:
  base::ScratchDirectory scratch_;
};

class OnMemoryFiles final : public Holder {
 public:
  OnMemoryFiles() {
    EXPECT_OK(files_.MakeDirectory("/store", 0700));
    store_ = FileStore::Open(files_, clock_, random_, {.root = "/store"}).value();
  }

 private:
  test_support::MemoryFiles files_;
};

// Faults that a repetition heals are not seen behind Retrying.
class FaultyButRetried final : public Holder {
 public:
  FaultyButRetried() {
    auto faulty =
        std::make_unique<FaultyStore>(std::make_unique<MemoryStore>(clock_), 7,
                                      FaultRates{.unavailable = 4,
                                                 .lost_answer = 4,
                                                 .cut = 3,
                                                 .slow = 10,
                                                 .slow_for = std::chrono::milliseconds(20)},
                                      sleeper_);
    store_ = std::make_unique<Retrying>(std::move(faulty), clock_, random_, sleeper_,
                                        RetryPolicy{.attempts_max = 40,
                                                    .first_delay = std::chrono::milliseconds(1),
                                                    .delay_max = std::chrono::milliseconds(10)});
  }
};

class Decorated final : public Holder {
 public:
  Decorated() {
    auto memory = std::make_unique<MemoryStore>(clock_);
    for (const char* name : {"other", "pre", "pre-fix/x", "pre0"}) {
      EXPECT_OK(memory->Put(name, BytesContent("not below the prefix"),
                            Deadline::In(clock_, std::chrono::minutes(1))));
    }
    store_ = std::make_unique<Prefixed>(std::move(memory), "pre/");
    store_ = std::make_unique<ConcurrencyLimited>(std::move(store_), 2, clock_);
    store_ = std::make_unique<BandwidthLimited>(std::move(store_), 10'000'000, clock_, sleeper_);
  }
};

template <typename Fixture>
StoreUnderTest Make(std::string name) {
  return {.name = std::move(name), .make = [] { return std::make_unique<Fixture>(); }};
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreConformance,
                         testing::Values(Make<InMemory>("Memory"), Make<OnDisk>("Folder"),
                                         Make<OnMemoryFiles>("SimulatedFolder"),
                                         Make<FaultyButRetried>("FaultyButRetried"),
                                         Make<Decorated>("Decorated")),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace stores
