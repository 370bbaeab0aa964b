#include "restore/rewrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/sha256.h"
#include "base/status.h"
#include "stores/object_source.h"
#include "vault/age.h"
#include "vault/stream.h"

namespace restore {
namespace {

constexpr base::Duration kTimeout = std::chrono::minutes(1);
constexpr uint64_t kSlowestBytesPerSecond = 256 << 10;
constexpr std::string_view kFactsEnding = ".facts";
constexpr size_t kNameDigits = 12;
// So much is put before the log is written: it is opened and shipped for each batch.
constexpr size_t kBatchObjects = 64;
constexpr uint64_t kBatchBytes = uint64_t{256} << 20;

std::set<std::string> Texts(const std::vector<vault::Recipient>& recipients) {
  std::set<std::string> texts;
  for (const vault::Recipient& recipient : recipients) texts.insert(recipient.ToString());
  return texts;
}

// A re-wrapped object that the log does not speak of yet.
struct Made {
  const catalog::Object* object = nullptr;
  std::string path;
  ledger::Rewrapped fact;  // without the stores
};

class Rewrapper {
 public:
  Rewrapper(const RewrapWorld& world, const catalog::Inventory& inventory)
      : world_(world), inventory_(inventory) {}

  absl::Status Run(const RewrapPlan& plan) {
    RETURN_IF_ERROR(base::MakeDirectoriesDurably(world_.files, world_.scratch_dir, 0700));
    RETURN_IF_ERROR(TakeUp());
    for (const catalog::Object* object : plan.objects) {
      done_ += object->stored_bytes;
      if (world_.progress) world_.progress(done_, plan.bytes);
      if (taken_up_.contains(object)) continue;
      absl::StatusOr<Made> made = Make(*object);
      if (!made.ok()) {
        Failed(*object, "", made.status());
        continue;
      }
      RETURN_IF_ERROR(Bring(*std::move(made)));
      if (batch_.size() >= kBatchObjects || batch_bytes_ >= kBatchBytes)
        RETURN_IF_ERROR(NoteBatch());
    }
    RETURN_IF_ERROR(NoteBatch());
    // Not removed while something waits in it for a store that did not take it.
    if (waiting_ > 0) return absl::OkStatus();
    return base::RemoveTree(world_.files, world_.scratch_dir);
  }

  RewrapResult Take() { return std::move(result_); }

 private:
  stores::Deadline In(uint64_t bytes) const {
    return stores::Deadline::In(world_.clock,
                                kTimeout + std::chrono::seconds(bytes / kSlowestBytesPerSecond));
  }
  void Failed(const catalog::Object& object, const std::string& store, absl::Status why) {
    result_.failed.push_back({object.name, store, std::move(why)});
  }

  // What an earlier run made, and perhaps put, before the log spoke of it.
  absl::Status TakeUp() {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, world_.files.List(world_.scratch_dir));
    std::set<std::string> with_facts;
    for (const std::string& name : names) {
      if (!name.ends_with(kFactsEnding)) continue;
      with_facts.insert(name.substr(0, name.size() - kFactsEnding.size()));
    }
    for (const std::string& name : names) {
      // Bytes without facts were never put.
      if (name.ends_with(kFactsEnding) || with_facts.contains(name)) continue;
      RETURN_IF_ERROR(world_.files.Remove(base::JoinPath(world_.scratch_dir, name)));
    }
    for (const std::string& name : with_facts) {
      const std::string path = base::JoinPath(world_.scratch_dir, name);
      std::optional<Made> made;
      if (base::Exists(world_.files, path)) {
        ASSIGN_OR_RETURN(made, ReadMade(path));
      }
      if (made.has_value()) {
        taken_up_.insert(made->object);
        RETURN_IF_ERROR(Bring(*std::move(made)));
      } else {
        RETURN_IF_ERROR(Clear(path));
      }
    }
    return absl::OkStatus();
  }

  // Nothing where the log speaks of it already, or the object is gone meanwhile.
  absl::StatusOr<std::optional<Made>> ReadMade(const std::string& path) {
    ASSIGN_OR_RETURN(std::string line,
                     base::ReadFile(world_.files, path + std::string(kFactsEnding)));
    if (!line.empty() && line.back() == '\n') line.pop_back();
    ASSIGN_OR_RETURN(const ledger::Record record, ledger::DecodeLine(line, ""));
    const auto* fact = std::get_if<ledger::Rewrapped>(&record.fact);
    if (fact == nullptr) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "{}{} is damaged: remove it", path,
                              kFactsEnding);
    }
    for (const catalog::Object& object : inventory_.objects) {
      if (object.FirstName() != fact->name) continue;
      const bool waits = !object.pruned && object.name != fact->as;
      return waits ? std::optional(Made{.object = &object, .path = path, .fact = *fact})
                   : std::nullopt;
    }
    return std::nullopt;
  }

  absl::StatusOr<Made> Make(const catalog::Object& object) {
    absl::Status worst = base::MakeStatus(absl::StatusCode::kNotFound, "no store has it");
    for (const ledger::ReadableStore& store : world_.stores) {
      if (!object.stores.contains(store.name)) continue;
      absl::StatusOr<Made> made = MakeFrom(store, object);
      if (made.ok() || absl::IsPermissionDenied(made.status())) return made;
      worst = base::Annotate(made.status(), "store " + store.name);
    }
    return worst;
  }

  absl::StatusOr<Made> MakeFrom(const ledger::ReadableStore& from, const catalog::Object& object) {
    base::Digest digest;
    if (!base::ParseDigest(object.stored_sha256, &digest)) {
      return absl::DataLossError("the log states no digest of it");
    }
    const stores::Deadline deadline = In(object.stored_bytes);
    const std::string fresh = base::JoinPath(world_.scratch_dir, "new");
    ASSIGN_OR_RETURN(const auto file,
                     world_.files.Open(fresh, {.write = true, .create = true, .truncate = true}));
    vault::FileSink to_file(*file);
    vault::HashingSink out(to_file);
    stores::ObjectSource source(*from.store, object.name, object.stored_bytes, deadline);
    vault::HashingSource in(source);
    const absl::Status copied =
        vault::RewrapStream(world_.identities, world_.recipients, world_.random, in, out);
    if (absl::IsPermissionDenied(copied)) {
      // A header in which a bit fell looks like one that was made for others.
      RETURN_IF_ERROR(
          stores::VerifyObject(*from.store, object.name, object.stored_bytes, digest, deadline));
    }
    RETURN_IF_ERROR(copied);
    if (in.digest() != digest) {
      return absl::DataLossError("its bytes are not those that the log states");
    }
    RETURN_IF_ERROR(out.Finish());
    RETURN_IF_ERROR(file->Sync());
    Made made{.object = &object, .path = {}, .fact = {.name = object.FirstName()}};
    made.fact.stored_bytes = out.bytes();
    made.fact.stored_sha256 = base::DigestToHex(out.digest());
    made.fact.as = RewrappedName(object, made.fact.stored_sha256);
    for (const vault::Recipient& recipient : world_.recipients) {
      made.fact.recipients.push_back(recipient.ToString());
    }
    // The name in the scratch folder is of all objects' names the one that no other has.
    made.path = base::JoinPath(world_.scratch_dir, made.fact.stored_sha256);
    RETURN_IF_ERROR(world_.files.Rename(fresh, made.path));
    RETURN_IF_ERROR(
        base::WriteFileAtomically(world_.files, made.path + std::string(kFactsEnding),
                                  ledger::EncodeLine({.seq = 1,
                                                      .previous = std::string(ledger::kNoPrevious),
                                                      .at = world_.clock.Wall(),
                                                      .fact = made.fact}),
                                  0600));
    return made;
  }

  // Puts it into every store that has the object, reads it back, and leaves it to the next batch.
  absl::Status Bring(Made made) {
    base::Digest digest;
    if (!base::ParseDigest(made.fact.stored_sha256, &digest)) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "{} states no digest: remove it",
                              made.path);
    }
    ASSIGN_OR_RETURN(const auto file, world_.files.Open(made.path, {}));
    const stores::FileContent content(*file, made.fact.stored_bytes, digest);
    for (const ledger::ReadableStore& store : world_.stores) {
      if (!made.object->stores.contains(store.name)) continue;
      absl::Status put = store.store->Put(made.fact.as, content, In(made.fact.stored_bytes));
      if (put.ok()) {
        put = stores::VerifyObject(*store.store, made.fact.as, made.fact.stored_bytes, digest,
                                   In(made.fact.stored_bytes));
      }
      if (!put.ok()) {
        ++waiting_;
        Failed(*made.object, store.name, std::move(put));
        return absl::OkStatus();
      }
      made.fact.stores.insert(store.name);
    }
    batch_bytes_ += made.fact.stored_bytes;
    batch_.push_back(std::move(made));
    return absl::OkStatus();
  }

  absl::Status NoteBatch() {
    std::map<catalog::Timeline, std::vector<ledger::Fact>> facts;
    for (const Made& made : batch_) facts[made.object->timeline].push_back(made.fact);
    for (const auto& [timeline, of_timeline] : facts) {
      RETURN_IF_ERROR(world_.note(timeline, of_timeline));
    }
    for (const Made& made : batch_) {
      ++result_.rewrapped;
      result_.bytes += made.fact.stored_bytes;
      DeleteOld(*made.object);
      RETURN_IF_ERROR(Clear(made.path));
    }
    batch_.clear();
    batch_bytes_ = 0;
    return absl::OkStatus();
  }

  void DeleteOld(const catalog::Object& object) {
    for (const std::string& store : object.stores) {
      const auto at = std::find_if(world_.emptied.begin(), world_.emptied.end(),
                                   [&](const auto& s) { return s.name == store; });
      const absl::Status deleted = at != world_.emptied.end()
                                       ? at->store->Delete(object.name, In(0))
                                       : absl::PermissionDeniedError("it may not be deleted from");
      if (!deleted.ok()) result_.left.push_back({object.name, store, deleted});
    }
  }

  // The bytes go first, as in the spool: facts without bytes mean nothing.
  absl::Status Clear(const std::string& path) {
    for (const std::string& file : {path, path + std::string(kFactsEnding)}) {
      if (base::Exists(world_.files, file)) RETURN_IF_ERROR(world_.files.Remove(file));
    }
    return absl::OkStatus();
  }

  const RewrapWorld& world_;
  const catalog::Inventory& inventory_;
  std::set<const catalog::Object*> taken_up_;
  std::vector<Made> batch_;
  uint64_t batch_bytes_ = 0;
  uint64_t done_ = 0;
  uint64_t waiting_ = 0;
  RewrapResult result_;
};

}  // namespace

RewrapPlan PlanRewrap(const catalog::Inventory& inventory,
                      const std::vector<vault::Recipient>& recipients) {
  const std::set<std::string> wanted = Texts(recipients);
  RewrapPlan plan;
  for (const catalog::Object& object : inventory.objects) {
    const std::set<std::string> has(object.recipients.begin(), object.recipients.end());
    if (!object.Available() || has.empty() || has == wanted) continue;
    if (!object.container.empty()) {
      plan.within_rollups.push_back(&object);
      continue;
    }
    plan.objects.push_back(&object);
    plan.bytes += object.stored_bytes;
  }
  return plan;
}

std::string RewrappedName(const catalog::Object& object, const std::string& stored_sha256) {
  const std::string& first = object.FirstName();
  const size_t dot = first.find('.', first.rfind('/'));
  const size_t end = dot == std::string::npos ? first.size() : dot;
  return fmt::format("{}-w{}{}", first.substr(0, end), stored_sha256.substr(0, kNameDigits),
                     first.substr(end));
}

absl::StatusOr<RewrapResult> Rewrap(const RewrapWorld& world, const catalog::Inventory& inventory,
                                    const RewrapPlan& plan) {
  Rewrapper rewrapper(world, inventory);
  RETURN_IF_ERROR(rewrapper.Run(plan));
  return rewrapper.Take();
}

}  // namespace restore
