// The streams of a Http2Session: their output queues and what goes to nghttp2 from them.
#include <algorithm>
#include <array>
#include <utility>

#include "net/http2_session.h"

namespace net {
namespace {

// What a client takes in one frame unless it asks for more.
constexpr size_t kFrameBytes = 16384;

uint8_t* Bytes(std::string_view view) {
  return reinterpret_cast<uint8_t*>(const_cast<char*>(view.data()));
}

nghttp2_nv ToField(const Header& header, bool is_static) {
  nghttp2_nv field;
  field.name = Bytes(header.name);
  field.namelen = header.name.size();
  field.value = Bytes(header.value);
  field.valuelen = header.value.size();
  field.flags = is_static ? NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE
                          : NGHTTP2_NV_FLAG_NONE;
  return field;
}

}  // namespace

const ConnectionInfo& Http2StreamImpl::connection() const { return *session_->host_.info(); }
const std::shared_ptr<const ConnectionInfo>& Http2StreamImpl::shared_connection() const {
  return session_->host_.info();
}
Loop& Http2StreamImpl::loop() { return session_->host_.loop(); }

uint64_t& Http2StreamImpl::held_bytes() { return session_->held_bytes_; }

void Http2StreamImpl::Recycle() {
  head_.Clear();
  header_bytes_ = 0;
  consumer_ = nullptr;
  queue_.Clear();
  queue_offset_ = queued_bytes_ = low_bytes_ = unconsumed_bytes_ = 0;
  trailers_.clear();
  trailer_bytes_.clear();
  malformed_ = dispatched_ = remote_ended_ = responded_ = ended_ = false;
  deferred_ = notify_drained_ = in_drained_list_ = false;
}

void Http2StreamImpl::SendHeaders(std::span<const Header> headers, bool is_static, bool end) {
  if (responded_) return;
  responded_ = true;
  ended_ = end;
  std::vector<nghttp2_nv> many;
  std::array<nghttp2_nv, 24> few;
  nghttp2_nv* fields = few.data();
  if (headers.size() > few.size()) {
    many.resize(headers.size());
    fields = many.data();
  }
  for (size_t i = 0; i < headers.size(); ++i) fields[i] = ToField(headers[i], is_static);
  nghttp2_data_provider provider;
  provider.source.ptr = this;
  provider.read_callback = [](nghttp2_session*, int32_t, uint8_t*, size_t length, uint32_t* flags,
                              nghttp2_data_source* source, void*) -> ssize_t {
    return static_cast<Http2StreamImpl*>(source->ptr)->OnRead(length, flags);
  };
  const int error = nghttp2_submit_response(session_->session_, id_, fields, headers.size(),
                                            end ? nullptr : &provider);
  if (error != 0) Reset(kHttp2InternalError);
  session_->ping_strikes_reset_ = true;
  session_->guard_.OnSent();
  session_->host_.WantFlush();
}

void Http2StreamImpl::Write(Piece piece) {
  if (ended_ || !responded_ || piece.size() == 0) return;
  // One answer of any size passes; what comes while that much already waits does not. Only the
  // stream suffers.
  if (session_->queued_bytes_ + session_->host_.output().size() >
      session_->options_.output_bytes_max) {
    return Reset(kHttp2EnhanceYourCalm);
  }
  queued_bytes_ += piece.size();
  session_->queued_bytes_ += piece.size();
  if (!piece.shared() && piece.size() > kFrameBytes) {
    // It leaves in several frames, each of which would copy its part.
    piece = Piece(std::make_shared<const std::string>(std::move(*piece.owned())));
  }
  queue_.Push(std::move(piece));
  if (deferred_) {
    deferred_ = false;
    nghttp2_session_resume_data(session_->session_, id_);
  }
  session_->host_.WantFlush();
}

void Http2StreamImpl::End(std::span<const Header> trailers, bool is_static) {
  if (ended_ || !responded_) return;
  ended_ = true;
  size_t bytes = 0;
  for (const Header& h : trailers) bytes += h.name.size() + h.value.size();
  if (!is_static) trailer_bytes_.reserve(bytes);
  for (const Header& h : trailers) {
    Header kept = h;
    if (!is_static) {
      const size_t begin = trailer_bytes_.size();
      trailer_bytes_.append(h.name).append(h.value);
      const std::string_view all = trailer_bytes_;
      kept = {all.substr(begin, h.name.size()), all.substr(begin + h.name.size(), h.value.size())};
    }
    trailers_.push_back(ToField(kept, is_static));
  }
  if (deferred_) {
    deferred_ = false;
    nghttp2_session_resume_data(session_->session_, id_);
  }
  session_->host_.WantFlush();
}

void Http2StreamImpl::Reset(uint32_t error_code) {
  ended_ = responded_ = true;
  nghttp2_submit_rst_stream(session_->session_, NGHTTP2_FLAG_NONE, id_, error_code);
  session_->host_.WantFlush();
}

void Http2StreamImpl::Consume(size_t bytes) {
  bytes = std::min(bytes, unconsumed_bytes_);
  unconsumed_bytes_ -= bytes;
  nghttp2_session_consume(session_->session_, id_, bytes);
  if (!session_->receiving_) session_->host_.WantFlush();
}

void Http2StreamImpl::NotifyWhenDrained(size_t low_bytes) {
  low_bytes_ = low_bytes;
  notify_drained_ = true;
  if (queued_bytes_ <= low_bytes_ && !in_drained_list_) {
    in_drained_list_ = true;
    session_->drained_.push_back(id_);
    session_->host_.WantFlush();
  }
}

ssize_t Http2StreamImpl::OnRead(size_t length, uint32_t* flags) {
  const size_t n = std::min(length, queued_bytes_);
  if (n == 0 && !ended_) {
    deferred_ = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (n == queued_bytes_ && ended_) {
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (!trailers_.empty()) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      nghttp2_submit_trailer(session_->session_, id_, trailers_.data(), trailers_.size());
    }
  }
  return static_cast<ssize_t>(n);
}

void Http2StreamImpl::MoveTo(OutputQueue* output, size_t length) {
  queued_bytes_ -= length;
  session_->queued_bytes_ -= length;
  while (length > 0) {
    Piece& piece = queue_.front();
    const std::string_view rest = piece.view().substr(queue_offset_);
    const size_t n = std::min(length, rest.size());
    const bool whole = queue_offset_ == 0 && n == piece.size();
    if (whole) {
      output->Append(std::move(piece));
    } else if (piece.shared()) {
      output->AppendShared(piece.holder(), rest.substr(0, n));
    } else {
      output->Append(rest.substr(0, n));
    }
    length -= n;
    queue_offset_ += n;
    if (n == rest.size()) {
      queue_.Pop();
      queue_offset_ = 0;
    }
  }
  if (notify_drained_ && queued_bytes_ <= low_bytes_ && !in_drained_list_) {
    in_drained_list_ = true;
    session_->drained_.push_back(id_);
  }
}

}  // namespace net
