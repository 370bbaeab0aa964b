#include "txn_parse.h"

#include <gtest/gtest.h>

#include "proto/rpc.pb.h"

namespace engramctl {
namespace {

TEST(ParseCompare, ReadsEveryTarget) {
  struct Expected {
    std::string line, proto;
  };
  const Expected all[] = {
      {"mod(\"a\") > \"7\"", "result: GREATER target: MOD key: \"a\" mod_revision: 7"},
      {"m(\"a\") = \"0\"", "target: MOD key: \"a\" mod_revision: 0"},
      {"create(\"a\") < \"1\"", "result: LESS target: CREATE key: \"a\" create_revision: 1"},
      {"ver(\"a\") != \"1\"", "result: NOT_EQUAL key: \"a\" version: 1"},
      {"val(\"a\") = \"x\\n\"", "target: VALUE key: \"a\" value: \"x\\n\""},
      {"lease(\"a\") = \"1f\"", "target: LEASE key: \"a\" lease: 31"},
  };
  for (const Expected& expected : all) {
    pb::Compare compare;
    ASSERT_TRUE(ParseCompare(expected.line, &compare).ok()) << expected.line;
    EXPECT_EQ(compare.ShortDebugString(), expected.proto);
  }
}

TEST(ParseCompare, SaysWhatIsMalformed) {
  struct Expected {
    std::string line, text;
  };
  const Expected all[] = {
      {"foo", "malformed comparison: foo"},
      {"mod(a) = 1", "malformed comparison: mod(a) = 1; got mod(\"\")  \"\""},
      {"mod(\"a\") = 1", "malformed comparison: mod(\"a\") = 1; got mod(\"a\") = \"\""},
      {"foo(\"a\") = \"1\"", "malformed comparison: foo(\"a\") = \"1\" (unknown target foo)"},
      {"mod(\"a\") = \"x\"", "invalid txn compare request: mod(\"a\") = \"x\""},
      {"mod(\"a\") ~ \"1\"", "malformed comparison: mod(\"a\") ~ \"1\" (unknown operator ~)"},
      {"lease(\"a\") = \"zz\"", "invalid txn compare request: lease(\"a\") = \"zz\""},
  };
  for (const Expected& expected : all) {
    pb::Compare compare;
    const BadRequest bad = ParseCompare(expected.line, &compare);
    EXPECT_EQ(bad.code, 3);
    EXPECT_EQ(bad.text, expected.text);
  }
}

TEST(ParseCompare, SurvivesEveryTruncation) {
  const std::string line = "val(\"k\\x01\") != \"v\\u00e4\"";
  for (size_t n = 0; n < line.size(); ++n) {
    pb::Compare compare;
    EXPECT_FALSE(ParseCompare(line.substr(0, n), &compare).ok()) << n;
  }
}

TEST(SplitWords, ReadsQuotes) {
  std::vector<std::string> words;
  ASSERT_TRUE(SplitWords("put  \"a b\" 'c \"d' e\\f \"\\x41\"", &words).ok());
  EXPECT_EQ(words, (std::vector<std::string>{"put", "a b", "c \"d", "e\\f", "A"}));
}

TEST(ParseRequestLine, ReadsFlags) {
  pb::RequestOp op;
  ASSERT_TRUE(ParseRequestLine("get a --prefix --limit=3", &op).ok());
  EXPECT_EQ(op.request_range().range_end(), "b");
  EXPECT_EQ(op.request_range().limit(), 3);
  op.Clear();
  ASSERT_TRUE(ParseRequestLine("del --prev-kv \"x\"", &op).ok());
  EXPECT_TRUE(op.request_delete_range().prev_kv());
  op.Clear();
  ASSERT_TRUE(ParseRequestLine("put --lease=1f x y", &op).ok());
  EXPECT_EQ(op.request_put().lease(), 31);
}

TEST(ParseRequestLine, DoesNotReadInputForAValue) {
  pb::RequestOp op;
  const BadRequest bad = ParseRequestLine("put k", &op);
  EXPECT_EQ(bad.code, 128);
}

TEST(PrefixEnd, SkipsHighBytes) {
  EXPECT_EQ(PrefixEnd("a"), "b");
  EXPECT_EQ(PrefixEnd("a\xff"), "b");
  EXPECT_EQ(PrefixEnd("\xff\xff"), std::string(1, '\0'));
  EXPECT_EQ(PrefixRange("").key, std::string(1, '\0'));
}

}  // namespace
}  // namespace engramctl
