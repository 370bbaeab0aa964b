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

Fetcher::Attempt Fetcher::FetchAsStated(
    const catalog::Object& object,
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<vault::Sink>>()> make) {
  Attempt attempt{
      .status = base::MakeStatus(absl::StatusCode::kNotFound,
                                 "{}: it is in none of the stores that can be read", object.name),
      .missing = true,
      .bad_copies = {}};
  for (const ledger::ReadableStore& store : stores_) {
    if (!object.stores.contains(store.name) && !object.damaged.contains(store.name)) continue;
    const auto sink = make();
    if (!sink.ok()) return {.status = sink.status(), .missing = false, .bad_copies = {}};
    bool wrong_key = false;
    absl::Status status = FetchFrom(store, object, **sink, &wrong_key);
    const bool lacks = absl::IsNotFound(status);
    attempt.missing = lacks || (attempt.missing && !attempt.bad_copies.empty());
    // A store that lets nobody in is no question of the identities.
    if (absl::IsPermissionDenied(status) && !wrong_key) {
      status = absl::UnavailableError(status.message());
    }
    if (lacks) status = absl::DataLossError(status.message());
    attempt.status = base::Annotate(status, fmt::format("{} in store {}", object.name, store.name));
    // A wrong key is wrong for every copy.
    if (status.ok() || wrong_key) return attempt;
    attempt.bad_copies.push_back({object.name, store.name, std::move(status)});
  }
  return attempt;
}

absl::StatusOr<catalog::Object> Fetcher::StatedNow(const catalog::Object& object,
                                                   uint64_t reloads) {
  const std::lock_guard lock(reload_mutex_);
  if (reloads_ == reloads) {
    ASSIGN_OR_RETURN(ledger::Catalog now, reload_());
    stated_.clear();
    for (catalog::Object& stated : now.inventory.objects) {
      std::string name = stated.FirstName();
      stated_.insert_or_assign(std::move(name), std::move(stated));
    }
    ++reloads_;
  }
  const auto at = stated_.find(object.FirstName());
  return at == stated_.end() ? object : at->second;
}

absl::Status Fetcher::Fetch(
    const catalog::Object& object,
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<vault::Sink>>()> make) {
  catalog::Object stated = object;
  uint64_t reloads = 0;
  {
    const std::lock_guard lock(reload_mutex_);
    reloads = reloads_;
    const auto at = stated_.find(object.FirstName());
    if (at != stated_.end()) stated = at->second;
  }
  Attempt attempt = FetchAsStated(stated, make);
  if (attempt.missing && reload_) {
    const auto now = StatedNow(stated, reloads);
    if (!now.ok()) {
      // Then what was found stands.
      attempt.status = base::Annotate(
          attempt.status,
          fmt::format("whether it was moved cannot be told ({})", base::Message(now.status())));
    } else if (now->pruned && !attempt.status.ok()) {
      return base::MakeStatus(absl::StatusCode::kAborted,
                              "{}: retention deleted it while this ran: run the command again",
                              object.name);
    } else if (now->name != stated.name || now->held != stated.held ||
               now->stores != stated.stores) {
      attempt.bad_copies.clear();
      if (!attempt.status.ok()) attempt = FetchAsStated(*now, make);
    }
  }
  const std::lock_guard lock(mutex_);
  for (BadCopy& bad : attempt.bad_copies) bad_copies_.push_back(std::move(bad));
  return attempt.status;
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
