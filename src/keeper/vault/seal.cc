#include "vault/seal.h"

#include "base/check.h"
#include "base/status.h"

namespace vault {
namespace {

absl::Status Compare(std::string_view which, const std::optional<base::Digest>& expected,
                     const std::optional<base::Digest>& actual) {
  CHECK(actual.has_value());
  if (!expected.has_value() || *expected == *actual) return absl::OkStatus();
  return base::MakeStatus(absl::StatusCode::kDataLoss,
                          "sha256 of the {} bytes is {} where {} was recorded", which,
                          base::DigestToHex(*actual), base::DigestToHex(*expected));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SealingSink>> SealingSink::Open(const SealOptions& options,
                                                               base::Random& random, Sink& next) {
  if (options.compression_level < kLevelMin || options.compression_level > kLevelMax) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "compression level {} is not within {} and {}",
                            options.compression_level, kLevelMin, kLevelMax);
  }
  std::unique_ptr<SealingSink> sink(new SealingSink(next));
  Sink* behind = &sink->stored_;
  if (!options.recipients.empty()) {
    ASSIGN_OR_RETURN(sink->age_, AgeSink::Open(options.recipients, random, *behind));
    behind = sink->age_.get();
  }
  sink->zstd_.emplace(options.compression_level, *behind);
  sink->plain_.emplace(*sink->zstd_);
  for (const Recipient& recipient : options.recipients) {
    sink->sealed_.recipients.push_back(recipient.ToString());
  }
  return sink;
}

absl::Status SealingSink::Write(std::string_view data) { return plain_->Write(data); }

absl::Status SealingSink::Finish() {
  RETURN_IF_ERROR(plain_->Finish());
  sealed_.plain_bytes = plain_->bytes();
  sealed_.plain_sha256 = plain_->digest();
  sealed_.stored_bytes = stored_.bytes();
  sealed_.stored_sha256 = stored_.digest();
  finished_ = true;
  return absl::OkStatus();
}

const Sealed& SealingSink::sealed() const {
  CHECK(finished_);
  return sealed_;
}

absl::StatusOr<std::unique_ptr<OpeningSource>> OpeningSource::Open(
    const OpeningOptions& options, std::span<const Identity> identities, Source& from) {
  std::unique_ptr<OpeningSource> source(new OpeningSource(options, from));
  Source* before = &source->stored_;
  if (options.encrypted) {
    ASSIGN_OR_RETURN(source->age_, AgeSource::Open(identities, *before));
    before = source->age_.get();
  }
  source->zstd_.emplace(options.plain_bytes_max, *before);
  source->plain_.emplace(*source->zstd_);
  return source;
}

absl::StatusOr<size_t> OpeningSource::Read(char* out, size_t n) {
  RETURN_IF_ERROR(failure_);
  absl::StatusOr<size_t> got = plain_->Read(out, n);
  failure_ = got.status();
  if (got.ok() && *got == 0) failure_ = CheckDigests();
  RETURN_IF_ERROR(failure_);
  return got;
}

absl::Status OpeningSource::CheckDigests() const {
  RETURN_IF_ERROR(Compare("stored", options_.stored_sha256, stored_.digest()));
  return Compare("plain", options_.plain_sha256, plain_->digest());
}

}  // namespace vault
