#include "restore/heal.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/sha256.h"
#include "base/status.h"
#include "catalog/rollup.h"
#include "vault/stream.h"

namespace restore {
namespace {

constexpr base::Duration kTimeout = std::chrono::minutes(10);

// The stored bytes of an object into an open file, checked.
absl::Status Download(base::Clock& clock, const ledger::ReadableStore& from,
                      const catalog::Object& object, base::File& file, uint64_t at) {
  const catalog::Extent extent = object.In(from.name);
  vault::FileSink to_file(file, at);
  vault::HashingSink hashing(to_file);
  RETURN_IF_ERROR(from.store->Get(extent.name, extent.offset, object.stored_bytes, hashing,
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
  const catalog::Extent extent = object.In(store.name);
  const bool held = extent.name != object.name;  // in a container
  ASSIGN_OR_RETURN(const uint64_t bytes,
                   store.store->Stat(extent.name, stores::Deadline::In(clock, kTimeout)));
  if (held && bytes < extent.offset + object.stored_bytes) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "{} ends at {}, before the end of it",
                            extent.name, bytes);
  }
  if (!held && bytes != object.stored_bytes) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "it has {} bytes and should have {}",
                            bytes, object.stored_bytes);
  }
  if (!read_back) return absl::OkStatus();
  base::Digest digest;
  if (!base::ParseDigest(object.stored_sha256, &digest)) {
    return absl::DataLossError("the log states no digest of it");
  }
  const stores::Deadline deadline = stores::Deadline::In(clock, kTimeout);
  return held ? stores::VerifyRange(*store.store, extent.name, extent.offset, object.stored_bytes,
                                    digest, deadline)
              : stores::VerifyObject(*store.store, object.name, object.stored_bytes, digest,
                                     deadline);
}

namespace {

class Healer {
 public:
  Healer(base::Files& files, base::Clock& clock, const catalog::Inventory& inventory,
         const std::vector<ledger::ReadableStore>& stores, bool check, std::string path)
      : files_(files),
        clock_(clock),
        inventory_(inventory),
        stores_(stores),
        check_(check),
        path_(std::move(path)) {
    for (const catalog::Object& object : inventory.objects) {
      if (object.kind == catalog::Kind::kRollUp) containers_[object.name] = &object;
    }
  }

  absl::StatusOr<HealResult> Run() {
    // A container that is whole stands for all that it holds, so the outermost come first.
    std::vector<const catalog::Object*> objects;
    for (const catalog::Object& object : inventory_.objects) {
      if (!object.pruned) objects.push_back(&object);
    }
    std::stable_sort(
        objects.begin(), objects.end(),
        [](const catalog::Object* a, const catalog::Object* b) { return a->level > b->level; });
    for (const catalog::Object* object : objects) RETURN_IF_ERROR(HealOne(*object));
    return std::move(result_);
  }

 private:
  // Whether a container in the store stands for the object; also one that was only just brought.
  bool IsHeld(const catalog::Object& object, const std::string& store) const {
    if (object.held.contains(store)) return true;
    for (std::string name = object.container; !name.empty();) {
      if (whole_.contains({name, store})) return true;
      const auto outer = containers_.find(name);
      name = outer == containers_.end() ? "" : outer->second->container;
    }
    return false;
  }

  void NoteWhole(const catalog::Object& object, const ledger::ReadableStore& store) {
    if (object.kind == catalog::Kind::kRollUp) whole_.emplace(object.name, store.name);
  }

  absl::Status HealOne(const catalog::Object& object) {
    std::vector<const ledger::ReadableStore*> whole, lacking;
    for (const ledger::ReadableStore& store : stores_) {
      if (IsHeld(object, store.name)) continue;
      const absl::Status copy = CheckCopy(clock_, store, object, check_);
      // A store that cannot be asked is neither.
      const bool lacks =
          absl::IsNotFound(copy) || absl::IsDataLoss(copy) || absl::IsOutOfRange(copy);
      if (copy.ok()) whole.push_back(&store);
      if (copy.ok()) NoteWhole(object, store);
      if (lacks) lacking.push_back(&store);
      if (!copy.ok() && !lacks) result_.failed.push_back({object.name, store.name, copy});
    }
    if (lacking.empty()) return absl::OkStatus();
    // Where one store has it in a container, it is brought to the others from there.
    for (const ledger::ReadableStore& store : stores_) {
      if (object.held.contains(store.name)) whole.push_back(&store);
    }
    ASSIGN_OR_RETURN(const auto file,
                     files_.Open(path_, {.write = true, .create = true, .truncate = true}));
    std::string from;
    const absl::Status got = Get(object, whole, *file, &from);
    for (const ledger::ReadableStore* store : lacking) Bring(object, *store, got, from);
    return absl::OkStatus();
  }

  absl::Status Get(const catalog::Object& object,
                   const std::vector<const ledger::ReadableStore*>& whole, base::File& file,
                   std::string* from) {
    absl::Status got = absl::DataLossError("no store has it whole");
    for (const ledger::ReadableStore* source : whole) {
      got = Download(clock_, *source, object, file, 0);
      *from = source->name;
      if (got.ok()) return got;
    }
    // Its parts may be whole here and there where the container is not.
    if (object.kind != catalog::Kind::kRollUp) return got;
    *from = "its parts";
    uint64_t end = 0;
    for (const catalog::Object* part : catalog::PartsOf(inventory_, object)) {
      if (part->container_offset != end) break;
      end += part->stored_bytes;
      got = absl::DataLossError("no store has it whole");
      for (const ledger::ReadableStore& store : stores_) {
        if (!got.ok()) got = Download(clock_, store, *part, file, part->container_offset);
      }
      if (!got.ok()) return base::Annotate(got, "its part " + part->name);
    }
    return end == object.stored_bytes
               ? absl::OkStatus()
               : absl::DataLossError("no store has it, or all its parts, whole");
  }

  void Bring(const catalog::Object& object, const ledger::ReadableStore& store,
             const absl::Status& got, const std::string& from) {
    const bool replaces = object.stores.contains(store.name) || object.damaged.contains(store.name);
    const bool container = object.kind == catalog::Kind::kRollUp;
    absl::Status put = got.ok() ? Upload(files_, clock_, store, object, path_, replaces) : got;
    // What is about to stand for others is read back.
    if (put.ok() && container) put = CheckCopy(clock_, store, object, true);
    if (!put.ok()) {
      result_.failed.push_back({object.name, store.name, put});
      return;
    }
    NoteWhole(object, store);
    ++result_.copied;
    result_.healed += replaces;
    result_.bytes += object.stored_bytes;
    std::vector<ledger::Fact>& facts = result_.facts[object.timeline];
    if (replaces) {
      facts.emplace_back(ledger::Healed{.name = object.name, .store = store.name, .from = from});
    } else {
      facts.emplace_back(ledger::Copied{.name = object.name, .store = store.name});
    }
    if (container) facts.emplace_back(ledger::Reread{.name = object.name, .store = store.name});
  }

  base::Files& files_;
  base::Clock& clock_;
  const catalog::Inventory& inventory_;
  const std::vector<ledger::ReadableStore>& stores_;
  const bool check_;
  const std::string path_;                                    // holds one object at a time
  std::map<std::string, const catalog::Object*> containers_;  // by name
  std::set<std::pair<std::string, std::string>> whole_;  // (container, store), found or brought
  HealResult result_;
};

}  // namespace

absl::StatusOr<HealResult> Heal(base::Files& files, base::Clock& clock,
                                const catalog::Inventory& inventory,
                                const std::vector<ledger::ReadableStore>& stores, bool check,
                                const std::string& scratch_dir) {
  RETURN_IF_ERROR(base::MakeDirectories(files, scratch_dir, 0700));
  ASSIGN_OR_RETURN(
      HealResult result,
      Healer(files, clock, inventory, stores, check, base::JoinPath(scratch_dir, "object")).Run());
  RETURN_IF_ERROR(base::RemoveTree(files, scratch_dir));
  return result;
}

}  // namespace restore
