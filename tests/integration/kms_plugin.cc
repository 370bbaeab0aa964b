// engram_kms_plugin SOCKET KEY-ID HEALTHZ: stands in for a KMS plugin of a Kubernetes API server,
// as far as it is asked for its state, until its standard input ends. Prints "ready" once it
// listens.
#include <cstdio>
#include <string>

#include "client/fake_server.h"
#include "proto/kms.pb.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: engram_kms_plugin SOCKET KEY-ID HEALTHZ\n", stderr);
    return 2;
  }
  v2::StatusResponse state;
  state.set_version("v2");
  state.set_key_id(argv[2]);
  state.set_healthz(argv[3]);
  client::FakeServer server(std::string("unix:") + argv[1]);
  server.Handle("/v2.KeyManagementService/Status", [&](const grpc::ByteBuffer&, const auto&) {
    return client::FakeReaction{.answers = {client::Serialize(state)}};
  });
  std::puts("ready");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
