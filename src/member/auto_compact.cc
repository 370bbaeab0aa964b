#include "member/auto_compact.h"

#include <algorithm>

namespace member {
namespace {
constexpr base::Duration kHour = std::chrono::hours(1);
constexpr int kSamplesPerInterval = 10;
constexpr base::Duration kRevisionModeInterval = std::chrono::minutes(5);
}  // namespace

AutoCompactor::AutoCompactor(AutoCompactionMode mode, base::Duration period, int64_t keep_revisions,
                             base::Duration now)
    : mode_(mode),
      period_(period),
      keep_revisions_(keep_revisions),
      next_sample_(now),
      last_compaction_(now) {}

std::optional<int64_t> AutoCompactor::Due(base::Duration now, int64_t current_revision,
                                          bool is_leader) {
  return mode_ == AutoCompactionMode::kPeriodic ? DuePeriodic(now, current_revision, is_leader)
                                                : DueRevision(now, current_revision, is_leader);
}

std::optional<int64_t> AutoCompactor::DuePeriodic(base::Duration now, int64_t current_revision,
                                                  bool is_leader) {
  if (period_ <= base::Duration{} || now < next_sample_) return std::nullopt;
  const base::Duration interval = std::min(period_, kHour);
  next_sample_ = now + interval / kSamplesPerInterval;
  samples_.push_back(current_revision);
  const auto kept = static_cast<size_t>(period_ / (interval / kSamplesPerInterval));
  while (samples_.size() > kept + 1) samples_.pop_front();
  // The first compaction waits for a whole period, later ones for an interval.
  if (samples_.size() <= kept || now - last_compaction_ < interval || !is_leader)
    return std::nullopt;
  const int64_t revision = samples_.front();
  last_compaction_ = now;
  if (revision <= last_revision_) return std::nullopt;  // nothing was written meanwhile
  last_revision_ = revision;
  return revision;
}

std::optional<int64_t> AutoCompactor::DueRevision(base::Duration now, int64_t current_revision,
                                                  bool is_leader) {
  if (keep_revisions_ <= 0 || now - last_compaction_ < kRevisionModeInterval) return std::nullopt;
  last_compaction_ = now;
  const int64_t revision = current_revision - keep_revisions_;
  if (!is_leader || revision <= 0 || revision <= last_revision_) return std::nullopt;
  last_revision_ = revision;
  return revision;
}

}  // namespace member
