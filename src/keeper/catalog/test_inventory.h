// Builds inventories for tests, and the obvious model of what they restore. For test code only;
// not thread-safe.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "base/random.h"
#include "catalog/coverage.h"
#include "catalog/inventory.h"

namespace catalog {

inline Time At(int64_t seconds) { return std::chrono::seconds(seconds); }
inline Seen SeenAt(int64_t seconds) { return {.from = At(seconds) - At(1), .to = At(seconds)}; }

inline constexpr Timeline kFirst{.cluster_id = 0xabc, .first_revision = 1};
inline constexpr Timeline kSecond{.cluster_id = 0xdef, .first_revision = 1};

inline Object Full(int64_t compact, int64_t revision, int64_t seconds) {
  Object full{.kind = Kind::kFull, .timeline = kFirst, .writer = "w1"};
  full.name = "full-" + std::to_string(revision) + "-" + std::to_string(seconds);
  full.first_revision = full.last_revision = revision;
  full.compact_revision = compact;
  full.first_seen = full.last_seen = SeenAt(seconds);
  full.stored_bytes = 1000;
  full.stores = {"disk"};
  return full;
}

// One event a revision.
inline Object Segment(int64_t first, int64_t last, int64_t from_seconds, int64_t to_seconds) {
  Object segment{.kind = Kind::kSegment, .timeline = kFirst, .writer = "w1"};
  segment.name = "segment-" + std::to_string(first) + "-" + std::to_string(last);
  segment.first_revision = first;
  segment.last_revision = last;
  segment.first_seen = SeenAt(from_seconds);
  segment.last_seen = SeenAt(to_seconds);
  segment.events = static_cast<uint64_t>(last - first + 1);
  segment.stored_bytes = 10;
  segment.stores = {"disk"};
  return segment;
}

inline Object Proven(Object full) {
  full.proofs.push_back({.method = Proof::Method::kHashByRpc,
                         .to = full.last_revision,
                         .compact_revision = full.compact_revision,
                         .hash = 1,
                         .at = full.last_seen.to});
  return full;
}

inline Inventory Of(std::vector<Object> objects) {
  Inventory inventory{.cluster = "c", .objects = std::move(objects)};
  inventory.timelines = {kFirst};
  return inventory;
}

// The restorable revisions of one timeline, one by one: what a full holds, and then again and again
// the next one that some segment has.
inline std::set<int64_t> ModelRestorable(const Inventory& inventory, const Timeline& timeline) {
  std::set<int64_t> all;
  for (const Object& full : inventory.objects) {
    if (full.kind != Kind::kFull || full.timeline != timeline || !Usable(full)) continue;
    for (int64_t r = std::max<int64_t>(1, full.compact_revision); r <= full.last_revision; ++r) {
      all.insert(r);
    }
  }
  for (bool grown = true; grown;) {
    grown = false;
    for (const Object& segment : inventory.objects) {
      if (segment.kind != Kind::kSegment || segment.timeline != timeline || !Usable(segment)) {
        continue;
      }
      for (int64_t r = segment.first_revision; r <= segment.last_revision; ++r) {
        if (all.contains(r - 1)) grown |= all.insert(r).second;
      }
    }
  }
  return all;
}

// The seed of a randomized test: ENGRAM_SEED where it is set, which replays one run.
inline uint64_t FirstSeed(uint64_t otherwise) {
  const char* seed = std::getenv("ENGRAM_SEED");
  return seed == nullptr ? otherwise : std::strtoull(seed, nullptr, 10);
}
inline uint64_t SeedCount(uint64_t otherwise) {
  return std::getenv("ENGRAM_SEED") == nullptr ? otherwise : 1;
}

// Damages, loses or prunes now and then.
inline void MaybeSpoil(base::Random* random, Object* object) {
  switch (random->Below(10)) {
    case 0:
      object->damaged = object->stores;
      break;
    case 1:
      object->stores.clear();
      break;
    case 2:
      object->pruned = true;
      break;
    case 3:
      object->stores.insert("offsite");
      object->damaged = {"disk"};
      break;
    default:
      break;
  }
}

// A cluster whose revision r came at second times[r], watched by two keepers that sometimes stood
// still, with fulls now and then.
struct History {
  Inventory inventory;
  std::vector<int64_t> times;  // by revision; [0] is unused
  int64_t end = 0;
};

inline void AddSegments(base::Random* random, const char* writer, History* history) {
  const auto revisions = static_cast<int64_t>(history->times.size()) - 1;
  int64_t next = 1 + static_cast<int64_t>(random->Below(10));
  while (next <= revisions) {
    const int64_t last = std::min(revisions, next + static_cast<int64_t>(random->Below(8)));
    Object segment = Segment(next, last, history->times[static_cast<size_t>(next)],
                             history->times[static_cast<size_t>(last)]);
    // The keeper's view is late by up to a second and vague by another.
    segment.first_seen.to += At(1);
    segment.last_seen.to += At(1);
    segment.writer = writer;
    segment.name = std::string(writer) + "-" + segment.name;
    if (random->OneIn(2)) segment.reread = segment.last_seen.to;
    if (random->OneIn(3))
      segment.container = std::string(writer) + "-roll-" + std::to_string(next / 20);
    if (random->OneIn(40)) segment.pinned = true;
    history->inventory.objects.push_back(std::move(segment));
    next = last + 1;
    if (random->OneIn(6)) next += static_cast<int64_t>(random->Below(6));  // it stood still
    if (random->OneIn(6)) next = std::max<int64_t>(1, next - 4);           // it started again
  }
}

inline History RandomHistory(base::Random* random) {
  History history;
  history.inventory = Of({});
  const auto revisions = static_cast<int64_t>(10 + random->Below(70));
  const auto pace = static_cast<int64_t>(1 + random->Below(3000));
  int64_t now = 1'780'000'000;
  history.times.push_back(0);
  for (int64_t r = 1; r <= revisions; ++r) {
    now += 4 + static_cast<int64_t>(random->Below(static_cast<uint64_t>(pace)));
    history.times.push_back(now);
  }
  AddSegments(random, "w1", &history);
  if (random->OneIn(2)) AddSegments(random, "w2", &history);
  const uint64_t fulls = random->Below(14);
  for (uint64_t i = 0; i < fulls; ++i) {
    const auto revision = static_cast<int64_t>(1 + random->Below(static_cast<uint64_t>(revisions)));
    const auto back = static_cast<int64_t>(random->Below(12));
    Object full = Full(std::max<int64_t>(-1, revision - back), revision,
                       history.times[static_cast<size_t>(revision)] + 2);
    full.name += "-" + std::to_string(i);
    if (random->OneIn(2)) full = Proven(std::move(full));
    if (random->OneIn(15)) full.pinned = true;
    history.inventory.objects.push_back(std::move(full));
  }
  for (Object& object : history.inventory.objects) {
    if (random->OneIn(3)) MaybeSpoil(random, &object);
  }
  history.end = now + 4;
  history.inventory.watched[kFirst] = {revisions, At(history.end)};
  return history;
}

}  // namespace catalog
