#include "catalog/plan.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "catalog/timetable.h"

namespace catalog {
namespace {

using absl::StatusCode;

// One timeline, looked at once.
struct View {
  const Inventory& inventory;
  Timeline timeline;
  bool living = false;
  Timetable times;
  TimelineWindows windows;
  Parts parts;
  std::vector<Range> archived;
};

View Look(const Inventory& inventory, const Timeline& timeline, bool living) {
  View view{.inventory = inventory,
            .timeline = timeline,
            .living = living,
            .times = Timetable(inventory, timeline),
            .windows = FindWindows(inventory, timeline),
            .parts = PartsOf(inventory, timeline)};
  view.archived = Archived(view.parts.segments);
  return view;
}

absl::Status NothingToRestore(const Inventory& inventory) {
  return base::MakeStatus(StatusCode::kNotFound,
                          "nothing of cluster `{}` can be restored: no full is whole in a store",
                          inventory.cluster);
}

const Window* WindowWith(const View& view, int64_t revision) {
  for (const Window& window : view.windows.windows) {
    if (window.first_revision <= revision && revision <= window.last_revision) return &window;
  }
  return nullptr;
}

InHole MakeInHole(const View& view, const Gap& gap, int64_t revision) {
  InHole in{.timeline = view.timeline, .revision = revision, .hole = gap};
  for (const Window& window : view.windows.windows) {
    if (window.last_revision < gap.first_revision) {
      in.below = {.revision = window.last_revision, .time = window.to};
    }
    if (window.first_revision > gap.last_revision && !in.above) {
      in.above = {.revision = window.first_revision, .time = window.from};
    }
  }
  return in;
}

void FindProof(const View& view, RestorePoint* point) {
  for (const Object* full : view.parts.fulls) {
    if (!full->Proven()) continue;
    for (const Proof& proof : full->proofs) {
      // A file's hash of itself compares with others, but proves nothing alone.
      if (proof.to > point->revision || proof.method == Proof::Method::kHashOfFile) continue;
      if (point->proven == nullptr || proof.to > point->proof.to ||
          (proof.to == point->proof.to && proof.at > point->proof.at)) {
        point->proven = full;
        point->proof = proof;
      }
    }
  }
}

void CountBytes(RestorePoint* point) {
  point->bytes_to_fetch = point->base->stored_bytes;
  for (const Piece& piece : point->segments) point->bytes_to_fetch += piece.segment->stored_bytes;
  const bool fetched = !point->segments.empty() && point->refine &&
                       point->segments.back().segment == point->refine->segment;
  if (point->refine && !fetched) point->bytes_to_fetch += point->refine->segment->stored_bytes;
}

// `revision` lies in a window.
RestorePoint MakePoint(const View& view, int64_t revision) {
  RestorePoint point{.timeline = view.timeline, .revision = revision, .possibly = revision};
  point.base = ChooseBase(view.parts, view.archived, revision);
  CHECK(point.base != nullptr);
  point.base_is_above = point.base->last_revision > revision;
  if (point.base->last_revision < revision) {
    const Range range{.first = point.base->last_revision + 1, .last = revision};
    point.segments = Cover(view.parts.segments, range);
    CHECK(!point.segments.empty() && point.segments.back().last == revision);
  }
  point.seen = view.times.Of(revision);
  point.revisions_after = view.times.newest_revision() - revision;
  const std::optional<Time> end = view.times.end();
  if (point.revisions_after > 0 && end && *end > point.seen.to) {
    point.time_after = *end - point.seen.to;
  }
  FindProof(view, &point);
  CountBytes(&point);
  return point;
}

absl::StatusOr<Found> FindRevision(const View& view, int64_t revision) {
  if (view.windows.windows.empty()) return NothingToRestore(view.inventory);
  if (WindowWith(view, revision) != nullptr) return MakePoint(view, revision);
  for (const Gap& gap : view.windows.holes) {
    if (gap.first_revision <= revision && revision <= gap.last_revision) {
      return MakeInHole(view, gap, revision);
    }
  }
  const Window& first = view.windows.windows.front();
  const Window& last = view.windows.windows.back();
  const std::string exists =
      fmt::format("{} ({}) to {} ({})", first.first_revision, TimeText(first.from),
                  last.last_revision, TimeText(last.to));
  if (revision < first.first_revision) {
    return base::MakeStatus(StatusCode::kOutOfRange,
                            "revision {} is older than the backups, which hold {}", revision,
                            exists);
  }
  if (revision <= view.times.newest_revision()) {
    return base::MakeStatus(StatusCode::kOutOfRange,
                            "revision {} was seen but is in no store yet; the backups hold {}",
                            revision, exists);
  }
  return base::MakeStatus(StatusCode::kOutOfRange,
                          "revision {} is newer than all that was seen of the cluster, {}; the "
                          "backups hold {}",
                          revision, view.times.newest_revision(), exists);
}

// The segment in which revisions above the point's may be found that were there by `time`.
void SetErrorBar(const View& view, Time time, RestorePoint* point) {
  point->possibly = view.times.PossiblyAt(time);
  point->shown_twice = view.times.ShownTwice(time);
  for (const Object* segment : view.parts.segments) {
    if (segment->first_revision > point->revision) break;
    if (segment->last_revision <= point->revision || point->possibly <= point->revision) continue;
    const int64_t last = std::min(segment->last_revision, point->possibly);
    if (!point->refine || last > point->refine->last) {
      point->refine = Piece{.segment = segment, .first = point->revision + 1, .last = last};
    }
  }
  CountBytes(point);
}

absl::StatusOr<Found> FindTime(const View& view, Time time) {
  const std::optional<Time> begin = view.times.begin();
  const std::optional<Time> end = view.times.end();
  if (!begin || !end || view.windows.windows.empty()) return NothingToRestore(view.inventory);
  if (time < *begin) {
    return base::MakeStatus(StatusCode::kOutOfRange, "{} is before the backups, which begin at {}",
                            TimeText(time), TimeText(*begin));
  }
  if (time > *end) {
    return base::MakeStatus(
        StatusCode::kOutOfRange, "{} is after {}, the last moment covered{}", TimeText(time),
        TimeText(*end), view.living ? "" : fmt::format(" of timeline {}", view.timeline.Name()));
  }
  const int64_t revision = view.times.SurelyAt(time);
  const int64_t possibly = view.times.PossiblyAt(time);
  // Where the error bar reaches into a hole, what was there at that moment may be lost.
  for (const Gap& gap : view.windows.holes) {
    if (gap.last_revision > revision && gap.first_revision <= possibly) {
      return MakeInHole(view, gap, std::max(gap.first_revision, revision));
    }
  }
  absl::StatusOr<Found> found = FindRevision(view, revision);
  if (found.ok() && std::holds_alternative<RestorePoint>(*found)) {
    SetErrorBar(view, time, &std::get<RestorePoint>(*found));
  }
  return found;
}

// The timeline that was living at `time`: the last one that had begun.
Timeline LivingAt(const Inventory& inventory, const std::vector<Timeline>& timelines, Time time) {
  for (size_t i = timelines.size(); i-- > 1;) {
    const std::optional<Time> begin = Timetable(inventory, timelines[i]).begin();
    if (begin && *begin <= time) return timelines[i];
  }
  return timelines.front();
}

// Whether `a` serves better than `b` at the same distance.
bool Better(const Object& a, const Object& b) {
  if (a.Proven() != b.Proven()) return a.Proven();
  return a.stored_bytes < b.stored_bytes;
}

// Among the fulls that are suspect or not, as asked: the nearest below that connects, else the
// nearest above that holds the target.
const Object* Nearest(const Parts& parts, const std::vector<Range>& archived, int64_t target,
                      bool suspect) {
  const Object* below = nullptr;
  const Object* above = nullptr;
  for (const Object* full : parts.fulls) {
    if (full->suspect.empty() == suspect) continue;
    const int64_t own = full->last_revision;
    if (own <= target) {
      const bool nearer = below == nullptr || own > below->last_revision || Better(*full, *below);
      if (nearer && (own == target || Covers(archived, {.first = own + 1, .last = target}))) {
        below = full;
      }
    } else if (full->compact_revision <= target) {
      if (above == nullptr || (own == above->last_revision && Better(*full, *above))) above = full;
    }
  }
  return below != nullptr ? below : above;
}

}  // namespace

const Object* ChooseBase(const Parts& parts, const std::vector<Range>& archived, int64_t target) {
  if (target < 1) return nullptr;
  const Object* trusted = Nearest(parts, archived, target, false);
  return trusted != nullptr ? trusted : Nearest(parts, archived, target, true);
}

absl::StatusOr<Found> Find(const Inventory& inventory, const Target& target,
                           std::optional<Timeline> timeline) {
  const std::vector<Timeline> timelines = TimelinesOf(inventory);
  if (timelines.empty()) return NothingToRestore(inventory);
  if (timeline && std::find(timelines.begin(), timelines.end(), *timeline) == timelines.end()) {
    return base::MakeStatus(StatusCode::kNotFound, "cluster `{}` has no timeline {}",
                            inventory.cluster, timeline->Name());
  }
  const Time* time = std::get_if<Time>(&target);
  if (!timeline) {
    timeline = time != nullptr ? LivingAt(inventory, timelines, *time) : timelines.back();
  }
  const View view = Look(inventory, *timeline, *timeline == timelines.back());
  if (time != nullptr) return FindTime(view, *time);
  if (const int64_t* revision = std::get_if<int64_t>(&target)) return FindRevision(view, *revision);
  if (view.windows.windows.empty()) return NothingToRestore(inventory);
  return MakePoint(view, view.windows.windows.back().last_revision);
}

int64_t NewestRevision(const Inventory& inventory) {
  int64_t newest = 0;
  for (const Object& object : inventory.objects) newest = std::max(newest, object.last_revision);
  for (const auto& [timeline, seen] : inventory.watched) newest = std::max(newest, seen.first);
  return newest;
}

}  // namespace catalog
