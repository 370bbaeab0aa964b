// restore: the state of one moment as a member's data directory, proven before it gets its name.
#include "restore/restore.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "base/time_text.h"
#include "catalog/plan.h"
#include "commands.h"

namespace keeper {
namespace {

constexpr FlagSpec kFlags[] = {
    {.name = "to", .type = FlagType::kString, .default_value = "latest", .help = kMomentHelp},
    {.name = "data-dir", .help = "the directory to make; must not exist"},
    {.name = "name",
     .type = FlagType::kString,
     .default_value = "default",
     .help = "the member's name"},
    {.name = "initial-cluster",
     .type = FlagType::kString,
     .default_value = "",
     .help = "all members of the new cluster, name=peer-url,..."},
    {.name = "initial-cluster-token", .help = "of the new cluster; empty: a new one is made"},
    {.name = "initial-advertise-peer-urls",
     .type = FlagType::kString,
     .default_value = "http://localhost:2380",
     .help = "the member's peer URLs"},
    {.name = "bump-to", .type = FlagType::kUint, .help = "raise the revision to this one"},
    {.name = "no-bump",
     .type = FlagType::kBool,
     .help = "keep the revision: watches from before may see a revision twice"},
    {.name = "from", .help = "read from this store only"},
    {.name = "timeline", .help = "of an earlier history: its name as `windows` shows it"},
    {.name = "unproven", .type = FlagType::kBool, .help = "restore although nothing proves it"},
    kTrustAnySigner,
};

std::string PlanText(const restore::Plan& plan) {
  std::string out = fmt::format("plan       full rev {} ({})", plan.materials.base.last_revision,
                                MomentText(plan.materials.base.last_seen.to));
  if (plan.materials.base.last_revision > plan.materials.revision) {
    out += fmt::format(", later rows left out → rev {}", plan.materials.revision);
  } else if (!plan.materials.segments.empty()) {
    out += fmt::format(" + {} revisions from {} segments → rev {}, seen {}–{}",
                       plan.materials.revision - plan.materials.base.last_revision,
                       plan.materials.segments.size(), plan.materials.revision,
                       base::Rfc3339(plan.seen.from, 1).substr(11),
                       base::Rfc3339(plan.seen.to, 1).substr(11));
  }
  if (plan.possibly > plan.materials.revision) {
    out +=
        fmt::format("\n           error bar: up to rev {} may have been there too{}", plan.possibly,
                    plan.shown_twice ? "; the clock was set back and showed this moment twice, "
                                       "taken is the first time: a revision is exact"
                                     : "");
  }
  out += fmt::format("\n           you lose what came after: {} revisions, {}\n",
                     CountText(static_cast<uint64_t>(plan.revisions_after)),
                     SpanText(plan.time_after));
  return out;
}

std::string ReportText(const Session& session, const restore::Plan& plan,
                       const restore::Report& report) {
  std::string out = fmt::format("fetch      {} objects, {}, all hashes right\n",
                                1 + plan.materials.segments.size(), SizeText(plan.bytes_to_fetch));
  out +=
      fmt::format("write      {} rows replayed in {} · {} rows left out · {} leases added\n",
                  CountText(report.built.replay.rows_added), SpanText(report.built.replay_time),
                  CountText(report.built.replay.rows_left_out), report.built.replay.leases_added);
  if (report.built.proof.has_value()) {
    out += fmt::format("proof      equal at {} (HashKV {:08x} of the full, compact {})",
                       report.built.proof->revision, report.built.proof->hash,
                       report.built.proof->compact_revision);
    if (plan.materials.revision > report.built.proof->revision) {
      out += fmt::format("; {}–{} by the archive's hash chain", report.built.proof->revision,
                         plan.materials.revision);
    }
    out += "\n";
  } else {
    out += "proof      NONE: restored because of --unproven\n";
  }
  out += fmt::format("identity   token {} · member {} · ", report.token, report.name);
  out += report.bumped_to > 0
             ? fmt::format("revision bumped to {} and marked compacted\n", report.bumped_to)
             : std::string("revision kept\n");
  for (const std::string& note : report.built.notes) out += fmt::format("note       {}\n", note);
  for (const restore::BadCopy& bad : report.bad_copies) {
    out +=
        fmt::format("damaged    {} in store {}: {}\n", bad.name, bad.store, base::Message(bad.why));
  }
  out += fmt::format(
      "ready      {} (0700) in {}. Start it with:\n             etcd --name {} --data-dir {} "
      "--initial-cluster '{}' --initial-advertise-peer-urls {} --initial-cluster-token {} …\n",
      report.data_dir, SpanText(report.took), report.name, report.data_dir, report.initial_cluster,
      report.peer_urls, report.token);
  out += fmt::format(
      "           Not restored by this: API server certificates, manifests, encryption keys{}.\n",
      session.cluster->bundle.paths.empty()
          ? std::string()
          : fmt::format(": `engram-keeper bundle extract {}` has them", session.cluster->name));
  return out;
}

int Run(const Invocation& invocation) {
  Session session;
  const int opened = OpenForCluster(invocation, &session);
  if (opened != kOk) return opened;
  const engramctl::FlagSet& flags = *invocation.flags;
  if (flags.String("data-dir").empty()) return Fail(kUsage, "restore: give --data-dir DIR");
  const auto target = ParseTarget(flags.String("to"), session.env.clock.Wall());
  if (!target.ok()) return Fail(kUsage, "--to " + std::string(base::Message(target.status())));
  restore::Options options{.data_dir = flags.String("data-dir"),
                           .name = flags.String("name"),
                           .initial_cluster = flags.String("initial-cluster"),
                           .token = flags.String("initial-cluster-token"),
                           .peer_urls = flags.String("initial-advertise-peer-urls"),
                           .bump = !flags.Bool("no-bump"),
                           .bump_to = static_cast<int64_t>(flags.Uint("bump-to")),
                           .unproven = flags.Bool("unproven")};
  if (flags.Changed("bump-to") && flags.Bool("no-bump")) {
    return Fail(kUsage, "--bump-to and --no-bump exclude each other");
  }
  if (base::Exists(session.env.files, options.data_dir)) {
    return Fail(kUnsafe, fmt::format("{} exists already: choose another directory or move it away",
                                     options.data_dir));
  }
  Known known;
  const int loaded = LoadKnown(session, flags.Bool("trust-any-signer"), &known);
  if (loaded != kOk) return loaded;
  if (!flags.String("from").empty()) {
    std::erase_if(known.readable, [&](const auto& s) { return s.name != flags.String("from"); });
    if (known.readable.empty()) {
      return Fail(kUsage, fmt::format("--from {}: no such store", flags.String("from")));
    }
  }
  std::optional<catalog::Timeline> timeline;
  if (!flags.String("timeline").empty()) {
    timeline = catalog::Timeline::Parse(flags.String("timeline"));
    if (!timeline.has_value()) {
      return Fail(kUsage,
                  fmt::format("--timeline {}: no name of a timeline", flags.String("timeline")));
    }
  }
  catalog::RestorePoint point;
  const int found = FindPoint(session, known, *target, timeline, &point);
  if (found != kOk) return found;
  const restore::Plan plan = PlanFor(session, known, point);
  if (session.output == Output::kTable) Emit(PlanText(plan));
  restore::Fetcher fetcher = FetcherOf(session, known);
  absl::StatusOr<restore::Report> report;
  {
    Progress progress(session, "fetch");
    report = restore::Run(
        session.env.files, session.env.clock, session.env.random, fetcher, plan, options,
        {.fetched = [&](uint64_t done, uint64_t total) { progress.At(done, total); }});
  }
  if (!report.ok()) {
    return FailRestore(report.status());
  }
  nlohmann::json json = {
      {"revision", plan.materials.revision},
      {"possibly", plan.possibly},
      {"shown_twice", plan.shown_twice},
      {"base", plan.materials.base.name},
      {"segments", plan.materials.segments.size()},
      {"data_dir", report->data_dir},
      {"token", report->token},
      {"name", report->name},
      {"bumped_to", report->bumped_to},
      {"rows_replayed", report->built.replay.rows_added},
      {"replay_seconds", std::chrono::duration<double>(report->built.replay_time).count()},
      {"revisions_lost", plan.revisions_after},
      {"seconds_lost", std::chrono::duration<double>(plan.time_after).count()},
      {"seconds", std::chrono::duration<double>(report->took).count()}};
  if (report->built.proof.has_value()) {
    json["proof"] = {{"revision", report->built.proof->revision},
                     {"compact_revision", report->built.proof->compact_revision},
                     {"hash", report->built.proof->hash}};
  }
  return Print(session, json, [&] { return ReportText(session, plan, *report); });
}

}  // namespace

Command RestoreCommand() {
  return {.name = "restore",
          .usage = "[cluster] --to latest|REVISION|TIME --data-dir DIR",
          .summary = "Make a data directory that holds one moment of a cluster",
          .flags = kFlags,
          .run = Run};
}

}  // namespace keeper
