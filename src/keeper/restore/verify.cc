#include "restore/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
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

// What was missing, or spoken of by no log, may have been moved, re-wrapped, pruned or stored
// meanwhile.
void LookAgain(base::Clock& clock, const std::vector<ledger::ReadableStore>& stores,
               const VerifyOptions& options, VerifyResult* result) {
  const bool missing = std::any_of(result->bad.begin(), result->bad.end(),
                                   [](const BadCopy& bad) { return absl::IsNotFound(bad.why); });
  if (!missing && result->strangers.empty()) return;
  const auto now = options.reload();
  if (!now.ok()) return;  // what was found stays
  std::map<std::string, const catalog::Object*> by_name;
  for (const catalog::Object& object : now->inventory.objects) {
    by_name[object.name] = &object;
    for (const std::string& former : object.former_names) by_name[former] = &object;
  }
  std::erase_if(result->bad, [&](const BadCopy& bad) {
    const auto object = by_name.find(bad.name);
    if (!absl::IsNotFound(bad.why) || object == by_name.end()) return false;
    if (object->second->pruned) return true;
    const auto store = std::find_if(
        stores.begin(), stores.end(),
        [&](const ledger::ReadableStore& candidate) { return candidate.name == bad.store; });
    const bool moved = object->second->held.contains(bad.store) || object->second->name != bad.name;
    return store != stores.end() && moved && CheckCopy(clock, *store, *object->second, true).ok();
  });
  std::erase_if(result->strangers, [&](const std::string& stranger) {
    return by_name.contains(stranger.substr(0, stranger.find(" in store ")));
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
      // What lies in a container is looked at with it; opening it is another matter.
      if (object.held.contains(store.name) && !options.deep) continue;
      ++result.objects;
      absl::Status status = CheckCopy(clock, store, object, false);
      const bool chosen =
          &object == newest_full || static_cast<int>(random.Below(100)) < options.percent;
      if (status.ok() && chosen) {
        // Reports of drills are stored as they are, and containers of what is opened for itself.
        const bool open = options.deep && object.kind != catalog::Kind::kDrill &&
                          object.kind != catalog::Kind::kRollUp;
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
  if (options.reload) LookAgain(clock, stores, options, &result);
  return result;
}

}  // namespace restore
