// The whole-file consistency check, as `bbolt check` does it. Pure reading, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bolt/tx.h"

namespace bolt {

struct CheckReport {
  std::vector<std::string>
      findings;                  // the first `findings_max`, e.g. "page 7: unreachable unfreed"
  uint64_t findings_count = 0;   // all that were met
  uint64_t reachable_pages = 0;  // the meta pages and a stored freelist included
  uint64_t free_pages = 0;       // of the stored freelist
  bool ok() const { return findings_count == 0; }
};

// Walks every page that `tx` can reach and reports: pages referenced twice, beyond the high water
// mark, or of a wrong kind; elements that leave their page; keys out of order within a page or
// outside the bounds set by the pages above; with a stored freelist also pages free twice, free and
// reachable, or neither. (Without a stored one, what cannot be reached is free.) Inline buckets are
// checked like other pages. Never fails: damage is a finding.
CheckReport Check(const ReadTx& tx, uint64_t findings_max = 100);

}  // namespace bolt
