// Keys as texts. The pair below is what age-keygen prints for 32 bytes of 0x42.
#include "vault/age_keys.h"

#include "base/testing.h"
#include "vault/test_age.h"

namespace vault {
namespace {

using base::IsOkAndHolds;
using base::StatusIs;
using testing::HasSubstr;
using testing::Not;

constexpr char kIdentity[] =
    "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
constexpr char kRecipient[] = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

TEST(Identity, GivesTheRecipientAgeKeygenGives) {
  ASSERT_OK_AND_ASSIGN(const Identity identity, Identity::Parse(kIdentity));
  for (const uint8_t byte : identity.key().span()) EXPECT_EQ(byte, 0x42);
  EXPECT_EQ(identity.ToSecret().view(), kIdentity);
  EXPECT_EQ(identity.recipient().ToString(), kRecipient);
  ASSERT_OK_AND_ASSIGN(const Recipient recipient, Recipient::Parse(kRecipient));
  EXPECT_EQ(recipient, identity.recipient());
}

TEST(Keys, TextsGoThereAndBack) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Identity identity = TestIdentity(seed);
    ASSERT_OK_AND_ASSIGN(const Identity again, Identity::Parse(identity.ToSecret().view()));
    EXPECT_EQ(again.recipient(), identity.recipient());
    ASSERT_OK_AND_ASSIGN(const Recipient recipient,
                         Recipient::Parse(identity.recipient().ToString()));
    EXPECT_EQ(recipient, identity.recipient());
  }
}

TEST(Keys, EveryMistypedCharacterIsFound) {
  for (const std::string text : {kIdentity, kRecipient}) {
    for (size_t i = 0; i < text.size(); ++i) {
      for (const char c : std::string("qpQP2-1bB\x80 ")) {
        if (text[i] == c) continue;
        std::string wrong = text;
        wrong[i] = c;
        EXPECT_FALSE(Identity::Parse(wrong).ok()) << wrong;
        EXPECT_FALSE(Recipient::Parse(wrong).ok()) << wrong;
      }
      EXPECT_FALSE(Identity::Parse(text.substr(0, i)).ok()) << i;
      EXPECT_FALSE(Recipient::Parse(text.substr(0, i)).ok()) << i;
    }
    EXPECT_FALSE(Identity::Parse(text + "q").ok());
    EXPECT_FALSE(Recipient::Parse(text + "q").ok());
  }
}

TEST(Keys, TheCaseIsPartOfTheFormat) {
  std::string lower(kIdentity);
  for (char& c : lower) c = static_cast<char>(std::tolower(c));
  EXPECT_FALSE(Identity::Parse(lower).ok());
  std::string upper(kRecipient);
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_FALSE(Recipient::Parse(upper).ok());
}

// 256 bits leave four in the last digit. These are kRecipient with the lowest and the highest of
// them set, under checksums that fit.
TEST(Keys, StrayBitsAtTheEndAreRefused) {
  for (const char* stray : {"age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73epp9g8nq",
                            "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73egz8c7s0"}) {
    EXPECT_THAT(Recipient::Parse(stray),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stray bits")));
  }
}

TEST(Keys, ErrorsNeverQuoteASecret) {
  std::string wrong = kIdentity;
  wrong[30] = 'b';
  for (const absl::Status& status :
       {Identity::Parse(wrong).status(), Recipient::Parse(kIdentity).status(),
        ParseIdentities(wrong).status()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("GFPYY"))));
  }
}

TEST(ParseIdentities, SkipsCommentsAndNamesTheLine) {
  const std::string text =
      fmt::format("# made today\r\n\n{}\r\n#\n{}", kIdentity, TestIdentity(1).ToSecret().view());
  ASSERT_OK_AND_ASSIGN(const std::vector<Identity> identities, ParseIdentities(text));
  ASSERT_EQ(identities.size(), 2U);
  EXPECT_EQ(identities[0].recipient().ToString(), kRecipient);
  EXPECT_EQ(identities[1].recipient(), TestIdentity(1).recipient());
  EXPECT_THAT(ParseIdentities(text + "\n\nhello"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 7")));
  EXPECT_THAT(ParseIdentities("# nothing\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no identity")));
  EXPECT_THAT(ParseIdentities("age-encryption.org/v1\n-> scrypt"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("itself encrypted")));
}

}  // namespace
}  // namespace vault
