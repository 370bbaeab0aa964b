// S3Store against a real server, whose address and credentials `run` gives in the environment.
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/random.h"
#include "base/testing.h"
#include "stores/conformance_for_test.h"
#include "stores/decorators.h"
#include "stores/s3_store.h"
#include "stores/testing/manual_time.h"

namespace stores {
namespace {

using base::IsOkAndHolds;
using base::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

S3Endpoint TestEndpoint() {
  return {.url = Environment("ENGRAM_S3_ENDPOINT"), .bucket = Environment("ENGRAM_S3_BUCKET")};
}

// Each fixture has a prefix of its own, so that it sees an empty store.
std::string FreshPrefix() {
  static std::atomic<int> next{0};
  return fmt::format("run-{:x}/{}", base::SystemRandom().Next(), next.fetch_add(1));
}

std::unique_ptr<S3Store> OpenStore(S3StoreOptions options) {
  return S3Store::Open(base::SystemClock(), RealSleeper(), std::move(options),
                       S3CredentialsFromEnvironment())
      .value();
}

class OnS3 final : public StoreFixture {
 public:
  explicit OnS3(bool conditional_writes) {
    store_ = OpenStore({.endpoint = TestEndpoint(),
                        .prefix = FreshPrefix(),
                        .conditional_writes = conditional_writes});
    // As the keeper has it: a conflict of two requests is tried again.
    store_ = std::make_unique<Retrying>(std::move(store_), base::SystemClock(),
                                        base::SystemRandom(), RealSleeper(), RetryPolicy{});
  }
  Store& store() override { return *store_; }

 private:
  std::unique_ptr<Store> store_;
};

INSTANTIATE_TEST_SUITE_P(S3, StoreConformance,
                         testing::Values(StoreUnderTest{
                             .name = "Versitygw",
                             .make = [] { return std::make_unique<OnS3>(true); },
                             .large_bytes = (40 << 20) + 1  // three parts
                         }),
                         [](const auto& tested) { return tested.param.name; });

class S3StoreTest : public testing::Test {
 protected:
  static Deadline Soon() { return Deadline::In(base::SystemClock(), std::chrono::minutes(2)); }
  static absl::Status Ask(const S3StoreOptions& options) {
    return OpenStore(options)->Stat("a", Soon()).status();
  }
};

TEST_F(S3StoreTest, AWrongBucketIsNotAnEmptyStore) {
  S3StoreOptions options{.endpoint = TestEndpoint()};
  options.endpoint.bucket = "no-such-bucket-here";
  const auto named = StatusIs(absl::StatusCode::kFailedPrecondition,
                              AllOf(HasSubstr("NoSuchBucket"), HasSubstr("no-such-bucket-here")));
  EXPECT_THAT(Ask(options), named);
  EXPECT_THAT(OpenStore(options)->List({}, Soon()), named);
  EXPECT_THAT(OpenStore(options)->Put("a", BytesContent("x"), Soon()), named);
  EXPECT_THAT(OpenStore(options)->Describe(Soon()), named);
}

TEST_F(S3StoreTest, WrongCredentialsAreNamedAndNotQuoted) {
  for (const auto& [access, secret, code] :
       {std::tuple(Environment("AWS_ACCESS_KEY_ID"), std::string("wrong-secret"),
                   "SignatureDoesNotMatch"),
        std::tuple(std::string("nobody"), std::string("wrong-secret"),
                   "correct the store's access key")}) {
    const auto store =
        S3Store::Open(base::SystemClock(), RealSleeper(), {.endpoint = TestEndpoint()},
                      [access = access, secret = secret]() -> absl::StatusOr<S3Credentials> {
                        S3Credentials credentials;
                        credentials.access_key = access;
                        credentials.secret_key = vault::Secret(std::string(secret));
                        return credentials;
                      })
            .value();
    EXPECT_THAT(store->List({}, Soon()),
                StatusIs(absl::StatusCode::kPermissionDenied,
                         AllOf(HasSubstr(code), testing::Not(HasSubstr("wrong-secret")))));
  }
}

TEST_F(S3StoreTest, AServerThatIsNotThereIsUnavailable) {
  S3StoreOptions options{.endpoint = TestEndpoint()};
  options.endpoint.url = "http://127.0.0.1:1";
  EXPECT_THAT(Ask(options), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("127.0.0.1")));
}

TEST_F(S3StoreTest, NamesOfAllKindsAreSigned) {
  const auto store = OpenStore({.endpoint = TestEndpoint(), .prefix = FreshPrefix()});
  for (const char* name : {"a=b/c", "A_b-C.d", "0000000000000001-20261201T020304Z-1.db.zst.age"}) {
    ASSERT_OK(store->Put(name, BytesContent(name), Soon())) << name;
    EXPECT_THAT(GetBytes(*store, name, 100, Soon()), IsOkAndHolds(name));
    EXPECT_EQ(store->List({.prefix = name}, Soon()).value().size(), 1U) << name;
  }
}

TEST_F(S3StoreTest, APageOfTheServerIsNotTheEnd) {
  const auto store = OpenStore({.endpoint = TestEndpoint(), .prefix = FreshPrefix()});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < 1'010; i += 4) {
        EXPECT_OK(store->Put(fmt::format("o/{:04}", i), BytesContent("x"), Soon()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_OK_AND_ASSIGN(const auto objects, store->List({.prefix = "o/", .limit = 5'000}, Soon()));
  EXPECT_EQ(objects.size(), 1'010U);
  EXPECT_TRUE(std::is_sorted(objects.begin(), objects.end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
}

// Gives the first bytes and then breaks, as a file on a failing disk does.
class BreakingContent final : public Content {
 public:
  BreakingContent(const Content& inner, uint64_t sent_max) : inner_(inner), sent_max_(sent_max) {}
  uint64_t bytes() const override { return inner_.bytes(); }
  const base::Digest& sha256() const override { return inner_.sha256(); }
  absl::StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t n) const override {
    return inner_.ReadAt(offset, out, n);
  }
  absl::StatusOr<size_t> ReadToSend(uint64_t offset, char* out, size_t n) const override {
    if (offset >= sent_max_) return absl::DataLossError("the disk broke");
    return inner_.ReadToSend(offset, out, n);
  }

 private:
  const Content& inner_;
  const uint64_t sent_max_;
};

TEST_F(S3StoreTest, AFailedUploadLeavesNothing) {
  const auto store = OpenStore({.endpoint = TestEndpoint(), .prefix = FreshPrefix()});
  const std::string bytes(40 << 20, 'u');
  const BytesContent content(bytes);
  EXPECT_THAT(store->Put("a", BreakingContent(content, 20 << 20), Soon()),
              StatusIs(absl::StatusCode::kDataLoss, "the disk broke"));
  EXPECT_THAT(store->Stat("a", Soon()), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store->Sweep(base::Duration::zero(), Soon()), IsOkAndHolds(0U));
}

// An upload that nobody ended, as after a kill.
TEST_F(S3StoreTest, StaleUploadsAreSwept) {
  const std::string prefix = FreshPrefix();
  const auto store = OpenStore({.endpoint = TestEndpoint(), .prefix = prefix});
  ASSERT_OK_AND_ASSIGN(const auto client, S3Client::Open(base::SystemClock(), TestEndpoint(),
                                                         S3CredentialsFromEnvironment()));
  for (const char* key : {"/stale-1", "/stale-2", "-other/stale"}) {
    ASSERT_OK(
        client->SendOk({.method = "POST", .key = prefix + key, .query = {{"uploads", ""}}}, Soon())
            .status());
  }
  EXPECT_THAT(store->Sweep(std::chrono::hours(1), Soon()), IsOkAndHolds(0U)) << "too young";
  EXPECT_THAT(store->Sweep(std::chrono::seconds(-60), Soon()), IsOkAndHolds(2U));
  EXPECT_THAT(store->Sweep(std::chrono::seconds(-60), Soon()), IsOkAndHolds(0U));
  EXPECT_THAT(OpenStore({.endpoint = TestEndpoint(), .prefix = prefix + "-other"})
                  ->Sweep(std::chrono::seconds(-60), Soon()),
              IsOkAndHolds(1U));
}

TEST_F(S3StoreTest, WhatOthersPutThereIsReadAndCompared) {
  const std::string prefix = FreshPrefix();
  const auto store = OpenStore({.endpoint = TestEndpoint(), .prefix = prefix});
  ASSERT_OK_AND_ASSIGN(const auto client, S3Client::Open(base::SystemClock(), TestEndpoint(),
                                                         S3CredentialsFromEnvironment()));
  const std::string body = "by another tool";
  for (const char* key : {"/plain", "/with space", "/.hidden"}) {
    ASSERT_OK(client
                  ->SendOk({.method = "PUT",
                            .key = prefix + key,
                            .bytes = body.size(),
                            .body = body,
                            .sha256 = base::Sha256(body)},
                           Soon())
                  .status());
  }
  EXPECT_OK(store->Put("plain", BytesContent(body), Soon()))
      << "no digest beside it, so it is read";
  EXPECT_THAT(store->Put("plain", BytesContent("by another tooL"), Soon()),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(store->List({}, Soon()).value(),
            (std::vector<ObjectInfo>{{.name = "plain", .bytes = body.size()}}));
}

TEST_F(S3StoreTest, WithoutConditionalWritesItLooksFirst) {
  const auto store =
      OpenStore({.endpoint = TestEndpoint(), .prefix = FreshPrefix(), .conditional_writes = false});
  ASSERT_OK(store->Put("a", BytesContent("one"), Soon()));
  EXPECT_THAT(store->Put("a", BytesContent("two"), Soon()),
              StatusIs(absl::StatusCode::kAlreadyExists));
  ASSERT_OK_AND_ASSIGN(const Description description, store->Describe(Soon()));
  EXPECT_EQ(description.write_once, false);
  EXPECT_FALSE(description.warnings.empty());
}

TEST_F(S3StoreTest, ABucketWithALockTakesObjectsAndSaysSo) {
  S3StoreOptions options{.endpoint = TestEndpoint(), .prefix = FreshPrefix()};
  const auto unlocked = OpenStore(options);
  ASSERT_OK_AND_ASSIGN(const Description plain, unlocked->Describe(Soon()));
  EXPECT_EQ(plain.object_lock, false);
  EXPECT_EQ(plain.versioning, false);
  options.endpoint.bucket = Environment("ENGRAM_S3_LOCKED_BUCKET");
  const auto store = OpenStore(options);
  ASSERT_OK_AND_ASSIGN(const Description locked, store->Describe(Soon()));
  EXPECT_EQ(locked.object_lock, true);
  EXPECT_EQ(locked.versioning, true);
  for (const size_t n : {size_t{10}, size_t{20} << 20}) {
    const std::string name = fmt::format("o{}", n);
    const std::string bytes(n, 'l');
    ASSERT_OK(store->Put(name, BytesContent(bytes), Soon()));
    EXPECT_THAT(store->Put(name, BytesContent("other"), Soon()),
                StatusIs(absl::StatusCode::kAlreadyExists));
    EXPECT_OK(VerifyObject(*store, name, n, base::Sha256(bytes), Soon()));
  }
  ASSERT_OK(store->Replace("head", "one", Soon()));
  ASSERT_OK(store->Replace("head", "two", Soon()));
  EXPECT_THAT(GetBytes(*store, "head", 10, Soon()), IsOkAndHolds("two"));
}

// Encrypted connections: `run` starts a second server with a certificate of its own CA, and a third
// whose certificate has expired.
TEST_F(S3StoreTest, ItsOwnCaIsTrustedWhereItIsGiven) {
  S3StoreOptions options{.endpoint = TestEndpoint(), .prefix = FreshPrefix()};
  options.endpoint.url = Environment("ENGRAM_S3_TLS_ENDPOINT");
  EXPECT_THAT(Ask(options), StatusIs(absl::StatusCode::kFailedPrecondition,
                                     AllOf(HasSubstr("ca_file"), HasSubstr("certificate"))));
  options.endpoint.ca_file = Environment("ENGRAM_S3_CA");
  EXPECT_THAT(Ask(options), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(OpenStore(options)->Put("tls", BytesContent("x"), Soon()));
  options.endpoint.ca_file = "/none";
  EXPECT_THAT(Ask(options), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ca_file")));
}

TEST_F(S3StoreTest, AnExpiredCertificateIsNamed) {
  S3StoreOptions options{.endpoint = TestEndpoint()};
  options.endpoint.url = Environment("ENGRAM_S3_EXPIRED_ENDPOINT");
  options.endpoint.ca_file = Environment("ENGRAM_S3_CA");
  EXPECT_THAT(Ask(options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("expired"), HasSubstr("renew the server's certificate"))));
}

TEST_F(S3StoreTest, ACallInFlightCanBeCancelled) {
  const auto store = OpenStore({.endpoint = TestEndpoint(), .prefix = FreshPrefix()});
  std::atomic<bool> cancelled{false};
  Deadline deadline = Soon();
  deadline.cancelled = &cancelled;
  // Cancels itself once a part is on its way.
  class Cancelling final : public Content {
   public:
    Cancelling(const Content& inner, std::atomic<bool>* cancelled)
        : inner_(inner), cancelled_(cancelled) {}
    uint64_t bytes() const override { return inner_.bytes(); }
    const base::Digest& sha256() const override { return inner_.sha256(); }
    absl::StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t n) const override {
      return inner_.ReadAt(offset, out, n);
    }
    absl::StatusOr<size_t> ReadToSend(uint64_t offset, char* out, size_t n) const override {
      cancelled_->store(true);
      return inner_.ReadToSend(offset, out, n);
    }

   private:
    const Content& inner_;
    std::atomic<bool>* const cancelled_;
  };
  const std::string bytes(64 << 20, 'c');
  const BytesContent content(bytes);
  EXPECT_THAT(store->Put("a", Cancelling(content, &cancelled), deadline),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(store->Stat("a", Soon()), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace stores
