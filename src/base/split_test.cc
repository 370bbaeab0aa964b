#include "base/split.h"

#include <gtest/gtest.h>

namespace base {
namespace {

TEST(SplitAtCommas, GivesTheParts) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(SplitAtCommas(""), Parts{});
  EXPECT_EQ(SplitAtCommas("a"), Parts{"a"});
  EXPECT_EQ(SplitAtCommas("a,b=1,c"), (Parts{"a", "b=1", "c"}));
  EXPECT_EQ(SplitAtCommas(",a,,b,"), (Parts{"", "a", "", "b"}));
}

}  // namespace
}  // namespace base
