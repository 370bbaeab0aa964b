#include "base/bytes.h"

#include <gtest/gtest.h>

namespace base {
namespace {

TEST(Hex, IdsHaveOneToSixteenDigits) {
  uint64_t id = 0;
  EXPECT_TRUE(ParseHexId("0", &id));
  EXPECT_TRUE(ParseHexId("FFffffffffffffff", &id));
  EXPECT_EQ(id, UINT64_MAX);
  for (const char* text : {"", "x", "0x1", "-1", "10000000000000000"}) {
    EXPECT_FALSE(ParseHexId(text, &id)) << text;
  }
}

TEST(Hex, FixedOnesHaveSixteenSmallDigits) {
  uint64_t value = 0;
  ASSERT_TRUE(ParseHex16("0123456789abcdef", &value));
  EXPECT_EQ(value, 0x0123456789abcdefu);
  for (const char* text : {"", "1", "0123456789ABCDEF", "0123456789abcde", "0123456789abcdef0",
                           "-123456789abcdef", "0x23456789abcdef", "0123456789abcde "}) {
    EXPECT_FALSE(ParseHex16(text, &value)) << text;
  }
}

}  // namespace
}  // namespace base
