// The way of a whole object, and the stages it is made of.
#include "vault/seal.h"

#include <cstdlib>

#include "base/testing.h"
#include "support/memory_files.h"
#include "vault/test_age.h"

namespace vault {
namespace {

using base::IsOkAndHolds;
using base::StatusIs;
using testing::HasSubstr;

class SealTest : public testing::Test {
 protected:
  void Seal(std::vector<Recipient> recipients) {
    base::SeededRandom random(3);
    stored_.clear();
    StringSink sink(&stored_, kTestBytesMax);
    ASSERT_OK_AND_ASSIGN(const auto sealing,
                         SealingSink::Open({.recipients = std::move(recipients)}, random, sink));
    ASSERT_OK(sealing->Write(plain_));
    ASSERT_OK(sealing->Finish());
    sealed_ = sealing->sealed();
  }
  absl::StatusOr<std::string> Open(const OpeningOptions& options) {
    StringSource from(stored_);
    ASSIGN_OR_RETURN(const auto source, OpeningSource::Open(options, {&identity_, 1}, from));
    return ReadAll(*source);
  }

  const Identity identity_ = TestIdentity(1);
  const std::string plain_ = TestBytes(150'000) + std::string(100'000, 'p');
  std::string stored_;
  Sealed sealed_;
};

TEST_F(SealTest, SaysWhatItStored) {
  Seal({identity_.recipient(), TestIdentity(2).recipient()});
  EXPECT_EQ(sealed_.plain_bytes, plain_.size());
  EXPECT_EQ(sealed_.stored_bytes, stored_.size());
  EXPECT_EQ(sealed_.plain_sha256, base::Sha256(plain_));
  EXPECT_EQ(sealed_.stored_sha256, base::Sha256(stored_));
  EXPECT_EQ(sealed_.recipients, (std::vector<std::string>{identity_.recipient().ToString(),
                                                          TestIdentity(2).recipient().ToString()}));
  EXPECT_LT(stored_.size(), 160'000U);
  EXPECT_THAT(Open({.plain_bytes_max = plain_.size(),
                    .plain_sha256 = sealed_.plain_sha256,
                    .stored_sha256 = sealed_.stored_sha256}),
              IsOkAndHolds(plain_));
}

TEST_F(SealTest, ADigestThatDiffersIsDamageThoughAllStagesAgree) {
  Seal({identity_.recipient()});
  base::Digest wrong = sealed_.plain_sha256;
  wrong[0] ^= 1;
  EXPECT_THAT(Open({.plain_sha256 = wrong}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("plain bytes")));
  EXPECT_THAT(Open({.stored_sha256 = wrong}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("stored bytes")));
  EXPECT_THAT(Open({.plain_bytes_max = plain_.size() - 1}), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(SealTest, PlainObjectsOpenOnlyWhereTheyAreExpected) {
  Seal({});
  EXPECT_TRUE(sealed_.recipients.empty());
  EXPECT_THAT(Open({.encrypted = false, .stored_sha256 = sealed_.stored_sha256}),
              IsOkAndHolds(plain_));
  EXPECT_THAT(Open({}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no age file")));
  Seal({identity_.recipient()});
  EXPECT_THAT(Open({.encrypted = false}), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(SealTest, RefusesALevelThatIsNone) {
  base::SeededRandom random(3);
  StringSink sink(&stored_, kTestBytesMax);
  for (const int level : {0, 20, -1}) {
    EXPECT_THAT(SealingSink::Open({.compression_level = level}, random, sink),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("compression level")));
  }
}

TEST_F(SealTest, AnErrorBehindComesBackFromEveryCall) {
  base::SeededRandom random(3);
  StringSink sink(&stored_, 100'000);
  ASSERT_OK_AND_ASSIGN(const auto sealing,
                       SealingSink::Open({.recipients = {identity_.recipient()}}, random, sink));
  absl::Status status;
  for (uint64_t i = 0; i < 100 && status.ok(); ++i) {
    status = sealing->Write(TestBytes(10'000, i));
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(sealing->Write("x"), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(sealing->Finish(), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(SealTest, OpensByHandWithStockTools) {
  if (std::system("age --version >/dev/null 2>&1 && zstd --version >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no age or zstd program";
  }
  Seal({identity_.recipient()});
  base::ScratchDirectory scratch;
  base::Files& files = base::PosixFiles();
  ASSERT_OK(base::WriteFileAtomically(files, scratch / "x.db.zst.age", stored_, 0600));
  ASSERT_OK(base::WriteFileAtomically(files, scratch / "key", identity_.ToSecret().view(), 0600));
  ASSERT_EQ(std::system(fmt::format("cd {} && age -d -i key x.db.zst.age | zstd -q -d >x.db",
                                    scratch.path())
                            .c_str()),
            0);
  EXPECT_THAT(base::ReadFile(files, scratch / "x.db"), IsOkAndHolds(plain_));
}

TEST(FileStream, WritesAndReadsARangeOfAFile) {
  test_support::MemoryFiles files;
  ASSERT_OK_AND_ASSIGN(const auto file, files.Open("/f", {.write = true, .create = true}));
  FileSink sink(*file, 3);
  ASSERT_OK(sink.Write("abc"));
  ASSERT_OK(sink.Write("def"));
  ASSERT_OK(sink.Finish());
  EXPECT_EQ(sink.offset(), 9U);
  FileSource middle(*file, 4, 4);
  EXPECT_THAT(ReadAll(middle, 3), IsOkAndHolds("bcde"));
  FileSource beyond(*file, 4, 6);
  EXPECT_THAT(ReadAll(beyond),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("1 bytes too early")));
}

TEST(StringSink, HasABound) {
  std::string out = "12";
  StringSink sink(&out, 5);
  EXPECT_OK(sink.Write("345"));
  EXPECT_THAT(sink.Write("6"), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(out, "12345");
}

}  // namespace
}  // namespace vault
