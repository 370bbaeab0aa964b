#include "vault/signing.h"

#include "base/bytes.h"
#include "base/testing.h"
#include "vault/test_age.h"

namespace vault {
namespace {

using base::StatusIs;
using testing::HasSubstr;
using testing::Not;

SigningKey TestKey(uint64_t seed) {
  base::SeededRandom random(seed);
  return SigningKey::Generate(random);
}

TEST(SigningKey, SignsWhatVerifies) {
  const SigningKey key = TestKey(1);
  const Signature signature = key.Sign("a record");
  EXPECT_OK(key.verifying_key().Verify("a record", signature));
  EXPECT_THAT(key.verifying_key().Verify("a record ", signature),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(TestKey(2).verifying_key().Verify("a record", signature),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(TestKey(2).verifying_key().Id())));
  for (size_t i = 0; i < signature.size(); ++i) {
    Signature damaged = signature;
    damaged[i] ^= 1;
    EXPECT_FALSE(key.verifying_key().Verify("a record", damaged).ok()) << i;
  }
}

// RFC 8032, section 7.1, test 2.
TEST(SigningKey, IsEd25519) {
  constexpr std::string_view kFile =
      "engram-signing-public-1 PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw\n"
      "engram-signing-secret-1 TM0Imyj/ltqdtsNG7BFOD1uKMZ81q6Yk2oz27U+4pvs\n";
  ASSERT_OK_AND_ASSIGN(const SigningKey key, SigningKey::Parse(kFile));
  EXPECT_EQ(key.verifying_key().Id(), "3d4017c3e843895a");
  const Signature signature = key.Sign("r");
  EXPECT_EQ(base::ToHex({reinterpret_cast<const char*>(signature.data()), signature.size()}),
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
}

TEST(SigningKey, TheFileGoesThereAndBack) {
  const SigningKey key = TestKey(1);
  const std::string file(key.ToSecret().view());
  ASSERT_OK_AND_ASSIGN(const SigningKey again, SigningKey::Parse(file));
  EXPECT_EQ(again.Sign("x"), key.Sign("x"));
  EXPECT_OK(SigningKey::Parse("# of site A\r\n\n" + file).status());
  ASSERT_OK_AND_ASSIGN(const VerifyingKey alone,
                       VerifyingKey::Parse(key.verifying_key().ToString() + "\n"));
  EXPECT_EQ(alone, key.verifying_key());
}

TEST(SigningKey, EveryBrokenFileIsRefusedWithoutQuotingIt) {
  const std::string file(TestKey(1).ToSecret().view());
  const std::string other(TestKey(2).ToSecret().view());
  const size_t second = file.find('\n') + 1;
  const std::string secret = file.substr(second + 24, 43);
  for (const std::string& broken :
       {std::string(), file.substr(0, second), file.substr(second), file + file, file + "x\n",
        file.substr(0, file.size() - 2), file.substr(0, second) + other.substr(second)}) {
    EXPECT_THAT(SigningKey::Parse(broken),
                StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr(secret.substr(0, 8)))))
        << broken.size();
  }
  for (size_t i = 0; i < file.size(); ++i) {
    std::string flipped = file;
    flipped[i] ^= 4;
    EXPECT_FALSE(SigningKey::Parse(flipped).ok()) << i;
  }
  EXPECT_FALSE(VerifyingKey::Parse(file).ok());
  EXPECT_FALSE(VerifyingKey::Parse("engram-signing-public-1 AAAA").ok());
}

}  // namespace
}  // namespace vault
