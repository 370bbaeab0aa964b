#include "config/keys.h"

#include "base/random.h"
#include "base/testing.h"
#include "vault/age_keys.h"
#include "vault/signing.h"

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

TEST(SignerKey, TakesThePublicLineOrItsBase64) {
  const std::string digits = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
  const std::string line = "engram-signing-public-1 " + digits;
  EXPECT_EQ(SignerText(line), line);
  EXPECT_EQ(SignerText(digits), line);
  EXPECT_EQ(SignerText(digits + "="), line);
  for (const std::string& text :
       {std::string(), std::string("00"), digits.substr(1), digits + "A", "!" + digits.substr(1),
        digits.substr(0, 42) + "9", "engram-signing-secret-1 " + digits, "x " + line}) {
    EXPECT_EQ(SignerText(text), std::nullopt) << text;
  }
}

// What is taken here is what the keeper's own keys can be made of, and the other way round.
TEST(Keys, AreThoseOfTheVault) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    base::SeededRandom random(seed);
    const std::string signer = vault::SigningKey::Generate(random).verifying_key().ToString();
    EXPECT_EQ(SignerText(signer), signer);
    const std::string recipient = vault::Identity::Generate(random).recipient().ToString();
    EXPECT_EQ(RecipientFault(recipient), "");
    EXPECT_OK(vault::Recipient::Parse(recipient));
    std::string wrong = recipient;
    wrong[10 + seed] = wrong[10 + seed] == 'q' ? 'p' : 'q';
    EXPECT_NE(RecipientFault(wrong), "");
    EXPECT_FALSE(vault::Recipient::Parse(wrong).ok());
  }
}

}  // namespace
}  // namespace config
