#include "text.h"

#include <gtest/gtest.h>

#include "base/testing.h"

namespace engramctl {
namespace {

using base::StatusIs;

TEST(ParseInt, NamesWhatItCouldNotRead) {
  EXPECT_THAT(ParseInt("zz", 16), StatusIs(absl::StatusCode::kInvalidArgument,
                                           "strconv.ParseInt: parsing \"zz\": invalid syntax"));
  EXPECT_THAT(ParseInt("9223372036854775808", 10),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "strconv.ParseInt: parsing \"9223372036854775808\": value out of range"));
  EXPECT_FALSE(ParseInt("", 10).ok());
  EXPECT_FALSE(ParseInt("0x1", 16).ok());
  EXPECT_FALSE(ParseInt("1.5", 0).ok());
}

TEST(ParseInt, ReadsTheExtremes) {
  EXPECT_EQ(*ParseInt("-9223372036854775808", 10), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*ParseInt("7fffffffffffffff", 16), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(*ParseUint("ffffffffffffffff", 16), std::numeric_limits<uint64_t>::max());
}

TEST(ParseInt, BaseZeroReadsPrefixes) {
  EXPECT_EQ(*ParseInt("0x10", 0), 16);
  EXPECT_EQ(*ParseInt("0b11", 0), 3);
  EXPECT_EQ(*ParseInt("017", 0), 15);
  EXPECT_EQ(*ParseInt("1_000", 0), 1000);
  EXPECT_EQ(*ParseInt("0", 0), 0);
  EXPECT_FALSE(ParseInt("1_", 0).ok());
}

TEST(Duration, RoundTripsGoForms) {
  for (const char* text : {"0s", "1ns", "1.5\u00b5s", "2.103696ms", "5.00083278s", "1m0s",
                           "1h2m3.5s", "-1.5s", "1000h0m0s"}) {
    EXPECT_EQ(FormatDuration(*ParseDuration(text)), text);
  }
  EXPECT_EQ(*ParseDuration("1m30s"), std::chrono::seconds(90));
}

TEST(Duration, SaysWhatIsMissing) {
  EXPECT_THAT(ParseDuration("abc"),
              StatusIs(absl::StatusCode::kInvalidArgument, "time: invalid duration \"abc\""));
  EXPECT_THAT(ParseDuration("5"),
              StatusIs(absl::StatusCode::kInvalidArgument, "time: missing unit in duration \"5\""));
  EXPECT_THAT(ParseDuration("1x"), StatusIs(absl::StatusCode::kInvalidArgument,
                                            "time: unknown unit \"x\" in duration \"1x\""));
}

TEST(Quote, EscapesWhatCannotBeShown) {
  EXPECT_EQ(Quote("a\"b\\\n\x01\xff\x7f"), "\"a\\\"b\\\\\\n\\x01\\xff\\x7f\"");
  EXPECT_EQ(Quote("\u00e4\u4e16"), "\"\u00e4\u4e16\"");
  EXPECT_EQ(Quote("\u200b\u00ad"), "\"\\u200b\\u00ad\"");
}

TEST(Quote, IsUndoneByUnquote) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  std::string back;
  ASSERT_TRUE(Unquote(Quote(all), &back));
  EXPECT_EQ(back, all);
}

TEST(Unquote, RefusesBrokenText) {
  std::string out;
  for (const char* text : {"", "\"", "a", "\"a", "\"a\"b\"", "\"\\q\"", "\"\\x1\"", "\"\\400\"",
                           "\"\\ud800\"", "'a'"}) {
    EXPECT_FALSE(Unquote(text, &out)) << text;
  }
  ASSERT_TRUE(Unquote("`raw\\n`", &out));
  EXPECT_EQ(out, "raw\\n");
  ASSERT_TRUE(Unquote("\"\\u00e4\\101\"", &out));
  EXPECT_EQ(out, "\u00e4A");
}

TEST(HumanSize, CountsInThousands) {
  EXPECT_EQ(HumanSize(0), "0 B");
  EXPECT_EQ(HumanSize(9), "9 B");
  EXPECT_EQ(HumanSize(24576), "25 kB");
  EXPECT_EQ(HumanSize(2147483648), "2.1 GB");
  EXPECT_EQ(HumanSize(1000), "1.0 kB");
  EXPECT_EQ(HumanSize(82854982), "83 MB");
}

TEST(Base64, PadsTheEnd) {
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("fo"), "Zm8=");
  EXPECT_EQ(Base64("foo"), "Zm9v");
  EXPECT_EQ(Base64("\x01\xff\n"), "Af8K");
}

TEST(JsonString, EscapesAsEncodingJson) {
  EXPECT_EQ(JsonString("a<b>&\"\\\n\x01\x7f"), "\"a\\u003cb\\u003e\\u0026\\\"\\\\\\n\\u0001\x7f\"");
  EXPECT_EQ(JsonString("\xff"), "\"\\ufffd\"");
}

}  // namespace
}  // namespace engramctl
