// Bytes of a client, the preface left out, into an HTTP/2 session with a small gRPC service and an
// HTTP handler behind it. The first byte says into what pieces the rest is cut.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "net/fake_host.h"
#include "net/http2_session.h"
#include "rpc/server.h"

namespace {

class EchoReceiver final : public rpc::StreamReceiver {
 public:
  explicit EchoReceiver(rpc::CallPtr call) : call_(std::move(call)) {}
  void OnMessage(std::string_view message) override {
    if (message.size() == 3) call_->PauseReading(true);
    call_->Send(rpc::Message(message));
    if (message.size() == 7) Finish();
  }
  void OnHalfClose() override { Finish(); }
  void OnCancel(const absl::Status&) override { call_ = nullptr; }

 private:
  void Finish() {
    if (call_ != nullptr) call_->Finish(absl::StatusCode::kOk, "");
    call_ = nullptr;
  }
  rpc::CallPtr call_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const size_t piece = data[0] == 0 ? size : data[0];
  std::string all = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  all.append(reinterpret_cast<const char*>(data + 1), size - 1);
  std::string_view bytes = all;
  rpc::ServerOptions server_options;
  server_options.receive_bytes_max = 1000;
  server_options.partial_bytes_max = 3000;
  rpc::Server grpc(std::move(server_options));
  grpc.RegisterUnary("/s/u", [](rpc::CallPtr call, std::string_view request) {
    call->Respond(rpc::Message(request));
  });
  grpc.RegisterBidiStream(
      "/s/b", [](rpc::CallPtr call) { return std::make_unique<EchoReceiver>(std::move(call)); });
  net::FunctionHandler http([](std::shared_ptr<net::HttpExchange> x) {
    x->ReadBody(1000, [x](absl::StatusOr<std::string> body) {
      x->Respond(body.ok() ? 200 : 413, "text/plain", body.ok() ? *body : "");
    });
  });
  net::Http2Options options;
  options.control_frames_burst_max = 100;
  options.resets_burst_max = 10;
  options.header_list_bytes_max = 10000;
  options.header_fields_max = 50;
  net::FakeHost host;
  net::Http2Session session(host, options, &grpc, &http);
  host.set_protocol(&session);
  while (!bytes.empty() && !host.aborted) {
    session.OnInput(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    host.Turn();
  }
  session.OnClosed();
  host.set_protocol(nullptr);
  host.Turn();
  return 0;
}
