// When to compact, and to which revision, as a pure function of the times it is asked and the
// revisions it sees. One owner, one thread. Source: etcd's --auto-compaction-mode and
// --auto-compaction-retention (reference client-api.md 2.6).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "base/clock.h"
#include "member/options.h"

namespace member {

class AutoCompactor {
 public:
  AutoCompactor(AutoCompactionMode mode, base::Duration period, int64_t keep_revisions,
                base::Duration now);

  // Call often. The revision to compact to, when it is time. Only a leader's calls lead to
  // something.
  std::optional<int64_t> Due(base::Duration now, int64_t current_revision, bool is_leader);

 private:
  std::optional<int64_t> DuePeriodic(base::Duration now, int64_t current_revision, bool is_leader);
  std::optional<int64_t> DueRevision(base::Duration now, int64_t current_revision, bool is_leader);

  const AutoCompactionMode mode_;
  const base::Duration period_;
  const int64_t keep_revisions_;
  base::Duration next_sample_;
  base::Duration last_compaction_;
  int64_t last_revision_ = 0;
  std::deque<int64_t> samples_;  // the newest last; spans one period
};

}  // namespace member
