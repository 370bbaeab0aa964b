#include <gtest/gtest.h>

#include "client/client.h"

namespace client {
namespace {

TEST(ErrorText, KnownTextsStandAlone) {
  EXPECT_EQ(ErrorText(absl::InvalidArgumentError("etcdserver: key not found")),
            "etcdserver: key not found");
  EXPECT_EQ(ErrorText(absl::DeadlineExceededError("context deadline exceeded")),
            "context deadline exceeded");
}

TEST(ErrorText, OthersCarryTheirCode) {
  EXPECT_EQ(ErrorText(absl::UnimplementedError("unknown method X")),
            "rpc error: code = Unimplemented desc = unknown method X");
  EXPECT_EQ(RpcErrorText(absl::CancelledError("x")), "rpc error: code = Canceled desc = x");
}

}  // namespace
}  // namespace client
