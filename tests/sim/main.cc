// engram_sim: a whole member on a simulated disk, under as many seeds as wanted. Usage and what it
// proves: tests/sim/README.md.
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "sim/history.h"
#include "sim/runner.h"

namespace sim {
namespace {

constexpr char kUsage[] =
    "usage: engram_sim [--seeds N | --all] [--seed S] [--jobs N] [--twice N] [--verbose]\n"
    "       engram_sim --every-operation [--seeds N] [--seed S] [--jobs N]\n"
    "       engram_sim --break no-fsync|meta-first|index-early [--seeds N] [--seed S]\n"
    "The first seed is --seed, else ENGRAM_TEST_SEED, else 1.\n";

// Seeds enough for each rare event to be met many times over.
constexpr uint64_t kSeedsForCounters = 1000;
constexpr uint64_t kAllSeeds = 10'000;

struct Arguments {
  uint64_t seed = 1;
  uint64_t seeds = 1;
  uint64_t twice = 50;  // each seed that is a multiple of it runs twice; 0: none
  int jobs = 1;
  bool every_operation = false;
  bool verbose = false;
  Breakage breakage = Breakage::kNone;
};

std::optional<Breakage> ParseBreakage(std::string_view name) {
  if (name == "no-fsync") return Breakage::kNoFsync;
  if (name == "meta-first") return Breakage::kMetaFirst;
  if (name == "index-early") return Breakage::kIndexEarly;
  return std::nullopt;
}

std::optional<Arguments> Parse(int argc, char** argv) {
  Arguments args;
  if (const char* seed = std::getenv("ENGRAM_TEST_SEED"); seed != nullptr)
    args.seed = std::strtoull(seed, nullptr, 10);
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--all") {
      args.seeds = kAllSeeds;
    } else if (name == "--every-operation") {
      args.every_operation = true;
    } else if (name == "--verbose") {
      args.verbose = true;
    } else if (i + 1 == argc) {
      return std::nullopt;
    } else if (name == "--break") {
      const auto breakage = ParseBreakage(argv[++i]);
      if (!breakage) return std::nullopt;
      args.breakage = *breakage;
    } else {
      const uint64_t number = std::strtoull(argv[++i], nullptr, 10);
      if (name == "--seeds") {
        args.seeds = number;
      } else if (name == "--seed") {
        args.seed = number;
      } else if (name == "--twice") {
        args.twice = number;
      } else if (name == "--jobs" && number > 0 && number <= 256) {
        args.jobs = static_cast<int>(number);
      } else {
        return std::nullopt;
      }
    }
  }
  return args;
}

Outcome RunSeed(uint64_t seed, const Arguments& args) {
  Outcome outcome;
  const int runs = args.twice > 0 && seed % args.twice == 0 ? 2 : 1;
  for (int run = 0; run < runs && outcome.text.empty(); ++run) {
    History history(seed, args.breakage);
    const absl::Status status = history.Run();
    if (!status.ok()) outcome.text = base::Message(status);
    if (run == 1 && history.digest() != outcome.digest)
      outcome.text = fmt::format("the second run ended on {:016x}, the first on {:016x}",
                                 history.digest(), outcome.digest);
    outcome.counters = history.counters();
    outcome.digest = history.digest();
  }
  return outcome;
}

// An error at every operation that the history of a seed reaches, in three kinds.
Outcome RunEveryOperation(uint64_t seed, const Arguments& args) {
  struct Kind {
    const char* name;
    bool once;
    bool power_cut;
  };
  static constexpr Kind kKinds[] = {{"I/O errors", false, false},
                                    {"an I/O error, then a power cut", true, true},
                                    {"a power cut", false, true}};
  Outcome outcome;
  for (const Kind& kind : kKinds) {
    bool reached = true;
    for (uint64_t n = 1; reached; ++n) {
      History history(seed, args.breakage);
      const absl::Status status = history.RunWithFailure(n, kind.once, kind.power_cut, &reached);
      outcome.counters.Add(history.counters());
      outcome.digest = outcome.digest * 31 + history.digest();
      if (!status.ok()) {
        outcome.text = fmt::format("{} at operation {}: {}", kind.name, n, base::Message(status));
        return outcome;
      }
      outcome.counters.failed_operations += reached ? 1 : 0;
      if (args.verbose) fmt::print(stderr, "{} {} {}\n", kind.name, n, history.counters().crashes);
    }
  }
  return outcome;
}

void Print(const Counters& c) {
  fmt::print(
      "requests {} (answered {}), reads {}\n"
      "crashes {}: power cuts {}, ended by an I/O error {}, by a full disk {}\n"
      "errors survived {}, starts that failed {}, orderly stops {}, failed operations {}\n"
      "met: torn pages {}, interrupted commits {}, interrupted defragmentations {}, interrupted "
      "compactions {}\n"
      "unanswered requests: kept {}, lost {}\n"
      "done: snapshots {}, defragmentations {}, compactions {}\n",
      c.operations, c.answered, c.reads, c.crashes, c.power_cuts, c.io_errors, c.full_disks,
      c.survived_errors, c.failed_starts, c.stops, c.failed_operations, c.torn_pages,
      c.interrupted_commits, c.interrupted_defragmentations, c.interrupted_compactions,
      c.kept_unanswered, c.lost_unanswered, c.snapshots, c.defragmentations, c.compactions);
}

// A build that is broken on purpose must be found out.
int ProveBroken(const Arguments& args) {
  bool caught = false;
  RunTasks(
      args.seed, args.seeds, 1, [&](uint64_t seed) { return RunSeed(seed, args); },
      [&](uint64_t seed, const Outcome& outcome) {
        if (outcome.text.empty()) return true;
        caught = true;
        fmt::print("caught by seed {}, the {}. of this run: {}\n", seed, seed - args.seed + 1,
                   outcome.text);
        return false;
      });
  if (!caught) fmt::print("NOT CAUGHT in {} seeds\n", args.seeds);
  return caught ? 0 : 1;
}

int RunAll(const Arguments& args) {
  Counters total;
  uint64_t failures = 0;
  std::map<uint64_t, uint64_t> digests;
  RunTasks(
      args.seed, args.seeds, args.jobs,
      [&](uint64_t seed) {
        return args.every_operation ? RunEveryOperation(seed, args) : RunSeed(seed, args);
      },
      [&](uint64_t seed, const Outcome& outcome) {
        total.Add(outcome.counters);
        digests[seed] = outcome.digest;
        if (args.verbose) fmt::print("seed {} digest {:016x}\n", seed, outcome.digest);
        if (outcome.text.empty()) return true;
        fmt::print("FAILED seed {}: {}\n  again: engram_sim {}--seed {}\n", seed, outcome.text,
                   args.every_operation ? "--every-operation " : "", seed);
        return ++failures < 20;
      });
  uint64_t digest = 0;
  for (const auto& [seed, of_seed] : digests) digest = digest * 31 + of_seed;
  Print(total);
  fmt::print("{} seeds from {}, digest {:016x}, {} failures\n", digests.size(), args.seed, digest,
             failures);
  if (failures > 0) return 1;
  if (!args.every_operation && args.seeds < kSeedsForCounters) return 0;
  const bool all_met = total.torn_pages > 0 && total.interrupted_commits > 0 &&
                       total.interrupted_defragmentations > 0 && total.interrupted_compactions > 0;
  if (!all_met) fmt::print("FAILED: something was never met\n");
  return all_met ? 0 : 1;
}

int Main(int argc, char** argv) {
  const auto args = Parse(argc, argv);
  if (!args) {
    fmt::print(stderr, "{}", kUsage);
    return 2;
  }
  // Members are killed by the thousand here: what they say of it is no news.
  base::SetLogLevel(std::getenv("ENGRAM_SIM_LOG") == nullptr ? base::LogLevel::kFatal
                                                             : base::LogLevel::kInfo);
  fmt::print("first seed: ENGRAM_TEST_SEED={}\n", args->seed);
  return args->breakage == Breakage::kNone ? RunAll(*args) : ProveBroken(*args);
}

}  // namespace
}  // namespace sim

int main(int argc, char** argv) { return sim::Main(argc, argv); }
