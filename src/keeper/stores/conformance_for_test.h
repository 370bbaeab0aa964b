// What every store promises, as tests: a program that includes this and instantiates
// StoreConformance runs them against its stores. For tests; the fixtures belong to one thread, the
// stores do not.
//
//   INSTANTIATE_TEST_SUITE_P(Memory, StoreConformance, testing::Values(StoreUnderTest{...}));
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/testing.h"
#include "stores/store.h"

namespace stores {

// Holds a store and what it needs. Objects of earlier fixtures must not be seen.
class StoreFixture {
 public:
  virtual ~StoreFixture() = default;
  virtual Store& store() = 0;
  virtual const base::Clock& clock() { return base::SystemClock(); }
};

struct StoreUnderTest {
  std::string name;
  std::function<std::unique_ptr<StoreFixture>()> make;
  size_t large_bytes = 3'000'000;  // a size at which the store does something special
};

inline void PrintTo(const StoreUnderTest& store, std::ostream* out) { *out << store.name; }

class StoreConformance : public testing::TestWithParam<StoreUnderTest> {
 protected:
  void SetUp() override {
    fixture_ = GetParam().make();
    ASSERT_NE(fixture_, nullptr);
  }
  Store& store() { return fixture_->store(); }
  Deadline Soon() const { return Deadline::In(fixture_->clock(), std::chrono::minutes(5)); }
  absl::Status Put(std::string_view name, std::string_view bytes) {
    return store().Put(name, BytesContent(bytes), Soon());
  }
  absl::StatusOr<std::string> Get(std::string_view name) {
    return GetBytes(store(), name, size_t{1} << 30, Soon());
  }
  absl::StatusOr<std::string> GetRange(std::string_view name, uint64_t offset, uint64_t length) {
    std::string bytes;
    vault::StringSink sink(&bytes, size_t{1} << 30);
    const absl::Status status = store().Get(name, offset, length, sink, Soon());
    if (!status.ok() && !bytes.empty()) return absl::InternalError("an error after bytes");
    RETURN_IF_ERROR(status);
    return bytes;
  }
  std::vector<std::string> List(const ListRequest& request) {
    const auto objects = store().List(request, Soon());
    EXPECT_OK(objects);
    std::vector<std::string> names;
    if (objects.ok()) {
      for (const ObjectInfo& object : *objects) names.push_back(object.name);
    }
    return names;
  }
  // Bytes that differ from place to place.
  static std::string Bytes(size_t n, uint64_t seed = 1) {
    base::SeededRandom random(seed);
    std::string bytes;
    bytes.reserve(n + 8);
    while (bytes.size() < n) {
      const uint64_t word = random.Next();
      bytes.append(reinterpret_cast<const char*>(&word), sizeof word);
    }
    bytes.resize(n);
    return bytes;
  }

  std::unique_ptr<StoreFixture> fixture_;
};

// Says another digest or length than its bytes have.
class LyingContent final : public Content {
 public:
  LyingContent(std::string_view data, uint64_t bytes, const base::Digest& sha256)
      : data_(data), bytes_(bytes), sha256_(sha256) {}
  uint64_t bytes() const override { return bytes_; }
  const base::Digest& sha256() const override { return sha256_; }
  absl::StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t n) const override {
    return data_.ReadAt(offset, out, n);
  }

 private:
  const BytesContent data_;
  const uint64_t bytes_;
  const base::Digest sha256_;
};

class FailingSink final : public vault::Sink {
 public:
  absl::Status Write(std::string_view) override { return absl::UnavailableError("sink is broken"); }
  absl::Status Finish() override { return absl::OkStatus(); }
};

TEST_P(StoreConformance, GetGivesWhatWasPut) {
  int i = 0;
  for (const size_t n : {size_t{0}, size_t{1}, size_t{70'000}, GetParam().large_bytes}) {
    const std::string bytes = Bytes(n);
    const std::string name = fmt::format("a/b{}/c.zst.age", i++);
    ASSERT_OK(Put(name, bytes)) << n;
    EXPECT_THAT(store().Stat(name, Soon()), base::IsOkAndHolds(n));
    const auto got = Get(name);
    ASSERT_OK(got);
    EXPECT_TRUE(*got == bytes) << n;
  }
}

TEST_P(StoreConformance, PutNeverReplaces) {
  for (const size_t n : {size_t{10}, GetParam().large_bytes}) {
    const std::string name = fmt::format("w/{}", n);
    const std::string first = Bytes(n, 1);
    ASSERT_OK(Put(name, first));
    EXPECT_THAT(Put(name, Bytes(n, 2)), base::StatusIs(absl::StatusCode::kAlreadyExists));
    EXPECT_THAT(Put(name, Bytes(n + 1, 1)), base::StatusIs(absl::StatusCode::kAlreadyExists));
    EXPECT_THAT(Put(name, ""), base::StatusIs(absl::StatusCode::kAlreadyExists));
    EXPECT_OK(Put(name, first)) << "the same content again";
    EXPECT_TRUE(Get(name).value() == first);
  }
}

TEST_P(StoreConformance, PutTakesAFileAndHalfOfOne) {
  base::ScratchDirectory scratch;
  const std::string bytes = Bytes(100'000);
  ASSERT_OK(base::WriteFileAtomically(base::PosixFiles(), scratch / "f", bytes, 0600));
  ASSERT_OK_AND_ASSIGN(const auto file, base::PosixFiles().Open(scratch / "f", {}));
  ASSERT_OK(store().Put("f/all", FileContent(*file, bytes.size(), base::Sha256(bytes)), Soon()));
  const std::string half = bytes.substr(0, 50'000);
  ASSERT_OK(store().Put("f/half", FileContent(*file, half.size(), base::Sha256(half)), Soon()));
  EXPECT_TRUE(Get("f/all").value() == bytes);
  EXPECT_TRUE(Get("f/half").value() == half);
}

TEST_P(StoreConformance, ContentThatIsNotWhatItSaysIsNotStored) {
  for (const size_t n : {size_t{1'000}, GetParam().large_bytes}) {
    const std::string bytes = Bytes(n);
    const std::string name = fmt::format("l/{}", n);
    EXPECT_THAT(store().Put(name, LyingContent(bytes, n, base::Sha256("other")), Soon()),
                base::StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_THAT(store().Put(name, LyingContent(bytes, n + 1, base::Sha256(bytes)), Soon()),
                base::StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_THAT(store().Stat(name, Soon()), base::StatusIs(absl::StatusCode::kNotFound));
    EXPECT_OK(Put(name, bytes)) << "and the name is free";
  }
}

TEST_P(StoreConformance, ReplaceReplaces) {
  for (const std::string& bytes : {Bytes(100, 1), Bytes(5'000, 2), std::string(), Bytes(7, 3)}) {
    ASSERT_OK(store().Replace("log/head", bytes, Soon()));
    EXPECT_THAT(Get("log/head"), base::IsOkAndHolds(bytes));
  }
  EXPECT_THAT(store().Replace("log/head", Bytes(kReplaceBytesMax + 1), Soon()),
              base::StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Get("log/head"), base::IsOkAndHolds(Bytes(7, 3)));
}

TEST_P(StoreConformance, GetGivesExactlyTheRangeOrNothing) {
  const std::string bytes = Bytes(100'000);
  ASSERT_OK(Put("r", bytes));
  ASSERT_OK(Put("empty", ""));
  EXPECT_THAT(GetRange("r", 0, 10), base::IsOkAndHolds(bytes.substr(0, 10)));
  EXPECT_THAT(GetRange("r", 99'990, 10), base::IsOkAndHolds(bytes.substr(99'990)));
  EXPECT_THAT(GetRange("r", 5, kToTheEnd), base::IsOkAndHolds(bytes.substr(5)));
  EXPECT_THAT(GetRange("r", 500, 0), base::IsOkAndHolds(""));
  EXPECT_THAT(GetRange("r", 100'000, 0), base::IsOkAndHolds(""));
  EXPECT_THAT(GetRange("r", 100'000, kToTheEnd), base::IsOkAndHolds(""));
  EXPECT_THAT(GetRange("empty", 0, kToTheEnd), base::IsOkAndHolds(""));
  EXPECT_THAT(GetRange("r", 99'990, 11), base::StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(GetRange("r", 100'001, kToTheEnd), base::StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(GetRange("r", 100'001, 0), base::StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(GetRange("empty", 0, 1), base::StatusIs(absl::StatusCode::kOutOfRange));
  for (const uint64_t length : {uint64_t{0}, uint64_t{1}, kToTheEnd}) {
    EXPECT_THAT(GetRange("none", 0, length), base::StatusIs(absl::StatusCode::kNotFound));
  }
}

TEST_P(StoreConformance, AnErrorOfTheSinkComesBack) {
  ASSERT_OK(Put("s", Bytes(100'000)));
  FailingSink sink;
  EXPECT_THAT(store().Get("s", 0, kToTheEnd, sink, Soon()),
              base::StatusIs(absl::StatusCode::kUnavailable, "sink is broken"));
}

TEST_P(StoreConformance, StatOfNothingIsNotFound) {
  ASSERT_OK(Put("st/a", "x"));
  EXPECT_THAT(store().Stat("st/b", Soon()), base::StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store().Stat("st", Soon()), base::StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store().Stat("st/a/below", Soon()), base::StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(store().Delete("st", Soon()));
  EXPECT_OK(store().Delete("st/a/below", Soon()));
  EXPECT_THAT(Get("st/a"), base::IsOkAndHolds("x"));
}

// '-' and '.' come before '/', digits behind it: folders must not be listed in the order they are
// walked.
TEST_P(StoreConformance, ListIsInTheOrderOfBytes) {
  const std::vector<std::string> names = {"A/x",  "a-b/x", "a.b/x", "a/b-c", "a/b/c",
                                          "a/b0", "a0/x",  "a=/x",  "a_/x",  "b"};
  for (size_t i = names.size(); i-- > 0;) ASSERT_OK(Put(names[i], std::string(i, 'x')));
  EXPECT_EQ(List({}), names);
  EXPECT_EQ(List({.prefix = "a/"}), (std::vector<std::string>{"a/b-c", "a/b/c", "a/b0"}));
  EXPECT_EQ(List({.prefix = "a/b"}), (std::vector<std::string>{"a/b-c", "a/b/c", "a/b0"}));
  EXPECT_EQ(List({.prefix = "a/b/"}), (std::vector<std::string>{"a/b/c"}));
  EXPECT_EQ(List({.prefix = "b"}), (std::vector<std::string>{"b"}));
  EXPECT_EQ(List({.prefix = "c"}), std::vector<std::string>());
  EXPECT_EQ(List({.prefix = "b/"}), std::vector<std::string>());
  EXPECT_EQ(List({.prefix = "a/", .after = "a/b-c"}), (std::vector<std::string>{"a/b/c", "a/b0"}));
  EXPECT_EQ(List({.after = "a_/x"}), (std::vector<std::string>{"b"}));
  EXPECT_EQ(List({.after = "a/b", .limit = 2}), (std::vector<std::string>{"a/b-c", "a/b/c"}));
  EXPECT_EQ(List({.after = "b"}), std::vector<std::string>());
  ASSERT_OK_AND_ASSIGN(const auto objects, store().List({.prefix = "a=/"}, Soon()));
  EXPECT_EQ(objects, (std::vector<ObjectInfo>{{.name = "a=/x", .bytes = 7}}));
}

TEST_P(StoreConformance, PagesAddUpToTheWhole) {
  std::vector<std::string> names;
  for (int i = 0; i < 25; ++i) names.push_back(fmt::format("p/{:02}/o", i));
  for (const std::string& name : names) ASSERT_OK(Put(name, "x"));
  for (const size_t limit : {1u, 7u, 24u, 25u, 26u}) {
    std::vector<std::string> seen;
    ListRequest request{.prefix = "p/", .limit = limit};
    while (true) {
      const std::vector<std::string> page = List(request);
      seen.insert(seen.end(), page.begin(), page.end());
      if (page.size() < limit) break;
      request.after = page.back();
    }
    EXPECT_EQ(seen, names) << limit;
  }
  std::vector<std::string> visited;
  ASSERT_OK(ForEachObject(store(), "p/", Soon(), [&](const ObjectInfo& object) {
    visited.push_back(object.name);
    return absl::OkStatus();
  }));
  EXPECT_EQ(visited, names);
  EXPECT_THAT(store().List({.limit = 0}, Soon()),
              base::StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_P(StoreConformance, DeleteMayBeRepeated) {
  ASSERT_OK(Put("d/a", "one"));
  EXPECT_OK(store().Delete("d/a", Soon()));
  EXPECT_THAT(Get("d/a"), base::StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(store().Delete("d/a", Soon()));
  EXPECT_OK(store().Delete("never/was", Soon()));
  EXPECT_EQ(List({.prefix = "d/"}), std::vector<std::string>());
  EXPECT_OK(Put("d/a", "two")) << "the name is free again";
  EXPECT_THAT(Get("d/a"), base::IsOkAndHolds("two"));
}

TEST_P(StoreConformance, BadNamesNeverReachTheStore) {
  vault::StringSink sink(nullptr, 0);
  for (const char* name : {"", "/a", "a/", "a//b", ".", "..", "a/../b", ".a", "a/.b", "a b", "a\nb",
                           "a\\b", "a%2fb", "\xc3\xa9", "a:b", "a?b", "a&b"}) {
    const auto refused = base::StatusIs(absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Put(name, "x"), refused) << name;
    EXPECT_THAT(store().Replace(name, "x", Soon()), refused) << name;
    EXPECT_THAT(store().Get(name, 0, kToTheEnd, sink, Soon()), refused) << name;
    EXPECT_THAT(store().Stat(name, Soon()), refused) << name;
    EXPECT_THAT(store().Delete(name, Soon()), refused) << name;
  }
  EXPECT_THAT(store().List({.prefix = "../"}, Soon()),
              base::StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(store().List({.after = "a b"}, Soon()),
              base::StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(Put("A-z_0.9=/" + std::string(200, 'x') + "/y", "x"));
}

TEST_P(StoreConformance, ACallWithoutTimeDoesNotBegin) {
  ASSERT_OK(Put("t/there", "x"));
  std::atomic<bool> cancelled = true;
  Deadline stopped = Soon();
  stopped.cancelled = &cancelled;
  const Deadline over{.at = fixture_->clock().Monotonic() - std::chrono::seconds(1)};
  vault::StringSink sink(nullptr, 0);
  for (const auto& [deadline, code] : {std::pair(over, absl::StatusCode::kDeadlineExceeded),
                                       std::pair(stopped, absl::StatusCode::kCancelled)}) {
    const auto refused = base::StatusIs(code);
    EXPECT_THAT(store().Put("t/new", BytesContent("x"), deadline), refused);
    EXPECT_THAT(store().Replace("t/new", "x", deadline), refused);
    EXPECT_THAT(store().Get("t/there", 0, kToTheEnd, sink, deadline), refused);
    EXPECT_THAT(store().Stat("t/there", deadline), refused);
    EXPECT_THAT(store().List({}, deadline), refused);
    EXPECT_THAT(store().Delete("t/there", deadline), refused);
    EXPECT_THAT(store().Describe(deadline), refused);
  }
  EXPECT_EQ(List({.prefix = "t/"}), std::vector<std::string>{"t/there"});
}

TEST_P(StoreConformance, OfManyPutsOfOneNameOneWins) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 3; ++round) {
    const std::string name = fmt::format("race/{}", round);
    std::vector<absl::Status> results(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        results[static_cast<size_t>(i)] = Put(name, Bytes(20'000, static_cast<uint64_t>(i)));
      });
    }
    for (std::thread& thread : threads) thread.join();
    int winners = 0;
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].ok()) {
        ++winners;
        EXPECT_TRUE(Get(name).value() == Bytes(20'000, i));
      } else {
        EXPECT_THAT(results[i], base::StatusIs(absl::StatusCode::kAlreadyExists));
      }
    }
    EXPECT_EQ(winners, 1);
  }
}

TEST_P(StoreConformance, ManyThreadsDoNotDisturbEachOther) {
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([this, i] {
      for (uint64_t round = 0; round < 5; ++round) {
        const std::string name = fmt::format("many/{}/{}", i, round);
        const std::string bytes = Bytes(10'000, round * 10 + static_cast<uint64_t>(i));
        EXPECT_OK(Put(name, bytes));
        EXPECT_TRUE(Get(name).value() == bytes);
        EXPECT_OK(store().Replace(fmt::format("many/{}/head", i), name, Soon()));
        EXPECT_THAT(Get(fmt::format("many/{}/head", i)), base::IsOkAndHolds(name));
        EXPECT_OK(store().List({.prefix = "many/"}, Soon()).status());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(List({.prefix = "many/"}).size(), 4U * 6);
}

TEST_P(StoreConformance, DescribesItself) {
  ASSERT_OK_AND_ASSIGN(const Description description, store().Describe(Soon()));
  EXPECT_NE(description.where, "");
  EXPECT_EQ(description.write_once, true);
  EXPECT_LT(std::chrono::abs(description.clock_skew.value_or(base::Duration(0))),
            std::chrono::seconds(5));
  EXPECT_EQ(List({}), std::vector<std::string>()) << "describing leaves no object";
}

TEST_P(StoreConformance, SweepingLeavesObjectsAlone) {
  ASSERT_OK(Put("k/a", "x"));
  EXPECT_THAT(store().Sweep(base::Duration::zero(), Soon()), base::IsOkAndHolds(0U));
  EXPECT_THAT(Get("k/a"), base::IsOkAndHolds("x"));
}

}  // namespace stores
