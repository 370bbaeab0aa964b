// One life of the simulated member: from a start on whatever the disk holds to its end. Threadless;
// everything happens in Step().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/random.h"
#include "member/member.h"
#include "peer/transport.h"
#include "sim/sim_files.h"

namespace sim {

inline constexpr char kDataDir[] = "/data";
inline constexpr char kDbPath[] = "/data/member/snap/db";

class ManualClock final : public base::Clock {
 public:
  base::Duration Monotonic() const override { return now; }
  base::Duration Wall() const override { return now; }
  base::Duration now = std::chrono::seconds(1'000'000);
};

// Sizes at which a member does what it does rarely otherwise. Drawn once a seed.
struct Tuning {
  uint64_t snapshot_count = 0;
  uint64_t catchup_entries = 0;
  uint64_t wal_segment_bytes = 0;
  uint64_t max_wals = 0;
  uint64_t batch_operations = 0;
  base::Duration batch_interval{};
  uint64_t compaction_batch = 0;
  bool lease_checkpoints = false;

  static Tuning Draw(base::Random& random);
};

class Process final : public member::MemberObserver, public peer::Transport {
 public:
  using Answered = std::function<void(const member::ApplyResult&)>;

  Process(base::Files& disk, ManualClock& clock, base::Random& random, const Tuning& tuning,
          Breakage breakage)
      : clock_(clock), random_(random), tuning_(tuning), files_(disk, breakage) {}
  // Abrupt: nothing that the member would still do reaches the disk.
  ~Process() override { Kill(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  absl::Status Start();
  // Lets everything run that is due after `passed`.
  void Step(base::Duration passed);
  // An orderly end.
  absl::Status Stop();
  void Kill() { files_.Kill(); }

  void Propose(member::RequestKind kind, std::string_view message, Answered answered);

  member::Member& member() { return *member_; }
  bool started() const { return member_ != nullptr; }
  // Why the member said that the process must end.
  const absl::Status& fatal() const { return fatal_; }
  bool InCommit() const { return files_.InCommit(); }
  // A defragmentation has begun its copy.
  bool InDefragmentation();
  uint64_t snapshots() const { return snapshots_; }
  uint64_t defragmentations() const { return defragmentations_; }
  uint64_t compactions() const { return compactions_; }

  // MemberObserver, Transport.
  void OnFatal(const absl::Status& status) override { fatal_ = status; }
  void OnSnapshotSaved(uint64_t) override { ++snapshots_; }
  void OnCompactionFinished(int64_t, base::Duration) override { ++compactions_; }
  void OnDefragment(base::Duration, const absl::Status& status) override {
    if (status.ok()) ++defragmentations_;
  }
  void Send(std::vector<raft::Message>) override {}

 private:
  ManualClock& clock_;
  base::Random& random_;
  const Tuning tuning_;
  SimFiles files_;
  absl::Status fatal_;
  uint64_t snapshots_ = 0;
  uint64_t defragmentations_ = 0;
  uint64_t compactions_ = 0;
  std::unique_ptr<member::Member> member_;
};

}  // namespace sim
