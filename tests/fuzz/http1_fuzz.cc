// Bytes of a client into an HTTP/1.1 session whose handler reads bodies and upgrades to WebSocket.
// The first byte says into what pieces the rest is cut.
#include <cstdint>
#include <memory>
#include <string_view>

#include "net/fake_host.h"
#include "net/http1_session.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const size_t piece = data[0] == 0 ? size : data[0];
  std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  std::shared_ptr<net::WebSocket> socket;
  net::FunctionHandler handler([&](std::shared_ptr<net::HttpExchange> x) {
    if (x->WantsWebSocket()) {
      net::WebSocketHandlers handlers;
      handlers.message_bytes_max = 1000;
      handlers.on_message = [&](std::string_view m) { socket->SendText(m); };
      socket = x->AcceptWebSocket("", std::move(handlers));
      return;
    }
    x->ReadBody(1000, [x](absl::StatusOr<std::string> body) {
      x->Respond(body.ok() ? 200 : 413, "text/plain", body.ok() ? *body : "");
    });
  });
  net::Http1Options options;
  options.header_bytes_max = 4000;
  options.request_line_bytes_max = 1000;
  net::FakeHost host;
  net::Http1Session session(host, options, &handler);
  host.set_protocol(&session);
  while (!bytes.empty() && !host.aborted) {
    session.OnInput(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    host.Turn();
  }
  session.OnInputEnd();
  host.Turn();
  session.OnClosed();
  host.set_protocol(nullptr);
  return 0;
}
