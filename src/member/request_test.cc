#include "member/request.h"

#include "base/testing.h"
#include "proto/internal.pb.h"

namespace member {
namespace {

namespace pb = etcdserverpb;

TEST(Request, IsTheMessageThatTheSchemaDescribes) {
  pb::PutRequest put;
  put.set_key("k");
  put.set_value("v");
  pb::InternalRaftRequest whole;
  *whole.mutable_put() = put;
  whole.mutable_header()->set_id(77);
  EXPECT_EQ(EncodeRequest(RequestKind::kPut, put.SerializeAsString(), 77),
            whole.SerializeAsString());
  whole.mutable_header()->set_username("root");
  whole.mutable_header()->set_auth_revision(5);
  EXPECT_EQ(EncodeRequest(RequestKind::kPut, put.SerializeAsString(), 77, "root", 5),
            whole.SerializeAsString());
}

TEST(Request, FieldsAboveTheHeaderFollowIt) {
  pb::InternalRaftRequest whole;
  whole.mutable_header()->set_id(3);
  whole.mutable_cluster_version_set()->set_ver("3.7.0");
  EXPECT_EQ(EncodeRequest(RequestKind::kClusterVersionSet,
                          whole.cluster_version_set().SerializeAsString(), 3),
            whole.SerializeAsString());
}

TEST(Request, DecodesWhatItEncodes) {
  for (const RequestKind kind :
       {RequestKind::kRange, RequestKind::kTxn, RequestKind::kAlarm,
        RequestKind::kClusterVersionSet, RequestKind::kDowngradeVersionTest}) {
    const std::string bytes = EncodeRequest(kind, "message", 9, "user", 4);
    RequestView view;
    ASSERT_TRUE(DecodeRequest(bytes, &view));
    EXPECT_EQ(view.kind, kind);
    EXPECT_EQ(view.field, static_cast<uint32_t>(kind));
    EXPECT_EQ(view.id, 9u);
    EXPECT_EQ(view.message, "message");
    EXPECT_EQ(view.username, "user");
    EXPECT_EQ(view.auth_revision, 4u);
  }
}

TEST(Request, AnEmptyMessageIsOneTooAndTheLegacyIdCounts) {
  RequestView view;
  ASSERT_TRUE(DecodeRequest(EncodeRequest(RequestKind::kDeleteRange, "", 9), &view));
  EXPECT_EQ(view.kind, RequestKind::kDeleteRange);
  pb::InternalRaftRequest old;
  old.set_id(5);
  old.mutable_put()->set_key("k");
  view = {};
  ASSERT_TRUE(DecodeRequest(old.SerializeAsString(), &view));
  EXPECT_EQ(view.id, 5u);
  EXPECT_EQ(view.kind, RequestKind::kPut);
}

TEST(Request, RefusesWhatIsNone) {
  const std::string good = EncodeRequest(RequestKind::kPut, "message", 9, "user", 4);
  RequestView view;
  for (size_t n = 1; n < good.size(); ++n) {
    const std::string_view part = std::string_view(good).substr(0, n);
    // A cut between two fields leaves a message; any other does not.
    const bool between = n == good.size() - (2 + 2 + 6 + 2 + 1);
    EXPECT_EQ(DecodeRequest(part, &view), between) << n;
  }
  EXPECT_FALSE(DecodeRequest("\xff\xff\xff", &view));
}

}  // namespace
}  // namespace member
