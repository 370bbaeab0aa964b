// One request on an HTTP/1.x connection, as an HttpExchange. Loop thread only. Part of
// Http1Session.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/http.h"
#include "net/http1_session.h"

namespace net {

class Http1Exchange final : public HttpExchange,
                            public std::enable_shared_from_this<Http1Exchange> {
 public:
  Http1Exchange(Http1Session* session, std::string head);

  // Splits the head into its parts. A status other than 0 is the answer to a bad one, *reason says
  // what is wrong.
  int Parse(uint32_t header_fields_max, std::string* reason);

  std::string_view method() const override { return method_; }
  std::string_view target() const override { return target_; }
  std::string_view host() const override { return host_; }
  std::span<const Header> headers() const override { return headers_; }
  int http_major() const override { return 1; }
  int http_minor() const override { return minor_; }
  std::optional<uint64_t> content_length() const override { return length_; }
  const ConnectionInfo& connection() const override { return *connection_; }
  Loop& loop() override { return loop_; }
  void ReadBodyPieces(absl::AnyInvocable<void(std::string_view, bool)> on_piece) override;
  void PauseBody(bool paused) override;
  void AddHeader(std::string_view name, std::string_view value) override;
  void Start(int status) override;
  void Write(Piece piece) override;
  void End() override;
  void Abort() override;
  bool started() const override { return started_; }
  size_t queued_bytes() const override;
  void NotifyWhenDrained(size_t low_bytes, absl::AnyInvocable<void()> fn) override;
  void OnAbort(absl::AnyInvocable<void()> fn) override;
  bool aborted() const override { return aborted_; }
  std::shared_ptr<WebSocket> AcceptWebSocket(std::string_view protocol,
                                             WebSocketHandlers handlers) override;

 private:
  friend class Http1Session;

  int ParseRequestLine(std::string_view line, std::string* reason);
  int ParseField(std::string_view line, std::string* reason);
  // Checks Host, lengths and codings.
  int CheckFraming(std::string* reason);
  // The connection is gone or the exchange was taken off it.
  void Detach();
  void OnBody(std::string_view bytes);
  void OnBodyEnd();
  void SendContinue();
  void DeliverPending();

  Http1Session* session_;  // null once the response is complete or the connection gone
  Loop& loop_;
  const std::shared_ptr<const ConnectionInfo> connection_;
  const std::string head_;
  std::string_view method_, target_, host_;
  int minor_ = 1;
  std::vector<Header> headers_;
  std::optional<uint64_t> length_;
  bool chunked_ = false;
  bool expects_continue_ = false;
  bool keep_alive_ = true;

  absl::AnyInvocable<void(std::string_view, bool)> on_piece_;
  std::string pending_;  // body that arrived before somebody wanted it
  bool paused_ = false;
  bool body_ended_ = false;
  bool body_done_ = false;
  bool delivering_ = false;

  std::string response_fields_;
  bool has_content_length_ = false;
  bool has_date_ = false;
  bool closes_ = false;  // the response says Connection: close
  bool started_ = false;
  bool no_body_ = false;
  bool chunk_response_ = false;
  bool ended_ = false;
  bool aborted_ = false;
  absl::AnyInvocable<void()> on_abort_;
};

}  // namespace net
