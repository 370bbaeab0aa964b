#include "restore/past.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/status.h"
#include "bolt/db.h"
#include "catalog/windows.h"
#include "events/segment.h"
#include "mvcc/key_value.h"
#include "restore/build.h"
#include "restore/restore.h"
#include "snapshot/inspect.h"
#include "snapshot/records.h"
#include "vault/crypto.h"

namespace restore {
namespace {

bool IsUtf8(const std::string& text) {
  // The library refuses what is none.
  try {
    nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return true;
}

void PutText(nlohmann::json& out, const std::string& name, const std::string& text) {
  if (IsUtf8(text)) {
    out[name] = text;
  } else {
    out[name + "_base64"] = vault::ToBase64(vault::AsBytes(text));
  }
}

// Removes a scratch file that holds secrets in the clear.
class ScratchFile {
 public:
  ScratchFile(base::Files& files, base::Random& random, const std::string& dir)
      : files_(files), path_(base::JoinPath(dir, fmt::format("{:016x}.db", random.Next()))) {}
  ~ScratchFile() {
    // Of a process that is killed it stays; `dir` is the keeper's own, 0700.
    files_.Remove(path_).IgnoreError();
  }
  const std::string& path() const { return path_; }

 private:
  base::Files& files_;
  const std::string path_;
};

}  // namespace

std::string EntryLine(const std::string& key, const Entry& entry) {
  nlohmann::json out;
  PutText(out, "key", key);
  PutText(out, "value", entry.value);
  out["create_revision"] = entry.create_revision;
  out["mod_revision"] = entry.mod_revision;
  out["version"] = entry.version;
  if (entry.lease != 0) out["lease"] = entry.lease;
  return out.dump();
}

struct Moment::Impl {
  Impl(base::Files& files, base::Random& random, const std::string& dir)
      : file(files, random, dir) {}
  ScratchFile file;
  int64_t revision = 0;
  snapshot::OpenedDb db;  // goes before file
};

Moment::Moment() = default;
Moment::Moment(Moment&&) noexcept = default;
Moment& Moment::operator=(Moment&&) noexcept = default;
Moment::~Moment() = default;

absl::StatusOr<Moment> Moment::Open(base::Files& files, base::Clock& clock, base::Random& random,
                                    Fetcher& fetcher, const catalog::Inventory& inventory,
                                    const catalog::RestorePoint& point, const std::string& dir) {
  RETURN_IF_ERROR(base::MakeDirectories(files, dir, 0700));
  Moment moment;
  moment.impl_ = std::make_unique<Impl>(files, random, dir);
  const Plan plan = MakePlan(inventory, point, std::chrono::minutes(1), clock.Wall());
  const std::string& path = moment.impl_->file.path();
  RETURN_IF_ERROR(BuildDb(files, clock, fetcher, plan.materials, path, {}).status());
  moment.impl_->revision = point.revision;
  ASSIGN_OR_RETURN(moment.impl_->db,
                   snapshot::OpenChecked(files, clock, path, {.verify_trailer = false}));
  return moment;
}

int64_t Moment::revision() const { return impl_->revision; }
const std::string& Moment::path() const { return impl_->file.path(); }

absl::StatusOr<std::map<std::string, Entry>> Moment::State(
    const std::string& begin, const std::optional<std::string>& end) const {
  std::map<std::string, Entry> state;
  RETURN_IF_ERROR(snapshot::ForEachRecord(
      *impl_->db.tx, [&](const snapshot::KeyRecord& record) -> absl::Status {
        if (record.user_key < begin || (end.has_value() && record.user_key >= *end)) {
          return absl::OkStatus();
        }
        if (record.revision.tombstone || record.value.empty()) {
          state.erase(std::string(record.user_key));
          return absl::OkStatus();
        }
        ASSIGN_OR_RETURN(const mvcc::KeyValue kv, mvcc::DecodeKeyValue(record.value));
        state[std::string(kv.key)] = {.value = std::string(kv.value),
                                      .create_revision = kv.create_revision,
                                      .mod_revision = kv.mod_revision,
                                      .version = kv.version,
                                      .lease = kv.lease};
        return absl::OkStatus();
      }));
  return state;
}

namespace {

// Gathers the changes of one key, each once, from whatever holds it.
class HistoryGatherer {
 public:
  HistoryGatherer(base::Files& files, base::Clock& clock, base::Random& random, Fetcher& fetcher,
                  const std::string& key, const std::string& dir)
      : files_(files), clock_(clock), random_(random), fetcher_(fetcher), key_(key), dir_(dir) {}

  // `not_before` is when the full before this one was taken.
  absl::Status TakeFull(const catalog::Object& full, catalog::Time not_before) {
    const ScratchFile file(files_, random_, dir_);
    RETURN_IF_ERROR(fetcher_.Fetch(full, [&]() -> absl::StatusOr<std::unique_ptr<vault::Sink>> {
      ASSIGN_OR_RETURN(auto out,
                       files_.Open(file.path(), {.write = true, .create = true, .truncate = true}));
      return std::make_unique<OwnFileSink>(std::move(out), nullptr);
    }));
    ASSIGN_OR_RETURN(const snapshot::OpenedDb db,
                     snapshot::OpenChecked(files_, clock_, file.path(), {}));
    return snapshot::ForEachRecord(*db.tx, [&](const snapshot::KeyRecord& record) -> absl::Status {
      if (record.user_key != key_ || record.value.empty()) return absl::OkStatus();
      return Take(record.revision.revision.main, record.revision.tombstone, record.value,
                  {not_before, full.last_seen.to});
    });
  }

  absl::Status TakeSegment(const catalog::Object& segment) {
    ASSIGN_OR_RETURN(const std::string bytes, fetcher_.FetchBytes(segment));
    return events::ReadSegment(
               bytes,
               [&](const events::RevisionView& revision) -> absl::Status {
                 for (const events::EventView& event : revision.events) {
                   std::string_view key;
                   if (!mvcc::DecodeKey(event.key_value, &key)) {
                     return absl::DataLossError("an event's key-value is malformed");
                   }
                   if (key != key_) continue;
                   RETURN_IF_ERROR(Take(revision.revision, event.tombstone, event.key_value,
                                        {revision.seen_from, revision.seen_to}));
                 }
                 return absl::OkStatus();
               })
        .status();
  }

  std::vector<Change> Changes() const {
    std::vector<Change> out;
    for (const auto& [revision, change] : changes_) out.push_back(change);
    return out;
  }

 private:
  absl::Status Take(int64_t revision, bool tombstone, std::string_view key_value,
                    catalog::Seen seen) {
    ASSIGN_OR_RETURN(const mvcc::KeyValue kv, mvcc::DecodeKeyValue(key_value));
    const Change change{.revision = revision,
                        .seen = seen,
                        .deleted = tombstone,
                        .version = kv.version,
                        .lease = kv.lease,
                        .bytes = kv.value.size()};
    const auto [at, is_new] = changes_.emplace(revision, change);
    // What is known more closely stays.
    if (!is_new && seen.to - seen.from < at->second.seen.to - at->second.seen.from) {
      at->second.seen = seen;
    }
    return absl::OkStatus();
  }

  base::Files& files_;
  base::Clock& clock_;
  base::Random& random_;
  Fetcher& fetcher_;
  const std::string& key_;
  const std::string& dir_;
  std::map<int64_t, Change> changes_;
};

}  // namespace

absl::StatusOr<std::vector<Change>> HistoryOf(base::Files& files, base::Clock& clock,
                                              base::Random& random, Fetcher& fetcher,
                                              const catalog::Inventory& inventory,
                                              const std::string& key, const std::string& dir) {
  RETURN_IF_ERROR(base::MakeDirectories(files, dir, 0700));
  if (inventory.timelines.empty()) return absl::NotFoundError("there are no backups");
  const catalog::Parts parts = catalog::PartsOf(inventory, inventory.timelines.back());
  HistoryGatherer gatherer(files, clock, random, fetcher, key, dir);
  // A full is opened only where it holds revisions that neither a segment nor a later full has.
  const std::vector<catalog::Range> archived = catalog::Archived(parts.segments);
  for (size_t i = 0; i < parts.fulls.size(); ++i) {
    const catalog::Object& full = *parts.fulls[i];
    const bool last = i + 1 == parts.fulls.size();
    const bool in_archive =
        i > 0 && catalog::Covers(archived, {parts.fulls[i - 1]->last_revision + 1,
                                            std::max(parts.fulls[i - 1]->last_revision + 1,
                                                     full.last_revision)});
    const bool in_next =
        !last && i > 0 && parts.fulls[i + 1]->compact_revision <= parts.fulls[i - 1]->last_revision;
    if (in_archive || in_next) continue;
    RETURN_IF_ERROR(base::Annotate(
        gatherer.TakeFull(full, i == 0 ? catalog::Time(0) : parts.fulls[i - 1]->first_seen.from),
        full.name));
  }
  for (const catalog::Object* segment : parts.segments) {
    RETURN_IF_ERROR(base::Annotate(gatherer.TakeSegment(*segment), segment->name));
  }
  return gatherer.Changes();
}

}  // namespace restore
