#include "stores/decorators.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/random.h"
#include "base/testing.h"
#include "stores/testing/faulty_store.h"
#include "stores/testing/manual_time.h"
#include "stores/testing/memory_store.h"

namespace stores {
namespace {

using base::IsOkAndHolds;
using base::StatusIs;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class DecoratorTest : public testing::Test {
 protected:
  DecoratorTest() {
    auto memory = std::make_unique<MemoryStore>(clock_);
    memory_ = memory.get();
    auto faulty = std::make_unique<FaultyStore>(std::move(memory), 1, FaultRates{}, sleeper_);
    faulty_ = faulty.get();
    store_ = std::move(faulty);
  }
  Deadline Within(base::Duration duration) const { return Deadline::In(clock_, duration); }
  Deadline Soon() const { return Within(seconds(3600)); }
  void Retry(RetryPolicy policy) {
    store_ = std::make_unique<Retrying>(std::move(store_), clock_, random_, sleeper_, policy);
  }

  ManualClock clock_;
  ManualSleeper sleeper_{clock_};
  base::SeededRandom random_{1};
  MemoryStore* memory_;
  FaultyStore* faulty_;
  std::unique_ptr<Store> store_;
};

TEST_F(DecoratorTest, RetryingGivesUpAfterItsAttempts) {
  Retry({.attempts_max = 4, .first_delay = seconds(1), .delay_max = seconds(3)});
  faulty_->SetDown(true);
  EXPECT_THAT(store_->Stat("a", Soon()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("after 4 attempts")));
  EXPECT_EQ(sleeper_.slept(), 3);
  // Three pauses, of at most 1, 2 and 3 s and at least half of it.
  EXPECT_LE(clock_.Monotonic(), seconds(6));
  EXPECT_GE(clock_.Monotonic(), seconds(3));
}

TEST_F(DecoratorTest, RetryingLeavesLastingErrorsAlone) {
  Retry({});
  faulty_->SetFull(true);
  EXPECT_THAT(store_->Put("a", BytesContent("x"), Soon()),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(store_->Stat("a", Soon()), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(sleeper_.slept(), 0);
}

TEST_F(DecoratorTest, RetryingDoesNotSleepPastTheDeadline) {
  Retry({.attempts_max = 100, .first_delay = seconds(1), .delay_max = seconds(1)});
  faulty_->SetDown(true);
  EXPECT_THAT(store_->Stat("a", Within(seconds(5))), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_LE(clock_.Monotonic(), seconds(5));
  std::atomic<bool> cancelled = true;
  Deadline deadline = Soon();
  deadline.cancelled = &cancelled;
  const int slept = sleeper_.slept();
  EXPECT_THAT(store_->Stat("a", deadline), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(sleeper_.slept(), slept);
}

TEST_F(DecoratorTest, RetryingGoesOnWhereAGetBroke) {
  const std::string bytes(200'000, 'g');
  ASSERT_OK(memory_->Put("a", BytesContent(bytes), Soon()));
  Retry({.attempts_max = 1000});
  faulty_->SetRates({.cut = 2});
  for (int i = 0; i < 30; ++i) {
    std::string got;
    vault::StringSink sink(&got, bytes.size());  // not one byte twice
    ASSERT_OK(store_->Get("a", 1'000, 150'000, sink, Soon()));
    EXPECT_EQ(got.size(), 150'000U);
  }
  EXPECT_GT(faulty_->faults(), 10U);
}

TEST_F(DecoratorTest, RetryingDoesNotRepeatWhatItsSinkRefuses) {
  ASSERT_OK(memory_->Put("a", BytesContent("0123456789"), Soon()));
  Retry({});
  class Broken final : public vault::Sink {
   public:
    absl::Status Write(std::string_view) override {
      ++writes;
      return absl::UnavailableError("mine");
    }
    absl::Status Finish() override { return absl::OkStatus(); }
    int writes = 0;
  } broken;
  EXPECT_THAT(store_->Get("a", 0, kToTheEnd, broken, Soon()),
              StatusIs(absl::StatusCode::kUnavailable, "mine"));
  EXPECT_EQ(broken.writes, 1);
}

TEST_F(DecoratorTest, BandwidthIsKeptOverAllCalls) {
  store_ = std::make_unique<BandwidthLimited>(std::move(store_), 1'000'000, clock_, sleeper_);
  const std::string bytes(2'000'000, 'b');
  ASSERT_OK(store_->Put("a", BytesContent(bytes), Soon()));
  std::string got;
  vault::StringSink sink(&got, bytes.size());
  ASSERT_OK(store_->Get("a", 0, kToTheEnd, sink, Soon()));
  // 4 MB at 1 MB/s, less the last piece, which nothing waits for.
  EXPECT_NEAR(static_cast<double>(clock_.Monotonic().count()), 4e9, 1e8);
  EXPECT_THAT(store_->Put("b", BytesContent(bytes), Within(seconds(1))),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

// Counts the calls inside and holds them until it is told.
class Gate final : public Decorator {
 public:
  using Decorator::Decorator;
  absl::StatusOr<uint64_t> Stat(std::string_view name, const Deadline& deadline) override {
    std::unique_lock lock(mutex_);
    ++inside_;
    most_ = std::max(most_, inside_);
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    --inside_;
    lock.unlock();
    return inner().Stat(name, deadline);
  }
  void WaitForInside(int n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return inside_ == n; });
  }
  void OpenUp() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  int most() {
    std::lock_guard lock(mutex_);
    return most_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  int most_ = 0;
  bool open_ = false;
};

TEST_F(DecoratorTest, ConcurrencyIsBounded) {
  ASSERT_OK(memory_->Put("a", BytesContent("x"), Soon()));
  auto gate_owned = std::make_unique<Gate>(std::move(store_));
  Gate* const gate = gate_owned.get();
  ConcurrencyLimited limited(std::move(gate_owned), 2, clock_);
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] { EXPECT_THAT(limited.Stat("a", Soon()), IsOkAndHolds(1U)); });
  }
  gate->WaitForInside(2);
  // Whoever waits in vain says so when its time is over.
  std::thread late([&] {
    EXPECT_THAT(limited.Stat("a", Within(base::Duration::zero())),
                StatusIs(absl::StatusCode::kDeadlineExceeded));
  });
  late.join();
  gate->OpenUp();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(gate->most(), 2);
  EXPECT_THAT(limited.Stat("a", Soon()), IsOkAndHolds(1U)) << "every place was given back";
}

TEST_F(DecoratorTest, DryRunReadsAndOnlySaysWhatItWouldWrite) {
  ASSERT_OK(memory_->Put("a", BytesContent("x"), Soon()));
  std::vector<std::string> said;
  DryRun dry(std::move(store_), [&](std::string_view line) { said.emplace_back(line); });
  EXPECT_OK(dry.Put("b", BytesContent("12345"), Soon()));
  EXPECT_OK(dry.Replace("head", "123", Soon()));
  EXPECT_OK(dry.Delete("a", Soon()));
  EXPECT_THAT(dry.Sweep(seconds(1), Soon()), IsOkAndHolds(0U));
  EXPECT_THAT(dry.Put("../b", BytesContent("1"), Soon()),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(said, (std::vector<std::string>{"would store b, 5 bytes", "would replace head, 3 bytes",
                                            "would delete a",
                                            "would remove what interrupted uploads left"}));
  EXPECT_THAT(dry.Stat("b", Soon()), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(dry.Stat("a", Soon()), IsOkAndHolds(1U));
  ASSERT_OK_AND_ASSIGN(const Description description, dry.Describe(Soon()));
  EXPECT_EQ(description.warnings.size(), 1U);
}

TEST_F(DecoratorTest, PrefixedShowsOnlyWhatIsBelow) {
  ASSERT_OK(memory_->Put("p/a", BytesContent("x"), Soon()));
  ASSERT_OK(memory_->Put("q/a", BytesContent("yy"), Soon()));
  Prefixed below(std::move(store_), "p/");
  ASSERT_OK(below.Put("b", BytesContent("z"), Soon()));
  EXPECT_THAT(memory_->Stat("p/b", Soon()), IsOkAndHolds(1U));
  EXPECT_EQ(below.List({}, Soon()).value(),
            (std::vector<ObjectInfo>{{.name = "a", .bytes = 1}, {.name = "b", .bytes = 1}}));
  EXPECT_EQ(below.List({.after = "a"}, Soon()).value(),
            (std::vector<ObjectInfo>{{.name = "b", .bytes = 1}}));
}

// What the faulty store is for: each way to go wrong is seen by whoever reads back.
TEST_F(DecoratorTest, FaultsOfEveryKindHappen) {
  const std::string bytes(1'000, 'f');
  const auto put_then_read = [&](FaultRates rates, std::string_view name) {
    faulty_->SetRates(rates);
    EXPECT_OK(store_->Put(name, BytesContent(bytes), Soon()));
    faulty_->SetRates({});
    return GetBytes(*store_, name, 10'000, Soon());
  };
  EXPECT_THAT(put_then_read({}, "fine"), IsOkAndHolds(bytes));
  EXPECT_THAT(put_then_read({.lie = 1}, "lie"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(put_then_read({.lose = 1}, "lose"), StatusIs(absl::StatusCode::kNotFound));
  const auto damaged = put_then_read({.damage = 1}, "damage");
  ASSERT_OK(damaged);
  EXPECT_EQ(damaged->size(), bytes.size());
  EXPECT_NE(*damaged, bytes);
  const auto truncated = put_then_read({.truncate = 1}, "truncate");
  ASSERT_OK(truncated);
  EXPECT_LT(truncated->size(), bytes.size());

  const auto verify = [&](std::string_view name) {
    return VerifyObject(*store_, name, bytes.size(), base::Sha256(bytes), Soon());
  };
  EXPECT_OK(verify("fine"));
  EXPECT_THAT(verify("lie"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(verify("damage"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("sha256")));
  EXPECT_THAT(verify("truncate"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("1000")));
  ASSERT_OK(store_->Put("longer", BytesContent(bytes + "x"), Soon()));
  EXPECT_THAT(verify("longer"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("longer")));

  faulty_->SetRates({.lost_answer = 1});
  EXPECT_THAT(store_->Put("lost", BytesContent(bytes), Soon()),
              StatusIs(absl::StatusCode::kUnavailable));
  faulty_->SetRates({.slow = 1, .slow_for = seconds(9)});
  const base::Duration before = clock_.Monotonic();
  EXPECT_THAT(store_->Stat("lost", Soon()), IsOkAndHolds(1'000U));
  EXPECT_EQ(clock_.Monotonic() - before, seconds(9));
  faulty_->SetRates({});
  faulty_->SetReadOnly(true);
  EXPECT_THAT(store_->Delete("fine", Soon()), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(DecoratorTest, ALateListKnowsOnlyWhatWas) {
  for (const char* name : {"a", "b"}) ASSERT_OK(memory_->Put(name, BytesContent("x"), Soon()));
  ASSERT_OK(store_->Put("c", BytesContent("x"), Soon()));
  ASSERT_OK(store_->Delete("a", Soon()));
  const auto names = [&] {
    const auto objects = store_->List({}, Soon());
    std::string all;
    for (const ObjectInfo& object : *objects) all += object.name;
    return all;
  };
  EXPECT_EQ(names(), "bc");
  faulty_->SetRates({.late_list = 1});
  EXPECT_EQ(names(), "ab");
}

}  // namespace
}  // namespace stores
