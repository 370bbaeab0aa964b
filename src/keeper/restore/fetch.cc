#include "restore/fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/sha256.h"
#include "base/status.h"
#include "vault/seal.h"

namespace restore {
namespace {

constexpr base::Duration kTimeout = std::chrono::seconds(60);
constexpr uint64_t kSlowestBytesPerSecond = 256 << 10;
// Read from a store at once.
constexpr uint64_t kPieceBytes = uint64_t{8} << 20;

// The bytes of an object, piece by piece. A store pushes into a sink; opening pulls.
class StoreSource final : public vault::Source {
 public:
  StoreSource(stores::Store& store, const catalog::Object& object, const stores::Deadline& deadline)
      : store_(store), object_(object), deadline_(deadline) {}

  absl::StatusOr<size_t> Read(char* out, size_t n) override {
    if (at_ == piece_.size()) {
      RETURN_IF_ERROR(NextPiece());
      if (piece_.empty()) return size_t{0};
    }
    const size_t count = std::min(n, piece_.size() - at_);
    std::copy_n(piece_.data() + at_, count, out);
    at_ += count;
    return count;
  }

 private:
  absl::Status NextPiece() {
    piece_.clear();
    at_ = 0;
    const uint64_t left = object_.stored_bytes - offset_;
    if (left == 0) return absl::OkStatus();
    const uint64_t count = std::min(left, kPieceBytes);
    vault::StringSink sink(&piece_, count);
    RETURN_IF_ERROR(store_.Get(object_.name, offset_, count, sink, deadline_));
    offset_ += count;
    return absl::OkStatus();
  }

  stores::Store& store_;
  const catalog::Object& object_;
  const stores::Deadline& deadline_;
  uint64_t offset_ = 0;
  std::string piece_;
  size_t at_ = 0;
};

}  // namespace

absl::Status Fetcher::FetchFrom(const ledger::ReadableStore& from, const catalog::Object& object,
                                vault::Sink& to, bool* wrong_key) {
  const stores::Deadline deadline = stores::Deadline::In(
      clock_, kTimeout + std::chrono::seconds(object.stored_bytes / kSlowestBytesPerSecond));
  ASSIGN_OR_RETURN(const uint64_t bytes, from.store->Stat(object.name, deadline));
  if (bytes != object.stored_bytes) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "it has {} bytes and should have {}",
                            bytes, object.stored_bytes);
  }
  vault::OpeningOptions options{.encrypted = !object.recipients.empty(),
                                .plain_bytes_max = object.plain_bytes};
  options.plain_sha256.emplace();
  options.stored_sha256.emplace();
  if (!base::ParseDigest(object.plain_sha256, &*options.plain_sha256) ||
      !base::ParseDigest(object.stored_sha256, &*options.stored_sha256)) {
    return absl::DataLossError("the log states no digests of it");
  }
  StoreSource source(*from.store, object, deadline);
  const auto opening = vault::OpeningSource::Open(options, identities_, source);
  if (absl::IsPermissionDenied(opening.status())) {
    // A header in which a bit fell looks like one that was made for others.
    RETURN_IF_ERROR(stores::VerifyObject(*from.store, object.name, object.stored_bytes,
                                         *options.stored_sha256, deadline));
    *wrong_key = true;
  }
  RETURN_IF_ERROR(opening.status());
  RETURN_IF_ERROR(vault::Copy(**opening, to).status());
  return to.Finish();
}

absl::Status Fetcher::Fetch(
    const catalog::Object& object,
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<vault::Sink>>()> make) {
  absl::Status worst = base::MakeStatus(
      absl::StatusCode::kNotFound, "{}: it is in none of the stores that can be read", object.name);
  for (const ledger::ReadableStore& store : stores_) {
    if (!object.stores.contains(store.name) && !object.damaged.contains(store.name)) continue;
    ASSIGN_OR_RETURN(const std::unique_ptr<vault::Sink> sink, make());
    bool wrong_key = false;
    absl::Status status = FetchFrom(store, object, *sink, &wrong_key);
    if (status.ok()) return status;
    // A store that lets nobody in is no question of the identities.
    if (absl::IsPermissionDenied(status) && !wrong_key) {
      status = absl::UnavailableError(status.message());
    }
    if (absl::IsNotFound(status)) status = absl::DataLossError(status.message());
    worst = base::Annotate(status, fmt::format("{} in store {}", object.name, store.name));
    // A wrong key is wrong for every copy.
    if (wrong_key) return worst;
    const std::lock_guard lock(mutex_);
    bad_copies_.push_back({object.name, store.name, std::move(status)});
  }
  return worst;
}

absl::StatusOr<std::string> Fetcher::FetchBytes(const catalog::Object& object) {
  std::string bytes;
  RETURN_IF_ERROR(Fetch(object, [&]() -> absl::StatusOr<std::unique_ptr<vault::Sink>> {
    bytes.clear();
    return std::make_unique<vault::StringSink>(&bytes, object.plain_bytes);
  }));
  return bytes;
}

std::vector<BadCopy> Fetcher::bad_copies() const {
  const std::lock_guard lock(mutex_);
  return bad_copies_;
}

}  // namespace restore
