// A restore from its plan to a member's data directory. Everything is made beside the target and
// renamed; an interrupted one leaves nothing that could be taken for a member, and the next one
// starts clean. Blocking; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/random.h"
#include "catalog/inventory.h"
#include "catalog/plan.h"
#include "restore/build.h"
#include "restore/fetch.h"

namespace restore {

struct Plan {
  Materials materials;
  catalog::Seen seen;  // when the revision wanted came
  // The error bar of a moment: the newest revision that may have been there too; and whether the
  // clock showed that moment twice. See catalog::RestorePoint.
  int64_t possibly = 0;
  bool shown_twice = false;
  int64_t revisions_after = 0;
  base::Duration time_after{0};
  uint64_t bytes_to_fetch = 0;
  // The revision that nothing seen before reaches: the newest one known of any timeline, and a
  // margin of a million or ten times what the cluster's fastest pace would have added since.
  int64_t safe_revision = 0;
};
// Pure.
Plan MakePlan(const catalog::Inventory& inventory, const catalog::RestorePoint& point,
              base::Duration lease_ttl_default, catalog::Time now);

struct Options {
  std::string data_dir;
  std::string name = "default";
  std::string initial_cluster;  // empty: this member alone
  std::string token;            // empty: a new one
  std::string peer_urls = "http://localhost:2380";
  bool bump = true;
  int64_t bump_to = 0;  // 0: plan.safe_revision
  bool unproven = false;
};

struct Report {
  BuiltDb built;
  std::string data_dir, name, token, initial_cluster, peer_urls;
  int64_t bumped_to = 0;  // 0: the revision was kept
  std::vector<BadCopy> bad_copies;
  base::Duration took{0};
};

// Errors: BuildDb's; AlreadyExists when the data directory is there; InvalidArgument for a member
// that is not in its cluster or a bump below the revision; FailedPrecondition "no proof: ..." when
// the log states nothing by which the result could be checked.
absl::StatusOr<Report> Run(base::Files& files, base::Clock& clock, base::Random& random,
                           Fetcher& fetcher, const Plan& plan, const Options& options,
                           const BuildObserver& observer);

// Whether an error of Run says that a proof failed or is missing, rather than that something is
// damaged.
bool IsUnproven(const absl::Status& status);

}  // namespace restore
