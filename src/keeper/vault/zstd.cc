#include "vault/zstd.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "base/status.h"

namespace vault {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;
constexpr size_t kMagicBytes = 4;

}  // namespace

struct ZstdSink::Context {
  ZSTD_CCtx* zstd = ::ZSTD_createCCtx();
  Context() = default;
  ~Context() { ::ZSTD_freeCCtx(zstd); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

ZstdSink::ZstdSink(int level, Sink& next)
    : context_(std::make_unique<Context>()), next_(next), out_(kBufferBytes, '\0') {
  CHECK(context_->zstd != nullptr);
  CHECK_OP(level, >=, kLevelMin);
  CHECK_OP(level, <=, kLevelMax);
  const auto set = [this](ZSTD_cParameter parameter, int value) {
    return ::ZSTD_isError(::ZSTD_CCtx_setParameter(context_->zstd, parameter, value)) == 0;
  };
  CHECK(set(ZSTD_c_compressionLevel, level));
  CHECK(set(ZSTD_c_checksumFlag, 1));
}

ZstdSink::~ZstdSink() = default;

absl::Status ZstdSink::Write(std::string_view data) {
  if (failure_.ok()) failure_ = Compress(data, false);
  return failure_;
}

absl::Status ZstdSink::Finish() {
  if (failure_.ok()) failure_ = Compress({}, true);
  if (failure_.ok()) failure_ = next_.Finish();
  return failure_;
}

absl::Status ZstdSink::Compress(std::string_view data, bool last) {
  ZSTD_inBuffer in{.src = data.data(), .size = data.size(), .pos = 0};
  while (true) {
    ZSTD_outBuffer out{.dst = out_.data(), .size = out_.size(), .pos = 0};
    const size_t left =
        ::ZSTD_compressStream2(context_->zstd, &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
    if (::ZSTD_isError(left) != 0) {
      return base::MakeStatus(absl::StatusCode::kInternal, "zstd: {}", ::ZSTD_getErrorName(left));
    }
    if (out.pos > 0) RETURN_IF_ERROR(next_.Write({out_.data(), out.pos}));
    if (last ? left == 0 : in.pos == in.size) return absl::OkStatus();
  }
}

struct ZstdSource::Context {
  ZSTD_DCtx* zstd = ::ZSTD_createDCtx();
  Context() = default;
  ~Context() { ::ZSTD_freeDCtx(zstd); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

ZstdSource::ZstdSource(uint64_t plain_bytes_max, Source& from)
    : context_(std::make_unique<Context>()), from_(from), plain_bytes_max_(plain_bytes_max) {
  CHECK(context_->zstd != nullptr);
  CHECK(::ZSTD_isError(
            ::ZSTD_DCtx_setParameter(context_->zstd, ZSTD_d_windowLogMax, kWindowLogMax)) == 0);
  in_.reserve(kBufferBytes);
}

ZstdSource::~ZstdSource() = default;

absl::StatusOr<size_t> ZstdSource::Read(char* out, size_t n) {
  RETURN_IF_ERROR(failure_);
  if (ended_) return 0;
  absl::StatusOr<size_t> got = Decompress(out, n);
  if (!got.ok()) failure_ = got.status();
  return got;
}

absl::Status ZstdSource::Fill() {
  in_.resize(kBufferBytes);
  in_at_ = 0;
  const absl::StatusOr<size_t> got = ReadFully(from_, in_.data(), in_.size());
  in_.resize(got.ok() ? *got : 0);
  RETURN_IF_ERROR(got.status());
  if (packed_bytes_ == 0 &&
      (in_.size() < kMagicBytes || base::LoadLe<uint32_t>(in_.data()) != ZSTD_MAGICNUMBER)) {
    return absl::DataLossError("zstd: no frame begins here");
  }
  packed_bytes_ += in_.size();
  return absl::OkStatus();
}

absl::StatusOr<size_t> ZstdSource::Decompress(char* out, size_t n) {
  ZSTD_outBuffer target{.dst = out, .size = n, .pos = 0};
  while (!frame_ended_) {
    // A call without input comes first, for the decoder may still hold output.
    ZSTD_inBuffer in{.src = in_.data(), .size = in_.size(), .pos = in_at_};
    const size_t left = ::ZSTD_decompressStream(context_->zstd, &target, &in);
    in_at_ = in.pos;
    if (::ZSTD_isError(left) != 0) {
      const bool window = ::ZSTD_getErrorCode(left) == ZSTD_error_frameParameter_windowTooLarge;
      return base::MakeStatus(absl::StatusCode::kDataLoss, "zstd: {} after {} bytes{}",
                              ::ZSTD_getErrorName(left), plain_bytes_ + target.pos,
                              window ? "; at most 8 MiB of window are accepted" : "");
    }
    if (target.pos > plain_bytes_max_ - plain_bytes_) {
      return base::MakeStatus(absl::StatusCode::kDataLoss,
                              "zstd: unpacks to more than the {} bytes it may hold",
                              plain_bytes_max_);
    }
    frame_ended_ = left == 0;
    if (target.pos > 0 && !frame_ended_) {
      plain_bytes_ += target.pos;
      return target.pos;
    }
    if (!frame_ended_ && in_at_ == in_.size()) {
      RETURN_IF_ERROR(Fill());
      if (in_.empty()) {
        return base::MakeStatus(absl::StatusCode::kDataLoss, "zstd: cut off after {} packed bytes",
                                packed_bytes_);
      }
    }
  }
  plain_bytes_ += target.pos;
  if (target.pos > 0) return target.pos;
  // The end is one only if nothing follows; reading on also lets the stages before check theirs.
  if (in_at_ == in_.size()) RETURN_IF_ERROR(Fill());
  if (in_at_ != in_.size()) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "zstd: bytes follow the frame of {} bytes",
                            plain_bytes_);
  }
  ended_ = true;
  return 0;
}

}  // namespace vault
