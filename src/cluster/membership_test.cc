#include "cluster/membership.h"

#include "base/ids.h"
#include "base/testing.h"

namespace cluster {
namespace {

using base::StatusIs;

TEST(MemberJson, HasEtcdsFieldsInEtcdsOrder) {
  const Member member{.id = 12058907941444434240ULL,
                      .peer_urls = {"http://127.0.0.1:2380"},
                      .is_learner = true,
                      .name = "n<1>",
                      .client_urls = {"http://127.0.0.1:2379"}};
  const std::string json = EncodeMember(member);
  EXPECT_EQ(json,
            R"({"id":12058907941444434240,"peerURLs":["http://127.0.0.1:2380"],"isLearner":true,)"
            R"("name":"n\u003c1\u003e","clientURLs":["http://127.0.0.1:2379"]})");
  ASSERT_OK_AND_ASSIGN(const Member back, DecodeMember(json));
  EXPECT_EQ(back, member);
}

TEST(MemberJson, KeepsThatALearnerStandsInForAVoter) {
  const Member member{
      .id = 7, .peer_urls = {"http://a:1"}, .is_learner = true, .promote_when_ready = true};
  const std::string json =
      R"({"id":7,"peerURLs":["http://a:1"],"isLearner":true,"promoteWhenReady":true})";
  EXPECT_EQ(EncodeMember(member), json);
  const auto decoded = DecodeMember(json);
  ASSERT_OK(decoded);
  EXPECT_EQ(*decoded, member);
  Membership membership;
  membership.Add(member);
  membership.Promote(7);
  EXPECT_EQ(EncodeMember(*membership.view()->Find(7)), R"({"id":7,"peerURLs":["http://a:1"]})");
}

TEST(MemberJson, PromotionHasNoUrls) {
  EXPECT_EQ(EncodeChangeContext({.member = {.id = 7}, .is_promote = true}),
            R"({"id":7,"peerURLs":null,"isPromote":true})");
  ASSERT_OK_AND_ASSIGN(const ChangeContext back,
                       DecodeChangeContext(R"({"id":7,"peerURLs":null,"isPromote":true})"));
  EXPECT_TRUE(back.is_promote);
}

TEST(MemberJson, RefusesWhatIsNoMember) {
  for (const char* text :
       {"", "null", "[]", "{}", R"({"id":-1})", R"({"id":"7"})", R"({"id":1,"peerURLs":"x"})",
        R"({"id":1,"peerURLs":[1]})", R"({"id":1,"name":2})", R"({"id":1.5})"}) {
    EXPECT_THAT(DecodeMember(text), StatusIs(absl::StatusCode::kDataLoss)) << text;
  }
}

TEST(Ids, MatchEtcd) {
  EXPECT_EQ(base::MemberId({"http://127.0.0.1:21001"}, "etcd-cluster"), 0xa759d8e1c4eeb940ULL);
  EXPECT_EQ(base::ClusterId({0xa759d8e1c4eeb940ULL}), 0x65ab6007cf6ff544ULL);
  EXPECT_EQ(base::MemberId({"http://localhost:2380"}, "etcd-cluster"), 0x8e9e05c52164694dULL);
  EXPECT_EQ(base::MemberId({"http://127.0.0.1:21027"}, "1796055711"), 0xb6647fca2316ea4bULL);
  EXPECT_EQ(base::ClusterId({0xbb3763793ecc343eULL, 0xce88f6e949cd068fULL, 0xcb3ca74463964ec4ULL}),
            0xb7d89151f755b174ULL);
}

TEST(InitialCluster, CollectsTheUrlsOfAName) {
  ASSERT_OK_AND_ASSIGN(const auto map,
                       ParseInitialCluster("a=http://h:1,b=http://h:2,a=http://h:3"));
  EXPECT_EQ(map.size(), 2U);
  EXPECT_EQ(map.at("a").size(), 2U);
  EXPECT_FALSE(ParseInitialCluster("a").ok());
  EXPECT_FALSE(ParseInitialCluster("a=foo").ok());
}

TEST(Membership, ValidatesChanges) {
  Membership membership;
  membership.Add({.id = 1, .peer_urls = {"http://h:1"}});
  membership.Add({.id = 2, .peer_urls = {"http://h:2"}, .is_learner = true});
  const auto code = [&](int type, ChangeContext context, uint64_t id) {
    context.member.id = id;
    return membership.Validate(type, context, id).code();
  };
  EXPECT_EQ(code(0, {}, 1), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(0, {.member = {.peer_urls = {"http://h:1"}}}, 3),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(0, {.is_promote = true}, 1), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(0, {.is_promote = true}, 2), absl::StatusCode::kOk);
  EXPECT_EQ(code(2, {.member = {.peer_urls = {"http://h:1"}}}, 2),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(1, {}, 9), absl::StatusCode::kNotFound);
  membership.Remove(2);
  EXPECT_EQ(code(0, {.member = {.peer_urls = {"http://h:9"}}}, 2), absl::StatusCode::kNotFound);
}

TEST(StorageVersion, FollowsTheReferenceTable) {
  const Version own{3, 7, 3};
  EXPECT_OK(CheckStorageVersion(own, "3.7.0"));
  EXPECT_OK(CheckStorageVersion(own, "3.6.0"));
  EXPECT_OK(CheckStorageVersion(own, "3.5.0"));
  EXPECT_OK(CheckStorageVersion(own, ""));
  EXPECT_OK(CheckStorageVersion(own, "3.7"));
  EXPECT_EQ(base::Message(CheckStorageVersion(own, "3.8.0")), "version \"3.8.0\" is not supported");
  EXPECT_EQ(base::Message(CheckStorageVersion(own, "3.9.0")), "version \"3.9.0\" is not supported");
  EXPECT_EQ(base::Message(CheckStorageVersion(own, "3.4.0")), "version \"3.5.0\" is not supported");
  EXPECT_EQ(base::Message(CheckStorageVersion(own, "4.0.0")),
            "changing major storage version is not supported");
}

}  // namespace
}  // namespace cluster
