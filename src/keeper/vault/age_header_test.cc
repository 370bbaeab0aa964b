// The header's rules, one by one. Texts are built so that only the rule in question is broken: MACs
// are right where a header could be opened.
#include "vault/age_header.h"

#include <optional>

#include "base/testing.h"
#include "vault/crypto.h"
#include "vault/test_age.h"

namespace vault {
namespace {

using base::IsOkAndHolds;
using base::StatusIs;
using testing::HasSubstr;

const std::string kZeroMac(43, 'A');

class HeaderTest : public testing::Test {
 protected:
  HeaderTest() {
    base::SeededRandom random(5);
    FillRandom(random, file_key_.span());
    good_ = MakeHeader(file_key_, {&identity_.recipient(), 1}, random).value();
  }
  // The header with other stanza lines, under the right MAC.
  std::string WithStanzas(const std::string& stanzas) const {
    const std::string covered = "age-encryption.org/v1\n" + stanzas + "---";
    const Key key = HkdfSha256(file_key_.span(), {}, "header");
    return covered + " " + ToBase64(HmacSha256(key.span(), covered)) + "\n";
  }
  // The stanza of good_, both lines.
  std::string Stanza() const {
    const size_t start = good_.find("->");
    return good_.substr(start, good_.find("---") - start);
  }
  absl::Status Open(const std::string& text) const {
    return OpenHeader(text, {&identity_, 1}).status();
  }

  const Identity identity_ = TestIdentity(1);
  FileKey file_key_;
  std::string good_;
};

TEST_F(HeaderTest, IsWhatItShouldBe) {
  ASSERT_OK_AND_ASSIGN(const Header header, ParseHeader(good_));
  ASSERT_EQ(header.stanzas.size(), 1U);
  EXPECT_EQ(header.stanzas[0].arguments[0], "X25519");
  EXPECT_EQ(header.stanzas[0].arguments.size(), 2U);
  EXPECT_EQ(header.stanzas[0].body.size(), 32U);
  EXPECT_EQ(good_.substr(header.covered_bytes, 1), " ");
  ASSERT_OK_AND_ASSIGN(const FileKey opened, OpenHeader(good_, {&identity_, 1}));
  EXPECT_TRUE(EqualInConstantTime(opened.span(), file_key_.span()));
  EXPECT_EQ(WithStanzas(Stanza()), good_);
}

TEST_F(HeaderTest, OtherKindsOfRecipientsArePassedOver) {
  EXPECT_OK(
      Open(WithStanzas("-> ssh-ed25519 abc def\n\n" + Stanza() + "-> x-grease !~ 1\nAAAA\n")));
  const std::string full(64, 'A');
  EXPECT_OK(Open(WithStanzas("-> x\n" + full + "\n" + full + "\nAA\n" + Stanza())));
  EXPECT_OK(Open(WithStanzas("-> x\n" + full + "\n\n" + Stanza()))) << "a last line without text";
}

TEST_F(HeaderTest, EachRuleOfTheFormatIsKept) {
  const std::string full(64, 'A');
  const std::string point = Stanza().substr(10, 43);
  const std::string body = Stanza().substr(54, 43);
  const struct {
    const char* what;
    std::string text;
  } cases[] = {
      {"another version", "age-encryption.org/v2\n" + good_.substr(22)},
      {"carriage return", "age-encryption.org/v1\r\n" + good_.substr(22)},
      {"nothing", ""},
      {"bytes behind", good_ + "x"},
      {"no stanza", "age-encryption.org/v1\n--- " + kZeroMac + "\n"},
      {"no MAC", "age-encryption.org/v1\n-> x\n\n---\n"},
      {"two spaces before the MAC", "age-encryption.org/v1\n-> x\n\n---  " + kZeroMac + "\n"},
      {"short MAC", "age-encryption.org/v1\n-> x\n\n--- AAAA\n"},
      {"padded MAC", "age-encryption.org/v1\n-> x\n\n--- " + kZeroMac + "=\n"},
      {"stray bits in the MAC", "age-encryption.org/v1\n-> x\n\n--- " + kZeroMac.substr(1) + "B\n"},
      {"no arguments", WithStanzas("-> \n\n" + Stanza())},
      {"an arrow alone", WithStanzas("->\n\n" + Stanza())},
      {"an empty argument", WithStanzas("-> x  y\n\n" + Stanza())},
      {"a space at the end", WithStanzas("-> x \n\n" + Stanza())},
      {"a control character", WithStanzas("-> x\x01\n\n" + Stanza())},
      {"a letter beyond ASCII", WithStanzas("-> \xc3\xa9\n\n" + Stanza())},
      {"a full line that ends the body", WithStanzas("-> x\n" + full + "\n" + Stanza())},
      {"a line that is too long", WithStanzas("-> x\n" + full + "AAAA\n\n" + Stanza())},
      {"a line of another alphabet", WithStanzas("-> x\n-_\n" + Stanza())},
      {"stray bits in a body", WithStanzas("-> x\nAB\n" + Stanza())},
      {"padding in a body", WithStanzas("-> x\nAA==\n" + Stanza())},
      {"a text between", WithStanzas("hello\n" + Stanza())},
      {"a passphrase among others", WithStanzas("-> scrypt abc 10\n\n" + Stanza())},
      {"no point", WithStanzas("-> X25519\n" + body + "\n")},
      {"two points", WithStanzas("-> X25519 " + point + " " + point + "\n" + body + "\n")},
      {"a short point", WithStanzas("-> X25519 AAAA\n" + body + "\n")},
      {"a point of zeros", WithStanzas("-> X25519 " + kZeroMac + "\n" + body + "\n")},
      {"a padded point", WithStanzas("-> X25519 " + point + "=\n" + body + "\n")},
      {"a short body", WithStanzas("-> X25519 " + point + "\nAAAA\n")},
      {"a long body", WithStanzas("-> X25519 " + point + "\n" + body.substr(0, 42) + "AAA\n")},
  };
  for (const auto& broken : cases) {
    EXPECT_THAT(Open(broken.text), StatusIs(absl::StatusCode::kDataLoss)) << broken.what;
  }
}

// One text for each string of bytes, whatever a library takes for base64.
TEST(Base64, TakesWhatItPrintsAndNothingElse) {
  for (size_t n = 0; n < 70; ++n) {
    const std::string bytes = TestBytes(n);
    const std::string text = ToBase64(AsBytes(bytes));
    EXPECT_EQ(FromBase64(text), bytes);
    for (size_t i = 0; i < text.size(); ++i) {
      for (int c = 0; c < 256; ++c) {
        std::string other = text;
        other[i] = static_cast<char>(c);
        const std::optional<std::string> taken = FromBase64(other);
        EXPECT_TRUE(!taken.has_value() || ToBase64(AsBytes(*taken)) == other) << c;
      }
    }
  }
  for (const char* bad : {"A", "AAAAA", "AA=", "AA==", "AB", "AAB", "AA A", "AA\n", "-_AA"}) {
    EXPECT_FALSE(FromBase64(bad).has_value()) << bad;
  }
}

TEST_F(HeaderTest, AChangeThatStillParsesBreaksTheMac) {
  std::string text = good_;
  text.insert(text.find("---"), "-> x\n\n");
  EXPECT_THAT(Open(text), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("MAC")));
}

TEST_F(HeaderTest, ReadingStopsBehindTheHeader) {
  const std::string file = good_ + std::string(10'000, 'p');
  StringSource from(file);
  std::string following;
  ASSERT_THAT(ReadHeader(from, &following), IsOkAndHolds(good_));
  ASSERT_OK_AND_ASSIGN(const std::string rest, ReadAll(from));
  EXPECT_EQ(following + rest, file.substr(good_.size()));
}

TEST_F(HeaderTest, ReadingIsBounded) {
  const auto read = [](const std::string& text) {
    StringSource from(text);
    std::string following;
    return ReadHeader(from, &following).status();
  };
  std::string endless = "age-encryption.org/v1\n";
  while (endless.size() <= 2 * kHeaderBytesMax) endless += "-> x\n\n";
  EXPECT_THAT(read(endless), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("longer than")));
  EXPECT_THAT(read("age-encryption.org/v1\n" + std::string(2 * kHeaderBytesMax, 'x')),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("longer than")));
  EXPECT_THAT(read(std::string(2 * kHeaderBytesMax, 'x')),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no age file")));
}

}  // namespace
}  // namespace vault
