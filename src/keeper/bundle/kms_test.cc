// Asking a KMS plugin, over a real socket.
#include "bundle/kms.h"

#include "base/testing.h"
#include "client/fake_server.h"
#include "proto/kms.pb.h"

namespace bundle {
namespace {

TEST(Kms, IsAskedOverItsSocket) {
  const base::ScratchDirectory dir;
  const std::string path = dir / "kms.sock";
  client::FakeServer plugin("unix:" + path);
  plugin.Handle("/v2.KeyManagementService/Status", [](const grpc::ByteBuffer&, const auto&) {
    v2::StatusResponse answer;
    answer.set_version("v2");
    answer.set_healthz("ok");
    answer.set_key_id("key-7");
    return client::FakeReaction{.answers = {client::Serialize(answer)}};
  });
  const std::string endpoint = "unix://" + path;
  ASSERT_OK_AND_ASSIGN(const KmsStatus status, AskKmsPlugin(endpoint, std::chrono::seconds(10)));
  EXPECT_EQ(status.version, "v2");
  EXPECT_EQ(status.healthz, "ok");
  EXPECT_EQ(status.key_id, "key-7");
  plugin.Stop();
  EXPECT_FALSE(AskKmsPlugin(endpoint, std::chrono::seconds(10)).ok());
}

}  // namespace
}  // namespace bundle
