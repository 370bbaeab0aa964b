#include "net/connection.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "net/http1_session.h"
#include "net/http2_session.h"
#include "net/tls_stream.h"

namespace net {
namespace {

constexpr size_t kReadBytes = 256 << 10;
// Reads of one connection in one turn, while the buffer comes back full.
constexpr int kReadsPerTurn = 4;
constexpr int kIovMax = 64;
constexpr size_t kWriteBytesPerTurn = 2 << 20;
constexpr base::Duration kLingerTime = std::chrono::milliseconds(500);
constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr uint8_t kTlsHandshakeRecord = 0x16;
// Enough to tell the protocols apart: no HTTP/1 request line begins with these.
constexpr size_t kDecisiveBytes = 4;

// Everything read is taken before the next read, so the connections of one thread share a buffer.
char* ReadBuffer() {
  thread_local const std::unique_ptr<char[]> buffer(new char[kReadBytes]);
  return buffer.get();
}

}  // namespace

Connection::Connection(Loop& loop, ConnectionOwner& owner, int fd, std::string remote_address,
                       std::string remote_ip, std::string local_address)
    : loop_(loop), owner_(owner), fd_(fd) {
  auto info = std::make_shared<ConnectionInfo>();
  info->remote_address = std::move(remote_address);
  info->remote_ip = std::move(remote_ip);
  info->local_address = std::move(local_address);
  info_ = std::move(info);
}

Connection::~Connection() {
  Close();
  loop_.RemoveTurnEndHook(this);
}

bool Connection::Open() {
  if (!loop_.AddFd(fd_, this, /*read=*/true, /*write=*/false).ok()) return false;
  const ListenerOptions& options = owner_.options();
  if (!options.plain) {
    // The TLS state itself is made when the first bytes come: silent connections cost little.
    phase_ = Phase::kHandshake;
    phase_timer_ = loop_.RunAfter(options.tls_handshake_timeout, [this] {
      Reject("EOF");
      Abort();
    });
  } else {
    phase_timer_ = loop_.RunAfter(options.http1.header_timeout, [this] { Abort(); });
  }
  return true;
}

void Connection::Close() {
  if (closed_) return;
  closed_ = true;
  const auto keep = weak_from_this().lock();  // null only in the destructor
  loop_.Cancel(&phase_timer_);
  loop_.Cancel(&stall_timer_);
  loop_.RemoveTurnEndHook(this);
  loop_.RemoveFd(fd_, this);
  ::close(fd_);
  if (protocol_ != nullptr) protocol_->OnClosed();
  output_.Clear();
  raw_output_.Clear();
  if (keep == nullptr) return;
  owner_.OnConnectionClosed(this);
  // Functions of this object and of its protocol may be on the stack.
  loop_.Defer([keep] {});
}

void Connection::Drain() {
  draining_ = true;
  if (protocol_ != nullptr) {
    protocol_->Drain();
  } else {
    Abort();
  }
}

void Connection::CloseAfterFlush() {
  close_after_flush_ = true;
  WantFlush();
}

void Connection::Abort() {
  aborting_ = true;
  WantFlush();
}

void Connection::PauseInput(bool paused) {
  input_paused_ = paused;
  UpdateInterest();
}

void Connection::MarkUseful() { owner_.OnUseful(this); }

void Connection::UpdateInterest() {
  if (closed_) return;
  const bool read = !input_paused_ && (!close_after_flush_ || phase_ == Phase::kLingering);
  if (read == reading_ && want_write_ == writing_) return;
  reading_ = read;
  writing_ = want_write_;
  loop_.UpdateFd(fd_, this, reading_, writing_);
}

void Connection::OnFdReady(bool readable, bool writable, bool hung_up) {
  if (closed_) return;
  const auto keep = shared_from_this();
  if (writable && want_write_) {
    want_write_ = false;
    WantFlush();
  }
  if (readable && reading_) {
    Read();
  } else if (hung_up) {
    // Nobody reads, so the end would not be seen: a reset or a full close ends the connection
    // whatever waits.
    Close();
  }
}

void Connection::Read() {
  char* buffer = ReadBuffer();
  for (int i = 0; i < kReadsPerTurn && !closed_ && !aborting_ && reading_; ++i) {
    const ssize_t n = ::recv(fd_, buffer, kReadBytes, 0);
    if (n > 0) {
      OnRaw({buffer, static_cast<size_t>(n)});
      if (static_cast<size_t>(n) < kReadBytes) return;
    } else if (n == 0) {
      return OnEof();
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      if (phase_ == Phase::kHandshake) {
        Reject("read tcp " + info_->local_address + "->" + info_->remote_address +
               ": read: " + ErrnoText(errno));
      }
      return Close();
    }
  }
}

void Connection::OnEof() {
  eof_ = true;
  if (phase_ == Phase::kLingering) return Close();
  if (phase_ == Phase::kHandshake) Reject("EOF");
  if (protocol_ == nullptr) return Close();
  // The socket stays readable for ever now; reading stops.
  input_paused_ = true;
  UpdateInterest();
  protocol_->OnInputEnd();
  CloseAfterFlush();
}

void Connection::OnRaw(std::string_view bytes) {
  if (phase_ == Phase::kLingering) return;
  if (tls_ != nullptr) return OnTlsRaw(bytes);
  const bool looks_like_tls = static_cast<uint8_t>(bytes[0]) == kTlsHandshakeRecord;
  if (phase_ == Phase::kHandshake && !looks_like_tls) {
    Reject("tls: first record does not look like a TLS handshake");
    output_.Append(
        "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n");
    return CloseAfterFlush();
  }
  if (phase_ == Phase::kHandshake ||
      (phase_ == Phase::kFirstBytes && looks_like_tls && owner_.options().tls != nullptr)) {
    StartTls();
    if (tls_ != nullptr) OnTlsRaw(bytes);
    return;
  }
  if (phase_ == Phase::kFirstBytes) phase_ = Phase::kChoosing;
  OnPlain(bytes);
}

void Connection::OnTlsRaw(std::string_view bytes) {
  const absl::Status status = tls_->OnInput(bytes, &raw_output_, [this](std::string_view plain) {
    if (!closed_ && !aborting_) OnPlain(plain);
  });
  WantFlush();
  if (!status.ok()) {
    if (phase_ == Phase::kHandshake)
      Reject(std::string_view(status.message().data(), status.message().size()));
    // The alert goes out, nothing else does.
    output_.Clear();
    return CloseAfterFlush();
  }
  if (phase_ == Phase::kHandshake && tls_->handshake_done()) OnHandshakeDone();
  if (tls_->closed_by_peer() && !closed_) OnEof();
}

void Connection::OnPlain(std::string_view bytes) {
  if (phase_ == Phase::kHandshake && tls_->handshake_done()) OnHandshakeDone();
  if (phase_ == Phase::kServing) return protocol_->OnInput(bytes);
  // The protocol's own limits begin once it is chosen; until then a client gets no farther than
  // this.
  constexpr size_t kFirstBytesMax = 1 << 20;
  if (first_bytes_.size() + bytes.size() > kFirstBytesMax) return Abort();
  first_bytes_.append(bytes);
  if (phase_ != Phase::kChoosing) return;
  if (Choose(first_bytes_) && protocol_ != nullptr) {
    std::string all;
    all.swap(first_bytes_);
    protocol_->OnInput(all);
  }
}

bool Connection::Choose(std::string_view bytes) {
  const size_t n = std::min(bytes.size(), kDecisiveBytes);
  const bool http2 = bytes.substr(0, n) == kHttp2Preface.substr(0, n);
  if (http2 && bytes.size() < kDecisiveBytes) return false;
  if (http2) {
    StartHttp2();
  } else {
    StartHttp1();
  }
  return true;
}

void Connection::StartHttp2() {
  const ListenerOptions& options = owner_.options();
  loop_.Cancel(&phase_timer_);
  // On a plain port HTTP/2 means gRPC; web browsers and curl come there with HTTP/1.
  HttpHandler* http = tls_ != nullptr ? options.http : nullptr;
  if (!options.http2 || (options.grpc == nullptr && http == nullptr)) return Abort();
  protocol_ = std::make_unique<Http2Session>(*this, options.http2_options, options.grpc, http);
  phase_ = Phase::kServing;
  if (draining_) protocol_->Drain();
}

void Connection::StartHttp1() {
  const ListenerOptions& options = owner_.options();
  loop_.Cancel(&phase_timer_);
  protocol_ = std::make_unique<Http1Session>(*this, options.http1, options.http);
  phase_ = Phase::kServing;
  if (draining_) protocol_->Drain();
}

void Connection::StartTls() {
  phase_ = Phase::kHandshake;
  loop_.Cancel(&phase_timer_);
  auto context = owner_.options().tls->Context();
  if (!context.ok()) {
    Reject(std::string_view(context.status().message().data(), context.status().message().size()));
    return Abort();
  }
  tls_ = std::make_unique<TlsStream>(owner_.options().tls, std::move(*context), info_->remote_ip);
  phase_timer_ = loop_.RunAfter(owner_.options().tls_handshake_timeout, [this] {
    Reject("tls: handshake timeout");
    Abort();
  });
}

void Connection::OnHandshakeDone() {
  loop_.Cancel(&phase_timer_);
  const std::vector<std::string>& names = tls_->names_to_resolve();
  if (names.empty()) return FinishHandshake();
  phase_ = Phase::kCheckingPeer;
  phase_timer_ = loop_.RunAfter(owner_.options().tls_handshake_timeout, [this] { Abort(); });
  owner_.RunBlocking(
      loop_, [names, ip = info_->remote_ip] { return ResolvesTo(names, ip); },
      [self = weak_from_this()](bool good) {
        if (const auto connection = self.lock()) connection->OnPeerChecked(good);
      });
}

void Connection::OnPeerChecked(bool good) {
  if (closed_ || phase_ != Phase::kCheckingPeer) return;
  loop_.Cancel(&phase_timer_);
  if (!good) {
    std::string names;
    for (const std::string& name : tls_->names_to_resolve())
      names += (names.empty() ? "" : " ") + name;
    phase_ = Phase::kHandshake;
    Reject("tls: \"" + info_->remote_ip + "\" does not match any of DNSNames [\"" + names + "\"]");
    return Abort();
  }
  FinishHandshake();
  if (phase_ == Phase::kChoosing && !first_bytes_.empty()) OnPlain({});
  if (phase_ == Phase::kServing && !first_bytes_.empty()) {
    std::string all;
    all.swap(first_bytes_);
    protocol_->OnInput(all);
  }
}

void Connection::FinishHandshake() {
  auto info = std::make_shared<ConnectionInfo>(*info_);
  info->tls = true;
  info->verified_client_certificate = tls_->verified_client_certificate();
  info->common_name = tls_->common_name();
  info->server_name = tls_->server_name();
  info_ = std::move(info);
  const std::string_view alpn = tls_->alpn();
  if (alpn == "h2") {
    StartHttp2();
  } else if (alpn == "http/1.1") {
    StartHttp1();
  } else {
    phase_ = Phase::kChoosing;
    phase_timer_ = loop_.RunAfter(owner_.options().http1.header_timeout, [this] { Abort(); });
  }
}

void Connection::Reject(std::string_view error) {
  RejectedConnection rejected;
  rejected.remote_address = info_->remote_address;
  if (tls_ != nullptr) rejected.server_name = tls_->server_name();
  rejected.error = std::string(error);
  owner_.OnRejected(rejected);
  phase_ = Phase::kChoosing;  // said once
}

void Connection::OnTurnEnd() {
  if (closed_) return;
  const auto keep = shared_from_this();
  if (aborting_) return Close();
  // While the socket is full the streams keep their bytes.
  if (phase_ == Phase::kLingering) return;
  if (protocol_ != nullptr && !want_write_) protocol_->Produce();
  if (closed_) return;
  if (aborting_) return Close();
  if (!Flush()) return;
  UpdateInterest();
}

bool Connection::Linger() {
  loop_.Cancel(&stall_timer_);
  loop_.Cancel(&phase_timer_);
  if (eof_ || ::shutdown(fd_, SHUT_WR) != 0) {
    Close();
    return false;
  }
  // Closing now, with bytes of the client unread, would reset the connection and could take the
  // answer away from it.
  phase_ = Phase::kLingering;
  if (protocol_ != nullptr) protocol_->OnClosed();
  input_paused_ = false;
  phase_timer_ = loop_.RunAfter(kLingerTime, [this] { Close(); });
  UpdateInterest();
  return true;
}

bool Connection::Flush() {
  if (want_write_ || phase_ == Phase::kLingering) return true;
  size_t written_now = 0;
  for (;;) {
    if (tls_ != nullptr) {
      const absl::Status status = tls_->Encrypt(&output_, &raw_output_, kProduceBytesMax);
      if (!status.ok()) {
        Close();
        return false;
      }
      if (close_after_flush_ && output_.empty() && !close_notified_) {
        close_notified_ = true;
        tls_->CloseNotify(&raw_output_);
      }
    }
    OutputQueue& queue = tls_ != nullptr ? raw_output_ : output_;
    if (queue.empty()) {
      if (close_after_flush_ && output_.empty()) return Linger();
      loop_.Cancel(&stall_timer_);
      return true;
    }
    iovec entries[kIovMax];
    msghdr message{};
    message.msg_iov = entries;
    message.msg_iovlen = static_cast<size_t>(queue.Fill(entries, kIovMax));
    size_t offered = 0;
    for (size_t i = 0; i < message.msg_iovlen; ++i) offered += entries[i].iov_len;
    const ssize_t n = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        Close();
        return false;
      }
      want_write_ = true;
      ArmStallTimer();
      return true;
    }
    written_bytes_ += static_cast<uint64_t>(n);
    written_now += static_cast<size_t>(n);
    queue.Consume(static_cast<size_t>(n));
    if (static_cast<size_t>(n) < offered) {
      want_write_ = true;
      ArmStallTimer();
      return true;
    }
    if (queue.empty() && protocol_ != nullptr && !close_after_flush_) {
      // The socket took it all: there may be more where it came from.
      protocol_->Produce();
      if (closed_) return false;
      if (aborting_) {
        Close();
        return false;
      }
      if (written_now > kWriteBytesPerTurn && !output_.empty()) {
        // One connection that streams must not hold the others up: it goes on in the next turn.
        want_write_ = true;
        return true;
      }
    }
  }
}

void Connection::ArmStallTimer() {
  if (stall_timer_.generation != 0) return;
  stall_mark_ = written_bytes_;
  const ListenerOptions& options = owner_.options();
  const base::Duration limit =
      std::min(options.http1.write_stall_max, options.http2_options.write_stall_max);
  stall_timer_ = loop_.RunAfter(limit, [this] {
    stall_timer_ = TimerId{};
    if (written_bytes_ == stall_mark_) return Abort();
    ArmStallTimer();
  });
}

}  // namespace net
