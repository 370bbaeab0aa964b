#include "api/json.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/rpc.pb.h"

namespace api {
namespace {

namespace pb = etcdserverpb;

template <typename Message>
std::string ReadAs(const std::string& json) {
  const auto wire = JsonToWire(json, Message::default_instance());
  if (!wire.ok()) return wire.status().ToString();
  Message message;
  EXPECT_TRUE(message.ParseFromString(*wire));
  return message.ShortDebugString();
}

TEST(Json, PassesOverUnknownFieldsAndWhatFollows) {
  EXPECT_EQ(ReadAs<pb::PutRequest>(R"({"key":"YQ==","no such":[{}]} rest)"), R"(key: "a")");
  EXPECT_EQ(ReadAs<pb::PutRequest>(" "), "");
}

TEST(Json, AnEmptyNameIsUnknownWhereverItStands) {
  EXPECT_EQ(ReadAs<pb::PutRequest>(R"({"":"x","key":"YQ==", "" : {"":1}})"), R"(key: "a")");
  // Within an element of a list the library would begin another element.
  EXPECT_EQ(ReadAs<pb::TxnRequest>(R"({"compare":[{"":{"key":"YQ=="}}]})"), "compare { }");
  EXPECT_EQ(
      ReadAs<pb::TxnRequest>(R"({"success":[{"":{"key":"YQ=="},"request_put":{"key":"Yg=="}}]})"),
      R"(success { request_put { key: "b" } })");
}

TEST(Json, AStringThatIsEmptyIsNoName) {
  EXPECT_EQ(ReadAs<pb::PutRequest>(R"({"key":"","value":"YQ=="})"), R"(value: "a")");
}

}  // namespace
}  // namespace api
