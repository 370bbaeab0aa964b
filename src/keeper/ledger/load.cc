#include "ledger/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/status.h"
#include "ledger/names.h"

namespace ledger {
namespace {

// Names of log objects by the folder of their log.
using LogNames = std::map<std::string, std::pair<Place, std::vector<std::string>>>;

absl::StatusOr<LogNames> FindLogs(stores::Store& store, const std::string& cluster,
                                  const stores::Deadline& deadline) {
  LogNames logs;
  RETURN_IF_ERROR(
      stores::ForEachObject(store, cluster + "/", deadline, [&](const stores::ObjectInfo& object) {
        const auto place = Place::OfName(object.name);
        if (!place.has_value() || !object.name.starts_with(LogFolder(*place))) {
          return absl::OkStatus();
        }
        auto& log = logs[place->Folder()];
        log.first = *place;
        log.second.push_back(object.name);
        return absl::OkStatus();
      }));
  return logs;
}

// The key that a log's first record names, taken on trust.
absl::StatusOr<vault::VerifyingKey> KeyNamedBy(stores::Store& store, const Place& place,
                                               const std::vector<std::string>& names,
                                               const stores::Deadline& deadline) {
  for (const std::string& name : names) {
    const auto range = ChunkRange(name);
    if (!range.has_value() || range->first != 1) continue;
    const auto bytes = stores::GetBytes(store, name, size_t{64} << 20, deadline);
    if (absl::IsNotFound(bytes.status())) continue;  // merged into a larger one meanwhile
    RETURN_IF_ERROR(bytes.status());
    ASSIGN_OR_RETURN(
        const Record record,
        DecodeLine(std::string_view(*bytes).substr(0, bytes->find('\n')), place.Folder()));
    const auto* opened = std::get_if<Opened>(&record.fact);
    if (opened != nullptr) return vault::VerifyingKey::Parse(opened->public_key);
  }
  return base::MakeStatus(absl::StatusCode::kNotFound, "{}: the log names no key", place.Folder());
}

constexpr int kPasses = kLevelMax + 3;
int PassOf(const Fact& fact) {
  const auto* stored = std::get_if<Stored>(&fact);
  // A container names its parts as they were called when it was made, re-wrapped ones by their new
  // names, and may hold containers that another log states.
  if (stored != nullptr) {
    return stored->object.kind == catalog::Kind::kRollUp
               ? 1 + static_cast<int>(stored->object.level)
               : 0;
  }
  if (std::holds_alternative<Opened>(fact)) return 0;
  const bool renames =
      std::holds_alternative<Rewrapped>(fact) || std::holds_alternative<RewrappedRollUp>(fact);
  return renames ? 1 : kPasses - 1;
}

class Loader {
 public:
  Loader(base::Clock& clock, const std::string& cluster, const LoadOptions& options)
      : clock_(clock), cluster_(cluster), options_(options) {}

  absl::Status Read(const ReadableStore& from) {
    const stores::Deadline deadline = stores::Deadline::In(clock_, options_.timeout);
    ASSIGN_OR_RETURN(const LogNames logs, FindLogs(*from.store, cluster_, deadline));
    records_[from.name];  // it was read, whatever it has
    for (const auto& [folder, log] : logs) {
      const auto& [place, names] = log;
      std::vector<vault::VerifyingKey> trusted = options_.trusted;
      if (options_.trust_any_signer) {
        const auto key = KeyNamedBy(*from.store, place, names, deadline);
        if (key.ok()) {
          Finding(from, fmt::format("{}: signed by key {}, believed unseen", folder, key->Id()));
          trusted.push_back(*key);
        } else {
          Finding(from, std::string(base::Message(key.status())));
        }
      }
      ASSIGN_OR_RETURN(LogContents contents, ReadLog(*from.store, place, names, trusted, deadline));
      for (const std::string& finding : contents.findings) Finding(from, finding);
      records_[from.name][folder] = contents.records.size();
      LogContents& best = logs_[folder];
      const auto signed_at = [](const LogContents& copy) {
        return copy.head.has_value() ? copy.head->at : Time::min();
      };
      const bool better = contents.records.size() > best.records.size() ||
                          (contents.records.size() == best.records.size() &&
                           signed_at(contents) >= signed_at(best));
      if (better) best = std::move(contents);
    }
    return absl::OkStatus();
  }

  Catalog Take() {
    std::vector<LogContents*> logs;
    for (auto& [folder, contents] : logs_) logs.push_back(&contents);
    // Timelines are listed in the order of their beginnings.
    const std::map<catalog::Timeline, Time> began = Beginnings(logs);
    std::stable_sort(logs.begin(), logs.end(), [&](const LogContents* a, const LogContents* b) {
      return began.at(a->place.timeline) < began.at(b->place.timeline);
    });
    for (const auto& [store, records] : records_) {
      for (const auto& [folder, best] : logs_) {
        const auto at = records.find(folder);
        const size_t has = at == records.end() ? 0 : at->second;
        if (has < best.records.size()) catalog_.behind[store].insert(folder);
      }
    }
    InventoryBuilder builder(cluster_);
    // One writer may speak of another's objects: what is stored, and how it is called since it was
    // re-wrapped, is known before anything is said of it.
    for (int pass = 0; pass < kPasses; ++pass) {
      for (const LogContents* log : logs) {
        for (const Record& record : log->records) {
          if (PassOf(record.fact) != pass) continue;
          const absl::Status applied = builder.Apply(record, log->place.timeline);
          if (applied.ok()) continue;
          catalog_.findings.push_back(fmt::format("{}: record {}: {}", log->place.Folder(),
                                                  record.seq, base::Message(applied)));
        }
      }
    }
    for (LogContents* log : logs) {
      if (log->head.has_value() && log->head->watched.revision > 0) {
        builder.Watched(log->place.timeline, log->head->watched.revision, log->head->watched.at);
      }
      catalog_.logs.push_back(std::move(*log));
    }
    catalog_.inventory = builder.Take();
    return std::move(catalog_);
  }

  void Unreadable(const std::string& store, absl::Status why) {
    catalog_.unreadable.emplace_back(store, std::move(why));
  }
  size_t unreadable() const { return catalog_.unreadable.size(); }

 private:
  // When each timeline began: by the clocks of those who said so first, and after the one it
  // follows, whatever they said.
  static std::map<catalog::Timeline, Time> Beginnings(const std::vector<LogContents*>& logs) {
    std::map<catalog::Timeline, Time> began;
    std::map<catalog::Timeline, catalog::Timeline> follows;
    for (const LogContents* log : logs) {
      const catalog::Timeline& timeline = log->place.timeline;
      const Time at = log->records.empty() ? Time::max() : log->records.front().at;
      const auto known = began.emplace(timeline, at).first;
      known->second = std::min(known->second, at);
      const auto* opened =
          log->records.empty() ? nullptr : std::get_if<Opened>(&log->records.front().fact);
      const auto before =
          opened == nullptr ? std::nullopt : catalog::Timeline::Parse(opened->follows);
      if (before.has_value()) follows.emplace(timeline, *before);
    }
    // Each round sets one more of a chain right; logs that contradict each other end it too.
    for (size_t round = 0; round < follows.size(); ++round) {
      for (const auto& [timeline, before] : follows) {
        const auto earlier = began.find(before);
        if (earlier == began.end() || earlier->second == Time::max()) continue;
        Time& own = began.at(timeline);
        own = std::max(own, earlier->second + Time(1));
      }
    }
    return began;
  }

  void Finding(const ReadableStore& from, const std::string& text) {
    catalog_.findings.push_back(fmt::format("store {}: {}", from.name, text));
  }

  base::Clock& clock_;
  const std::string& cluster_;
  const LoadOptions& options_;
  std::map<std::string, LogContents> logs_;                       // by folder
  std::map<std::string, std::map<std::string, size_t>> records_;  // by store and folder
  Catalog catalog_;
};

}  // namespace

std::map<std::string, Time> LastSigned(const Catalog& catalog) {
  std::map<std::string, Time> last;
  for (const LogContents& log : catalog.logs) {
    Time& at = last.emplace(log.place.writer, Time::min()).first->second;
    if (log.head.has_value()) at = std::max(at, log.head->at);
    if (!log.records.empty()) at = std::max(at, log.records.back().at);
  }
  return last;
}

absl::StatusOr<Catalog> LoadCatalog(base::Clock& clock, const std::vector<ReadableStore>& stores,
                                    const std::string& cluster, const LoadOptions& options) {
  Loader loader(clock, cluster, options);
  std::string reasons;
  for (const ReadableStore& store : stores) {
    absl::Status status = loader.Read(store);
    if (status.ok()) continue;
    reasons +=
        fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", store.name, base::Message(status));
    loader.Unreadable(store.name, std::move(status));
  }
  if (loader.unreadable() == stores.size()) {
    return base::MakeStatus(absl::StatusCode::kUnavailable, "no store can be read: {}", reasons);
  }
  return loader.Take();
}

}  // namespace ledger
