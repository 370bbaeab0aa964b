#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/status.h"
#include "commands.h"
#include "print.h"
#include "snapshot/inspect.h"
#include "snapshot/restore.h"
#include "text.h"

namespace engramutl {
namespace {

// --- status ---

int RunStatus(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return engramctl::Fail(engramctl::kExitBadArguments,
                           "snapshot status requires exactly one argument");
  }
  const auto summary =
      snapshot::Inspect(base::PosixFiles(), base::SystemClock(), invocation.words[0],
                        {.lock_timeout = LockTimeout(invocation)});
  if (!summary.ok()) return FailWith(summary.status());
  const std::string revision = std::to_string(summary->revision);
  const std::string keys = std::to_string(summary->total_keys);
  return PrintResult(
      invocation,
      {{"Hash", "hash", "HASH", fmt::format("{:x}", summary->hash), std::to_string(summary->hash)},
       {"Revision", "revision", "REVISION", revision, revision},
       {"Keys", "totalKey", "TOTAL KEYS", keys, keys},
       {"Size", "totalSize", "TOTAL SIZE", engramctl::HumanSize(summary->total_bytes),
        std::to_string(summary->total_bytes)},
       {"Version", "version", "VERSION", summary->version, engramctl::JsonString(summary->version),
        summary->version}});
}

// --- restore ---

constexpr FlagSpec kRestoreFlags[] = {
    {.name = "data-dir",
     .type = FlagType::kString,
     .help = "directory to restore to (default: NAME.etcd)"},
    {.name = "wal-dir",
     .type = FlagType::kString,
     .help = "directory of the write-ahead log (default: in the data directory)"},
    {.name = "name",
     .type = FlagType::kString,
     .default_value = "default",
     .help = "name of this member"},
    {.name = "initial-cluster",
     .type = FlagType::kString,
     .default_value = "default=http://localhost:2380",
     .help = "all members of the new cluster and their peer URLs"},
    {.name = "initial-cluster-token",
     .type = FlagType::kString,
     .default_value = "etcd-cluster",
     .help = "token that makes the ids of the new cluster its own"},
    {.name = "initial-advertise-peer-urls",
     .type = FlagType::kString,
     .default_value = "http://localhost:2380",
     .help = "this member's peer URLs, as the cluster lists them"},
    {.name = "skip-hash-check",
     .type = FlagType::kBool,
     .help = "restore without comparing the file's SHA-256 (needed for a file copied from a data "
             "directory)"},
    {.name = "initial-memory-map-size",
     .type = FlagType::kUint,
     .default_value = "10737418240",
     .help = "address space to reserve for the database in bytes, 0 for the default"},
    {.name = "bump-revision",
     .type = FlagType::kUint,
     .default_value = "0",
     .help = "how much to raise the newest revision by"},
    {.name = "mark-compacted",
     .type = FlagType::kBool,
     .help = "mark the raised revision as compacted (goes with --bump-revision only)"},
};

absl::StatusOr<std::string> Resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (code != 0) {
    return base::MakeStatus(absl::StatusCode::kUnavailable, "lookup {}: {}", host,
                            ::gai_strerror(code));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  char text[NI_MAXHOST];
  const int named = ::getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, nullptr, 0,
                                  NI_NUMERICHOST);
  if (named != 0) {
    return base::MakeStatus(absl::StatusCode::kUnavailable, "lookup {}: {}", host,
                            ::gai_strerror(named));
  }
  LOG_INFO("resolved URL Host", {"host", host}, {"resolved-addr", text});
  return std::string(text);
}

// Logs as etcdutl does, and draws a bar on a terminal while the database is copied.
class RestoreReporter final : public snapshot::RestoreObserver {
 public:
  void Started(const snapshot::RestorePlan& plan) override { LogPlan("restoring snapshot", plan); }

  void Copied(uint64_t done_bytes, uint64_t total_bytes) override {
    if (!terminal_ || total_bytes == 0) return;
    const int percent =
        static_cast<int>(static_cast<double>(done_bytes) * 100 / static_cast<double>(total_bytes));
    if (percent == drawn_percent_) return;
    drawn_percent_ = percent;
    constexpr int kWidth = 40;
    const int filled = percent * kWidth / 100;
    std::fprintf(
        stderr, "\r[%s%s] %3d %%  %s of %s ", std::string(static_cast<size_t>(filled), '#').c_str(),
        std::string(static_cast<size_t>(kWidth - filled), '.').c_str(), percent,
        engramctl::HumanSize(done_bytes).c_str(), engramctl::HumanSize(total_bytes).c_str());
    if (done_bytes == total_bytes) std::fputc('\n', stderr);
    std::fflush(stderr);
  }

  void Trimming() override { LOG_INFO("Trimming membership information from the backend..."); }
  void Bumping(int64_t latest, uint64_t amount, int64_t bumped) override {
    LOG_INFO("bumping latest revision", {"latest-revision", latest}, {"bump-amount", amount},
             {"new-latest-revision", bumped});
  }
  void MarkingCompacted(int64_t revision) override {
    LOG_INFO("marking revision compacted", {"revision", revision});
  }
  void AddedMember(const snapshot::RestorePlan& plan, const cluster::Member& member) override {
    LOG_INFO("added member", {"cluster-id", base::IdToHex(plan.cluster_id)},
             {"local-member-id", "0"}, {"added-peer-id", base::IdToHex(member.id)},
             {"added-peer-peer-urls", member.peer_urls},
             {"added-peer-is-learner", member.is_learner});
  }
  void Finished(const snapshot::RestorePlan& plan) override { LogPlan("restored snapshot", plan); }

  // Ends a bar that an error cut short.
  void EndLine() const {
    if (drawn_percent_ >= 0 && drawn_percent_ < 100) std::fputc('\n', stderr);
  }

 private:
  static void LogPlan(const char* message, const snapshot::RestorePlan& plan) {
    LOG_INFO(message, {"path", plan.snapshot_path}, {"wal-dir", plan.wal_dir},
             {"data-dir", plan.data_dir}, {"snap-dir", plan.snap_dir},
             {"initial-memory-map-size", plan.map_reserve_bytes});
  }

  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  int drawn_percent_ = -1;
};

int RunRestore(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return engramctl::Fail(engramctl::kExitBadArguments,
                           "snapshot restore requires exactly one argument");
  }
  const engramctl::FlagSet& flags = *invocation.flags;
  if ((flags.Uint("bump-revision") > 0) != flags.Bool("mark-compacted")) {
    return engramctl::Fail(engramctl::kExitBadArguments,
                           "--mark-compacted required if --revision-bump > 0");
  }
  RestoreReporter reporter;
  const auto plan =
      snapshot::Restore(base::PosixFiles(), base::SystemClock(),
                        {.snapshot_path = invocation.words[0],
                         .name = flags.String("name"),
                         .data_dir = flags.String("data-dir"),
                         .wal_dir = flags.String("wal-dir"),
                         .initial_cluster = flags.String("initial-cluster"),
                         .initial_advertise_peer_urls = flags.String("initial-advertise-peer-urls"),
                         .initial_cluster_token = flags.String("initial-cluster-token"),
                         .skip_hash_check = flags.Bool("skip-hash-check"),
                         .map_reserve_bytes = flags.Uint("initial-memory-map-size"),
                         .bump_revision = flags.Uint("bump-revision"),
                         .mark_compacted = flags.Bool("mark-compacted"),
                         .resolve = Resolve},
                        reporter);
  if (plan.ok()) return engramctl::kExitOk;
  reporter.EndLine();
  return FailWith(plan.status());
}

}  // namespace

Command SnapshotCommand() {
  return {.name = "snapshot",
          .usage = "",
          .summary = "Look at snapshot files and restore members from them",
          .commands = {{.name = "status",
                        .usage = "<filename>",
                        .summary = "Show what a snapshot file holds, and whether it is whole",
                        .run = RunStatus},
                       {.name = "restore",
                        .usage = "<filename> --data-dir {output dir} [options]",
                        .summary = "Make a member's data directory from a snapshot file",
                        .flags = kRestoreFlags,
                        .run = RunRestore}}};
}

}  // namespace engramutl
