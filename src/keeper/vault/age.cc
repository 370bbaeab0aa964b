#include "vault/age.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/status.h"

namespace vault {
namespace {

constexpr size_t kPayloadNonceBytes = 16;

Key PayloadKey(const FileKey& file_key, Bytes nonce) {
  return HkdfSha256(file_key.span(), nonce, "payload");
}

// 11 bytes of counter, big-endian, and one that marks the last chunk.
Nonce ChunkNonce(uint64_t chunk, bool last) {
  Nonce nonce{};
  base::StoreBe64(reinterpret_cast<char*>(nonce.data()) + 3, chunk);
  nonce[11] = last ? 1 : 0;
  return nonce;
}

uint8_t* Octets(std::string& text) { return reinterpret_cast<uint8_t*>(text.data()); }

}  // namespace

AgeSink::AgeSink(const Key& payload_key, Sink& next) : payload_key_(payload_key), next_(next) {
  plain_.reserve(kChunkBytes);
}

absl::StatusOr<std::unique_ptr<AgeSink>> AgeSink::Open(std::span<const Recipient> recipients,
                                                       base::Random& random, Sink& next) {
  FileKey file_key;
  FillRandom(random, file_key.span());
  ASSIGN_OR_RETURN(std::string head, MakeHeader(file_key, recipients, random));
  std::array<uint8_t, kPayloadNonceBytes> nonce;
  FillRandom(random, nonce);
  head.append(reinterpret_cast<const char*>(nonce.data()), nonce.size());
  RETURN_IF_ERROR(next.Write(head));
  return std::unique_ptr<AgeSink>(new AgeSink(PayloadKey(file_key, nonce), next));
}

absl::Status AgeSink::Write(std::string_view data) {
  while (!data.empty()) {
    RETURN_IF_ERROR(failure_);
    if (plain_.size() == kChunkBytes) RETURN_IF_ERROR(SealChunk(false));
    const size_t n = std::min(data.size(), kChunkBytes - plain_.size());
    plain_.append(data.substr(0, n));
    data.remove_prefix(n);
  }
  return failure_;
}

absl::Status AgeSink::Finish() {
  RETURN_IF_ERROR(failure_);
  RETURN_IF_ERROR(SealChunk(true));
  failure_ = next_.Finish();
  return failure_;
}

absl::Status AgeSink::SealChunk(bool last) {
  sealed_.resize(plain_.size() + kTagBytes);
  SealChaCha(payload_key_, ChunkNonce(chunks_, last), AsBytes(plain_), Octets(sealed_));
  ++chunks_;
  plain_.clear();
  failure_ = next_.Write(sealed_);
  return failure_;
}

AgeSource::AgeSource(const Key& payload_key, uint64_t payload_offset, std::string buffered,
                     Source& from)
    : payload_key_(payload_key),
      payload_offset_(payload_offset),
      from_(from),
      sealed_(std::move(buffered)) {
  sealed_.reserve(kSealedChunkBytes + 1);
  plain_.reserve(kChunkBytes);
}

absl::StatusOr<std::unique_ptr<AgeSource>> AgeSource::Open(std::span<const Identity> identities,
                                                           Source& from) {
  std::string following;
  ASSIGN_OR_RETURN(const std::string header, ReadHeader(from, &following));
  ASSIGN_OR_RETURN(const FileKey file_key, OpenHeader(header, identities));
  if (following.size() < kPayloadNonceBytes) {
    const size_t had = following.size();
    following.resize(kPayloadNonceBytes);
    ASSIGN_OR_RETURN(const size_t got,
                     ReadFully(from, following.data() + had, kPayloadNonceBytes - had));
    if (had + got < kPayloadNonceBytes) {
      return base::MakeStatus(absl::StatusCode::kDataLoss,
                              "age payload: cut off at byte {}, within its nonce",
                              header.size() + had + got);
    }
  }
  const std::string nonce = following.substr(0, kPayloadNonceBytes);
  return std::unique_ptr<AgeSource>(new AgeSource(PayloadKey(file_key, AsBytes(nonce)),
                                                  header.size() + kPayloadNonceBytes,
                                                  following.substr(kPayloadNonceBytes), from));
}

absl::StatusOr<size_t> AgeSource::Read(char* out, size_t n) {
  RETURN_IF_ERROR(failure_);
  if (plain_at_ == plain_.size() && !ended_) {
    failure_ = OpenChunk();
    RETURN_IF_ERROR(failure_);
  }
  const size_t got = std::min(n, plain_.size() - plain_at_);
  std::memcpy(out, plain_.data() + plain_at_, got);
  plain_at_ += got;
  return got;
}

absl::Status AgeSource::OpenChunk() {
  const size_t had = sealed_.size();
  CHECK_OP(had, <=, kSealedChunkBytes);
  sealed_.resize(kSealedChunkBytes + 1);
  ASSIGN_OR_RETURN(const size_t got, ReadFully(from_, sealed_.data() + had, sealed_.size() - had));
  sealed_.resize(had + got);
  const bool last = sealed_.size() <= kSealedChunkBytes;
  const size_t size = std::min(sealed_.size(), kSealedChunkBytes);
  if (size < kTagBytes) return WhyNot(last);
  plain_.resize(size - kTagBytes);
  plain_at_ = 0;
  if (!OpenChaCha(payload_key_, ChunkNonce(chunks_, last), AsBytes(sealed_).first(size),
                  Octets(plain_))) {
    plain_.clear();
    return WhyNot(last);
  }
  if (last && plain_.empty() && chunks_ > 0) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "age payload: chunk {} is empty, which only the first may be", chunks_);
  }
  ++chunks_;
  ended_ = last;
  sealed_.erase(0, size);
  return absl::OkStatus();
}

// What most likely happened to the chunk in sealed_, which does not open.
absl::Status AgeSource::WhyNot(bool last) const {
  const uint64_t at = payload_offset_ + chunks_ * kSealedChunkBytes;
  const auto opens = [&](bool as_last) {
    const size_t size = std::min(sealed_.size(), kSealedChunkBytes);
    if (size < kTagBytes) return false;
    std::string scratch(size - kTagBytes, '\0');
    return OpenChaCha(payload_key_, ChunkNonce(chunks_, as_last), AsBytes(sealed_).first(size),
                      Octets(scratch));
  };
  if (last && (sealed_.size() < kTagBytes || opens(false))) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "age payload: cut off at byte {}, in or after chunk {}",
                            at + sealed_.size(), chunks_);
  }
  if (!last && opens(true)) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "age payload: something was appended behind byte {}, its end",
                            at + kSealedChunkBytes);
  }
  return base::MakeStatus(absl::StatusCode::kDataLoss,
                          "age payload: chunk {}, at byte {}, is damaged or cut off", chunks_, at);
}

absl::Status RewrapStream(std::span<const Identity> identities,
                          std::span<const Recipient> recipients, base::Random& random, Source& from,
                          Sink& to) {
  std::string following;
  ASSIGN_OR_RETURN(const std::string old, ReadHeader(from, &following));
  ASSIGN_OR_RETURN(const std::string header, Rewrap(old, identities, recipients, random));
  RETURN_IF_ERROR(to.Write(header));
  RETURN_IF_ERROR(to.Write(following));
  return Copy(from, to).status();
}

}  // namespace vault
