// Takes one full: a snapshot of a healthy member, examined and sealed into a file. Blocking; any
// thread, one at a time for a cluster.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/random.h"
#include "capture/cluster.h"
#include "capture/examine.h"
#include "catalog/inventory.h"
#include "vault/seal.h"

namespace capture {

struct FullOptions {
  // Where the snapshot lies while it is examined: a folder of the keeper's own (0700). It is
  // removed in every case, and by the next full after a crash.
  std::string scratch_dir;
  std::string sealed_path;  // where the sealed file is made; durable on return
  vault::SealOptions seal;
  base::Duration survey_timeout = std::chrono::seconds(5);
  // The longest wait for one piece of the snapshot, so that a member that hangs is left.
  base::Duration stall_timeout = std::chrono::seconds(30);
  // Of the download; 0: as fast as it comes; nothing: it yields to those who write (pace.h).
  std::optional<uint64_t> bytes_per_second = 0;
  // Where it yields, so long the snapshot may stay open; above 0.
  base::Duration open_max = std::chrono::minutes(2);
  // Told of the bytes received and those still to come, from the calling thread.
  std::function<void(uint64_t received, uint64_t remaining)> on_progress = {};
  // Asked before the download and between its pieces, which wait for the answer; an error gives it
  // up.
  std::function<absl::Status(const MemberState& member)> may_go_on = {};
  // A member that another one is preferred to; 0: none.
  uint64_t avoid_member = 0;
};

struct Full {
  MemberState member;
  Examination examination;
  vault::Sealed sealed;
  // Its revision was the newest at some moment in here.
  catalog::Seen seen;
  base::Duration received_in{0};
  bool yielded = false;  // it was read slowly for those who wrote meanwhile
};

// Errors: ChooseMember's; the member's; DataLoss when what came is damaged; ResourceExhausted when
// the disk is full. Nothing is left behind then.
absl::StatusOr<Full> TakeFull(Cluster& cluster, base::Files& files, base::Clock& clock,
                              base::Random& random, const FullOptions& options);

}  // namespace capture
