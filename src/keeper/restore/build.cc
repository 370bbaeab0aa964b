#include "restore/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <future>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/status.h"
#include "events/segment.h"
#include "mvcc/key_value.h"

namespace restore {
namespace {

// Segments that are fetched while one is replayed.
constexpr size_t kAhead = 8;

class Builder {
 public:
  Builder(base::Files& files, base::Clock& clock, Fetcher& fetcher, const Materials& materials,
          std::string path, const BuildObserver& observer)
      : files_(files),
        clock_(clock),
        fetcher_(fetcher),
        materials_(materials),
        observer_(observer) {
    built_.path = std::move(path);
    total_bytes_ = materials.base.plain_bytes;
    for (const catalog::Object& segment : materials.segments) total_bytes_ += segment.plain_bytes;
  }

  absl::StatusOr<BuiltDb> Run() {
    absl::Status status = RunSteps();
    if (status.ok()) return std::move(built_);
    // What is half made must not be found by anybody.
    const absl::Status removed =
        base::Exists(files_, built_.path) ? files_.Remove(built_.path) : absl::OkStatus();
    return removed.ok()
               ? status
               : base::MakeStatus(status.code(), "{} (and {} could not be removed: {})",
                                  base::Message(status), built_.path, base::Message(removed));
  }

 private:
  absl::Status RunSteps() {
    const base::Duration began = clock_.Monotonic();
    RETURN_IF_ERROR(FetchBase());
    built_.fetch_time = clock_.Monotonic() - began;
    return ReplayRows();
  }

  absl::Status FetchBase() {
    return fetcher_.Fetch(materials_.base, [&]() -> absl::StatusOr<std::unique_ptr<vault::Sink>> {
      ASSIGN_OR_RETURN(auto file,
                       files_.Open(built_.path, {.write = true, .create = true, .truncate = true}));
      return std::make_unique<OwnFileSink>(std::move(file), [this](uint64_t bytes) {
        if (observer_.fetched) observer_.fetched(bytes, total_bytes_);
      });
    });
  }

  // Compares the base's HashKV with the newest one that the log states of it.
  absl::Status Prove(snapshot::Replay& replay) {
    const base::Duration began = clock_.Monotonic();
    const catalog::Proof* stated = nullptr;
    for (const catalog::Proof& proof : materials_.base.proofs) {
      if (proof.method == catalog::Proof::Method::kHashOfFile ||
          proof.method == catalog::Proof::Method::kHashByRpc) {
        stated = &proof;
      }
    }
    if (stated == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(const snapshot::HashKv hash, replay.HashAsOpened(stated->to));
    const int64_t compact = std::max(int64_t{0}, hash.compact_revision);
    if (hash.hash != stated->hash || compact != stated->compact_revision) {
      return base::MakeStatus(
          absl::StatusCode::kDataLoss,
          "{}: HashKV at revision {} is {:08x} (compacted at {}), and was {:08x} "
          "(compacted at {})",
          kProofFailed, stated->to, hash.hash, compact, stated->hash, stated->compact_revision);
    }
    built_.proof =
        HashProof{.revision = stated->to, .compact_revision = compact, .hash = hash.hash};
    built_.proof_time = clock_.Monotonic() - began;
    return absl::OkStatus();
  }

  absl::Status ReplayRows() {
    const base::Duration began = clock_.Monotonic();
    ASSIGN_OR_RETURN(const auto replay, snapshot::Replay::Open(files_, clock_, built_.path));
    if (replay->bounds().revision != materials_.base.last_revision ||
        replay->bounds().compact_revision != materials_.base.compact_revision) {
      return base::MakeStatus(
          absl::StatusCode::kDataLoss, "{} holds revisions {} to {}, and the log says {} to {}",
          materials_.base.name, replay->bounds().compact_revision, replay->bounds().revision,
          materials_.base.compact_revision, materials_.base.last_revision);
    }
    built_.chained_from = std::min(materials_.revision, materials_.base.last_revision);
    std::future<absl::Status> proven =
        std::async(std::launch::async, [&] { return Prove(*replay); });
    if (materials_.revision < replay->bounds().revision) {
      RETURN_IF_ERROR(replay->LeaveOutAfter(materials_.revision));
    }
    RETURN_IF_ERROR(ReplaySegments(*replay));
    RETURN_IF_ERROR(proven.get());
    if (replay->bounds().revision != materials_.revision) {
      return base::MakeStatus(absl::StatusCode::kDataLoss,
                              "the segments end at revision {}, before {}",
                              replay->bounds().revision, materials_.revision);
    }
    RETURN_IF_ERROR(replay->Finish());
    built_.replay_time = clock_.Monotonic() - began;
    built_.bounds = replay->bounds();
    built_.replay = replay->stats();
    if (built_.replay.alarms_dropped > 0) {
      built_.notes.push_back(fmt::format("{} alarms were raised at the time and are dropped",
                                         built_.replay.alarms_dropped));
    }
    return absl::OkStatus();
  }

  // Fetches ahead while it replays.
  absl::Status ReplaySegments(snapshot::Replay& replay) {
    std::deque<std::future<absl::StatusOr<std::string>>> coming;
    size_t next = 0;
    uint64_t done = materials_.base.plain_bytes;
    const auto fetch_more = [&] {
      while (next < materials_.segments.size() && coming.size() < kAhead) {
        const catalog::Object& segment = materials_.segments[next++];
        coming.push_back(std::async(std::launch::async,
                                    [this, &segment] { return fetcher_.FetchBytes(segment); }));
      }
    };
    for (const catalog::Object& segment : materials_.segments) {
      fetch_more();
      absl::StatusOr<std::string> bytes = coming.front().get();
      coming.pop_front();
      RETURN_IF_ERROR(bytes.status());
      RETURN_IF_ERROR(base::Annotate(ReplaySegment(replay, segment, *bytes), segment.name));
      done += segment.plain_bytes;
      if (observer_.fetched) observer_.fetched(done, total_bytes_);
      if (observer_.replayed) observer_.replayed(replay.stats().rows_added);
    }
    return absl::OkStatus();
  }

  absl::Status ReplaySegment(snapshot::Replay& replay, const catalog::Object& segment,
                             std::string_view bytes) {
    std::unordered_set<int64_t> leases;
    std::string tombstone;
    ASSIGN_OR_RETURN(
        const events::SegmentFacts facts,
        events::ReadSegment(bytes, [&](const events::RevisionView& revision) -> absl::Status {
          // What another segment brought already, or lies behind the moment wanted.
          if (revision.revision <= replay.bounds().revision ||
              revision.revision > materials_.revision) {
            return absl::OkStatus();
          }
          int64_t sub = 0;
          for (const events::EventView& event : revision.events) {
            ASSIGN_OR_RETURN(const mvcc::KeyValue kv, mvcc::DecodeKeyValue(event.key_value));
            snapshot::Row row{.revision = {revision.revision, sub++},
                              .tombstone = event.tombstone,
                              .value = event.key_value};
            if (event.tombstone) {
              tombstone.clear();
              mvcc::AppendKeyValue({.key = kv.key}, &tombstone);
              row.value = tombstone;
            } else if (kv.lease != 0) {
              leases.insert(kv.lease);
            }
            RETURN_IF_ERROR(replay.Append(row));
          }
          return absl::OkStatus();
        }));
    if (facts.header.cluster_id != segment.timeline.cluster_id ||
        facts.header.timeline_revision != segment.timeline.first_revision ||
        facts.header.first_revision != segment.first_revision) {
      return absl::DataLossError("it is not the segment that the log speaks of");
    }
    for (const events::LeaseGrant& lease : facts.leases) {
      const int64_t ttl =
          lease.ttl_seconds > 0 ? lease.ttl_seconds : materials_.lease_ttl_default_seconds;
      ttl_of_[lease.id] = ttl;
    }
    for (const int64_t id : leases) {
      const auto known = ttl_of_.find(id);
      RETURN_IF_ERROR(replay.EnsureLease(
          id, known == ttl_of_.end() ? materials_.lease_ttl_default_seconds : known->second));
    }
    return absl::OkStatus();
  }

  base::Files& files_;
  base::Clock& clock_;
  Fetcher& fetcher_;
  const Materials& materials_;
  const BuildObserver& observer_;
  uint64_t total_bytes_ = 0;
  std::unordered_map<int64_t, int64_t> ttl_of_;
  BuiltDb built_;
};

}  // namespace

absl::StatusOr<BuiltDb> BuildDb(base::Files& files, base::Clock& clock, Fetcher& fetcher,
                                const Materials& materials, const std::string& path,
                                const BuildObserver& observer) {
  return Builder(files, clock, fetcher, materials, path, observer).Run();
}

}  // namespace restore
