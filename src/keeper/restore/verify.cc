#include "restore/verify.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "base/status.h"
#include "events/segment.h"
#include "restore/heal.h"
#include "vault/stream.h"

namespace restore {
namespace {

constexpr base::Duration kTimeout = std::chrono::minutes(10);

// Takes everything and keeps nothing.
class NullSink final : public vault::Sink {
 public:
  absl::Status Write(std::string_view) override { return absl::OkStatus(); }
  absl::Status Finish() override { return absl::OkStatus(); }
};

absl::Status OpenDeep(base::Clock& clock, const ledger::ReadableStore& store,
                      const catalog::Object& object,
                      const std::vector<vault::Identity>& identities) {
  Fetcher fetcher(clock, {store}, identities);
  if (object.kind == catalog::Kind::kSegment) {
    ASSIGN_OR_RETURN(const std::string bytes, fetcher.FetchBytes(object));
    return events::ReadSegment(bytes, [](const events::RevisionView&) { return absl::OkStatus(); })
        .status();
  }
  return fetcher.Fetch(object, []() -> absl::StatusOr<std::unique_ptr<vault::Sink>> {
    return std::make_unique<NullSink>();
  });
}

}  // namespace

VerifyResult Verify(base::Clock& clock, base::Random& random, const ledger::Catalog& catalog,
                    const std::vector<ledger::ReadableStore>& stores,
                    const std::vector<vault::Identity>& identities, const VerifyOptions& options,
                    const std::function<void(uint64_t done, uint64_t total)>& progress) {
  VerifyResult result;
  const std::vector<catalog::Object>& objects = catalog.inventory.objects;
  const catalog::Object* newest_full = nullptr;
  std::set<std::string> stated;  // what is there by right, or waits to be deleted
  for (const catalog::Object& object : objects) {
    stated.insert(object.name);
    stated.insert(object.former_names.begin(), object.former_names.end());
    if (object.kind == catalog::Kind::kFull && !object.pruned) newest_full = &object;
  }
  const uint64_t total = objects.size() * stores.size();
  uint64_t done = 0;
  for (const ledger::ReadableStore& store : stores) {
    for (const catalog::Object& object : objects) {
      if (progress) progress(++done, total);
      if (object.pruned || !object.stores.contains(store.name)) continue;
      ++result.objects;
      absl::Status status = CheckCopy(clock, store, object, false);
      const bool chosen =
          &object == newest_full || static_cast<int>(random.Below(100)) < options.percent;
      if (status.ok() && chosen) {
        // Reports of drills are stored as they are.
        const bool open = options.deep && object.kind != catalog::Kind::kDrill;
        status = open ? OpenDeep(clock, store, object, identities)
                      : CheckCopy(clock, store, object, true);
        ++result.read_back;
        result.bytes_read += object.stored_bytes;
      }
      if (!status.ok()) result.bad.push_back({object.name, store.name, std::move(status)});
    }
    const absl::Status listed = stores::ForEachObject(
        *store.store, catalog.inventory.cluster + "/", stores::Deadline::In(clock, kTimeout),
        [&](const stores::ObjectInfo& object) {
          const bool is_log = object.name.find("/log/") != std::string::npos;
          if (!is_log && !stated.contains(object.name)) {
            result.strangers.push_back(fmt::format("{} in store {}", object.name, store.name));
          }
          return absl::OkStatus();
        });
    if (!listed.ok()) result.bad.push_back({catalog.inventory.cluster + "/", store.name, listed});
  }
  return result;
}

}  // namespace restore
