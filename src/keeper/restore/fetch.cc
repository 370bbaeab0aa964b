#include "restore/fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/sha256.h"
#include "base/status.h"
#include "restore/heal.h"
#include "stores/object_source.h"
#include "vault/seal.h"

namespace restore {
namespace {

constexpr base::Duration kTimeout = std::chrono::seconds(60);
constexpr size_t kPieceBytes = size_t{4} << 20;
constexpr uint64_t kSlowestBytesPerSecond = 256 << 10;

}  // namespace

absl::Status Fetcher::FetchFrom(const ledger::ReadableStore& from, const catalog::Object& object,
                                vault::Sink& to, bool* wrong_key) {
  const stores::Deadline deadline = stores::Deadline::In(
      clock_, kTimeout + std::chrono::seconds(object.stored_bytes / kSlowestBytesPerSecond));
  const catalog::Extent extent = object.In(from.name);
  RETURN_IF_ERROR(CheckCopy(clock_, from, object, false));
  vault::OpeningOptions options{.encrypted = !object.recipients.empty(),
                                .plain_bytes_max = object.plain_bytes};
  options.plain_sha256.emplace();
  options.stored_sha256.emplace();
  if (!base::ParseDigest(object.plain_sha256, &*options.plain_sha256) ||
      !base::ParseDigest(object.stored_sha256, &*options.stored_sha256)) {
    return absl::DataLossError("the log states no digests of it");
  }
  stores::ObjectSource source(*from.store, extent.name, object.stored_bytes, deadline, kPieceBytes,
                              extent.offset);
  const auto opening = vault::OpeningSource::Open(options, identities_, source);
  if (absl::IsPermissionDenied(opening.status())) {
    // A header in which a bit fell looks like one that was made for others.
    RETURN_IF_ERROR(CheckCopy(clock_, from, object, true));
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
