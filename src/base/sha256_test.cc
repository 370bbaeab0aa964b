#include "base/sha256.h"

#include <gtest/gtest.h>

namespace base {
namespace {

// FIPS 180-2, appendix B.1.
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(Sha256, IsTheStandardsForOnePieceAndForMany) {
  EXPECT_EQ(DigestToHex(Sha256("abc")), kAbc);
  Sha256Stream stream;
  for (const char* piece : {"a", "", "b", "c"}) stream.Update(piece);
  EXPECT_EQ(DigestToHex(stream.Finish()), kAbc);
}

TEST(ParseDigest, TakesWhatIsPrintedAndNothingElse) {
  Digest digest{};
  ASSERT_TRUE(ParseDigest(kAbc, &digest));
  EXPECT_EQ(digest, Sha256("abc"));
  const std::string text = kAbc;
  for (const std::string& bad :
       {std::string(), text.substr(1), text + "0", "B" + text.substr(1), "g" + text.substr(1)}) {
    EXPECT_FALSE(ParseDigest(bad, &digest)) << bad;
  }
  EXPECT_EQ(digest, Sha256("abc")) << "untouched by what is refused";
}

}  // namespace
}  // namespace base
