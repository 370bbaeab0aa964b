#include "flags.h"

#include <gtest/gtest.h>

#include "base/testing.h"

namespace engramctl {
namespace {

using base::StatusIs;

constexpr FlagSpec kSpecs[] = {
    {.name = "write-out", .default_value = "simple", .shorthand = 'w'},
    {.name = "hex", .type = FlagType::kBool},
    {.name = "interactive", .type = FlagType::kBool, .shorthand = 'i'},
    {.name = "limit", .type = FlagType::kInt},
    {.name = "timeout", .type = FlagType::kDuration, .default_value = "5s"},
    {.name = "endpoints", .type = FlagType::kStringList, .default_value = "127.0.0.1:2379"},
};

class Flags : public testing::Test {
 protected:
  Flags() { flags_.Add(kSpecs); }
  absl::Status Parse(std::vector<std::string> arguments) { return flags_.Parse(arguments); }
  FlagSet flags_;
};

TEST_F(Flags, StandAnywhereAndLastWins) {
  ASSERT_OK(Parse({"get", "-wjson", "a", "--limit", "3", "-w=fields", "b", "--hex", "--limit=7"}));
  EXPECT_EQ(flags_.words(), (std::vector<std::string>{"get", "a", "b"}));
  EXPECT_EQ(flags_.String("write-out"), "fields");
  EXPECT_EQ(flags_.Int("limit"), 7);
  EXPECT_TRUE(flags_.Bool("hex"));
}

TEST_F(Flags, EndAtTwoDashes) {
  ASSERT_OK(Parse({"a", "--", "-w", "--hex"}));
  EXPECT_EQ(flags_.words(), (std::vector<std::string>{"a", "-w", "--hex"}));
  EXPECT_EQ(flags_.words_before_dash(), 1);
  EXPECT_FALSE(flags_.Bool("hex"));
}

TEST_F(Flags, BooleansTakeAValueOnlyAfterEquals) {
  ASSERT_OK(Parse({"--hex", "false", "-i=false"}));
  EXPECT_TRUE(flags_.Bool("hex"));
  EXPECT_FALSE(flags_.Bool("interactive"));
  EXPECT_EQ(flags_.words(), (std::vector<std::string>{"false"}));
}

TEST_F(Flags, ListsReplaceTheDefaultAndThenGrow) {
  EXPECT_EQ(flags_.List("endpoints").size(), 1u);
  ASSERT_OK(Parse({"--endpoints=a:1,b:2", "--endpoints", "c:3"}));
  EXPECT_EQ(flags_.List("endpoints"), (std::vector<std::string>{"a:1", "b:2", "c:3"}));
  FlagSet empty;
  empty.Add(kSpecs);
  const std::vector<std::string> arguments = {"--endpoints="};
  ASSERT_OK(empty.Parse(arguments));
  EXPECT_TRUE(empty.List("endpoints").empty());
}

TEST_F(Flags, ErrorsReadLikePflags) {
  struct Expected {
    std::string argument, text;
  };
  const Expected all[] = {
      {"--nosuch", "unknown flag: --nosuch"},
      {"--nosuch=1", "unknown flag: --nosuch"},
      {"-zx", "unknown shorthand flag: 'z' in -zx"},
      {"-iz", "unknown shorthand flag: 'z' in -z"},
      {"-w", "flag needs an argument: 'w' in -w"},
      {"--write-out", "flag needs an argument: --write-out"},
      {"--=x", "bad flag syntax: --=x"},
      {"---x", "bad flag syntax: ---x"},
      {"--timeout=abc",
       "invalid argument \"abc\" for \"--timeout\" flag: time: invalid duration \"abc\""},
      {"--limit=z",
       "invalid argument \"z\" for \"--limit\" flag: strconv.ParseInt: parsing \"z\": invalid "
       "syntax"},
      {"-i=x",
       "invalid argument \"x\" for \"-i, --interactive\" flag: strconv.ParseBool: parsing \"x\": "
       "invalid syntax"},
  };
  for (const Expected& expected : all) {
    FlagSet flags;
    flags.Add(kSpecs);
    const std::vector<std::string> arguments = {expected.argument};
    EXPECT_THAT(flags.Parse(arguments),
                StatusIs(absl::StatusCode::kInvalidArgument, expected.text));
  }
}

TEST_F(Flags, HelpIsAlwaysKnown) {
  ASSERT_OK(Parse({"-h"}));
  EXPECT_TRUE(flags_.help_wanted());
}

TEST_F(Flags, EnvironmentDoesNotCountAsChanged) {
  ASSERT_OK(flags_.SetFromEnvironment("write-out", "json"));
  EXPECT_EQ(flags_.String("write-out"), "json");
  EXPECT_FALSE(flags_.Changed("write-out"));
  EXPECT_FALSE(flags_.SetFromEnvironment("timeout", "abc").ok());
}

}  // namespace
}  // namespace engramctl
