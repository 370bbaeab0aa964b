#include "restore/rewrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/sha256.h"
#include "base/status.h"
#include "catalog/rollup.h"
#include "ledger/log.h"
#include "restore/heal.h"
#include "stores/object_source.h"
#include "vault/age.h"
#include "vault/stream.h"

namespace restore {
namespace {

constexpr base::Duration kTimeout = std::chrono::minutes(1);
constexpr uint64_t kSlowestBytesPerSecond = 256 << 10;
constexpr size_t kPieceBytes = size_t{4} << 20;
constexpr std::string_view kFactsEnding = ".facts";
// A roll-up that holds more is made anew as several.
constexpr size_t kRollUpPartsMax = 20'000;
// So much is put before the log is written: it is opened and shipped for each batch.
constexpr size_t kBatchObjects = 64;
constexpr uint64_t kBatchBytes = uint64_t{256} << 20;

std::set<std::string> Texts(const std::vector<vault::Recipient>& recipients) {
  std::set<std::string> texts;
  for (const vault::Recipient& recipient : recipients) texts.insert(recipient.ToString());
  return texts;
}

bool IsWrappedFor(const catalog::Object& object, const std::set<std::string>& recipients) {
  return std::set<std::string>(object.recipients.begin(), object.recipients.end()) == recipients;
}

// New bytes in the scratch folder that the log does not speak of yet.
struct Made {
  std::string path;
  std::string name;  // in the stores
  uint64_t bytes = 0;
  std::string sha256;
  std::vector<const catalog::Object*> objects;  // that they stand for
  std::set<std::string> stores;                 // that have them
  ledger::Fact fact;                            // Rewrapped or RewrappedRollUp, without the stores

  // Those that had one of the objects.
  bool WantedIn(const std::string& store) const {
    return std::any_of(objects.begin(), objects.end(), [&](const catalog::Object* object) {
      return object->stores.contains(store);
    });
  }
};

class Rewrapper {
 public:
  Rewrapper(const RewrapWorld& world, const catalog::Inventory& inventory)
      : world_(world),
        inventory_(inventory),
        wanted_(Texts(world.recipients)),
        containers_(inventory) {
    for (const catalog::Object& object : inventory.objects) {
      by_first_name_[object.FirstName()] = &object;
      if (object.pruned) continue;
      if (const std::string name = containers_.OutermostOf(object); !name.empty()) {
        within_[name].push_back(&object);
      }
    }
  }

  absl::Status Run(const RewrapPlan& plan) {
    RETURN_IF_ERROR(base::MakeDirectoriesDurably(world_.files, world_.scratch_dir, 0700));
    RETURN_IF_ERROR(TakeUp());
    for (const catalog::Object* object : plan.objects) {
      Progress(object->stored_bytes, plan);
      if (taken_up_.contains(object)) continue;
      absl::StatusOr<Made> made = Make(*object);
      if (!made.ok()) {
        Failed(object->name, "", made.status());
        continue;
      }
      RETURN_IF_ERROR(Bring(*std::move(made)));
    }
    for (const RewrapPlan::RollUp& roll_up : plan.roll_ups) RETURN_IF_ERROR(Remake(roll_up, plan));
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
  void Progress(uint64_t bytes, const RewrapPlan& plan) {
    done_ += bytes;
    if (world_.progress) world_.progress(done_, plan.bytes);
  }
  void Failed(const std::string& name, const std::string& store, absl::Status why) {
    result_.failed.push_back({name, store, std::move(why)});
  }
  std::string FreshPath() const { return base::JoinPath(world_.scratch_dir, "new"); }
  absl::StatusOr<std::unique_ptr<base::File>> OpenFresh() const {
    return world_.files.Open(FreshPath(), {.write = true, .create = true, .truncate = true});
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
        taken_up_.insert(made->objects.begin(), made->objects.end());
        RETURN_IF_ERROR(Bring(*std::move(made)));
      } else {
        RETURN_IF_ERROR(Clear(path));
      }
    }
    return absl::OkStatus();
  }

  // Nothing where the log speaks of it already, or the objects are gone meanwhile.
  absl::StatusOr<std::optional<Made>> ReadMade(const std::string& path) {
    ASSIGN_OR_RETURN(const std::string text,
                     base::ReadFile(world_.files, path + std::string(kFactsEnding)));
    const size_t end = text.find('\n');
    const std::string_view folder = std::string_view(text).substr(0, end);
    std::string_view line = std::string_view(text).substr(end == text.npos ? text.size() : end + 1);
    if (line.ends_with('\n')) line.remove_suffix(1);
    const auto record = ledger::DecodeLine(line, folder);
    if (!record.ok()) return Unreadable(path, base::Message(record.status()));
    Made made;
    made.path = path;
    made.fact = record->fact;
    bool waits = false;
    const auto add = [&](const std::string& first_name, const std::string& as) {
      const auto at = by_first_name_.find(first_name);
      if (at == by_first_name_.end() || at->second->pruned) return;
      const catalog::Object& object = *at->second;
      made.objects.push_back(&object);
      waits = waits || (object.name != as &&
                        std::find(object.former_names.begin(), object.former_names.end(), as) ==
                            object.former_names.end());
    };
    if (const auto* one = std::get_if<ledger::Rewrapped>(&record->fact)) {
      Describe(one->as, one->stored_bytes, one->stored_sha256, &made);
      add(one->name, one->as);
    } else if (const auto* many = std::get_if<ledger::RewrappedRollUp>(&record->fact)) {
      const catalog::Object& container = many->container;
      Describe(container.name, container.stored_bytes, container.stored_sha256, &made);
      for (size_t i = 0; i < many->parts.size(); ++i) {
        add(many->parts[i].name, container.parts[i].name);
      }
    } else {
      return Unreadable(path, "it speaks of something else");
    }
    return waits ? std::optional(std::move(made)) : std::nullopt;
  }

  static absl::Status Unreadable(const std::string& path, std::string_view why) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "{}{} is damaged, remove it: {}", path,
                            kFactsEnding, why);
  }

  static void Describe(const std::string& name, uint64_t bytes, const std::string& sha256,
                       Made* made) {
    made->name = name;
    made->bytes = bytes;
    made->sha256 = sha256;
  }

  absl::StatusOr<Made> Make(const catalog::Object& object) {
    ASSIGN_OR_RETURN(const auto file, OpenFresh());
    ASSIGN_OR_RETURN(ledger::Rewrapped fact, Wrap(object, *file, 0));
    Made made;
    made.objects = {&object};
    Describe(fact.as, fact.stored_bytes, fact.stored_sha256, &made);
    made.fact = std::move(fact);
    RETURN_IF_ERROR(Keep(*file, object.timeline, &made));
    return made;
  }

  // New roll-ups of all that one holds and that can be re-wrapped; the rest stays where it is.
  absl::Status Remake(const RewrapPlan::RollUp& old, const RewrapPlan& plan) {
    std::unique_ptr<base::File> file;
    std::vector<const catalog::Object*> objects;
    std::vector<ledger::Rewrapped> facts;
    uint64_t bytes = 0;
    const auto close = [&]() -> absl::Status {
      if (objects.empty()) return absl::OkStatus();
      absl::StatusOr<Made> made = MakeRollUp(*old.container, std::move(objects), facts, *file);
      objects.clear();
      facts.clear();
      bytes = 0;
      if (made.ok()) return Bring(*std::move(made));
      Failed(old.container->name, "", made.status());
      return absl::OkStatus();
    };
    for (const catalog::Object* segment : old.segments) {
      Progress(segment->stored_bytes, plan);
      if (taken_up_.contains(segment)) continue;
      if (objects.empty()) {
        ASSIGN_OR_RETURN(file, OpenFresh());
      }
      absl::StatusOr<ledger::Rewrapped> fact = Wrap(*segment, *file, bytes);
      if (fact.ok()) {
        objects.push_back(segment);
        bytes += fact->stored_bytes;
        facts.push_back(*std::move(fact));
      } else if (!IsWrappedFor(*segment, wanted_)) {
        Failed(segment->name, "", fact.status());
      }
      if (objects.size() == kRollUpPartsMax) RETURN_IF_ERROR(close());
    }
    return close();
  }

  absl::StatusOr<Made> MakeRollUp(const catalog::Object& old,
                                  std::vector<const catalog::Object*> objects,
                                  const std::vector<ledger::Rewrapped>& facts, base::File& file) {
    std::vector<catalog::Object> parts;
    ledger::RewrappedRollUp fact;
    fact.recipients = facts.front().recipients;
    for (size_t i = 0; i < objects.size(); ++i) {
      catalog::Object& part = parts.emplace_back(*objects[i]);
      part.name = facts[i].as;
      part.stored_bytes = facts[i].stored_bytes;
      fact.parts.push_back({facts[i].name, facts[i].stored_sha256});
    }
    catalog::RollUp roll_up{.level = old.level, .parts = {}};
    for (const catalog::Object& part : parts) roll_up.parts.push_back(&part);
    catalog::Object container = catalog::ContainerOf(roll_up, world_.writer);
    // Beyond it may lie some of a segment that could not be read.
    RETURN_IF_ERROR(file.Truncate(container.stored_bytes));
    vault::FileSource source(file, 0, container.stored_bytes);
    vault::HashingSource hashing(source);
    std::string piece(kPieceBytes, '\0');
    while (!hashing.digest().has_value()) {
      RETURN_IF_ERROR(hashing.Read(piece.data(), piece.size()).status());
    }
    container.stored_sha256 = container.plain_sha256 = base::DigestToHex(*hashing.digest());
    container.name = catalog::RewrappedName(container, container.stored_sha256);
    Made made;
    made.objects = std::move(objects);
    Describe(container.name, container.stored_bytes, container.stored_sha256, &made);
    fact.container = std::move(container);
    made.fact = std::move(fact);
    RETURN_IF_ERROR(Keep(file, old.timeline, &made));
    return made;
  }

  // Makes the bytes and what they are durable under a name that no others have.
  absl::Status Keep(base::File& file, const catalog::Timeline& timeline, Made* made) {
    RETURN_IF_ERROR(file.Sync());
    made->path = base::JoinPath(world_.scratch_dir, made->sha256);
    RETURN_IF_ERROR(world_.files.Rename(FreshPath(), made->path));
    const ledger::Place place{
        .cluster = inventory_.cluster, .timeline = timeline, .writer = world_.writer};
    const std::string line = ledger::EncodeLine({.seq = 1,
                                                 .previous = std::string(ledger::kNoPrevious),
                                                 .at = world_.clock.Wall(),
                                                 .fact = made->fact});
    return base::WriteFileAtomically(world_.files, made->path + std::string(kFactsEnding),
                                     place.Folder() + "\n" + line, 0600);
  }

  // Writes an object for the recipients into the file, from `at` on; the file may be longer then.
  absl::StatusOr<ledger::Rewrapped> Wrap(const catalog::Object& object, base::File& file,
                                         uint64_t at) {
    absl::Status worst = base::MakeStatus(absl::StatusCode::kNotFound, "no store has it");
    for (const ledger::ReadableStore& store : world_.stores) {
      if (!object.stores.contains(store.name)) continue;
      absl::StatusOr<ledger::Rewrapped> fact = WrapFrom(store, object, file, at);
      if (fact.ok() || absl::IsPermissionDenied(fact.status())) return fact;
      worst = base::Annotate(fact.status(), "store " + store.name);
    }
    return worst;
  }

  absl::StatusOr<ledger::Rewrapped> WrapFrom(const ledger::ReadableStore& from,
                                             const catalog::Object& object, base::File& file,
                                             uint64_t at) {
    base::Digest digest;
    if (!base::ParseDigest(object.stored_sha256, &digest)) {
      return absl::DataLossError("the log states no digest of it");
    }
    const stores::Deadline deadline = In(object.stored_bytes);
    const catalog::Extent extent = object.In(from.name);
    RETURN_IF_ERROR(file.Truncate(at));
    vault::FileSink to_file(file, at);
    vault::HashingSink out(to_file);
    std::unique_ptr<vault::Source> source;
    if (extent.name == object.name) {
      source = std::make_unique<stores::ObjectSource>(*from.store, object.name, object.stored_bytes,
                                                      deadline);
    } else {
      ASSIGN_OR_RETURN(const std::string_view bytes,
                       ReadHeld(from, extent, object.stored_bytes, deadline));
      source = std::make_unique<vault::StringSource>(bytes);
    }
    vault::HashingSource in(*source);
    const absl::Status copied =
        vault::RewrapStream(world_.identities, world_.recipients, world_.random, in, out);
    if (absl::IsPermissionDenied(copied)) {
      // A header in which a bit fell looks like one that was made for others.
      RETURN_IF_ERROR(CheckCopy(world_.clock, from, object, true));
    }
    RETURN_IF_ERROR(copied);
    if (in.digest() != digest) {
      return absl::DataLossError("its bytes are not those that the log states");
    }
    RETURN_IF_ERROR(out.Finish());
    ledger::Rewrapped fact{.name = object.FirstName(),
                           .as = {},
                           .recipients = {},
                           .stored_bytes = out.bytes(),
                           .stored_sha256 = base::DigestToHex(out.digest()),
                           .stores = {}};
    fact.as = catalog::RewrappedName(object, fact.stored_sha256);
    for (const vault::Recipient& recipient : world_.recipients) {
      fact.recipients.push_back(recipient.ToString());
    }
    return fact;
  }

  // Of what lies in a roll-up, with neighbours that will be asked for next.
  absl::StatusOr<std::string_view> ReadHeld(const ledger::ReadableStore& from,
                                            const catalog::Extent& extent, uint64_t bytes,
                                            const stores::Deadline& deadline) {
    const bool there = window_.store == from.name && window_.at.name == extent.name &&
                       extent.offset >= window_.at.offset &&
                       extent.offset + bytes <= window_.at.offset + window_.bytes.size();
    if (!there) {
      const catalog::Object* container = containers_.Find(extent.name);
      const uint64_t end = container == nullptr ? 0 : container->stored_bytes;
      const uint64_t left = end > extent.offset ? end - extent.offset : 0;
      const uint64_t length = std::max(bytes, std::min<uint64_t>(left, kPieceBytes));
      window_ = {.store = from.name, .at = extent, .bytes = {}};
      vault::StringSink sink(&window_.bytes, length);
      RETURN_IF_ERROR(from.store->Get(extent.name, extent.offset, length, sink, deadline));
      if (window_.bytes.size() < bytes) {
        return base::MakeStatus(absl::StatusCode::kDataLoss, "{} ends before it", extent.name);
      }
    }
    return std::string_view(window_.bytes).substr(extent.offset - window_.at.offset, bytes);
  }

  // Puts it into every store that has the objects, reads it back, and leaves it to the next batch.
  absl::Status Bring(Made made) {
    base::Digest digest;
    if (!base::ParseDigest(made.sha256, &digest)) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "{} states no digest: remove it",
                              made.path);
    }
    ASSIGN_OR_RETURN(const auto file, world_.files.Open(made.path, {}));
    const stores::FileContent content(*file, made.bytes, digest);
    for (const ledger::ReadableStore& store : world_.stores) {
      if (!made.WantedIn(store.name)) continue;
      absl::Status put = store.store->Put(made.name, content, In(made.bytes));
      if (put.ok()) {
        put = stores::VerifyObject(*store.store, made.name, made.bytes, digest, In(made.bytes));
      }
      if (!put.ok()) {
        ++waiting_;
        const bool alone = std::holds_alternative<ledger::Rewrapped>(made.fact);
        Failed(alone ? made.objects.front()->name : made.name, store.name, std::move(put));
        return absl::OkStatus();
      }
      made.stores.insert(store.name);
    }
    batch_bytes_ += made.bytes;
    batch_.push_back(std::move(made));
    if (batch_.size() < kBatchObjects && batch_bytes_ < kBatchBytes) return absl::OkStatus();
    return NoteBatch();
  }

  absl::Status NoteBatch() {
    std::map<catalog::Timeline, std::vector<ledger::Fact>> facts;
    std::set<std::string> outermost;
    for (Made& made : batch_) {
      if (auto* one = std::get_if<ledger::Rewrapped>(&made.fact)) one->stores = made.stores;
      if (auto* many = std::get_if<ledger::RewrappedRollUp>(&made.fact)) {
        many->container.stores = made.stores;
      }
      facts[made.objects.front()->timeline].push_back(made.fact);
      for (const catalog::Object* object : made.objects) {
        moved_.insert(object);
        if (!object->container.empty()) outermost.insert(containers_.OutermostOf(*object));
      }
    }
    std::vector<const catalog::Object*> emptied;
    for (const std::string& name : outermost) {
      const std::vector<const catalog::Object*>& within = within_[name];
      const bool empty = std::all_of(within.begin(), within.end(), [&](const auto* object) {
        return object->kind == catalog::Kind::kRollUp || moved_.contains(object);
      });
      if (!empty) continue;
      facts[within.front()->timeline].emplace_back(
          ledger::Pruned{.name = name, .why = "all that it held was wrapped for other keys"});
      std::copy_if(within.begin(), within.end(), std::back_inserter(emptied),
                   [](const auto* object) { return object->kind == catalog::Kind::kRollUp; });
    }
    for (const auto& [timeline, of_timeline] : facts) {
      RETURN_IF_ERROR(world_.note(timeline, of_timeline));
    }
    for (const Made& made : batch_) {
      result_.rewrapped += made.objects.size();
      result_.bytes += made.bytes;
      for (const catalog::Object* object : made.objects) DeleteOld(*object);
      RETURN_IF_ERROR(Clear(made.path));
    }
    for (const catalog::Object* container : emptied) DeleteOld(*container);
    batch_.clear();
    batch_bytes_ = 0;
    return absl::OkStatus();
  }

  // But for what a store has in a roll-up alone.
  void DeleteOld(const catalog::Object& object) {
    for (const std::string& store : object.stores) {
      if (object.held.contains(store)) continue;
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
  const std::set<std::string> wanted_;
  const catalog::Containers containers_;
  std::unordered_map<std::string_view, const catalog::Object*> by_first_name_;
  // All that lies in an outermost roll-up, and it itself.
  std::unordered_map<std::string, std::vector<const catalog::Object*>> within_;
  std::set<const catalog::Object*> taken_up_;
  std::set<const catalog::Object*> moved_;  // the log speaks of it, or is about to
  struct Window {
    std::string store;
    catalog::Extent at;
    std::string bytes;
  };
  Window window_;  // of the roll-up that is being read
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
  const catalog::Containers containers(inventory);
  RewrapPlan plan;
  std::map<std::string, RewrapPlan::RollUp> roll_ups;  // by name; of all segments
  std::set<std::string> old;                           // those that hold any for others
  for (const catalog::Object& object : inventory.objects) {
    if (object.kind == catalog::Kind::kRollUp) {
      if (object.container.empty()) roll_ups[object.name].container = &object;
      continue;
    }
    if (!object.Available() || object.recipients.empty()) continue;
    const bool others = !IsWrappedFor(object, wanted);
    if (object.container.empty()) {
      if (!others) continue;
      plan.objects.push_back(&object);
      plan.bytes += object.stored_bytes;
      continue;
    }
    const std::string name = containers.OutermostOf(object);
    roll_ups[name].segments.push_back(&object);
    if (others) old.insert(name);
  }
  for (const std::string& name : old) {
    RewrapPlan::RollUp& roll_up = plan.roll_ups.emplace_back(std::move(roll_ups[name]));
    std::stable_sort(roll_up.segments.begin(), roll_up.segments.end(),
                     [](const catalog::Object* a, const catalog::Object* b) {
                       return a->first_revision != b->first_revision
                                  ? a->first_revision < b->first_revision
                                  : a->last_revision < b->last_revision;
                     });
    for (const catalog::Object* segment : roll_up.segments) plan.bytes += segment->stored_bytes;
  }
  return plan;
}

absl::StatusOr<RewrapResult> Rewrap(const RewrapWorld& world, const catalog::Inventory& inventory,
                                    const RewrapPlan& plan) {
  Rewrapper rewrapper(world, inventory);
  RETURN_IF_ERROR(rewrapper.Run(plan));
  return rewrapper.Take();
}

}  // namespace restore
