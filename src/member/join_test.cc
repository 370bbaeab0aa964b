#include "member/join.h"

#include <map>

#include "base/testing.h"

namespace member {
namespace {

using ::testing::HasSubstr;

// Answers from a table: url + path -> answer.
class TableTransport final : public peer::Transport {
 public:
  void Send(std::vector<raft::Message>) override {}
  absl::StatusOr<peer::Answer> Ask(const std::string& url, const peer::Question& question,
                                   base::Duration) override {
    const auto it = table.find(url + question.path);
    if (it == table.end()) return absl::UnavailableError("connection refused");
    return it->second;
  }
  std::map<std::string, peer::Answer> table;
};

class JoinTest : public ::testing::Test {
 protected:
  JoinTest() {
    options.name = "b";
    options.initial_cluster = {{"a", {"http://a:1"}}, {"b", {"http://b:1", "http://b:2"}}};
    options.join_existing = true;
    Members(
        R"([{"id":906894248056116548,"peerURLs":["http://a:1"],"name":"a","clientURLs":["http://a:9"]},)"
        R"({"id":5,"peerURLs":["http://b:2","http://b:1"],"isLearner":true}])");
    Version("3.7.0");
  }
  void Members(std::string json) {
    transport.table["http://a:1/members"] = {
        .status = 200, .cluster_id = "c1", .body = std::move(json)};
  }
  void Version(std::string_view cluster) {
    transport.table["http://a:1/version"] = {
        .status = 200,
        .body = R"({"etcdserver":"3.7.3","etcdcluster":")" + std::string(cluster) + R"("})"};
  }
  std::string Error() {
    const auto joined = JoinCluster(options, transport);
    EXPECT_FALSE(joined.ok());
    return std::string(joined.status().message());
  }

  TableTransport transport;
  MemberOptions options;
};

TEST_F(JoinTest, TakesItsIdFromTheOthers) {
  const auto joined = JoinCluster(options, transport);
  ASSERT_OK(joined);
  EXPECT_EQ(joined->member_id, 5u);
  EXPECT_EQ(joined->cluster_id, 0xc1u);
  ASSERT_EQ(joined->others.size(), 1u);
  EXPECT_EQ(joined->others[0].id, 906894248056116548u);
}

TEST_F(JoinTest, IsRefusedWithReasons) {
  Members(R"([{"id":1,"peerURLs":["http://a:1"]}])");
  EXPECT_THAT(Error(), HasSubstr("member count is unequal"));
  Members(R"([{"id":1,"peerURLs":["http://a:1"]},{"id":2,"peerURLs":["http://x:1"]}])");
  EXPECT_THAT(Error(), HasSubstr("unmatched member while checking PeerURLs"));
  Members(R"([{"id":1,"peerURLs":["http://a:1"],"isLearner":true},)"
          R"({"id":5,"peerURLs":["http://b:1","http://b:2"],"isLearner":true}])");
  EXPECT_THAT(Error(), HasSubstr("too many learner members in cluster"));
  for (const char* garbage : {"", "{}", "[1]", R"([{"id":"x"}])", "["}) {
    Members(garbage);
    EXPECT_THAT(Error(), HasSubstr("could not retrieve cluster information from the given URLs"));
  }
  transport.table.clear();
  EXPECT_THAT(Error(), HasSubstr("could not retrieve cluster information from the given URLs"));
  options.name = "c";
  EXPECT_THAT(Error(), HasSubstr("couldn't find local name \"c\""));
}

TEST_F(JoinTest, NeedsACompatibleClusterVersion) {
  for (const char* version : {"3.8.0", "2.3.0", "not_decided", "x"}) {
    Version(version);
    EXPECT_EQ(Error(), "incompatible with current running cluster") << version;
  }
  Version("3.6.0");
  EXPECT_OK(JoinCluster(options, transport));
  transport.table.erase("http://a:1/version");
  EXPECT_EQ(Error(), "incompatible with current running cluster");
}

TEST_F(JoinTest, AMemberThatServedOnceDoesNotStartFromNothing) {
  EXPECT_OK(CheckNotBootstrapped(options, 5, transport));
  EXPECT_THAT(CheckNotBootstrapped(options, 906894248056116548u, transport),
              base::StatusIs(absl::StatusCode::kFailedPrecondition,
                             "member c95ef83803ad544 has already been bootstrapped"));
  transport.table.clear();
  EXPECT_OK(CheckNotBootstrapped(options, 5, transport));
}

}  // namespace
}  // namespace member
