// The whole life of a member under one seed: requests, faults, restarts, and after each restart the
// comparison with the model. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/random.h"
#include "base/status.h"
#include "sim/model.h"
#include "sim/process.h"
#include "sim/sim_files.h"
#include "support/memory_files.h"

namespace sim {

// What a history met. Plain numbers: it is sent between processes as it is.
struct Counters {
  uint64_t operations = 0;
  uint64_t answered = 0;
  uint64_t reads = 0;
  uint64_t crashes = 0;
  uint64_t power_cuts = 0;
  uint64_t io_errors = 0;   // a process ended by one
  uint64_t full_disks = 0;  // a process ended by one
  uint64_t survived_errors = 0;
  uint64_t failed_operations = 0;  // of RunWithFailure
  uint64_t failed_starts = 0;
  uint64_t stops = 0;
  uint64_t torn_pages = 0;
  uint64_t interrupted_commits = 0;
  uint64_t interrupted_defragmentations = 0;
  uint64_t interrupted_compactions = 0;
  uint64_t kept_unanswered = 0;  // requests without an answer that took effect
  uint64_t lost_unanswered = 0;
  uint64_t snapshots = 0;
  uint64_t defragmentations = 0;
  uint64_t compactions = 0;

  void Add(const Counters& other);
};

class History {
 public:
  History(uint64_t seed, Breakage breakage);
  ~History();

  // A seed's random history: at least 200 requests and 3 crashes. An error says what is wrong with
  // the member.
  absl::Status Run();

  // A short history, always the same for a seed, whose `fail_at`-th change of the disk fails, with
  // `once` that one alone. Where that ends the process, with `power_cut` the power is gone, too,
  // and with it some of what was not synced. `reached` says whether the history was long enough.
  absl::Status RunWithFailure(uint64_t fail_at, bool once, bool power_cut, bool* reached);

  const Counters& counters() const { return counters_; }
  // Of all answers and the disk's operations: the same for every run of a seed.
  uint64_t digest() const { return digest_; }

 private:
  struct Pending {
    uint64_t number = 0;
    Op op;
  };
  struct Ack {
    uint64_t number = 0;
    Answer answer;
    std::string text;
  };

  // --- requests (requests.cc) ---
  Op DrawOp();
  std::string DrawKey();
  void Issue(Op op);
  void OnAnswer(uint64_t number, OpKind kind, const member::ApplyResult& result);
  void IssueSome();
  void Read();
  void StartDefragmentation();
  // Lets the one short lease run out.
  absl::Status ExpireLease();
  absl::Status AwaitExpiry();

  // --- the life of a process (history.cc) ---
  // Requests until the process is over or has had enough of them.
  absl::Status Live(uint64_t operations_max);
  absl::Status Step(base::Duration passed);
  absl::Status Step() { return Step(std::chrono::milliseconds(random_.Below(20))); }
  absl::Status TakeAcks();
  void ApplyThrough(uint64_t number);
  // Starts the member on what the disk holds, again where a fault ends the start.
  absl::Status Begin(bool fault_in_start);
  absl::Status AwaitReady();
  absl::Status AwaitCompactions();
  void End(bool power_cut);
  absl::Status StopOrderly();
  void DrawFault();
  void ArmFault();
  bool FaultMet() const { return disk_.failure_reached() || full_; }
  bool Over() const { return !process_->fatal().ok(); }
  void Broken(std::string_view what) {
    if (broken_.ok()) broken_ = absl::InternalError(base::ToAbsl(what));
  }
  void Mix(uint64_t value);

  // --- comparisons (verify.cc) ---
  absl::Status CheckFile();
  absl::Status Settle();
  absl::Status Compare(const Model& model);
  absl::Status CompareHistory();
  absl::Status CompareRecords();
  absl::Status CheckTwins();
  absl::StatusOr<Keys> ReadKeys(int64_t revision);

  const uint64_t seed_;
  const Breakage breakage_;
  base::SeededRandom random_;         // of what happens
  base::SeededRandom member_random_;  // what the member draws
  test_support::MemoryFiles disk_;
  ManualClock clock_;
  const Tuning tuning_;
  Model model_;                          // everything up to the last request known to be applied
  std::deque<Pending> pending_;          // issued after it, in order
  std::map<uint64_t, Answer> expected_;  // of requests that are applied and not answered
  std::vector<Ack> acks_;                // not looked at yet
  absl::Status broken_;                  // what a callback found
  std::unique_ptr<Process> process_;
  uint64_t next_number_ = 1;
  int64_t next_lease_ = 1;
  int64_t short_lease_ = 0;
  enum class Fault { kNone, kPowerCut, kIoError, kFullDisk, kStop, kDefragment, kCompaction };
  Fault fault_ = Fault::kNone;  // of this life, not armed yet
  uint64_t fault_after_ = 0;    // requests of this life
  bool power_cut_ = false;      // what is armed takes the power away
  bool full_ = false;           // the disk has a capacity
  bool settled_ = false;        // pending_ holds no request to a process before this one
  bool ending_ = false;         // the process is dead, what it still says counts for nothing
  bool reached_ = false;        // an injected error was met, in any life
  Counters counters_;
  uint64_t digest_ = 0;
};

}  // namespace sim
