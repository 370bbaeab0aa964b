#include "config/keys.h"

#include "base/testing.h"

namespace config {
namespace {

using testing::HasSubstr;

constexpr const char* kRecipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";

TEST(RecipientKey, TakesWhatAgeWrites) {
  EXPECT_EQ(RecipientFault(kRecipient), "");
  EXPECT_EQ(RecipientFault("age1lggyhqrw2nlhcxprm67z43rta597azn8gknawjehu9d9dl0jq3yqqvfafg"), "");
}

TEST(RecipientKey, NoticesEveryMistypedCharacter) {
  const std::string right(kRecipient);
  for (size_t i = 4; i < right.size(); ++i) {
    std::string wrong = right;
    wrong[i] = right[i] == 'q' ? 'p' : 'q';
    EXPECT_THAT(RecipientFault(wrong), HasSubstr("checksum")) << i;
  }
}

TEST(RecipientKey, NamesOtherMistakes) {
  EXPECT_THAT(RecipientFault("ssh-ed25519 AAAA"), HasSubstr("begin with age1"));
  EXPECT_THAT(RecipientFault("age1abc"), HasSubstr("characters"));
  EXPECT_THAT(RecipientFault(std::string(kRecipient) + "q"), HasSubstr("63 characters"));
  EXPECT_THAT(RecipientFault("age1"), HasSubstr("4 characters"));
  const std::string secret = "AGE-SECRET-KEY-1QQQQQQQQ";
  EXPECT_THAT(RecipientFault(secret), HasSubstr("private key"));
  EXPECT_THAT(RecipientFault(secret), testing::Not(HasSubstr("QQQQ")));
}

TEST(SignerKey, TakesHexAndBase64) {
  const std::string hex = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
  EXPECT_EQ(SignerHex(hex), hex);
  EXPECT_EQ(SignerHex("000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F"), hex);
  EXPECT_EQ(SignerHex("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="), hex);
  EXPECT_EQ(SignerHex("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"), hex);
  EXPECT_EQ(SignerHex("engram-signing-public-1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="), hex);
  for (const char* text : {"", "00", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9",
                           "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdH!8="}) {
    EXPECT_EQ(SignerHex(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace config
