// age files: round trips at the borders of chunks, and what becomes of damaged ones.
#include "vault/age.h"

#include <fstream>
#include <iterator>

#include "base/testing.h"
#include "vault/test_age.h"

namespace vault {
namespace {

using base::IsOkAndHolds;
using base::StatusIs;
using testing::AnyOf;
using testing::HasSubstr;

class AgeTest : public testing::Test {
 protected:
  std::string Encrypt(std::string_view plain) {
    return AgeEncrypt({&identity_.recipient(), 1}, plain).value();
  }
  absl::StatusOr<std::string> Decrypt(std::string_view sealed) {
    return AgeDecrypt({&identity_, 1}, sealed);
  }
  // The payload's first byte: behind the header and the nonce.
  static size_t PayloadStart(const std::string& sealed) {
    return sealed.find('\n', sealed.find("\n---") + 1) + 1 + 16;
  }

  const Identity identity_ = TestIdentity(1);
  const Identity other_ = TestIdentity(2);
};

TEST_F(AgeTest, RoundTripsAtTheBordersOfChunks) {
  for (const size_t n : {0, 1, 65535, 65536, 65537, 131071, 131072, 131073}) {
    const std::string plain = TestBytes(n);
    const std::string sealed = Encrypt(plain);
    const size_t chunks = n == 0 ? 1 : (n + 65535) / 65536;
    EXPECT_EQ(sealed.size() - PayloadStart(sealed), n + 16 * chunks) << n;
    EXPECT_THAT(Decrypt(sealed), IsOkAndHolds(plain)) << n;
  }
}

TEST_F(AgeTest, PiecesOfAnySizeMakeTheSameFile) {
  const std::string plain = TestBytes(70'000);
  const std::string sealed = Encrypt(plain);
  for (const size_t piece : {1, 7, 65536, 70'000}) {
    EXPECT_EQ(AgeEncrypt({&identity_.recipient(), 1}, plain, piece).value(), sealed) << piece;
    EXPECT_THAT(AgeDecrypt({&identity_, 1}, sealed, piece), IsOkAndHolds(plain)) << piece;
  }
}

TEST_F(AgeTest, EachOfTwoRecipientsOpensIt) {
  const std::vector<Recipient> both = {identity_.recipient(), other_.recipient()};
  ASSERT_OK_AND_ASSIGN(const std::string sealed, AgeEncrypt(both, "for two"));
  EXPECT_THAT(AgeDecrypt({&identity_, 1}, sealed), IsOkAndHolds("for two"));
  EXPECT_THAT(AgeDecrypt({&other_, 1}, sealed), IsOkAndHolds("for two"));
  const std::vector<Identity> ring = {TestIdentity(3), other_};
  EXPECT_THAT(AgeDecrypt(ring, sealed), IsOkAndHolds("for two"));
}

TEST_F(AgeTest, AWrongKeyIsNamedAsSuch) {
  const std::vector<Identity> ring = {other_, TestIdentity(3)};
  EXPECT_THAT(AgeDecrypt(ring, Encrypt("x")),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("none of the 2 identities opens this object")));
  EXPECT_THAT(AgeDecrypt({}, Encrypt("x")), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(AgeTest, NoRecipientIsNoEncryption) {
  EXPECT_THAT(AgeEncrypt({}, "x"), StatusIs(absl::StatusCode::kInvalidArgument));
  const Recipient nobody{Point{}};
  EXPECT_THAT(AgeEncrypt({&nobody, 1}, "x"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a usable public key")));
  const std::vector<Recipient> crowd(1000, identity_.recipient());
  EXPECT_THAT(AgeEncrypt(crowd, "x"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too many")));
}

TEST_F(AgeTest, CutOffAnywhereIsDamage) {
  const std::string sealed = Encrypt("short, but not empty");
  for (size_t n = 0; n < sealed.size(); ++n) {
    EXPECT_THAT(Decrypt(sealed.substr(0, n)), StatusIs(absl::StatusCode::kDataLoss)) << n;
  }
}

TEST_F(AgeTest, CutOffBetweenChunksIsDamageThatIsNamed) {
  const std::string sealed = Encrypt(TestBytes(3 * 65536));
  for (size_t chunks = 1; chunks < 3; ++chunks) {
    const size_t end = PayloadStart(sealed) + chunks * kSealedChunkBytes;
    EXPECT_THAT(
        Decrypt(sealed.substr(0, end)),
        StatusIs(absl::StatusCode::kDataLoss, HasSubstr(fmt::format("cut off at byte {}", end))));
    EXPECT_THAT(Decrypt(sealed.substr(0, end + 5)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("cut off")));
  }
}

TEST_F(AgeTest, EveryFlippedByteIsFound) {
  const std::string plain = "short, but not empty";
  const std::string sealed = Encrypt(plain);
  for (size_t i = 0; i < sealed.size(); ++i) {
    for (const int mask : {1, 0x20, 0x80}) {
      std::string damaged = sealed;
      damaged[i] = static_cast<char>(damaged[i] ^ mask);
      EXPECT_THAT(Decrypt(damaged), AnyOf(StatusIs(absl::StatusCode::kDataLoss),
                                          StatusIs(absl::StatusCode::kPermissionDenied)))
          << i << " " << mask;
    }
  }
}

TEST_F(AgeTest, ChunksCannotBeSwappedDroppedOrRepeated) {
  const std::string sealed = Encrypt(TestBytes(4 * 65536));
  const size_t start = PayloadStart(sealed);
  const auto chunk = [&](size_t i) {
    return sealed.substr(start + i * kSealedChunkBytes, kSealedChunkBytes);
  };
  const std::string head = sealed.substr(0, start);
  ASSERT_OK(Decrypt(head + chunk(0) + chunk(1) + chunk(2) + chunk(3)).status());
  for (const std::string& bad :
       {chunk(1) + chunk(0) + chunk(2) + chunk(3), chunk(0) + chunk(2) + chunk(3),
        chunk(0) + chunk(1) + chunk(1) + chunk(3), chunk(0) + chunk(1) + chunk(3) + chunk(2)}) {
    EXPECT_THAT(Decrypt(head + bad), StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST_F(AgeTest, BytesBehindTheEndAreDamage) {
  EXPECT_THAT(Decrypt(Encrypt("x") + "y"), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Decrypt(Encrypt(TestBytes(65536)) + "y"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("appended")));
}

// Only one who has the file key can make this one: the last chunk is sealed as such, but empty.
TEST_F(AgeTest, AnEmptyLastChunkIsRefusedBehindAnother) {
  base::SeededRandom random(3);
  FileKey file_key;
  FillRandom(random, file_key.span());
  const std::string nonce_text(16, 'n');
  ASSERT_OK_AND_ASSIGN(const std::string header,
                       MakeHeader(file_key, {&identity_.recipient(), 1}, random));
  const Key key = HkdfSha256(file_key.span(), AsBytes(nonce_text), "payload");
  const auto seal = [&](uint8_t counter, uint8_t last, std::string_view plain) {
    Nonce nonce{};
    nonce[10] = counter;
    nonce[11] = last;
    std::string out(plain.size() + kTagBytes, '\0');
    SealChaCha(key, nonce, AsBytes(plain), reinterpret_cast<uint8_t*>(out.data()));
    return out;
  };
  const std::string full(kChunkBytes, 'p');
  EXPECT_THAT(Decrypt(header + nonce_text + seal(0, 1, "")), IsOkAndHolds(""));
  EXPECT_THAT(Decrypt(header + nonce_text + seal(0, 0, full) + seal(1, 1, "q")),
              IsOkAndHolds(full + "q"));
  EXPECT_THAT(Decrypt(header + nonce_text + seal(0, 0, full) + seal(1, 1, "")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("chunk 1 is empty")));
  EXPECT_THAT(Decrypt(header + nonce_text + seal(0, 0, "short") + seal(1, 1, "q")),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(AgeTest, ErrorsAreFinal) {
  std::string sealed = Encrypt(TestBytes(3 * 65536));
  sealed[PayloadStart(sealed) + kSealedChunkBytes + 3] ^= 1;
  StringSource from(sealed);
  ASSERT_OK_AND_ASSIGN(const auto source, AgeSource::Open({&identity_, 1}, from));
  std::string buffer(kChunkBytes, '\0');
  ASSERT_THAT(ReadFully(*source, buffer.data(), buffer.size()), IsOkAndHolds(kChunkBytes));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(source->Read(buffer.data(), 1),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("chunk 1")));
  }
}

TEST_F(AgeTest, RewrapChangesWhoOpensItAndNothingElse) {
  const std::string plain = TestBytes(100'000);
  const std::string sealed = Encrypt(plain);
  base::SeededRandom random(9);
  StringSource from(sealed);
  std::string rewrapped;
  StringSink to(&rewrapped, kTestBytesMax);
  ASSERT_OK(RewrapStream({&identity_, 1}, {&other_.recipient(), 1}, random, from, to));
  EXPECT_THAT(AgeDecrypt({&other_, 1}, rewrapped), IsOkAndHolds(plain));
  EXPECT_THAT(Decrypt(rewrapped), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(rewrapped.substr(PayloadStart(rewrapped) - 16),
            sealed.substr(PayloadStart(sealed) - 16));
  StringSource again(sealed);
  EXPECT_THAT(RewrapStream({&other_, 1}, {&other_.recipient(), 1}, random, again, to),
              StatusIs(absl::StatusCode::kPermissionDenied));
}

// Both ways with the program everybody has.
class StockAgeTest : public AgeTest {
 protected:
  void SetUp() override {
    if (std::system("age --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no age program";
    std::ofstream(scratch_ / "identity") << identity_.ToSecret().view() << "\n";
  }
  int Run(const std::string& command) {
    return std::system(("cd " + scratch_.path() + " && " + command).c_str());
  }
  base::ScratchDirectory scratch_;
};

TEST_F(StockAgeTest, OpensWhatIsWrittenHere) {
  const std::vector<Recipient> both = {other_.recipient(), identity_.recipient()};
  for (const size_t n : {0, 1, 65536, 200'000}) {
    const std::string plain = TestBytes(n);
    ASSERT_OK(base::WriteFileAtomically(base::PosixFiles(), scratch_ / "sealed",
                                        AgeEncrypt(both, plain).value(), 0600));
    ASSERT_EQ(Run("age -d -i identity sealed >plain"), 0) << n;
    EXPECT_THAT(base::ReadFile(base::PosixFiles(), scratch_ / "plain"), IsOkAndHolds(plain)) << n;
  }
}

TEST_F(StockAgeTest, WritesWhatIsOpenedHere) {
  for (const size_t n : {0, 1, 65536, 200'000}) {
    const std::string plain = TestBytes(n);
    ASSERT_OK(base::WriteFileAtomically(base::PosixFiles(), scratch_ / "plain", plain, 0600));
    ASSERT_EQ(Run(fmt::format("age -r {} -r {} -o sealed plain", other_.recipient().ToString(),
                              identity_.recipient().ToString())),
              0);
    ASSERT_OK_AND_ASSIGN(const std::string sealed,
                         base::ReadFile(base::PosixFiles(), scratch_ / "sealed"));
    EXPECT_THAT(Decrypt(sealed), IsOkAndHolds(plain)) << n;
  }
}

TEST_F(StockAgeTest, AgreesOnTheRecipientOfAnIdentity) {
  if (Run("age-keygen --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no age-keygen program";
  ASSERT_EQ(Run("age-keygen -y -o public identity && age-keygen -o theirs 2>/dev/null && "
                "age-keygen -y -o theirs-public theirs"),
            0);
  EXPECT_THAT(base::ReadFile(base::PosixFiles(), scratch_ / "public"),
              IsOkAndHolds(identity_.recipient().ToString() + "\n"));
  ASSERT_OK_AND_ASSIGN(const std::string theirs,
                       base::ReadFile(base::PosixFiles(), scratch_ / "theirs"));
  ASSERT_OK_AND_ASSIGN(const auto identities, ParseIdentities(theirs));
  ASSERT_EQ(identities.size(), 1U);
  EXPECT_THAT(base::ReadFile(base::PosixFiles(), scratch_ / "theirs-public"),
              IsOkAndHolds(identities[0].recipient().ToString() + "\n"));
}

}  // namespace
}  // namespace vault
