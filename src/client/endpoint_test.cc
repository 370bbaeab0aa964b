#include "client/endpoint.h"

#include <gtest/gtest.h>

namespace client {
namespace {

TEST(ParseEndpoint, SchemesDecideAboutTls) {
  EXPECT_EQ(ParseEndpoint("a:1").security, EndpointSecurity::kAsConfigured);
  EXPECT_EQ(ParseEndpoint("http://a:1").security, EndpointSecurity::kNever);
  EXPECT_EQ(ParseEndpoint("https://a:1").security, EndpointSecurity::kAlways);
  EXPECT_EQ(ParseEndpoint("unix://a:1").security, EndpointSecurity::kNever);
  EXPECT_EQ(ParseEndpoint("unixs://a:1").security, EndpointSecurity::kAlways);
}

TEST(ParseEndpoint, AuthorityIsTheAddressWithoutScheme) {
  EXPECT_EQ(ParseEndpoint(" https://localhost:20000/path ").authority, "localhost:20000");
  EXPECT_EQ(ParseEndpoint("127.0.0.1:2379").authority, "127.0.0.1:2379");
  EXPECT_EQ(ParseEndpoint("unix:localhost:20000").authority, "localhost:20000");
  EXPECT_EQ(ParseEndpoint("unix://localhost:20000").authority, "localhost:20000");
  EXPECT_EQ(ParseEndpoint("unix:///run/x.sock").authority, "");
}

TEST(ParseEndpoint, HostIsWithoutPort) {
  EXPECT_EQ(ParseEndpoint("https://example.com:2379").host, "example.com");
  EXPECT_EQ(ParseEndpoint("[::1]:2379").host, "::1");
  EXPECT_EQ(ParseEndpoint("unix:///run/x.sock").target, "unix:/run/x.sock");
}

}  // namespace
}  // namespace client
