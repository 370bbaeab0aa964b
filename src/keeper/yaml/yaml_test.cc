#include "yaml/yaml.h"

#include "base/testing.h"

namespace yaml {
namespace {

using absl::StatusCode;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Yaml, KeepsLinesKeysAndQuotes) {
  ASSERT_OK_AND_ASSIGN(const std::vector<Value> documents,
                       Parse("a: 1\nb: [x, \"2\"]\nc:\n  d: ~\n"));
  ASSERT_EQ(documents.size(), 1u);
  const Value& root = documents[0];
  ASSERT_TRUE(root.is_map());
  EXPECT_EQ(root.keys, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(root.key_lines, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(root.TextOf("a"), "1");
  ASSERT_TRUE(root.Find("b")->is_sequence());
  EXPECT_FALSE(root.Find("b")->items[0].quoted);
  EXPECT_TRUE(root.Find("b")->items[1].quoted);
  EXPECT_TRUE(root.Find("c")->Find("d")->is_null());
  EXPECT_EQ(root.Find("nothing"), nullptr);
}

TEST(Yaml, ReadsSeveralDocumentsAndSkipsEmptyOnes) {
  ASSERT_OK_AND_ASSIGN(const std::vector<Value> documents,
                       Parse("---\na: 1\n---\n# only words\n---\nb: 2\n"));
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[1].TextOf("b"), "2");
  ASSERT_OK_AND_ASSIGN(const std::vector<Value> none, Parse(""));
  EXPECT_TRUE(none.empty());
}

TEST(Yaml, FollowsAliasesWithinABound) {
  ASSERT_OK_AND_ASSIGN(const std::vector<Value> documents, Parse("one: &a {ca: /x}\ntwo: *a\n"));
  EXPECT_EQ(documents[0].Find("two")->TextOf("ca"), "/x");
  EXPECT_EQ(documents[0].Find("two")->line, 2);
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += fmt::format("a{}: &a{} [", i, i);
    for (int j = 0; j < 10; ++j) bomb += fmt::format("{}*a{}", j == 0 ? "" : ", ", i - 1);
    bomb += "]\n";
  }
  EXPECT_THAT(Parse(bomb), base::StatusIs(StatusCode::kInvalidArgument, HasSubstr("unfold")));
  std::string fat = "big: &big \"" + std::string(600'000, 'x') + "\"\nall: [";
  for (int i = 0; i < 10; ++i) fat += "*big, ";
  EXPECT_THAT(Parse(fat + "*big]\n"),
              base::StatusIs(StatusCode::kInvalidArgument, HasSubstr("2: its aliases unfold")));
}

TEST(Yaml, RefusesAnAliasWithinItself) {
  EXPECT_THAT(Parse("a: &a [1, *a]\n"),
              base::StatusIs(StatusCode::kInvalidArgument, StartsWith("1: an alias of what")));
}

TEST(Yaml, RefusesRepeatedKeysAndKeysThatAreNoText) {
  EXPECT_THAT(Parse("a: 1\nb: 2\na: 3\n"),
              base::StatusIs(StatusCode::kInvalidArgument, "3: the key `a` stands here twice"));
  EXPECT_THAT(Parse("? [a, b]\n: 1\n"),
              base::StatusIs(StatusCode::kInvalidArgument, HasSubstr("a key must be a text")));
  EXPECT_THAT(Parse("~: 1\n"),
              base::StatusIs(StatusCode::kInvalidArgument, HasSubstr("a key must be a text")));
}

TEST(Yaml, RefusesWhatIsNoText) {
  EXPECT_THAT(Parse(std::string("a: 1\n\0", 6)),
              base::StatusIs(StatusCode::kInvalidArgument, HasSubstr("0x00")));
  EXPECT_THAT(Parse("a: 1\nb: \xff\xfe\n"),
              base::StatusIs(StatusCode::kInvalidArgument, StartsWith("2: this is no UTF-8")));
  EXPECT_THAT(Parse("a: \xed\xa0\x80\n"), base::StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK(Parse("a: \"größe €\"\n"));
}

TEST(Yaml, RefusesDepthTagsAndSize) {
  EXPECT_THAT(Parse(std::string(100, '[') + std::string(100, ']')),
              base::StatusIs(StatusCode::kInvalidArgument, HasSubstr("nested deeper than 64")));
  EXPECT_THAT(Parse(std::string(200'000, '[')), base::StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Parse("a: !!binary aGk=\n"),
              base::StatusIs(StatusCode::kInvalidArgument, HasSubstr("tag")));
  EXPECT_THAT(Parse(std::string((1 << 20) + 1, ' ')),
              base::StatusIs(StatusCode::kInvalidArgument, HasSubstr("1048577 bytes")));
}

TEST(Yaml, NamesTheLineOfASyntaxError) {
  EXPECT_THAT(Parse("a: 1\nb: [1, 2\n"), base::StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Parse("a: 1\n  b: 2\n"),
              base::StatusIs(StatusCode::kInvalidArgument, StartsWith("2: ")));
}

}  // namespace
}  // namespace yaml
