// How every object is stored: packed with zstd, sealed with age, hashed on both sides, in one pass
// and bounded memory. By hand: `age -d -i IDENTITIES X.zst.age | zstd -d`. One thread each.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/random.h"
#include "base/sha256.h"
#include "vault/age.h"
#include "vault/age_keys.h"
#include "vault/stream.h"
#include "vault/zstd.h"

namespace vault {

struct SealOptions {
  std::vector<Recipient> recipients;  // empty: not encrypted, only packed
  int compression_level = 3;          // kLevelMin..kLevelMax
};

// What is known of an object once it is sealed.
struct Sealed {
  uint64_t plain_bytes = 0;
  uint64_t stored_bytes = 0;
  base::Digest plain_sha256{};
  base::Digest stored_sha256{};
  std::vector<std::string> recipients;  // age1…, in the order given
};

class SealingSink final : public Sink {
 public:
  // `next` outlives the sink. InvalidArgument for a level or recipient that cannot be.
  static absl::StatusOr<std::unique_ptr<SealingSink>> Open(const SealOptions& options,
                                                           base::Random& random, Sink& next);
  absl::Status Write(std::string_view data) override;
  absl::Status Finish() override;
  // Requires that Finish succeeded.
  const Sealed& sealed() const;

 private:
  explicit SealingSink(Sink& next) : stored_(next) {}

  HashingSink stored_;  // the last stage; each one below leads to the one above
  std::unique_ptr<AgeSink> age_;
  std::optional<ZstdSink> zstd_;
  std::optional<HashingSink> plain_;
  Sealed sealed_;
  bool finished_ = false;
};

struct OpeningOptions {
  // An object that is not encrypted is refused where it should be: whoever can write to a store
  // could otherwise put one there.
  bool encrypted = true;
  // The most that may come out; what is known of the object says it best.
  uint64_t plain_bytes_max = std::numeric_limits<uint64_t>::max();
  std::optional<base::Digest> plain_sha256;
  std::optional<base::Digest> stored_sha256;
};

class OpeningSource final : public Source {
 public:
  // `from` outlives the source. Errors: those of AgeSource::Open.
  static absl::StatusOr<std::unique_ptr<OpeningSource>> Open(const OpeningOptions& options,
                                                             std::span<const Identity> identities,
                                                             Source& from);
  // At the end DataLoss "sha256 of the … bytes" when a digest that was given differs.
  absl::StatusOr<size_t> Read(char* out, size_t n) override;
  uint64_t plain_bytes() const { return plain_->bytes(); }
  uint64_t stored_bytes() const { return stored_.bytes(); }

 private:
  OpeningSource(const OpeningOptions& options, Source& from) : options_(options), stored_(from) {}
  absl::Status CheckDigests() const;

  const OpeningOptions options_;
  HashingSource stored_;  // the first stage; each one below reads the one above
  std::unique_ptr<AgeSource> age_;
  std::optional<ZstdSource> zstd_;
  std::optional<HashingSource> plain_;
  absl::Status failure_;
};

}  // namespace vault
