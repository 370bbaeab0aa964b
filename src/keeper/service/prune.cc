#include "service/prune.h"

#include <algorithm>
#include <set>

#include "base/status.h"

namespace service {
namespace {

constexpr base::Duration kTimeout = std::chrono::minutes(1);
constexpr base::Duration kListTimeout = std::chrono::minutes(10);
// So many go into the log at a time, and then out of the stores.
constexpr size_t kBatch = 256;

// A store that may be deleted from.
struct Emptied {
  std::string name;
  std::shared_ptr<stores::Store> store;
};

// Names below which nothing may lie any more.
std::set<std::string> Gone(const catalog::Inventory& inventory) {
  std::set<std::string> gone, needed;
  for (const catalog::Object& object : inventory.objects) {
    std::set<std::string>& names = object.pruned ? gone : needed;
    names.insert(object.name);
    gone.insert(object.former_names.begin(), object.former_names.end());
  }
  for (const std::string& name : needed) gone.erase(name);
  return gone;
}

class Pruner {
 public:
  Pruner(Environment env, const catalog::Inventory& inventory, const Noting& note)
      : env_(env), inventory_(inventory), note_(note) {}

  void Open(const config::Config& config, const std::string& store) {
    auto opened = OpenForPruning(env_, config, store);
    const absl::Status status =
        opened.ok() ? stores::ProbeDelete(**opened, inventory_.cluster + "/", Soon())
                    : opened.status();
    if (status.ok()) {
      stores_.push_back({store, *std::move(opened)});
    } else {
      result_.refused.emplace_back(store, status);
    }
  }

  absl::Status Run(const catalog::RetentionPlan& plan) {
    if (stores_.empty()) {
      if (result_.refused.empty()) return absl::OkStatus();
      const auto& [store, why] = result_.refused.front();
      return base::Annotate(why, "nothing may be deleted from store " + store);
    }
    SweepLeftovers();
    for (size_t at = 0; at < plan.deletions.size() && !stores_.empty();) {
      const catalog::Timeline timeline = plan.deletions[at].objects.front()->timeline;
      size_t end = at;
      std::vector<ledger::Fact> facts;
      while (end < plan.deletions.size() && end - at < kBatch &&
             plan.deletions[end].objects.front()->timeline == timeline) {
        for (const catalog::Object* object : plan.deletions[end].objects) {
          // What a roll-up holds goes with it, and needs no record of its own.
          if (object->kind != catalog::Kind::kRollUp && !object->container.empty()) continue;
          facts.push_back(ledger::Pruned{.name = object->name, .why = plan.deletions[end].why});
        }
        ++end;
      }
      RETURN_IF_ERROR(note_(timeline, facts));
      for (; at < end; ++at) {
        for (const std::string& name : plan.deletions[at].names) DeleteEverywhere(name);
        ++result_.objects;
        result_.bytes += plan.deletions[at].stored_bytes;
      }
    }
    return absl::OkStatus();
  }

  PruneResult Take() { return std::move(result_); }

 private:
  stores::Deadline Soon() const { return stores::Deadline::In(env_.clock, kTimeout); }

  // A store that refuses is left alone for the rest of this run.
  void Refused(const std::string& store, const absl::Status& why) {
    result_.refused.emplace_back(store, why);
    std::erase_if(stores_, [&](const Emptied& s) { return s.name == store; });
  }

  void DeleteEverywhere(const std::string& name) {
    const std::vector<Emptied> stores = stores_;
    for (const Emptied& store : stores) {
      const absl::Status deleted = store.store->Delete(name, Soon());
      if (!deleted.ok()) Refused(store.name, deleted);
    }
  }

  // What an interrupted run, a store that was away, or a copy that came late left behind.
  void SweepLeftovers() {
    const std::set<std::string> gone = Gone(inventory_);
    if (gone.empty()) return;
    const std::vector<Emptied> stores = stores_;
    for (const Emptied& store : stores) {
      std::vector<std::string> left;
      absl::Status status = stores::ForEachObject(*store.store, inventory_.cluster + "/",
                                                  stores::Deadline::In(env_.clock, kListTimeout),
                                                  [&](const stores::ObjectInfo& object) {
                                                    if (gone.contains(object.name))
                                                      left.push_back(object.name);
                                                    return absl::OkStatus();
                                                  });
      for (size_t i = 0; i < left.size() && status.ok(); ++i) {
        status = store.store->Delete(left[i], Soon());
        result_.leftovers += status.ok();
      }
      if (!status.ok()) Refused(store.name, status);
    }
  }

  const Environment env_;
  const catalog::Inventory& inventory_;
  const Noting& note_;
  std::vector<Emptied> stores_;
  PruneResult result_;
};

}  // namespace

catalog::RetentionPlan PlanPruning(catalog::Time now, const StoreClocks& clocks,
                                   const ClockState& clock, const config::Retention& retention,
                                   const std::vector<OpenedStore>& stores,
                                   const ledger::Catalog& known) {
  for (const OpenedStore& store : stores) {
    if (store.store != nullptr) continue;
    return {.stopped =
                "store " + store.name + " is away: " + std::string(base::Message(store.status))};
  }
  for (const auto& [store, why] : known.unreadable) {
    return {.stopped = "store " + store + " cannot be read: " + std::string(base::Message(why))};
  }
  if (!known.findings.empty())
    return {.stopped = "a log is not as it should be: " + known.findings[0]};
  if (std::string objection = ClockObjection(clocks); !objection.empty()) {
    return {.stopped = std::move(objection)};
  }
  if (clock.ahead > base::Duration(0)) return {.stopped = ClockText(clock, retention)};
  return catalog::Retain(now, known.inventory,
                         {.window = retention.window,
                          .hourly = retention.hourly,
                          .daily = retention.daily,
                          .weekly = retention.weekly,
                          .monthly = retention.monthly,
                          .keep_proven = retention.keep_proven});
}

absl::StatusOr<PruneResult> Prune(Environment env, const config::Config& config,
                                  const std::vector<OpenedStore>& stores,
                                  const catalog::RetentionPlan& plan,
                                  const catalog::Inventory& inventory, const Noting& note) {
  Pruner pruner(env, inventory, note);
  for (const OpenedStore& store : stores) pruner.Open(config, store.name);
  RETURN_IF_ERROR(pruner.Run(plan));
  return pruner.Take();
}

}  // namespace service
