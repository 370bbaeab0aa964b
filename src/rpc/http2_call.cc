#include "rpc/http2_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "rpc/gzip.h"
#include "rpc/wire_text.h"

namespace rpc {
namespace {

using net::Header;

constexpr std::array<Header, 2> kResponseHead = {
    {{":status", "200"}, {"content-type", "application/grpc"}}};
constexpr std::array<Header, 1> kTrailersOk = {{{"grpc-status", "0"}}};
// An unfinished message reserves no more than this ahead of its bytes.
constexpr size_t kReserveBytesMax = 64 << 10;

// Blocks of one size, kept per thread: calls come and go by the hundred thousand.
template <typename T>
class PoolAllocator {
 public:
  using value_type = T;
  PoolAllocator() = default;
  template <typename U>
  PoolAllocator(const PoolAllocator<U>&) {
  }  // NOLINT: conversions are part of the allocator contract

  T* allocate(size_t n) {
    Stock& stock = Mine();
    if (n == 1 && !stock.blocks.empty()) {
      void* block = stock.blocks.back();
      stock.blocks.pop_back();
      return static_cast<T*>(block);
    }
    return static_cast<T*>(::operator new(n * sizeof(T)));
  }
  void deallocate(T* p, size_t n) {
    Stock& stock = Mine();
    if (n == 1 && !stock.closed && stock.blocks.size() < kBlocksMax) {
      stock.blocks.push_back(p);
    } else {
      ::operator delete(p);
    }
  }
  template <typename U>
  bool operator==(const PoolAllocator<U>&) const {
    return true;
  }

 private:
  static constexpr size_t kBlocksMax = 1024;
  struct Stock {
    ~Stock() {
      closed = true;
      for (void* block : blocks) ::operator delete(block);
      blocks.clear();
    }
    std::vector<void*> blocks;
    bool closed = false;
  };
  static Stock& Mine() {
    thread_local Stock stock;
    return stock;
  }
};

// A response without a body: the status alone.
void AnswerAtOnce(net::Http2Stream& stream, std::string_view http_status, absl::StatusCode code,
                  std::string_view text) {
  const std::string message = EncodeMessage(text);
  std::array<Header, 4> fields = {{{":status", http_status},
                                   {"content-type", "application/grpc"},
                                   {"grpc-status", StatusDigits(code)},
                                   {"grpc-message", message}}};
  stream.SendHeaders(std::span(fields).first(message.empty() ? 3 : 4), /*is_static=*/false,
                     /*end=*/true);
}

}  // namespace

net::StreamConsumer* Http2Call::Start(const Server::Impl& server, net::Http2Stream& stream) {
  const net::RequestHead& head = stream.head();
  if (!IsGrpcContentType(head.content_type())) {
    AnswerAtOnce(stream, "415", absl::StatusCode::kInvalidArgument,
                 fmt::format("invalid gRPC request content-type \"{}\"", head.content_type()));
    return nullptr;
  }
  if (head.method() != "POST") {
    AnswerAtOnce(stream, "405", absl::StatusCode::kInternal,
                 fmt::format("Received a HEADERS frame with :method \"{}\" which should be POST",
                             head.method()));
    return nullptr;
  }
  base::Duration timeout = base::Duration::max();
  if (const std::string_view text = head.Find("grpc-timeout"); !text.empty()) {
    const auto parsed = ParseTimeout(text);
    if (!parsed) {
      AnswerAtOnce(stream, "400", absl::StatusCode::kInternal,
                   fmt::format("malformed grpc-timeout: \"{}\"", text));
      return nullptr;
    }
    timeout = *parsed;
  }
  const auto found = server.by_path.find(head.path());
  if (found == server.by_path.end()) {
    const absl::Status status = server.Unknown(head.path());
    AnswerAtOnce(stream, "200", status.code(), base::Message(status));
    return nullptr;
  }
  const std::string_view encoding = head.Find("grpc-encoding");
  const bool gzip = encoding == "gzip";
  if (!gzip && !encoding.empty() && encoding != "identity") {
    AnswerAtOnce(
        stream, "200", absl::StatusCode::kUnimplemented,
        fmt::format("grpc: Decompressor is not installed for grpc-encoding \"{}\"", encoding));
    return nullptr;
  }
  auto call = std::allocate_shared<Http2Call>(PoolAllocator<Http2Call>());
  call->Begin(server, *found->second, stream.loop(), stream.shared_connection());
  call->stream_ = &stream;
  call->gzip_ = gzip;
  call->head_ = net::RequestHead::FromStock();  // for the stream's next use
  call->head_.swap(stream.head());
  call->self_ = call;
  call->SetTimeout(timeout);
  if (!call->takes_one_message()) call->StartStream();
  return call.get();
}

Http2Call::~Http2Call() { net::RequestHead::ToStock(std::move(head_)); }

std::vector<net::Header> Http2Call::AllMetadata() const {
  std::vector<net::Header> all;
  all.reserve(head_.size());
  for (size_t i = 0; i < head_.size(); ++i) all.push_back({head_.name(i), head_.value(i)});
  return all;
}

// --- the client's messages ---

void Http2Call::OnStreamData(std::string_view bytes) {
  if (done()) return stream_->Consume(bytes.size());
  if (reading_paused()) {
    // At most the stream's window, which is not opened again meanwhile.
    unconsumed_bytes_ += bytes.size();
    Hold(bytes);
    return;
  }
  stream_->Consume(bytes.size());
  if (!held_.empty()) {
    if (!Hold(bytes)) return;
    return ResumeNow();
  }
  const size_t taken = TakeMessages(bytes);
  if (!done() && taken < bytes.size()) Hold(bytes.substr(taken));
}

void Http2Call::ResumeNow() {
  // Moved away while its messages are delivered: the handler may pause, resume or finish meanwhile.
  std::string bytes;
  bytes.swap(held_);
  const size_t before = bytes.size();
  const size_t taken = TakeMessages(bytes);
  if (stream_ == nullptr) return;
  stream_->held_bytes() -= before;
  if (done()) return;
  if (taken < before) {
    if (taken > 0) bytes.erase(0, taken);
    held_.swap(bytes);
    stream_->held_bytes() += held_.size();
  }
}

size_t Http2Call::TakeMessages(std::string_view bytes) {
  size_t taken = 0;
  while (!done() && !reading_paused() && bytes.size() - taken >= Message::kPrefixBytes) {
    const std::string_view rest = bytes.substr(taken);
    const uint32_t length = base::LoadBe32(rest.data() + 1);
    if (length > server_->options.receive_bytes_max) {
      Finish(absl::StatusCode::kResourceExhausted,
             fmt::format("grpc: received message larger than max ({} vs. {})", length,
                         server_->options.receive_bytes_max));
      return taken;
    }
    if (rest.size() - Message::kPrefixBytes < length) break;
    taken += Message::kPrefixBytes + length;
    OnPayload(rest[0] != 0, rest.substr(Message::kPrefixBytes, length));
  }
  return taken;
}

void Http2Call::OnPayload(bool compressed, std::string_view payload) {
  if (!compressed) return DeliverMessage(payload);
  if (!gzip_) {
    return Finish(absl::StatusCode::kInternal,
                  "grpc: compressed flag set with identity or empty encoding");
  }
  const auto plain = Gunzip(payload, server_->options.receive_bytes_max);
  if (!plain.ok()) return Call::Finish(plain.status());
  DeliverMessage(*plain);
}

bool Http2Call::Hold(std::string_view bytes) {
  uint64_t& all = stream_->held_bytes();
  if (all + bytes.size() > server_->options.partial_bytes_max) {
    Finish(absl::StatusCode::kResourceExhausted,
           fmt::format("grpc: unfinished messages of the connection exceed {} bytes",
                       server_->options.partial_bytes_max));
    return false;
  }
  all += bytes.size();
  if (held_.empty()) held_.reserve(std::min(2 * bytes.size(), kReserveBytesMax));
  held_.append(bytes);
  return true;
}

void Http2Call::DropHeld() {
  if (stream_ != nullptr) {
    stream_->held_bytes() -= held_.size();
    if (unconsumed_bytes_ > 0) stream_->Consume(unconsumed_bytes_);
  }
  unconsumed_bytes_ = 0;
  held_ = std::string();
}

void Http2Call::TransportResume() {
  // Not from inside the handler's own function.
  loop().Defer([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    auto* call = static_cast<Http2Call*>(self.get());
    if (call->done() || call->stream_ == nullptr || call->reading_paused()) return;
    call->stream_->Consume(std::exchange(call->unconsumed_bytes_, 0));
    call->ResumeNow();
    if (call->half_closed_ && !call->done()) call->OnStreamEnd();
  });
}

void Http2Call::OnStreamEnd() {
  half_closed_ = true;
  if (done() || half_close_told_) return;
  if (reading_paused()) return;
  if (!held_.empty()) return Finish(absl::StatusCode::kInternal, "unexpected EOF");
  half_close_told_ = true;
  DeliverHalfClose();
}

void Http2Call::OnStreamClosed(uint32_t) {
  const auto keep = std::move(self_);
  DropHeld();
  stream_ = nullptr;
  Cancel(absl::CancelledError("context canceled"));
}

// --- the response ---

void Http2Call::SendHead() {
  if (head_sent_) return;
  head_sent_ = true;
  stream_->SendHeaders(kResponseHead, /*is_static=*/true, /*end=*/false);
}

void Http2Call::WriteMessage(Message message) {
  const size_t bytes = message.payload_bytes();
  message.head()[0] = 0;
  base::StoreBe32(message.head().data() + 1, static_cast<uint32_t>(bytes));
  stream_->Write(net::Piece(std::move(message.head())));
  for (net::Piece& piece : message.tail()) stream_->Write(std::move(piece));
}

void Http2Call::TransportSend(Message message) {
  if (stream_ == nullptr) return;
  SendHead();
  WriteMessage(std::move(message));
}

void Http2Call::TransportStartMessage(uint64_t payload_bytes) {
  if (stream_ == nullptr) return;
  SendHead();
  std::string prefix(Message::kPrefixBytes, '\0');
  base::StoreBe32(prefix.data() + 1, static_cast<uint32_t>(payload_bytes));
  stream_->Write(net::Piece(std::move(prefix)));
}

void Http2Call::TransportPart(std::string bytes) {
  if (stream_ != nullptr) stream_->Write(net::Piece(std::move(bytes)));
}

void Http2Call::TransportRespond(Message message) {
  if (stream_ == nullptr) return;
  SendHead();
  WriteMessage(std::move(message));
  stream_->End(kTrailersOk, /*is_static=*/true);
  DropHeld();
}

// Trailers after half a message would read as a broken stream, whatever they say; a reset's code is
// turned into a status by clients (a cancellation into the deadline, where that has passed).
void Http2Call::TransportBreak(absl::StatusCode code) {
  if (stream_ == nullptr) return;
  switch (code) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
      stream_->Reset(net::kHttp2Cancel);
      break;
    case absl::StatusCode::kResourceExhausted:
      stream_->Reset(net::kHttp2EnhanceYourCalm);
      break;
    default:
      stream_->Reset(net::kHttp2InternalError);
  }
}

void Http2Call::TransportFinish(absl::StatusCode code, std::string_view text) {
  if (stream_ == nullptr) return;
  if (!head_sent_) {
    head_sent_ = true;
    AnswerAtOnce(*stream_, "200", code, text);
  } else if (code == absl::StatusCode::kOk && text.empty()) {
    stream_->End(kTrailersOk, /*is_static=*/true);
  } else {
    const std::string message = EncodeMessage(text);
    const std::array<Header, 2> trailers = {
        {{"grpc-status", StatusDigits(code)}, {"grpc-message", message}}};
    stream_->End(trailers, /*is_static=*/false);
  }
  DropHeld();
}

void Http2Call::TransportNotify(size_t low_bytes) {
  if (stream_ != nullptr) stream_->NotifyWhenDrained(low_bytes);
}

}  // namespace rpc
