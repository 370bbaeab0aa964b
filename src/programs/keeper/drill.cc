// drill run | history: a restore carried out and proven, now; and what earlier ones found.
#include "drill/drill.h"

#include <fmt/format.h>

#include "base/sha256.h"
#include "base/status.h"
#include "base/time_text.h"
#include "commands.h"
#include "ledger/log.h"
#include "service/notes.h"

namespace keeper {
namespace {

constexpr FlagSpec kFlags[] = {
    {.name = "to",
     .type = FlagType::kString,
     .default_value = "latest",
     .help = "latest, random, a revision, or a moment"},
    {.name = "no-bump",
     .type = FlagType::kBool,
     .help = "keep the revision, to see what a restore like that does to clients"},
    {.name = "bump-to", .type = FlagType::kUint, .help = "raise the revision to this one"},
    {.name = "server", .help = "the server to start (default: the configuration's)"},
    {.name = "kube-apiserver",
     .help = "a kube-apiserver to start on it (default: the configuration's)"},
    {.name = "kube-controller-manager", .help = "and a controller manager on that"},
    {.name = "kube-scheduler", .help = "and a scheduler"},
    {.name = "kwok", .help = "and kwok, which plays the nodes"},
    {.name = "encryption-config", .help = "for that kube-apiserver"},
};

std::string PhaseLine(const drill::Phase& phase) {
  return fmt::format("{:<24}  {:>8}  {}{}\n", phase.name, SpanText(phase.took),
                     phase.passed ? "" : "FAILED: ", phase.text);
}

// The report becomes an object beside the backups, and the log says so.
absl::StatusOr<std::string> Keep(const Session& session, const Known& known,
                                 const drill::Report& report, const catalog::Object& base) {
  ASSIGN_OR_RETURN(const std::string writer,
                   service::WriterId(session.env, session.config.state_dir));
  const ledger::Place place{
      .cluster = session.cluster->name, .timeline = report.timeline, .writer = writer};
  const std::string stem =
      fmt::format("{}/drills/{}-{:08x}", place.Folder(), base::CompactUtc(report.began),
                  session.env.random.Next() & 0xffffffff);
  std::vector<ledger::Fact> facts;
  for (const auto& [ending, bytes] :
       {std::pair<std::string, std::string>{".json", drill::ReportJson(report)},
        {".html", drill::ReportHtml(report)}}) {
    catalog::Object object;
    object.kind = catalog::Kind::kDrill;
    object.name = stem + ending;
    object.timeline = report.timeline;
    object.writer = writer;
    object.plain_bytes = object.stored_bytes = bytes.size();
    object.plain_sha256 = object.stored_sha256 = base::DigestToHex(base::Sha256(bytes));
    object.first_revision = object.last_revision = report.revision;
    object.first_seen = object.last_seen = {report.began, report.began + report.Rto()};
    object.note = report.Passed() ? "passed" : "failed";
    absl::Status failure;
    for (const ledger::ReadableStore& store : known.readable) {
      const absl::Status put =
          store.store->Put(object.name, stores::BytesContent(bytes),
                           stores::Deadline::In(session.env.clock, std::chrono::minutes(1)));
      if (put.ok()) {
        object.stores.insert(store.name);
      } else {
        failure = put;
      }
    }
    if (object.stores.empty()) return failure;
    facts.push_back(ledger::Stored{std::move(object)});
  }
  if (report.Passed()) {
    facts.push_back(ledger::Proven{.name = base.name,
                                   .proof = {.method = catalog::Proof::Method::kRestored,
                                             .to = report.revision,
                                             .against = stem + ".json",
                                             .at = session.env.clock.Wall()}});
  }
  RETURN_IF_ERROR(service::NoteFacts(session.env, session.config, *session.cluster, known.readable,
                                     report.timeline, facts));
  return stem + ".json";
}

// A revision of the living timeline's windows, all equally likely.
std::optional<int64_t> RandomRevision(const catalog::Inventory& inventory, base::Random& random) {
  std::vector<catalog::Window> windows;
  for (const catalog::TimelineWindows& timeline : catalog::FindWindows(inventory)) {
    if (timeline.living) windows = timeline.windows;
  }
  uint64_t total = 0;
  for (const catalog::Window& w : windows) {
    total += static_cast<uint64_t>(w.last_revision - w.first_revision + 1);
  }
  if (total == 0) return std::nullopt;
  uint64_t at = random.Below(total);
  for (const catalog::Window& w : windows) {
    const uint64_t n = static_cast<uint64_t>(w.last_revision - w.first_revision + 1);
    if (at < n) return w.first_revision + static_cast<int64_t>(at);
    at -= n;
  }
  return std::nullopt;
}

int Run(const Invocation& invocation) {
  Session session;
  Known known;
  const int opened = OpenKnown(invocation, &session, &known);
  if (opened != kOk) return opened;
  const engramctl::FlagSet& flags = *invocation.flags;
  if (flags.Changed("bump-to") && flags.Bool("no-bump")) {
    return Fail(kUsage, "--bump-to and --no-bump exclude each other");
  }
  catalog::Target target = catalog::Latest{};
  if (flags.String("to") == "random") {
    const auto revision = RandomRevision(known.catalog.inventory, session.env.random);
    if (!revision.has_value()) return Fail(kHole, "nothing can be restored yet");
    target = *revision;
  } else {
    const auto parsed = ParseTarget(flags.String("to"), session.env.clock.Wall());
    if (!parsed.ok()) return Fail(kUsage, "--to " + std::string(base::Message(parsed.status())));
    target = *parsed;
  }
  catalog::RestorePoint point;
  const int found = FindPoint(session, known, target, std::nullopt, &point);
  if (found != kOk) return found;
  const config::Drill& configured = session.cluster->drill;
  const auto program = [&](const char* flag, const std::string& configured_program) {
    return flags.Changed(flag) ? flags.String(flag) : configured_program;
  };
  drill::Options options{
      .cluster = session.cluster->name,
      .scratch_dir = base::JoinPath(session.config.state_dir, "drill-" + session.cluster->name),
      .server = program("server", configured.server),
      .known_keys = configured.known_keys,
      .lease_ttl_default = session.cluster->lease_ttl_default,
      .bump = !flags.Bool("no-bump"),
      .bump_to = static_cast<int64_t>(flags.Uint("bump-to")),
      .kube_apiserver = program("kube-apiserver", configured.kube_apiserver),
      .control_plane = {.controller_manager =
                            program("kube-controller-manager", configured.kube_controller_manager),
                        .scheduler = program("kube-scheduler", configured.kube_scheduler),
                        .kwok = program("kwok", configured.kwok)},
      .encryption_config_file = flags.String("encryption-config")};
  if (options.control_plane.Any() && options.kube_apiserver.empty()) {
    return Fail(kUsage, "a controller manager, a scheduler or kwok needs --kube-apiserver");
  }
  restore::Fetcher fetcher = FetcherOf(session, known);
  options.endpoints = session.cluster->endpoints;
  options.bundle_expected = !session.cluster->bundle.paths.empty();
  if (const catalog::Object* bundle = FindBundle(known.catalog.inventory, ""); bundle != nullptr) {
    auto tar = fetcher.FetchBytes(*bundle);
    if (!tar.ok()) return Fail(tar.status());
    options.bundle_tar = *std::move(tar);
  }
  const bool table = session.output == Output::kTable;
  if (table) Emit(fmt::format("{:<24}  {:>8}  {}\n", "PHASE", "TIME", "RESULT"));
  const auto report =
      drill::Run(session.env.files, session.env.clock, session.env.random, fetcher,
                 known.catalog.inventory, point, options, [&](const drill::Phase& phase) {
                   if (table) {
                     Emit(PhaseLine(phase));
                     std::fflush(stdout);
                   }
                 });
  if (!report.ok()) return Fail(report.status());
  const auto kept = Keep(session, known, *report, *point.base);
  if (!kept.ok()) Warn(fmt::format("the report is not kept: {}", base::Message(kept.status())));
  Print(session, nlohmann::json::parse(drill::ReportJson(*report)), [&] {
    return fmt::format("RTO {}   RPO {}   {}   report: {}\n", SpanText(report->Rto()),
                       SpanText(report->rpo), report->Passed() ? "PASSED" : "FAILED",
                       kept.ok() ? *kept : "-");
  });
  return report->Passed() ? kOk : kUnproven;
}

int History(const Invocation& invocation) {
  Session session;
  Known known;
  const int opened = OpenKnown(invocation, &session, &known);
  if (opened != kOk) return opened;
  nlohmann::json json = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows = {{"WHEN", "REVISION", "RTO", "RESULT", "REPORT"}};
  for (const catalog::Object& o : known.catalog.inventory.objects) {
    if (o.kind != catalog::Kind::kDrill || !o.name.ends_with(".json")) continue;
    const base::Duration took = o.last_seen.to - o.last_seen.from;
    json.push_back({{"began", base::Rfc3339(o.last_seen.from)},
                    {"revision", o.last_revision},
                    {"rto_seconds", std::chrono::duration<double>(took).count()},
                    {"result", o.note},
                    {"report", o.name}});
    rows.push_back({MomentText(o.last_seen.from), std::to_string(o.last_revision), SpanText(took),
                    o.note, o.name});
  }
  return Print(session, json, [&] { return Table(rows); });
}

}  // namespace

Command DrillCommand() {
  return {
      .name = "drill",
      .usage = "<command>",
      .summary = "Restore in isolation and prove it; see what earlier drills found",
      .commands = {{.name = "run",
                    .usage = "[cluster]",
                    .summary = "Restore the newest point in isolation, start a server and check it",
                    .flags = kFlags,
                    .run = Run},
                   {.name = "history",
                    .usage = "[cluster]",
                    .summary = "List the drills and how long they took",
                    .run = History}}};
}

}  // namespace keeper
