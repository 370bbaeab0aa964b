// Whether a full lost so much against the one before that it must not be trusted as its successor.
// Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "catalog/inventory.h"

namespace catalog {

struct SuspicionLimits {
  // Losing more than this share of all keys, or of one prefix's, is suspect.
  double share = 0.5;
  // Below these a share says nothing: a cluster of five keys that lost three was being set up.
  uint64_t keys_min = 10;
  uint64_t prefix_keys_min = 100;
  // A prefix that had at least so many keys and has none now is suspect; smaller ones come and go
  // with the last object of a kind (one CRD, three CSRs).
  uint64_t vanished_keys_min = 10;
  // Prefixes that empty themselves by lease expiry, and so say nothing. They are left out of the
  // total as well, or a quiet night would stop retention.
  std::set<std::string> expiring = {"/registry/events/"};
};

// Why `full` is suspect as the successor of `before`, for people; empty: it is not. Fulls of
// different timelines are never compared, nor is an older one with its successor.
std::string Suspicion(const Object& before, const Object& full, const SuspicionLimits& limits = {});

}  // namespace catalog
