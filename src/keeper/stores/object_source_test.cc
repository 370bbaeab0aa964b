// Objects on their whole way: sealed, stored, read back in pieces, opened; and the ways that go
// wrong.
#include "stores/object_source.h"

#include "base/testing.h"
#include "stores/testing/faulty_store.h"
#include "stores/testing/manual_time.h"
#include "stores/testing/memory_store.h"
#include "vault/seal.h"
#include "vault/test_age.h"

namespace stores {
namespace {

using base::IsOkAndHolds;
using base::StatusIs;

class ObjectSourceTest : public testing::Test {
 protected:
  ObjectSourceTest() : store_(std::make_unique<MemoryStore>(clock_), 1, FaultRates{}, sleeper_) {
    base::SeededRandom random(1);
    std::string stored;
    vault::StringSink sink(&stored, 10 << 20);
    const auto sealing =
        vault::SealingSink::Open({.recipients = {identity_.recipient()}}, random, sink).value();
    EXPECT_OK(sealing->Write(plain_));
    EXPECT_OK(sealing->Finish());
    sealed_ = sealing->sealed();
    EXPECT_OK(store_.Put("o", BytesContent(stored), Soon()));
  }
  Deadline Soon() const { return Deadline::In(clock_, std::chrono::minutes(5)); }
  absl::StatusOr<std::string> OpenObject(size_t piece_bytes) {
    ObjectSource object(store_, "o", sealed_.stored_bytes, Soon(), piece_bytes);
    ASSIGN_OR_RETURN(const auto source,
                     vault::OpeningSource::Open({.plain_bytes_max = sealed_.plain_bytes,
                                                 .plain_sha256 = sealed_.plain_sha256,
                                                 .stored_sha256 = sealed_.stored_sha256},
                                                {&identity_, 1}, object));
    return vault::ReadAll(*source);
  }

  ManualClock clock_;
  ManualSleeper sleeper_{clock_};
  const vault::Identity identity_ = vault::TestIdentity(1);
  const std::string plain_ = vault::TestBytes(200'000);
  vault::Sealed sealed_;
  FaultyStore store_;
};

TEST_F(ObjectSourceTest, OpensInPiecesOfAnySize) {
  for (const size_t piece : {size_t{777}, size_t{65'536}, size_t{4} << 20}) {
    EXPECT_THAT(OpenObject(piece), IsOkAndHolds(plain_)) << piece;
  }
}

TEST_F(ObjectSourceTest, NoDamageInTheStoreIsMissed) {
  for (const size_t at : {size_t{0}, size_t{70}, size_t{250}, size_t{100'000}}) {
    ASSERT_OK(store_.DamageObject("o", at, Soon()));
    EXPECT_FALSE(OpenObject(10'000).ok()) << at;
    ASSERT_OK(store_.DamageObject("o", at, Soon()));  // the same bit again
    EXPECT_OK(OpenObject(10'000).status());
  }
  ASSERT_OK(store_.TruncateObject("o", static_cast<size_t>(sealed_.stored_bytes) - 1, Soon()));
  EXPECT_THAT(OpenObject(10'000), StatusIs(absl::StatusCode::kDataLoss));
  ASSERT_OK(store_.LoseObject("o", Soon()));
  EXPECT_THAT(OpenObject(10'000), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ObjectSourceTest, AnErrorIsFinal) {
  ObjectSource object(store_, "o", sealed_.stored_bytes, Soon(), 1'000);
  char byte;
  ASSERT_THAT(object.Read(&byte, 1), IsOkAndHolds(1U));
  store_.SetDown(true);
  std::string rest(5'000, '\0');
  EXPECT_THAT(vault::ReadFully(object, rest.data(), rest.size()),
              StatusIs(absl::StatusCode::kUnavailable));
  store_.SetDown(false);
  EXPECT_THAT(object.Read(&byte, 1), StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace stores
