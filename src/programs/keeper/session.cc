#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>
#include <thread>

#include "base/status.h"
#include "base/time_text.h"
#include "commands.h"
#include "config/load.h"
#include "events/segment.h"
#include "restore/fetch.h"
#include "restore/restore.h"
#include "service/audit.h"

namespace keeper {
namespace {

std::string HoleText(const catalog::InHole& hole) {
  std::string text = fmt::format("revision {} lies in a hole ({}–{}: {}).", hole.revision,
                                 hole.hole.first_revision, hole.hole.last_revision, hole.hole.why);
  const auto near = [](const catalog::InHole::Neighbour& n) {
    return fmt::format("{} ({})", n.revision, MomentText(n.time));
  };
  if (hole.below.has_value() || hole.above.has_value()) {
    text += "\n  nearest restorable: ";
    if (hole.below.has_value()) text += near(*hole.below);
    if (hole.below.has_value() && hole.above.has_value()) text += " or ";
    if (hole.above.has_value()) text += near(*hole.above);
  }
  return text;
}

// ENGRAM_KEEPER_DATA_DIR for --data-dir.
std::string EnvironmentName(std::string_view flag) {
  std::string name = "ENGRAM_KEEPER_";
  for (const char c : flag) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

absl::Status TakeEnvironment(engramctl::FlagSet& flags) {
  for (const FlagSpec* spec : flags.specs()) {
    if (flags.Changed(spec->name)) continue;
    const std::string name = EnvironmentName(spec->name);
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) continue;
    const absl::Status set = flags.SetFromEnvironment(spec->name, value);
    if (!set.ok()) return base::Annotate(set, name);
  }
  return absl::OkStatus();
}

std::string NamesOf(const config::Config& config) {
  std::string names;
  for (const config::Cluster& cluster : config.clusters) {
    names += (names.empty() ? "" : ", ") + cluster.name;
  }
  return names;
}

// The newest revisions of a piece that were surely there at a time, and that may have been; 0:
// none.
struct NewestAt {
  int64_t surely = 0;
  int64_t possibly = 0;
};
absl::StatusOr<NewestAt> NewestBy(const Session& session, const Known& known,
                                  const catalog::Piece& piece, catalog::Time time) {
  restore::Fetcher fetcher = FetcherOf(session, known);
  ASSIGN_OR_RETURN(const std::string bytes, fetcher.FetchBytes(*piece.segment));
  NewestAt newest;
  RETURN_IF_ERROR(events::ReadSegment(bytes, [&](const events::RevisionView& revision) {
                    if (revision.revision > piece.last) return absl::OkStatus();
                    if (revision.seen_to <= time) newest.surely = revision.revision;
                    if (revision.seen_from <= time) newest.possibly = revision.revision;
                    return absl::OkStatus();
                  }).status());
  return newest;
}

constexpr base::Duration kPollEvery = std::chrono::milliseconds(100);

// The command that runs, once it is in the audit log.
struct Audited {
  service::Environment env;
  config::Config config;
  std::string command;
};
std::optional<Audited>& CurrentCommand() {
  static std::optional<Audited> current;
  return current;
}

// Commands that show what is known of backups, and nothing of what is in them.
bool OnlyLooks(std::string_view path) {
  for (const std::string_view name :
       {"list", "describe", "windows", "status", "check", "audit", "keys list", "drill history"}) {
    if (path == fmt::format("engram-keeper {}", name)) return true;
  }
  return false;
}

void AuditBegin(const Invocation& invocation, const Session& session) {
  if (OnlyLooks(invocation.path)) return;
  std::string command;
  for (const std::string& word : invocation.arguments) {
    command += (command.empty() ? "" : " ") + word;
  }
  const absl::Status written = service::Audit(session.env, session.config, command, "");
  // A restore on a bare host must not fail for want of a place for this.
  if (!written.ok()) return Warn(fmt::format("no audit entry: {}", base::Message(written)));
  CurrentCommand().emplace(Audited{session.env, session.config, std::move(command)});
}

}  // namespace

void AuditEnd(int code) {
  const std::optional<Audited>& current = CurrentCommand();
  if (!current.has_value()) return;
  const absl::Status written = service::Audit(current->env, current->config, current->command,
                                              fmt::format("exit status {}", code));
  if (!written.ok()) Warn(fmt::format("no audit entry: {}", base::Message(written)));
}

int Open(const Invocation& invocation, Session* session) {
  const absl::Status taken = TakeEnvironment(*invocation.flags);
  if (!taken.ok()) return Fail(kUsage, base::Message(taken));
  const std::string& output = invocation.flags->String("output");
  if (output == "json") {
    session->output = Output::kJson;
  } else if (output == "yaml") {
    session->output = Output::kYaml;
  } else if (output != "table") {
    return Fail(kUsage, fmt::format("--output {}: take table, json or yaml", output));
  }
  session->terminal = isatty(STDOUT_FILENO) == 1 && session->output == Output::kTable;
  session->words = invocation.words;
  const auto loaded = config::Load(session->env.files, invocation.flags->String("config"));
  if (!loaded.ok()) return Fail(kUsage, base::Message(loaded.status()));
  session->config = loaded->config;
  AuditBegin(invocation, *session);
  return kOk;
}

int OpenForCluster(const Invocation& invocation, Session* session) {
  const int opened = Open(invocation, session);
  if (opened != kOk) return opened;
  if (!session->words.empty()) {
    session->cluster = session->config.FindCluster(session->words.front());
    if (session->cluster != nullptr) {
      session->words.erase(session->words.begin());
      return kOk;
    }
  }
  if (session->config.clusters.size() == 1) {
    session->cluster = &session->config.clusters.front();
    return kOk;
  }
  return Fail(kUsage, session->words.empty()
                          ? fmt::format("which cluster? There are {}", NamesOf(session->config))
                          : fmt::format("there is no cluster {}; there are {}",
                                        session->words.front(), NamesOf(session->config)));
}

int LoadKnown(const Session& session, bool trust_any_signer, Known* known) {
  known->stores = service::OpenStores(session.env, session.config, *session.cluster);
  auto readable = service::Readable(known->stores);
  if (!readable.ok()) return Fail(readable.status());
  known->readable = *std::move(readable);
  auto keys = service::LoadReaderKeys(session.env, session.config);
  if (!keys.ok()) return Fail(kKey, base::Message(keys.status()));
  known->keys = *std::move(keys);
  if (known->keys.trusted.empty() && !trust_any_signer) {
    return Fail(kKey,
                "no key is known by which the logs could be checked: give signing_key_file or "
                "trusted_signers, or, where both are lost, --trust-any-signer");
  }
  known->trust_any_signer = trust_any_signer;
  auto catalog = LoadAgain(session, *known);
  if (!catalog.ok()) return Fail(catalog.status());
  known->catalog = *std::move(catalog);
  for (const service::OpenedStore& store : known->stores) {
    if (store.store == nullptr) {
      Warn(fmt::format("store {}: {}", store.name, base::Message(store.status)));
    }
  }
  for (const auto& [store, why] : known->catalog.unreadable) {
    Warn(fmt::format("store {}: {}", store, base::Message(why)));
  }
  for (const std::string& finding : known->catalog.findings) Warn(finding);
  return kOk;
}

absl::StatusOr<ledger::Catalog> LoadAgain(const Session& session, const Known& known) {
  return ledger::LoadCatalog(
      session.env.clock, known.readable, session.cluster->name,
      {.trusted = known.keys.trusted, .trust_any_signer = known.trust_any_signer});
}

restore::Fetcher FetcherOf(const Session& session, const Known& known) {
  return restore::Fetcher(session.env.clock, known.readable, known.keys.identities,
                          [&session, &known] { return LoadAgain(session, known); });
}

int OpenKnown(const Invocation& invocation, Session* session, Known* known) {
  const int opened = OpenForCluster(invocation, session);
  if (opened != kOk) return opened;
  const bool trust_any_signer = invocation.flags->Find(kTrustAnySigner.name) != nullptr &&
                                invocation.flags->Bool(kTrustAnySigner.name);
  return LoadKnown(*session, trust_any_signer, known);
}

service::StateFile RememberedBy(const Session& session, const config::Cluster& cluster) {
  const auto state = service::LoadState(session.env.files,
                                        service::StatePath(session.config.state_dir, cluster.name));
  return state.ok() ? *state : service::StateFile();
}

absl::StatusOr<catalog::Target> ParseTarget(const std::string& text, base::Duration now) {
  if (text == "latest") return catalog::Target(catalog::Latest{});
  if (!text.empty() && text.size() < 19 &&
      text.find_first_not_of("0123456789") == std::string::npos) {
    return catalog::Target(static_cast<int64_t>(std::stoll(text)));
  }
  ASSIGN_OR_RETURN(const base::Duration moment, ParseMoment(text, now));
  return catalog::Target(catalog::Time(moment));
}

int FindPoint(const Session& session, const Known& known, const catalog::Target& target,
              std::optional<catalog::Timeline> timeline, catalog::RestorePoint* point) {
  const catalog::Inventory& inventory = known.catalog.inventory;
  auto found = catalog::Find(inventory, target, timeline);
  const auto* time = std::get_if<catalog::Time>(&target);
  const auto* coarse = found.ok() ? std::get_if<catalog::RestorePoint>(&*found) : nullptr;
  if (time != nullptr && coarse != nullptr && coarse->refine.has_value() &&
      (coarse->refine->segment->recipients.empty() || !known.keys.identities.empty())) {
    const auto newest = NewestBy(session, known, *coarse->refine, *time);
    if (!newest.ok()) return Fail(newest.status());
    // What lies behind the segment, it does not tell.
    const int64_t possibly =
        coarse->possibly > coarse->refine->last ? coarse->possibly : newest->possibly;
    const bool shown_twice = coarse->shown_twice;
    if (newest->surely > coarse->revision) {
      found = catalog::Find(inventory, newest->surely, coarse->timeline);
    }
    if (auto* fine = found.ok() ? std::get_if<catalog::RestorePoint>(&*found) : nullptr;
        fine != nullptr) {
      fine->possibly = std::max(possibly, fine->revision);
      fine->shown_twice = shown_twice;
    }
  }
  if (!found.ok()) return Fail(kHole, base::Message(found.status()));
  if (const auto* hole = std::get_if<catalog::InHole>(&*found)) return Fail(kHole, HoleText(*hole));
  *point = std::get<catalog::RestorePoint>(*found);
  return kOk;
}

int FindPoint(const Session& session, const Known& known, std::string_view flag,
              const std::string& text, catalog::RestorePoint* point) {
  const auto target = ParseTarget(text, session.env.clock.Wall());
  if (!target.ok()) {
    return Fail(kUsage, fmt::format("{}{}{}", flag, flag.empty() ? "" : " ",
                                    base::Message(target.status())));
  }
  return FindPoint(session, known, *target, std::nullopt, point);
}

restore::Plan PlanFor(const Session& session, const Known& known,
                      const catalog::RestorePoint& point) {
  return restore::MakePlan(known.catalog.inventory, point, session.cluster->lease_ttl_default,
                           session.env.clock.Wall());
}

const catalog::Object* FindBundle(const catalog::Inventory& inventory, const std::string& name) {
  const catalog::Object* found = nullptr;
  for (const catalog::Object& o : inventory.objects) {
    if (o.kind != catalog::Kind::kBundle || !o.Available()) continue;
    const bool meant =
        name.empty() ? found == nullptr || found->last_seen.to <= o.last_seen.to : o.name == name;
    if (meant) found = &o;
  }
  return found;
}

absl::Status WaitListed(const Session& session, const std::string& name, base::Duration timeout) {
  const base::Duration end = session.env.clock.Monotonic() + timeout;
  while (true) {
    std::set<std::string> missing(session.cluster->stores.begin(), session.cluster->stores.end());
    const auto opened = service::OpenStores(session.env, session.config, *session.cluster);
    ASSIGN_OR_RETURN(const auto readable, service::Readable(opened));
    ASSIGN_OR_RETURN(const auto keys, service::LoadReaderKeys(session.env, session.config));
    ASSIGN_OR_RETURN(const ledger::Catalog known,
                     ledger::LoadCatalog(session.env.clock, readable, session.cluster->name,
                                         {.trusted = keys.trusted}));
    for (const catalog::Object& object : known.inventory.objects) {
      if (object.name != name) continue;
      for (const std::string& store : object.stores) missing.erase(store);
    }
    if (missing.empty()) return absl::OkStatus();
    if (session.env.clock.Monotonic() > end) {
      return base::MakeStatus(absl::StatusCode::kDeadlineExceeded, "not stored yet in {}",
                              fmt::join(missing, ", "));
    }
    std::this_thread::sleep_for(kPollEvery);
  }
}

const catalog::Object* FindObject(const catalog::Inventory& inventory, const std::string& point) {
  const catalog::Object* found = nullptr;
  for (const catalog::Object& o : inventory.objects) {
    const bool meant = o.name == point || o.FirstName() == point ||
                       (point.size() >= 8 && o.name.ends_with(point)) ||
                       (o.kind == catalog::Kind::kFull && std::to_string(o.last_revision) == point);
    if (meant && (found == nullptr || found->pruned || !o.pruned)) found = &o;
  }
  return found;
}

int Fail(int code, std::string_view text) {
  fmt::print(stderr, "engram-keeper: {}\n", text);
  return code;
}

int Fail(const absl::Status& status) {
  int code = kUsage;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnauthenticated:
      code = kUnreachable;
      break;
    case absl::StatusCode::kDataLoss:
      code = kDamaged;
      break;
    case absl::StatusCode::kPermissionDenied:
      code = kKey;
      break;
    default:
      break;
  }
  return Fail(code, base::Message(status));
}

int FailRestore(const absl::Status& status) {
  if (absl::IsAlreadyExists(status)) return Fail(kUnsafe, base::Message(status));
  if (restore::IsUnproven(status)) return Fail(kUnproven, base::Message(status));
  return Fail(status);
}

void Warn(std::string_view text) { fmt::print(stderr, "warning: {}\n", text); }
void Emit(std::string_view text) { fmt::print("{}", text); }

Progress::Progress(const Session& session, std::string label)
    : shown_(session.terminal && isatty(STDERR_FILENO) == 1), label_(std::move(label)) {}

Progress::~Progress() {
  if (shown_ && last_percent_ >= 0) fmt::print(stderr, "\r\033[K");
}

void Progress::At(uint64_t done, uint64_t total) {
  if (!shown_ || total == 0) return;
  const int percent = static_cast<int>(std::min(done, total) * 100 / total);
  if (percent == last_percent_) return;
  last_percent_ = percent;
  std::string bar;
  for (int i = 0; i < 32; ++i) bar += i * 100 < percent * 32 ? "█" : "░";
  fmt::print(stderr, "\r{:<10} {}  {} {:3}%", label_, SizeText(total), bar, percent);
}

}  // namespace keeper
