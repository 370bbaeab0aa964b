// Which revision was there when, as far as the logs of one timeline tell. Immutable after it is
// built, so any thread may ask.
//
// Every fact is of one of two forms: "revision r was there by t" (a segment's ends, a full's own
// revision, the archive's progress) and "revision r was not there yet at t" (the same objects:
// nothing above a full's revision came before the snapshot was asked for). Because revisions are
// numbered in order, a fact about one binds those beside it. Objects that can no longer be restored
// still tell the time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "catalog/inventory.h"

namespace catalog {

class Timetable {
 public:
  Timetable(const Inventory& inventory, const Timeline& timeline);

  // When `revision` came. `from` is Time(0) where nothing bounds it below; `to` is Time::max()
  // where it is newer than all that is known.
  Seen Of(int64_t revision) const;
  // The newest revision that was surely there at `time`; 0 when none surely was.
  int64_t SurelyAt(Time time) const;
  // The newest revision that may have been there at `time`; at least SurelyAt(time), at most
  // newest_revision().
  int64_t PossiblyAt(Time time) const;

  int64_t newest_revision() const { return newest_revision_; }  // 0: nothing is known
  // The span that the facts cover: before `begin` nothing is known, after `end` nothing yet.
  std::optional<Time> begin() const;
  std::optional<Time> end() const;

 private:
  struct Fact {
    int64_t revision;
    Time time;
  };
  void AddObject(const Object& object);
  void Settle();

  std::vector<Fact> there_;      // by revision; `time` is the earliest by which it was there
  std::vector<Fact> not_there_;  // by revision; `time` is the latest at which it was not
  int64_t newest_revision_ = 0;
  std::optional<Time> end_;
};

// When the object's own newest revision was: `last_seen`, or `first_seen` where that is unset.
Seen SeenOf(const Object& object);
// "2026-08-10T02:14:06Z", with milliseconds where there are any.
std::string TimeText(Time time);

}  // namespace catalog
