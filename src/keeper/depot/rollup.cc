#include "depot/rollup.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/log.h"
#include "base/sha256.h"
#include "base/status.h"
#include "stores/object_source.h"
#include "vault/stream.h"

namespace depot {
namespace {

constexpr base::Duration kCallTimeout = std::chrono::seconds(60);
constexpr uint64_t kSlowestBytesPerSecond = 256 << 10;
constexpr size_t kPieceBytes = size_t{4} << 20;

// Whether an error is of what a store holds rather than of the store.
bool OfTheObject(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsOutOfRange(status);
}

// The bytes of a container, as a file that is open.
struct Assembled {
  std::unique_ptr<base::File> file;
  std::vector<const catalog::Object*> parts;  // that are in it
  uint64_t bytes = 0;
  base::Digest sha256{};
};

// So many records are read before what is done is forgotten.
constexpr uint64_t kForgetEvery = 20'000;

uint64_t ShortDigest(std::string_view name) {
  const base::Digest digest = base::Sha256(name);
  uint64_t number = 0;
  for (size_t i = 0; i < sizeof number; ++i) number = number << 8 | digest[i];
  return number;
}

class Worker {
 public:
  // The objects of `of` into containers of the writer `by`.
  Worker(base::Files& files, base::Clock& clock, const catalog::Inventory& inventory,
         const std::unordered_set<uint64_t>& done, const std::vector<RollUpStore>& stores,
         const ledger::Place& of, const std::string& by, const Noting& note,
         const RollUpOptions& options)
      : files_(files),
        clock_(clock),
        inventory_(inventory),
        done_(done),
        stores_(stores),
        of_(of),
        by_(by),
        note_(note),
        options_(options),
        folder_(of.Folder() + "/archive/") {
    for (const catalog::Object& object : inventory.objects) {
      if (object.kind == catalog::Kind::kRollUp || IsOf(object)) by_name_[object.name] = &object;
    }
  }

  // `behind` are logs by store, as of ledger::Catalog.
  absl::Status Run(const std::map<std::string, std::set<std::string>>& behind) {
    for (const RollUpStore& store : stores_) {
      RETURN_IF_ERROR(In(store, stores::ProbeDelete(*store.pruning, folder_, Soon())));
    }
    bool whole_everywhere = true;
    for (const RollUpStore& store : stores_) {
      const auto at = behind.find(store.name);
      const bool whole =
          of_.writer == by_ || at == behind.end() || !at->second.contains(of_.Folder());
      whole_everywhere = whole_everywhere && whole;
      if (whole) RETURN_IF_ERROR(In(store, CleanUp(store)));
    }
    for (const catalog::Object& object : inventory_.objects) {
      const bool outermost = object.container.empty() && !object.pruned;
      const bool here =
          object.timeline == of_.timeline && (object.writer == of_.writer || object.writer == by_);
      if (!here || object.kind != catalog::Kind::kRollUp || !outermost) continue;
      // Nothing is said of what a store's own logs do not state.
      if (object.writer != by_ && !whole_everywhere) continue;
      ASSIGN_OR_RETURN(const bool stop, Paced([&] { return GoOn(object); }));
      if (stop) return absl::OkStatus();
    }
    for (const catalog::RollUp& due :
         catalog::DueRollUps(clock_.Wall(), inventory_, of_.writer, by_, options_.policy)) {
      if (due.parts.front()->timeline != of_.timeline) continue;
      ASSIGN_OR_RETURN(const bool stop, Paced([&] { return Make(due); }));
      if (stop) return absl::OkStatus();
    }
    return failure_;
  }

 private:
  static absl::Status In(const RollUpStore& store, const absl::Status& status) {
    return base::Annotate(status, fmt::format("store {}", store.name));
  }
  bool IsOf(const catalog::Object& object) const {
    return object.writer == of_.writer && object.timeline == of_.timeline;
  }
  stores::Deadline Soon(uint64_t bytes = 0) const {
    return stores::Deadline::In(clock_,
                                kCallTimeout + std::chrono::seconds(bytes / kSlowestBytesPerSecond),
                                options_.cancelled);
  }
  const RollUpStore* Find(const std::string& name) const {
    const auto at = std::find_if(stores_.begin(), stores_.end(),
                                 [&](const RollUpStore& store) { return store.name == name; });
    return at == stores_.end() ? nullptr : &*at;
  }

  // Does a step that returns whether it was one; whether the pass is to end.
  template <typename F>
  absl::StatusOr<bool> Paced(F step) {
    const base::Duration began = clock_.Monotonic();
    ASSIGN_OR_RETURN(const bool done, step());
    return done && options_.pause && options_.pause(clock_.Monotonic() - began);
  }

  // Removes what a store has beside the container that holds it, and containers of which no log
  // speaks: those were put when a keeper was killed.
  absl::Status CleanUp(const RollUpStore& store) {
    std::vector<std::string> gone;
    RETURN_IF_ERROR(
        stores::ForEachObject(*store.store, folder_, Soon(), [&](const stores::ObjectInfo& info) {
          const auto at = by_name_.find(info.name);
          const bool may_go = at == by_name_.end()
                                  ? IsLeftover(info.name) || done_.contains(ShortDigest(info.name))
                                  : MayGo(*at->second, store.name);
          if (may_go) gone.push_back(info.name);
          return absl::OkStatus();
        }));
    for (const std::string& name : gone) {
      RETURN_IF_ERROR(store.pruning->Delete(name, Soon()));
    }
    return absl::OkStatus();
  }
  // Segments without a record are on their way, as re-wrapped containers may be, and all of another
  // writer; own containers are only made here.
  bool IsLeftover(std::string_view name) const {
    const std::string_view level = name.substr(folder_.size());
    return of_.writer == by_ && !level.empty() && level[0] >= '1' && level[0] <= '9' &&
           !catalog::IsRewrappedName(name);
  }
  bool MayGo(const catalog::Object& object, const std::string& store) const {
    const auto held = object.held.find(store);
    if (held == object.held.end() || !object.reread.has_value() ||
        clock_.Wall() - *object.reread < options_.parts_stay) {
      return false;
    }
    const auto container = by_name_.find(held->second.name);
    if (container == by_name_.end()) return false;
    // The store must know of it by its own logs: that of a third keeper may not be whole there.
    const std::string& writer = container->second->writer;
    return container->second->stores.contains(store) && (writer == by_ || writer == of_.writer);
  }

  // Brings a container that a log states to the stores that have its parts, and reads it back.
  absl::StatusOr<bool> GoOn(const catalog::Object& container) {
    const std::vector<const catalog::Object*> parts = catalog::PartsOf(inventory_, container);
    uint64_t bytes = 0;
    for (const catalog::Object* part : parts) bytes += part->stored_bytes;
    // What left it, re-wrapped or because another container was first, it need not be brought for.
    const bool whole = bytes == container.stored_bytes;
    std::vector<ledger::Fact> facts;
    std::vector<const RollUpStore*> lacking;
    bool did = false;
    for (const RollUpStore& store : stores_) {
      const bool there = container.stores.contains(store.name);
      if (there && container.rolls.contains(store.name)) continue;
      const bool wanted = std::any_of(parts.begin(), parts.end(), [&](const catalog::Object* part) {
        return part->stores.contains(store.name) || part->damaged.contains(store.name);
      });
      if (!there && (!wanted || !whole)) continue;  // a new store, which `copy` fills
      did = true;
      const absl::Status read =
          there ? ReadBack(store, container) : absl::NotFoundError("not there yet");
      if (!read.ok() && !OfTheObject(read)) return In(store, read);
      if (read.ok()) {
        facts.emplace_back(ledger::Reread{.name = container.name, .store = store.name});
      } else if (whole) {
        lacking.push_back(&store);
      }
    }
    if (!lacking.empty()) {
      ASSIGN_OR_RETURN(const Assembled made, Assemble(parts));
      if (base::DigestToHex(made.sha256) != container.stored_sha256) {
        // `copy` may have it from another store; the others need not wait for that.
        failure_ = base::MakeStatus(absl::StatusCode::kDataLoss,
                                    "{} cannot be made again: not all parts are whole in a store",
                                    container.name);
        return false;
      }
      for (const RollUpStore* store : lacking) {
        RETURN_IF_ERROR(In(*store, store->pruning->Delete(container.name, Soon())));
        RETURN_IF_ERROR(In(*store, Put(*store, container.name, made)));
        RETURN_IF_ERROR(In(*store, ReadBack(*store, container)));
        if (container.damaged.contains(store->name)) {
          facts.emplace_back(
              ledger::Healed{.name = container.name, .store = store->name, .from = "its parts"});
        } else if (!container.stores.contains(store->name)) {
          facts.emplace_back(ledger::Copied{.name = container.name, .store = store->name});
        }
        facts.emplace_back(ledger::Reread{.name = container.name, .store = store->name});
      }
    }
    if (!facts.empty()) RETURN_IF_ERROR(note_(facts));
    return did;
  }

  absl::StatusOr<bool> Make(const catalog::RollUp& due) {
    ASSIGN_OR_RETURN(const Assembled made, Assemble(due.parts));
    // What is whole in no store stays for itself, to be healed.
    const catalog::RollUp whole{.level = due.level, .number = due.number, .parts = made.parts};
    if (whole.parts.size() < 2) return false;
    catalog::Object container = catalog::ContainerOf(whole, by_);
    if (by_name_.contains(container.name)) return false;
    container.plain_sha256 = container.stored_sha256 = base::DigestToHex(made.sha256);
    absl::Status failure;
    for (const RollUpStore& store : stores_) {
      absl::Status put = Put(store, container.name, made);
      if (absl::IsAlreadyExists(put)) {
        // Other bytes under a name that no log states: put by a keeper that was killed then.
        put = store.pruning->Delete(container.name, Soon());
        if (put.ok()) put = Put(store, container.name, made);
      }
      if (put.ok()) {
        container.stores.insert(store.name);
      } else if (failure.ok()) {
        failure = In(store, put);
      }
    }
    if (container.stores.empty()) return failure;
    std::vector<ledger::Fact> facts = {ledger::Stored{container}};
    for (const RollUpStore& store : stores_) {
      if (!container.stores.contains(store.name)) continue;
      const absl::Status read = ReadBack(store, container);
      if (read.ok()) facts.emplace_back(ledger::Reread{container.name, store.name});
      if (!read.ok() && failure.ok()) failure = In(store, read);
    }
    RETURN_IF_ERROR(note_(facts));
    RETURN_IF_ERROR(failure);
    LOG_INFO("segments were rolled up", {"container", container.name},
             {"parts", static_cast<uint64_t>(whole.parts.size())},
             {"bytes", container.stored_bytes});
    return true;
  }

  absl::Status Put(const RollUpStore& store, const std::string& name, const Assembled& made) {
    return store.store->Put(name, stores::FileContent(*made.file, made.bytes, made.sha256),
                            Soon(made.bytes));
  }
  absl::Status ReadBack(const RollUpStore& store, const catalog::Object& container) {
    base::Digest digest;
    if (!base::ParseDigest(container.stored_sha256, &digest)) {
      return absl::DataLossError("the log states no digest of it");
    }
    return stores::VerifyObject(*store.store, container.name, container.stored_bytes, digest,
                                Soon(container.stored_bytes));
  }

  // The parts one after the other in the scratch file, but for those that are whole in no store.
  absl::StatusOr<Assembled> Assemble(const std::vector<const catalog::Object*>& parts) {
    Assembled made;
    ASSIGN_OR_RETURN(made.file, files_.Open(options_.scratch_path,
                                            {.write = true, .create = true, .truncate = true}));
    for (const catalog::Object* part : parts) {
      const absl::Status fetched = Fetch(*part, *made.file, made.bytes);
      if (OfTheObject(fetched)) continue;
      RETURN_IF_ERROR(fetched);
      made.parts.push_back(part);
      made.bytes += part->stored_bytes;
    }
    ASSIGN_OR_RETURN(made.sha256, DigestOf(*made.file, made.bytes));
    return made;
  }

  static absl::StatusOr<base::Digest> DigestOf(const base::File& file, uint64_t bytes) {
    base::Sha256Stream hash;
    std::string piece(kPieceBytes, '\0');
    vault::FileSource source(file, 0, bytes);
    while (true) {
      ASSIGN_OR_RETURN(const size_t n, source.Read(piece.data(), piece.size()));
      if (n == 0) return hash.Finish();
      hash.Update(std::string_view(piece).substr(0, n));
    }
  }

  // The stored bytes of an object into the file, from the first store that has them right.
  absl::Status Fetch(const catalog::Object& object, base::File& file, uint64_t at) {
    absl::Status failure =
        base::MakeStatus(absl::StatusCode::kNotFound, "{}: it is whole in no store", object.name);
    for (const std::string& name : object.stores) {
      const RollUpStore* store = Find(name);
      if (store == nullptr) continue;
      absl::Status fetched = FetchFrom(*store, object, file, at);
      if (fetched.ok()) return fetched;
      if (!OfTheObject(fetched)) failure = In(*store, fetched);
    }
    return failure;
  }

  absl::Status FetchFrom(const RollUpStore& store, const catalog::Object& object, base::File& file,
                         uint64_t at) {
    const catalog::Extent extent = object.In(store.name);
    stores::ObjectSource source(*store.store, extent.name, object.stored_bytes,
                                Soon(object.stored_bytes), kPieceBytes, extent.offset);
    vault::FileSink to_file(file, at);
    vault::HashingSink hashing(to_file);
    RETURN_IF_ERROR(vault::Copy(source, hashing).status());
    RETURN_IF_ERROR(hashing.Finish());
    if (base::DigestToHex(hashing.digest()) == object.stored_sha256) return absl::OkStatus();
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "{}: its bytes are not those that the log states", object.name);
  }

  base::Files& files_;
  base::Clock& clock_;
  const catalog::Inventory& inventory_;
  const std::unordered_set<uint64_t>& done_;
  const std::vector<RollUpStore>& stores_;
  const ledger::Place& of_;
  const std::string& by_;
  const Noting& note_;
  const RollUpOptions& options_;
  absl::Status failure_;      // of a container that stopped nothing else
  const std::string folder_;  // what a store has of this writer's archive lies below it
  // Its objects, and the containers of all.
  std::unordered_map<std::string_view, const catalog::Object*> by_name_;
};

// The file that held one container at a time goes, whatever came of it.
absl::Status RemoveScratch(base::Files& files, const std::string& path, absl::Status status) {
  if (!base::Exists(files, path)) return status;
  const absl::Status removed = files.Remove(path);
  return status.ok() ? removed : status;
}

}  // namespace

absl::Status RollUpFor(base::Files& files, base::Clock& clock,
                       const std::vector<RollUpStore>& stores, const ledger::Catalog& known,
                       const ledger::Place& of, const std::string& by, const Noting& note,
                       const RollUpOptions& options) {
  return RemoveScratch(
      files, options.scratch_path,
      Worker(files, clock, known.inventory, {}, stores, of, by, note, options).Run(known.behind));
}

RollUps::RollUps(base::Files& files, base::Clock& clock, const std::vector<RollUpStore>& stores,
                 ledger::LogWriter& log, RollUpOptions options)
    : files_(files),
      clock_(clock),
      stores_(stores),
      log_(log),
      options_(std::move(options)),
      builder_(log.place().cluster) {}

absl::Status RollUps::Pass() {
  RETURN_IF_ERROR(ReadLog());
  ForgetWhatIsDone();
  // Each store must know by its own log what became of its objects before any of them goes.
  const Noting note = [&](const std::vector<ledger::Fact>& facts) -> absl::Status {
    RETURN_IF_ERROR(log_.Append(facts));
    for (const RollUpStore& store : stores_) {
      RETURN_IF_ERROR(log_.Ship(store.name, *store.store,
                                stores::Deadline::In(clock_, kCallTimeout, options_.cancelled)));
    }
    return absl::OkStatus();
  };
  return RemoveScratch(files_, options_.scratch_path,
                       Worker(files_, clock_, builder_.inventory(), done_, stores_, log_.place(),
                              log_.place().writer, note, options_)
                           .Run({}));
}

void RollUps::Settle(const catalog::Inventory& known) {
  std::unordered_map<std::string, const catalog::Object*> by_name;
  for (const catalog::Object& object : builder_.inventory().objects) by_name[object.name] = nullptr;
  for (const catalog::Object& object : known.objects) {
    const auto at = by_name.find(object.name);
    if (at != by_name.end()) at->second = &object;
    for (const std::string& name : object.former_names) {
      if (const auto former = by_name.find(name); former != by_name.end()) former->second = &object;
    }
  }
  const std::string own = log_.place().Folder() + "/";
  // Whoever did it also clears away what lies there for itself.
  Forget(
      [&](const catalog::Object& object) {
        const catalog::Object* now = by_name[object.name];
        if (now == nullptr) return false;  // stated since
        const bool elsewhere = !now->container.empty() && !now->container.starts_with(own) &&
                               IsDone(*now, clock_.Wall());
        return now->pruned || now->name != object.name || elsewhere;
      },
      false);
}

absl::Status RollUps::ReadLog() {
  RETURN_IF_ERROR(broken_);
  return log_.ForEachRecord(read_ + 1, [&](const ledger::Record& record) {
    read_ = record.seq;
    const absl::Status applied = builder_.Apply(record, log_.place().timeline);
    // Facts of other writers' objects, and of what was forgotten, are not for here. What is stated
    // must fit, or containers would be taken for leftovers.
    if (!applied.ok() && std::holds_alternative<ledger::Stored>(record.fact)) {
      broken_ = base::Annotate(applied, fmt::format("record {}", record.seq));
    }
    if (record.seq % kForgetEvery == 0) ForgetWhatIsDone();
    return broken_;
  });
}

// Whether nothing is left to do with an object.
bool RollUps::IsDone(const catalog::Object& object, catalog::Time now) const {
  const bool rolls =
      object.kind == catalog::Kind::kSegment || object.kind == catalog::Kind::kRollUp;
  if (!rolls || object.pruned) return true;
  return object.reread.has_value() && now - *object.reread >= options_.parts_stay &&
         std::all_of(stores_.begin(), stores_.end(),
                     [&](const RollUpStore& store) { return object.held.contains(store.name); });
}

void RollUps::ForgetWhatIsDone() {
  const catalog::Time now = clock_.Wall();
  Forget([&](const catalog::Object& object) { return IsDone(object, now); }, true);
}

template <typename F>
void RollUps::Forget(F done, bool clear_away) {
  catalog::Inventory before = builder_.Take();
  std::map<std::string, std::vector<catalog::Part>> parts;  // of the containers that stay
  std::vector<catalog::Object> stay;
  for (catalog::Object& object : before.objects) {
    if (done(object)) {
      if (clear_away && object.kind == catalog::Kind::kSegment && !object.pruned) {
        done_.insert(ShortDigest(object.name));
        for (const std::string& name : object.former_names) done_.insert(ShortDigest(name));
      }
      if (object.kind == catalog::Kind::kRollUp) options_.policy.taken.insert(object.name);
      continue;
    }
    if (object.kind == catalog::Kind::kRollUp) parts[object.name];
    stay.push_back(std::move(object));
  }
  std::stable_sort(
      stay.begin(), stay.end(),
      [](const catalog::Object& a, const catalog::Object& b) { return a.level < b.level; });
  builder_ = ledger::InventoryBuilder(log_.place().cluster);
  for (catalog::Object& object : stay) {
    // Put into its container again when that is stated again.
    const auto container = parts.find(object.container);
    if (container != parts.end()) {
      container->second.push_back(
          {.name = object.name, .offset = object.container_offset, .bytes = object.stored_bytes});
      object.container.clear();
    }
    if (object.kind == catalog::Kind::kRollUp) object.parts = std::move(parts[object.name]);
    const absl::Status stated =
        builder_.Apply({.fact = ledger::Stored{std::move(object)}}, log_.place().timeline);
    if (!stated.ok() && broken_.ok()) broken_ = stated;
  }
}

}  // namespace depot
