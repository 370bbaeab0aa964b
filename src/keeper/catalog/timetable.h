// Which revision was there when, as far as the logs of one timeline tell. Immutable after it is
// built, so any thread may ask.
//
// Every fact is of one of two forms: "revision r was there by t" (a segment's ends, a full's own
// revision, the archive's progress) and "revision r was not there yet at t" (the same objects:
// nothing above a full's revision came before the snapshot was asked for). Because revisions are
// numbered in order, a fact about one binds those beside it. Objects that can no longer be restored
// still tell the time.
//
// A clock that was set back makes facts contradict each other: a revision that was not there at
// 14:30 was followed by one that was there by 13:40. Then the later ones are right by today's
// clock, and the earlier ones by the clock of then; a moment that both clocks showed is answered
// for both.
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

  // When `revision` came, by any clock that said so. `from` is Time(0) where nothing bounds it
  // below; `to` is Time::max() where it is newer than all that is known.
  Seen Of(int64_t revision) const;
  // The newest revision that was surely there at `time`, whichever clock is meant; 0 when none was.
  int64_t SurelyAt(Time time) const;
  // The newest revision that may have been there at `time`; at least SurelyAt(time), at most
  // newest_revision().
  int64_t PossiblyAt(Time time) const;
  // Whether a clock that was set back since showed `time` as well as another one did.
  bool ShownTwice(Time time) const { return SurelyBySetBackClock(time).has_value(); }

  int64_t newest_revision() const { return newest_revision_; }  // 0: nothing is known
  // The span that the facts cover: before `begin` nothing is known, after `end` nothing yet. What a
  // clock said that was set back since does not count.
  std::optional<Time> begin() const;
  std::optional<Time> end() const;

 private:
  // One look at the cluster: `there` was there by `to`, and `not_there` was not at `from`.
  struct Look {
    int64_t there;
    int64_t not_there;
    Seen seen;
    // Up to this look the clock went on without a step from the one at the segment's beginning.
    int64_t began_there;
    Seen began;
  };
  struct There {
    int64_t revision;
    Time time;  // the earliest by which it was there
  };
  struct NotThere {
    int64_t revision;
    Time time;               // the latest at which it was not, by what nothing contradicts
    std::optional<Time> by;  // when it was there by this fact, where that is contradicted
  };
  void AddObject(const Object& object);
  void Settle();
  std::optional<int64_t> SurelyBySetBackClock(Time time) const;

  std::vector<There> there_;         // by revision
  std::vector<NotThere> not_there_;  // by revision
  std::vector<Look> looks_;  // by revision; once settled, those by clocks that were set back
  int64_t newest_revision_ = 0;
  std::optional<Time> end_;
};

// When the object's own newest revision was: `last_seen`, or `first_seen` where that is unset.
Seen SeenOf(const Object& object);
// "2026-08-10T02:14:06Z", with milliseconds where there are any.
std::string TimeText(Time time);

}  // namespace catalog
