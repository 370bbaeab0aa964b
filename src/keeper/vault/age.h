// age v1 (age-encryption.org/v1) for X25519 recipients, as streams. A file written here opens with
// `age -d -i IDENTITIES`, one written by `age -r RECIPIENT` opens here. One thread each.
//
// | header (age_header.h) | nonce, 16 bytes | chunks |
//
// A chunk is 64 KiB of plain bytes and a tag of 16; only the last may be shorter, and it is empty
// only when the whole plain text is. The last one is sealed under a nonce that says so, which is
// how a file that was cut off at a border of chunks is told from a whole one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/random.h"
#include "vault/age_header.h"
#include "vault/age_keys.h"
#include "vault/crypto.h"
#include "vault/stream.h"

namespace vault {

inline constexpr size_t kChunkBytes = size_t{64} << 10;
inline constexpr size_t kSealedChunkBytes = kChunkBytes + kTagBytes;

class AgeSink final : public Sink {
 public:
  // Writes the header to `next`, which outlives the sink. Errors: MakeHeader's and next's.
  static absl::StatusOr<std::unique_ptr<AgeSink>> Open(std::span<const Recipient> recipients,
                                                       base::Random& random, Sink& next);
  absl::Status Write(std::string_view data) override;
  absl::Status Finish() override;

 private:
  AgeSink(const Key& payload_key, Sink& next);
  absl::Status SealChunk(bool last);

  const Key payload_key_;
  Sink& next_;
  uint64_t chunks_ = 0;
  std::string plain_;   // <= kChunkBytes; a full chunk waits here, for it may be the last
  std::string sealed_;  // scratch
  absl::Status failure_;
};

class AgeSource final : public Source {
 public:
  // Reads the header off `from`, which outlives the source. Errors: ReadHeader's and OpenHeader's.
  static absl::StatusOr<std::unique_ptr<AgeSource>> Open(std::span<const Identity> identities,
                                                         Source& from);
  // DataLoss names the chunk and its place in the file.
  absl::StatusOr<size_t> Read(char* out, size_t n) override;

 private:
  AgeSource(const Key& payload_key, uint64_t payload_offset, std::string buffered, Source& from);
  absl::Status OpenChunk();
  absl::Status WhyNot(bool last) const;

  const Key payload_key_;
  const uint64_t payload_offset_;  // of the first chunk in the file
  Source& from_;
  std::string
      sealed_;  // up to one byte more than a chunk: whether there is one tells the last chunk
  std::string plain_;
  size_t plain_at_ = 0;  // plain_[plain_at_..] is still to be handed out
  uint64_t chunks_ = 0;
  bool ended_ = false;
  absl::Status failure_;
};

// Copies an object under a new header (see Rewrap); `to` is not finished.
absl::Status RewrapStream(std::span<const Identity> identities,
                          std::span<const Recipient> recipients, base::Random& random, Source& from,
                          Sink& to);

}  // namespace vault
