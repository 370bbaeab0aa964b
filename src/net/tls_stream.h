// One TLS connection, server side, without a socket: encrypted bytes in, plain bytes out, and the
// other way round. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "net/output_queue.h"
#include "net/tls.h"

struct ssl_st;

namespace net {

class TlsStream {
 public:
  // `remote_ip` is compared with the client certificate's SANs where the options ask for it.
  TlsStream(std::shared_ptr<TlsServer> server, std::shared_ptr<ssl_ctx_st> context,
            std::string remote_ip);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Takes received bytes; answers of the handshake go to `raw_out`, decrypted bytes to `on_plain`
  // (the view is valid during the call). An error ends the connection; an alert to the peer may lie
  // in raw_out. The error's text is in Go's words.
  absl::Status OnInput(std::string_view raw, OutputQueue* raw_out,
                       absl::FunctionRef<void(std::string_view)> on_plain);
  // Encrypts from `plain` into `raw_out` while raw_out holds less than `raw_bytes_max`.
  absl::Status Encrypt(OutputQueue* plain, OutputQueue* raw_out, size_t raw_bytes_max);
  // Says good-bye to the peer.
  void CloseNotify(OutputQueue* raw_out);
  bool handshake_done() const { return handshake_done_; }
  // Whether the peer ended the connection in the regular way.
  bool closed_by_peer() const { return closed_by_peer_; }

  // --- after the handshake ---
  std::string_view alpn() const;    // empty: none negotiated
  std::string server_name() const;  // may be asked at any time
  bool verified_client_certificate() const;
  std::string common_name() const;
  // The client certificate has DNS SANs only that fit if one of them resolves to the remote
  // address; the caller must find out (ResolvesTo) before it serves the connection. Empty: nothing
  // to find out.
  const std::vector<std::string>& names_to_resolve() const { return names_to_resolve_; }

 private:
  friend struct TlsCallbacks;
  absl::Status Handshake();
  absl::Status Failure(int result);

  const std::shared_ptr<TlsServer> server_;
  const std::shared_ptr<ssl_ctx_st> context_;
  const std::string remote_ip_;
  ssl_st* ssl_ = nullptr;
  std::string_view raw_in_;         // what the BIO reads; set during OnInput
  OutputQueue* raw_out_ = nullptr;  // where the BIO writes; set during calls
  bool handshake_done_ = false;
  bool closed_by_peer_ = false;
  bool failed_ = false;
  std::string verify_error_;  // why the client's certificate was refused
  std::vector<std::string> names_to_resolve_;
};

// Whether one of `names` resolves to the address, or the address back to one of them. Blocks on the
// resolver: helper threads only.
bool ResolvesTo(const std::vector<std::string>& names, const std::string& ip);

}  // namespace net
