// The commands of engram-keeper and what they share. Main thread only.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "catalog/plan.h"
#include "command.h"
#include "config/config.h"
#include "flags.h"
#include "ledger/load.h"
#include "restore/restore.h"
#include "service/setup.h"
#include "service/state_file.h"

namespace keeper {

using engramctl::Command;
using engramctl::FlagSpec;
using engramctl::FlagType;
using engramctl::Invocation;

// Flags that several commands have.
inline constexpr FlagSpec kTrustAnySigner = {
    .name = "trust-any-signer",
    .type = FlagType::kBool,
    .help = "believe logs the key that they name themselves"};
inline constexpr std::string_view kMomentHelp =
    "latest, a revision, or a moment (RFC 3339 or \"10m ago\")";

// Documented in docs/keeper/commands.md.
enum Exit : int {
  kOk = 0,
  kUsage = 1,        // usage or configuration
  kUnreachable = 2,  // cluster or store
  kDamaged = 3,
  kHole = 4,  // the archive lacks what is wanted
  kKey = 5,   // wrong or missing key
  kUnsafe = 6,
  kUnproven = 7,  // a proof failed, or there is none
};

enum class Output { kTable, kJson, kYaml };

// What most commands begin with.
struct Session {
  config::Config config;
  const config::Cluster* cluster = nullptr;  // with ForCluster
  std::vector<std::string> words;            // without the cluster's name
  Output output = Output::kTable;
  bool terminal = false;  // standard output is one: progress bars and colour
  service::Environment env{base::PosixFiles(), base::SystemClock(), base::SystemRandom()};
};

// Loads the configuration. An exit status after an error was printed; 0 otherwise.
int Open(const Invocation& invocation, Session* session);
// The same, and finds out which cluster is meant: the first word when it names one, else the only
// one there is.
int OpenForCluster(const Invocation& invocation, Session* session);
// What the audit log has to be told when the command ends with this status; nothing before Open, or
// where the command only reads what is known of backups.
void AuditEnd(int code);

// The catalog of the session's cluster; what the stores lack is printed as warnings. An error was
// printed when the result is not 0.
struct Known {
  std::vector<service::OpenedStore> stores;
  std::vector<ledger::ReadableStore> readable;
  service::ReaderKeys keys;
  ledger::Catalog catalog;
  bool trust_any_signer = false;
};
int LoadKnown(const Session& session, bool trust_any_signer, Known* known);
// The same catalog as the stores have it by now.
absl::StatusOr<ledger::Catalog> LoadAgain(const Session& session, const Known& known);
// Reads what is known. Both outlive it.
restore::Fetcher FetcherOf(const Session& session, const Known& known);
// OpenForCluster and LoadKnown; trusts as the command's flag says, where it has one.
int OpenKnown(const Invocation& invocation, Session* session, Known* known);

// What the daemon on this state directory remembers of a cluster; all empty where it never ran, or
// is not for us to read.
service::StateFile RememberedBy(const Session& session, const config::Cluster& cluster);

// "latest", a revision, or a moment as ParseMoment takes it.
absl::StatusOr<catalog::Target> ParseTarget(const std::string& text, base::Duration now);
// How the target is restored; 0, or the exit status after the hole or the error was printed. The
// point refers to the inventory of `known`.
// For a moment the segment in which it lies is read, where an identity is given: what it surely
// held by then belongs to it.
int FindPoint(const Session& session, const Known& known, const catalog::Target& target,
              std::optional<catalog::Timeline> timeline, catalog::RestorePoint* point);

// The same for a text that a flag gave, which an error names.
int FindPoint(const Session& session, const Known& known, std::string_view flag,
              const std::string& text, catalog::RestorePoint* point);
// How the point becomes a member: everything but its name.
restore::Plan PlanFor(const Session& session, const Known& known,
                      const catalog::RestorePoint& point);
// The newest bundle that a store has, or the one of this name; nullptr: there is none.
const catalog::Object* FindBundle(const catalog::Inventory& inventory, const std::string& name);

// Waits until the logs say that every store of the cluster has an object which the daemon brings
// there. DeadlineExceeded names those that lack it.
absl::Status WaitListed(const Session& session, const std::string& name, base::Duration timeout);
// An object by its name (or the one that it had before it was re-wrapped), by the end of its name
// (8 characters at least), or a full by its revision; of several the newest that was not pruned.
// nullptr: there is none.
const catalog::Object* FindObject(const catalog::Inventory& inventory, const std::string& point);

// "engram-keeper: <text>\n" on stderr; returns the code.
int Fail(int code, std::string_view text);
// The same for a status, with the exit status that fits its code.
int Fail(const absl::Status& status);
// The same for what restore::Run said.
int FailRestore(const absl::Status& status);
void Warn(std::string_view text);
void Emit(std::string_view text);

// Prints as the session wants: the JSON, or as YAML, or `table`.
int Print(const Session& session, const nlohmann::json& json,
          const std::function<std::string()>& table);

// Columns with two blanks between, no rules.
std::string Table(const std::vector<std::vector<std::string>>& rows);

// "1.2 GiB", "402 MiB", "17 B".
std::string SizeText(uint64_t bytes);
// "0.8 s", "1 m 52 s", "3 h 2 m", "7 d".
std::string SpanText(base::Duration span);
// "2026-08-10 02:14:06Z", or "-" for 0.
std::string MomentText(base::Duration wall);
// "214,882"
std::string CountText(uint64_t count);

// RFC 3339, "10m ago", "now". InvalidArgument says what is taken.
absl::StatusOr<base::Duration> ParseMoment(std::string_view text, base::Duration now);

// Shows how far something is: a bar on a terminal, nothing elsewhere.
class Progress {
 public:
  Progress(const Session& session, std::string label);
  ~Progress();
  void At(uint64_t done, uint64_t total);

 private:
  const bool shown_;
  const std::string label_;
  int last_percent_ = -1;
};

Command RunCommand();
Command BackupCommand();
Command ListCommand();
Command DescribeCommand();
Command WindowsCommand();
Command StatusCommand();
Command VerifyCommand();
Command CheckCommand();
Command RestoreCommand();
Command DrillCommand();
Command BundleCommand();
Command PlanCommand();
Command ApplyCommand();
Command SandboxCommand();
Command CopyCommand();
Command AuditCommand();
Command KeysCommand();
Command KeepCommand();
Command AnnotateCommand();
Command PruneCommand();
Command HistoryCommand();
Command GetCommand();
Command DiffCommand();
Command ExportCommand();

}  // namespace keeper
