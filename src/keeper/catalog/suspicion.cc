#include "catalog/suspicion.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace catalog {
namespace {

uint64_t CountOf(const Object& full, const std::string& prefix) {
  const auto found = full.prefix_counts.find(prefix);
  return found == full.prefix_counts.end() ? 0 : found->second;
}

// All keys but those that expire by themselves.
uint64_t LastingKeys(const Object& full, const SuspicionLimits& limits) {
  uint64_t expiring = 0;
  for (const std::string& prefix : limits.expiring) expiring += CountOf(full, prefix);
  return full.key_count - std::min(full.key_count, expiring);
}

bool LostShare(uint64_t before, uint64_t now, double share) {
  return now<before&& static_cast<double>(before - now)> share * static_cast<double>(before);
}

std::string Lost(const std::string& what, uint64_t before, uint64_t now) {
  return fmt::format("{}: {} keys of {} are gone", what, before - now, before);
}

}  // namespace

std::string Suspicion(const Object& before, const Object& full, const SuspicionLimits& limits) {
  if (before.timeline != full.timeline || before.last_revision > full.last_revision) return "";
  std::vector<std::string> reasons;
  const uint64_t keys_before = LastingKeys(before, limits);
  const uint64_t keys_now = LastingKeys(full, limits);
  if (keys_before >= limits.keys_min && LostShare(keys_before, keys_now, limits.share)) {
    reasons.push_back(Lost("in all", keys_before, keys_now));
  }
  for (const auto& [prefix, count] : before.prefix_counts) {
    if (limits.expiring.contains(prefix)) continue;
    const uint64_t now = CountOf(full, prefix);
    if (now == 0 && count >= limits.vanished_keys_min) {
      reasons.push_back(fmt::format("{}: all {} keys are gone", prefix, count));
    } else if (count >= limits.prefix_keys_min && LostShare(count, now, limits.share)) {
      reasons.push_back(Lost(prefix, count, now));
    }
  }
  // More than a few prefixes tell no more than their number does.
  constexpr size_t kNamed = 5;
  std::string text;
  for (size_t i = 0; i < std::min(reasons.size(), kNamed); ++i) {
    text += (i == 0 ? "" : "; ") + reasons[i];
  }
  if (reasons.size() > kNamed)
    text += fmt::format("; and {} more prefixes", reasons.size() - kNamed);
  return text;
}

}  // namespace catalog
