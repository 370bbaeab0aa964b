#include "print.h"

#include <gtest/gtest.h>

#include "command.h"
#include "commands.h"
#include "mirror.h"
#include "proto/kv.pb.h"
#include "proto/rpc.pb.h"

namespace engramctl {
namespace {

TEST(ToJson, LeavesZeroFieldsOut) {
  pb::RangeResponse response;
  response.mutable_header()->set_cluster_id(18446744073709551615u);
  response.mutable_header()->set_revision(4);
  mvccpb::KeyValue& kv = *response.add_kvs();
  kv.set_key("foo");
  kv.set_value(std::string("\x01\xff\n", 3));
  kv.set_lease(7);
  EXPECT_EQ(ToJson(response),
            "{\"header\":{\"cluster_id\":18446744073709551615,\"revision\":4},\"kvs\":[{\"key\":"
            "\"Zm9v\",\"value\":\"Af8K\",\"lease\":7}]}");
}

TEST(ToJson, NestsOneofs) {
  pb::TxnResponse response;
  response.set_succeeded(true);
  response.add_responses()->mutable_response_put()->mutable_header()->set_revision(5);
  EXPECT_EQ(ToJson(response),
            "{\"succeeded\":true,\"responses\":[{\"Response\":{\"response_put\":{\"header\":{"
            "\"revision\":5}}}}]}");
}

TEST(ToJson, WritesHexIdsWhenAsked) {
  pb::MemberListResponse response;
  response.mutable_header()->set_member_id(255);
  response.add_members()->set_id(16);
  EXPECT_EQ(ToJson(response, true),
            "{\"header\":{\"member_id\":\"ff\"},\"members\":[{\"ID\":\"10\"}]}");
}

TEST(Table, CentresHeadersAndAlignsCells) {
  EXPECT_EQ(Table({"id", "name"}, {{"1234567", "x"}}),
            "┌─────────┬──────┐\n"
            "│   ID    │ NAME │\n"
            "├─────────┼──────┤\n"
            "│ 1234567 │    x │\n"
            "└─────────┴──────┘\n");
  EXPECT_EQ(Table({"a"}, {}), "┌───┐\n│ A │\n└───┘\n");
}

TEST(EditDistance, CountsInsertionsDeletionsSubstitutions) {
  EXPECT_EQ(EditDistance("get", "get"), 0u);
  EXPECT_EQ(EditDistance("gett", "get"), 1u);
  EXPECT_EQ(EditDistance("e", "del"), 2u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
}

TEST(HelpText, NamesTheProgramAndItsCommands) {
  const Command root = RootCommand("etcdctl");
  const std::string text = HelpText(root, root, "etcdctl");
  EXPECT_NE(text.find("Use \"etcdctl options\""), std::string::npos);
  for (const Command& command : root.commands) {
    EXPECT_NE(text.find(std::string(command.name)), std::string::npos) << command.name;
  }
}

TEST(MirrorPosition, RoundTrips) {
  MirrorPosition back;
  ASSERT_TRUE(ParsePosition(FormatPosition({255, 7, "a b\n"}), &back));
  EXPECT_EQ(back.cluster_id, 255u);
  EXPECT_EQ(back.revision, 7);
  EXPECT_EQ(back.prefix, "a b\n");
  for (const char* text : {"", "ff", "ff 7", "ff x \"\"", "ff 0 \"\"", "ff 7 a"}) {
    EXPECT_FALSE(ParsePosition(text, &back)) << text;
  }
}

}  // namespace
}  // namespace engramctl
