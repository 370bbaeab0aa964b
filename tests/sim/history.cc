#include "sim/history.h"

#include <fmt/format.h>

#include <utility>

namespace sim {
namespace {

constexpr uint64_t kOperationsMin = 200;
constexpr uint64_t kCrashesMin = 3;

absl::Status PowerCut() { return absl::UnavailableError("the power is cut"); }
absl::Status IoError() { return absl::InternalError("input/output error"); }

}  // namespace

void Counters::Add(const Counters& other) {
  static_assert(sizeof(Counters) % sizeof(uint64_t) == 0);
  auto* to = reinterpret_cast<uint64_t*>(this);
  const auto* from = reinterpret_cast<const uint64_t*>(&other);
  for (size_t i = 0; i < sizeof(Counters) / sizeof(uint64_t); ++i) to[i] += from[i];
}

History::History(uint64_t seed, Breakage breakage)
    : seed_(seed),
      breakage_(breakage),
      random_(seed * 2 + 1),
      member_random_(seed * 2 + 2),
      tuning_(Tuning::Draw(random_)) {}

History::~History() {
  ending_ = true;
  process_.reset();
}

void History::Mix(uint64_t value) {
  digest_ = (digest_ ^ value) * 0x9E3779B97F4A7C15ULL;
  digest_ ^= digest_ >> 29;
}

absl::Status History::Run() {
  RETURN_IF_ERROR(Begin(random_.OneIn(8)));
  while (counters_.operations < kOperationsMin || counters_.crashes < kCrashesMin) {
    DrawFault();
    RETURN_IF_ERROR(Live(30 + random_.Below(60)));
    // Whoever has met no fault loses the power between two steps.
    if (process_ != nullptr) {
      if (!Over() && disk_.failure_reached()) ++counters_.survived_errors;
      End(!Over() || power_cut_ || random_.OneIn(2));
    }
    RETURN_IF_ERROR(Begin(random_.OneIn(6)));
  }
  RETURN_IF_ERROR(StopOrderly());
  disk_.CrashAll(/*keep=*/false);
  RETURN_IF_ERROR(Begin(false));
  RETURN_IF_ERROR(StopOrderly());
  RETURN_IF_ERROR(CheckFile());
  const auto disk = disk_.counters();
  for (const uint64_t count : disk.of) Mix(count);
  Mix(disk.written_bytes);
  Mix(random_.Next());
  Mix(member_random_.Next());
  return absl::OkStatus();
}

absl::Status History::RunWithFailure(uint64_t fail_at, bool once, bool power_cut, bool* reached) {
  power_cut_ = power_cut;
  disk_.FailAt(fail_at, power_cut && !once ? PowerCut() : IoError(), once);
  RETURN_IF_ERROR(Begin(false));
  for (int part = 0; part < 4; ++part) {
    if (part == 1) StartDefragmentation();
    if (part == 2) {
      Issue({.kind = OpKind::kCompact, .revision = model_.revision(), .physical = true});
    }
    RETURN_IF_ERROR(Live(8));
    if (!Over() && part == 2) RETURN_IF_ERROR(StopOrderly());
    if (process_ != nullptr && Over()) End(power_cut);
    if (process_ == nullptr) RETURN_IF_ERROR(Begin(false));
  }
  RETURN_IF_ERROR(StopOrderly());
  *reached = reached_ || disk_.failure_reached();
  RETURN_IF_ERROR(Begin(false));
  RETURN_IF_ERROR(StopOrderly());
  return CheckFile();
}

// --- the life of a process ---

absl::Status History::Step(base::Duration passed) {
  process_->Step(passed);
  RETURN_IF_ERROR(TakeAcks());
  RETURN_IF_ERROR(broken_);
  // A compaction is applied before it is answered.
  if (settled_ && !Over() && process_->member().pending_proposals() == 0) {
    while (!pending_.empty() && pending_.front().op.kind != OpKind::kExpire)
      ApplyThrough(pending_.front().number);
  }
  if (Over() && !FaultMet()) {
    return base::Annotate(process_->fatal(), "the member ended itself on a healthy disk");
  }
  member::Member& member = process_->member();
  if (!Over() && member.ReadNow() && member.store().current_revision() < model_.revision()) {
    return absl::InternalError(
        fmt::format("stale read: the member serves revision {} after {} was acknowledged",
                    member.store().current_revision(), model_.revision()));
  }
  return absl::OkStatus();
}

absl::Status History::Live(uint64_t operations_max) {
  const uint64_t begun = counters_.operations;
  for (int round = 0; !Over() && counters_.operations - begun < operations_max; ++round) {
    if (fault_ != Fault::kNone && counters_.operations - begun >= fault_after_) {
      if (fault_ == Fault::kStop) {
        fault_ = Fault::kNone;
        RETURN_IF_ERROR(StopOrderly());
        if (random_.OneIn(2)) disk_.Crash(random_);  // nothing may be left to lose
        return absl::OkStatus();
      }
      ArmFault();
    }
    if (random_.OneIn(40)) StartDefragmentation();
    if (random_.OneIn(60)) {
      RETURN_IF_ERROR(ExpireLease());
    } else {
      IssueSome();
      RETURN_IF_ERROR(Step());
    }
    if (Over()) break;
    if (!pending_.empty()) {
      return absl::InternalError(
          fmt::format("request {} is not applied by a healthy member", pending_.front().number));
    }
    if (round % 8 == 7) {
      RETURN_IF_ERROR(Compare(model_));
      RETURN_IF_ERROR(CompareHistory());
      RETURN_IF_ERROR(CompareRecords());
    }
  }
  return absl::OkStatus();
}

void History::DrawFault() {
  static constexpr Fault kFaults[] = {Fault::kNone,       Fault::kPowerCut,   Fault::kPowerCut,
                                      Fault::kIoError,    Fault::kFullDisk,   Fault::kStop,
                                      Fault::kDefragment, Fault::kCompaction, Fault::kCompaction};
  fault_ = kFaults[random_.Below(std::size(kFaults))];
  fault_after_ = random_.Below(40);
  power_cut_ = false;
}

void History::ArmFault() {
  power_cut_ = fault_ != Fault::kIoError && fault_ != Fault::kFullDisk;
  switch (std::exchange(fault_, Fault::kNone)) {
    case Fault::kNone:
    case Fault::kStop:
      break;
    case Fault::kPowerCut:
      disk_.FailAt(1 + random_.Below(100), PowerCut());
      break;
    case Fault::kIoError:
      disk_.FailAt(1 + random_.Below(100), IoError(), random_.OneIn(2));
      break;
    case Fault::kFullDisk:
      disk_.SetCapacity(disk_.used_bytes() + random_.Below(12 << 10));
      full_ = true;
      break;
    case Fault::kDefragment:
      StartDefragmentation();
      disk_.FailAt(1 + random_.Below(30), PowerCut());
      break;
    case Fault::kCompaction:
      Issue({.kind = OpKind::kCompact, .revision = model_.revision()});
      disk_.FailAt(3 + random_.Below(25), PowerCut());
      break;
  }
}

absl::Status History::Begin(bool fault_in_start) {
  for (int attempt = 0; attempt < 4; ++attempt) {
    clock_.now += std::chrono::milliseconds(1 + random_.Below(3000));
    RETURN_IF_ERROR(CheckFile());
    if (fault_in_start && attempt == 0) {
      power_cut_ = random_.OneIn(2);
      disk_.FailAt(1 + random_.Below(60), power_cut_ ? PowerCut() : IoError());
    }
    ending_ = false;
    settled_ = false;
    process_ = std::make_unique<Process>(disk_, clock_, member_random_, tuning_, breakage_);
    if (const absl::Status started = process_->Start(); !started.ok()) {
      if (!FaultMet()) return base::Annotate(started, "the member does not start");
      ++counters_.failed_starts;
    } else {
      if (process_->member().store().stats().compactions_running > 0)
        ++counters_.interrupted_compactions;
      RETURN_IF_ERROR(AwaitReady());
      if (!Over()) {
        RETURN_IF_ERROR(Settle());
        RETURN_IF_ERROR(AwaitExpiry());
      }
      if (!Over() && random_.OneIn(3)) RETURN_IF_ERROR(AwaitCompactions());
      if (!Over()) return absl::OkStatus();
    }
    End(power_cut_);
  }
  return absl::InternalError("four starts have failed");
}

absl::Status History::AwaitReady() {
  Read();
  for (int i = 0; i < 400 && !Over(); ++i) {
    if (process_->member().ready()) return absl::OkStatus();
    RETURN_IF_ERROR(Step(std::chrono::milliseconds(10 + random_.Below(40))));
  }
  return Over() ? absl::OkStatus() : absl::InternalError("the member does not become ready");
}

absl::Status History::AwaitCompactions() {
  for (int i = 0; i < 1000 && !Over(); ++i) {
    if (process_->member().store().stats().compactions_running == 0) return CompareRecords();
    RETURN_IF_ERROR(Step(std::chrono::milliseconds(5)));
  }
  return Over() ? absl::OkStatus() : absl::InternalError("the compactions do not end");
}

void History::End(bool power_cut) {
  reached_ |= disk_.failure_reached();
  if (process_->started()) {
    counters_.snapshots += process_->snapshots();
    counters_.defragmentations += process_->defragmentations();
    counters_.compactions += process_->compactions();
    if (process_->InCommit()) ++counters_.interrupted_commits;
    if (process_->InDefragmentation()) ++counters_.interrupted_defragmentations;
    ++(power_cut ? counters_.power_cuts : full_ ? counters_.full_disks : counters_.io_errors);
    ++counters_.crashes;
  }
  ending_ = true;
  process_->Kill();
  if (power_cut) {
    disk_.Crash(random_);
    counters_.torn_pages += disk_.TornWrites(kDbPath);
  } else {
    disk_.CrashAll(true);  // the process is gone, what it wrote is not
  }
  process_.reset();
  acks_.clear();
  disk_.SetCapacity(~uint64_t{0});
  full_ = false;
}

// Leaves no process behind: one that a fault keeps from stopping ends like any other.
absl::Status History::StopOrderly() {
  ending_ = true;
  const absl::Status stopped = process_->Stop();
  RETURN_IF_ERROR(broken_);
  if (!stopped.ok()) {
    if (!FaultMet()) return base::Annotate(stopped, "the member does not stop");
    End(power_cut_);
    return absl::OkStatus();
  }
  ++counters_.stops;
  reached_ |= disk_.failure_reached();
  process_.reset();
  acks_.clear();
  return absl::OkStatus();
}

}  // namespace sim
