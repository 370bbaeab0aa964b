#include "restore/heal.h"

#include <fmt/format.h>

#include "base/sha256.h"
#include "base/status.h"
#include "vault/stream.h"

namespace restore {
namespace {

constexpr base::Duration kTimeout = std::chrono::minutes(10);

// The stored bytes of an object into a file, checked.
absl::Status Download(base::Files& files, base::Clock& clock, const ledger::ReadableStore& from,
                      const catalog::Object& object, const std::string& path) {
  ASSIGN_OR_RETURN(const auto file,
                   files.Open(path, {.write = true, .create = true, .truncate = true}));
  vault::FileSink to_file(*file);
  vault::HashingSink hashing(to_file);
  RETURN_IF_ERROR(from.store->Get(object.name, 0, stores::kToTheEnd, hashing,
                                  stores::Deadline::In(clock, kTimeout)));
  RETURN_IF_ERROR(hashing.Finish());
  if (base::DigestToHex(hashing.digest()) == object.stored_sha256) return absl::OkStatus();
  return absl::DataLossError("its bytes are not those that the log states");
}

absl::Status Upload(base::Files& files, base::Clock& clock, const ledger::ReadableStore& to,
                    const catalog::Object& object, const std::string& path, bool replaces) {
  ASSIGN_OR_RETURN(const auto file, files.Open(path, {}));
  base::Digest digest;
  if (!base::ParseDigest(object.stored_sha256, &digest)) {
    return absl::DataLossError("the log states no digest of it");
  }
  if (replaces) {
    RETURN_IF_ERROR(to.store->Delete(object.name, stores::Deadline::In(clock, kTimeout)));
  }
  return to.store->Put(object.name, stores::FileContent(*file, object.stored_bytes, digest),
                       stores::Deadline::In(clock, kTimeout));
}

}  // namespace

absl::Status CheckCopy(base::Clock& clock, const ledger::ReadableStore& store,
                       const catalog::Object& object, bool read_back) {
  ASSIGN_OR_RETURN(const uint64_t bytes,
                   store.store->Stat(object.name, stores::Deadline::In(clock, kTimeout)));
  if (bytes != object.stored_bytes) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "it has {} bytes and should have {}",
                            bytes, object.stored_bytes);
  }
  if (!read_back) return absl::OkStatus();
  base::Digest digest;
  if (!base::ParseDigest(object.stored_sha256, &digest)) {
    return absl::DataLossError("the log states no digest of it");
  }
  return stores::VerifyObject(*store.store, object.name, object.stored_bytes, digest,
                              stores::Deadline::In(clock, kTimeout));
}

absl::StatusOr<HealResult> Heal(base::Files& files, base::Clock& clock,
                                const catalog::Inventory& inventory,
                                const std::vector<ledger::ReadableStore>& stores, bool check,
                                const std::string& scratch_dir) {
  RETURN_IF_ERROR(base::MakeDirectories(files, scratch_dir, 0700));
  const std::string path = base::JoinPath(scratch_dir, "object");
  HealResult result;
  for (const catalog::Object& object : inventory.objects) {
    if (object.pruned) continue;
    std::vector<const ledger::ReadableStore*> whole, lacking;
    for (const ledger::ReadableStore& store : stores) {
      const absl::Status copy = CheckCopy(clock, store, object, check);
      // A store that cannot be asked is neither.
      const bool lacks =
          absl::IsNotFound(copy) || absl::IsDataLoss(copy) || absl::IsOutOfRange(copy);
      if (copy.ok()) whole.push_back(&store);
      if (lacks) lacking.push_back(&store);
      if (!copy.ok() && !lacks) result.failed.push_back({object.name, store.name, copy});
    }
    if (lacking.empty()) continue;
    absl::Status got = absl::DataLossError("no store has it whole");
    std::string from;
    for (const ledger::ReadableStore* source : whole) {
      got = Download(files, clock, *source, object, path);
      from = source->name;
      if (got.ok()) break;
    }
    for (const ledger::ReadableStore* store : lacking) {
      const bool replaces =
          object.stores.contains(store->name) || object.damaged.contains(store->name);
      const absl::Status put =
          got.ok() ? Upload(files, clock, *store, object, path, replaces) : got;
      if (!put.ok()) {
        result.failed.push_back({object.name, store->name, put});
        continue;
      }
      ++result.copied;
      result.healed += replaces;
      result.bytes += object.stored_bytes;
      ledger::Fact fact = ledger::Copied{.name = object.name, .store = store->name};
      if (replaces) {
        fact = ledger::Healed{.name = object.name, .store = store->name, .from = from};
      }
      result.facts[object.timeline].push_back(std::move(fact));
    }
  }
  RETURN_IF_ERROR(base::RemoveTree(files, scratch_dir));
  return result;
}

}  // namespace restore
