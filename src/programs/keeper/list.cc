// list, describe, windows, status: what there is, from the logs alone.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/status.h"
#include "base/time_text.h"
#include "catalog/schedule.h"
#include "catalog/windows.h"
#include "commands.h"

namespace keeper {
namespace {

constexpr FlagSpec kTrustFlags[] = {
    kTrustAnySigner,
};
constexpr FlagSpec kListFlags[] = {
    {.name = "all",
     .type = FlagType::kBool,
     .help = "segments and roll-ups too, and what was pruned"},
    kTrustAnySigner,
};

std::string StateOf(const catalog::Object& o) {
  if (o.pruned) return "pruned";
  if (!o.Available()) return "MISSING";
  if (!o.suspect.empty()) return "SUSPECT";
  if (o.kind == catalog::Kind::kFull) return o.Proven() ? "proven" : "not proven";
  return "stored";
}

std::string Joined(const std::set<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ",") + name;
  return out.empty() ? "-" : out;
}

// Where a store has it in a container.
nlohmann::json HeldJson(const catalog::Object& o) {
  nlohmann::json held = nlohmann::json::object();
  for (const auto& [store, extent] : o.held) {
    held[store] = {{"container", extent.name}, {"offset", extent.offset}};
  }
  return held;
}

nlohmann::json ObjectJson(const catalog::Object& o) {
  nlohmann::json kms = nlohmann::json::array();
  for (const catalog::KmsKey& key : o.kms) {
    kms.push_back({{"provider", key.provider},
                   {"version", key.version},
                   {"endpoint", key.endpoint},
                   {"key_id", key.key_id}});
  }
  nlohmann::json proofs = nlohmann::json::array();
  for (const catalog::Proof& p : o.proofs) {
    proofs.push_back({{"method", catalog::ProofMethodName(p.method)},
                      {"from", p.from},
                      {"to", p.to},
                      {"compact_revision", p.compact_revision},
                      {"hash", p.hash},
                      {"rows", p.rows},
                      {"against", p.against}});
  }
  return {{"name", o.name},
          {"kind", catalog::KindName(o.kind)},
          {"timeline", o.timeline.Name()},
          {"writer", o.writer},
          {"first_revision", o.first_revision},
          {"last_revision", o.last_revision},
          {"compact_revision", o.compact_revision},
          {"first_seen", base::Rfc3339(o.first_seen.from)},
          {"last_seen", base::Rfc3339(o.last_seen.to)},
          {"bytes", o.plain_bytes},
          {"stored_bytes", o.stored_bytes},
          {"plain_sha256", o.plain_sha256},
          {"stored_sha256", o.stored_sha256},
          {"recipients", o.recipients},
          {"events", o.events},
          {"level", o.level},
          {"container", o.container},
          {"held_in", HeldJson(o)},
          {"keys", o.key_count},
          {"prefixes", o.prefix_counts},
          {"server_version", o.server_version},
          {"storage_version", o.storage_version},
          {"keeper_version", o.keeper_version},
          {"kubernetes_version", o.kubernetes_version},
          {"kms", kms},
          {"stores", o.stores},
          {"damaged", o.damaged},
          {"proven", o.Proven()},
          {"encryptions", o.encryptions},
          {"strain", o.strain},
          {"suspect", o.suspect},
          {"pinned", o.pinned},
          {"pruned", o.pruned},
          {"note", o.note},
          {"proofs", proofs}};
}

int RunList(const Invocation& invocation) {
  Session session;
  Known known;
  const int opened = OpenKnown(invocation, &session, &known);
  if (opened != kOk) return opened;
  const bool all = invocation.flags->Bool("all");
  nlohmann::json json = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows = {
      {"TAKEN", "KIND", "REVISIONS", "SIZE", "STORED", "STORES", "STATE", "NAME"}};
  for (const catalog::Object& o : known.catalog.inventory.objects) {
    const bool part = o.kind == catalog::Kind::kSegment || o.kind == catalog::Kind::kRollUp;
    if (!all && (o.pruned || part)) continue;
    json.push_back(ObjectJson(o));
    rows.push_back({MomentText(o.last_seen.to), catalog::KindName(o.kind),
                    fmt::format("{}–{}", o.first_revision, o.last_revision),
                    SizeText(o.plain_bytes), SizeText(o.stored_bytes), Joined(o.stores),
                    StateOf(o) + (o.pinned ? ", pinned" : ""), o.name});
  }
  return Print(session, json, [&] { return Table(rows); });
}

int RunDescribe(const Invocation& invocation) {
  Session session;
  Known known;
  const int opened = OpenKnown(invocation, &session, &known);
  if (opened != kOk) return opened;
  if (session.words.size() != 1) {
    return Fail(kUsage, "describe: give the name of a point, or the revision of a full");
  }
  const catalog::Object* object = FindObject(known.catalog.inventory, session.words[0]);
  if (object == nullptr) {
    return Fail(kUsage, fmt::format("{}: no such point; `list --all` shows all", session.words[0]));
  }
  if (session.output == Output::kTable) session.output = Output::kYaml;
  return Print(session, ObjectJson(*object), {});
}

int RunWindows(const Invocation& invocation) {
  Session session;
  Known known;
  const int opened = OpenKnown(invocation, &session, &known);
  if (opened != kOk) return opened;
  nlohmann::json json = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows = {
      {"FROM", "TO", "REVISIONS", "TIMELINE", "EVENTS", "FULLS", "NOTE"}};
  for (const catalog::TimelineWindows& timeline : catalog::FindWindows(known.catalog.inventory)) {
    nlohmann::json windows = nlohmann::json::array(), holes = nlohmann::json::array();
    std::vector<std::pair<int64_t, std::vector<std::string>>> lines;
    for (const catalog::Window& w : timeline.windows) {
      windows.push_back({{"first_revision", w.first_revision},
                         {"last_revision", w.last_revision},
                         {"from", base::Rfc3339(w.from)},
                         {"to", base::Rfc3339(w.to)},
                         {"events", w.events},
                         {"fulls", w.fulls},
                         {"suspect_fulls", w.suspect_fulls}});
      lines.push_back(
          {w.first_revision,
           {MomentText(w.from), MomentText(w.to),
            fmt::format("{}–{}", w.first_revision, w.last_revision), timeline.timeline.Name(),
            CountText(w.events), CountText(w.fulls),
            w.suspect_fulls > 0
                ? fmt::format("every revision restorable; {} fulls SUSPECT", w.suspect_fulls)
                : "every revision restorable"}});
    }
    for (const catalog::Gap& g : timeline.holes) {
      holes.push_back({{"first_revision", g.first_revision},
                       {"last_revision", g.last_revision},
                       {"from", base::Rfc3339(g.from)},
                       {"to", base::Rfc3339(g.to)},
                       {"why", g.why}});
      lines.push_back({g.first_revision,
                       {MomentText(g.from), MomentText(g.to),
                        fmt::format("{}–{}", g.first_revision, g.last_revision),
                        timeline.timeline.Name(), "—", "—", "HOLE: " + g.why}});
    }
    std::stable_sort(lines.begin(), lines.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [revision, row] : lines) rows.push_back(std::move(row));
    json.push_back({{"timeline", timeline.timeline.Name()},
                    {"living", timeline.living},
                    {"windows", windows},
                    {"holes", holes}});
  }
  return Print(session, json, [&] { return Table(rows); });
}

struct ClusterStatus {
  base::Duration rpo{0};
  bool has_rpo = false;  // not where nothing is restorable, nor where our clock makes no sense
  bool restorable = false;
  const catalog::Object* newest_proven = nullptr;
  size_t holes = 0;
  base::Duration window{0};
  std::vector<std::string> risks;
};

// The newest moment that a record tells may be ahead of our clock by so much.
constexpr base::Duration kSkewMax = std::chrono::minutes(1);

ClusterStatus Judge(const config::Cluster& cluster, const Known& known,
                    const service::ClockState& clock, base::Duration now) {
  ClusterStatus status;
  base::Duration clock_behind{0};
  const catalog::Inventory& inventory = known.catalog.inventory;
  for (const catalog::TimelineWindows& timeline : catalog::FindWindows(inventory)) {
    status.holes += timeline.holes.size();
    if (!timeline.living) continue;
    for (const catalog::Window& w : timeline.windows) {
      status.restorable = true;
      status.has_rpo = w.to <= now + kSkewMax;
      status.rpo = std::max(base::Duration(0), now - w.to);
      status.window = w.to - w.from;
      if (!status.has_rpo) clock_behind = w.to - now;
    }
  }
  if (clock_behind > base::Duration(0)) {
    status.risks.push_back(
        fmt::format("the newest record is {} ahead of this machine's clock, which was set back or "
                    "is wrong: how old it is cannot be told",
                    SpanText(clock_behind)));
  }
  if (std::string text = service::ClockText(clock, cluster.retention); !text.empty()) {
    status.risks.push_back(std::move(text));
  }
  size_t behind = 0;
  const catalog::Object* last_full = nullptr;
  for (const catalog::Object& o : inventory.objects) {
    if (o.pruned) continue;
    if (o.kind == catalog::Kind::kFull) last_full = &o;
    if (o.kind == catalog::Kind::kFull && o.Proven() && o.Available()) status.newest_proven = &o;
    if (o.kind == catalog::Kind::kRollUp) continue;  // what matters is where its parts are
    for (const std::string& store : cluster.stores) behind += !o.stores.contains(store);
  }
  if (behind > 0) status.risks.push_back(fmt::format("{} copies missing in a store", behind));
  if (last_full != nullptr && !last_full->suspect.empty()) {
    status.risks.push_back("the last full is suspect: " + last_full->suspect);
  }
  if (!known.catalog.findings.empty()) {
    status.risks.push_back(fmt::format("{} findings in the logs", known.catalog.findings.size()));
  }
  if (!known.catalog.unreadable.empty()) status.risks.push_back("a store cannot be read");
  const base::Duration limit =
      3 * (cluster.policy.archive()
               ? std::max(cluster.policy.segment_every, base::Duration(std::chrono::minutes(1)))
               : cluster.policy.full_every);
  if (!status.restorable) {
    status.risks.push_back("nothing can be restored yet: run `engram-keeper backup`");
  } else if (status.has_rpo && status.rpo > limit) {
    status.risks.push_back("the newest restorable moment is old: is the daemon running?");
  }
  return status;
}

std::string RetentionText(const config::Retention& policy, const service::RetentionRun& last,
                          base::Duration now) {
  if (policy.every == base::Duration(0)) return "by hand";
  if (!last.stopped.empty()) return "STOPPED: " + last.stopped;
  if (last.at == catalog::Time(0)) return "not yet";
  const base::Duration left = catalog::NextDue(now, last.at, policy.every) - now;
  return fmt::format("{} ago, next {}", SpanText(std::max(base::Duration(0), now - last.at)),
                     left <= base::Duration(0) ? "now" : "in " + SpanText(left));
}

nlohmann::json RetentionJson(const config::Retention& policy, const service::RetentionRun& last) {
  nlohmann::json out = {{"every_seconds", std::chrono::duration<double>(policy.every).count()},
                        {"deleted_objects", last.objects},
                        {"deleted_bytes", last.bytes},
                        {"stopped", last.stopped}};
  if (last.at == catalog::Time(0)) return out;
  out["last"] = base::Rfc3339(last.at);
  if (policy.every > base::Duration(0)) out["next"] = base::Rfc3339(last.at + policy.every);
  return out;
}

int RunStatus(const Invocation& invocation) {
  Session session;
  const int opened = Open(invocation, &session);
  if (opened != kOk) return opened;
  nlohmann::json json = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows = {
      {"CLUSTER", "RPO NOW", "NEWEST PROVEN POINT", "WINDOW", "STORES", "RETENTION", "STATE"}};
  int code = kOk;
  for (const config::Cluster& cluster : session.config.clusters) {
    if (!session.words.empty() && cluster.name != session.words[0]) continue;
    session.cluster = &cluster;
    Known known;
    const int loaded = LoadKnown(session, invocation.flags->Bool("trust-any-signer"), &known);
    if (loaded != kOk) {
      code = loaded;
      rows.push_back({cluster.name, "?", "?", "?", "?", "?", "UNKNOWN: no store can be read"});
      json.push_back({{"cluster", cluster.name}, {"state", "unknown"}});
      continue;
    }
    const base::Duration now = session.env.clock.Wall();
    const service::StateFile remembered = RememberedBy(session, cluster);
    const service::RetentionRun& retention = remembered.retention;
    const ClusterStatus status = Judge(cluster, known, remembered.clock, now);
    std::string stores;
    for (const service::OpenedStore& store : known.stores) {
      const bool read =
          store.store != nullptr &&
          std::none_of(known.catalog.unreadable.begin(), known.catalog.unreadable.end(),
                       [&](const auto& u) { return u.first == store.name; });
      stores +=
          fmt::format("{}{} {}", stores.empty() ? "" : "  ", store.name, read ? "ok" : "DOWN");
    }
    std::string state = "protected";
    if (status.newest_proven == nullptr) {
      state = fmt::format("UNPROVEN: run `engram-keeper backup {}` again", cluster.name);
    }
    if (!status.risks.empty())
      state = "at risk: " + fmt::format("{}", fmt::join(status.risks, "; "));
    const std::string proven =
        status.newest_proven == nullptr
            ? "none"
            : fmt::format("{} rev {}", MomentText(status.newest_proven->last_seen.to),
                          status.newest_proven->last_revision);
    rows.push_back(
        {cluster.name, status.has_rpo ? SpanText(status.rpo) : "-", proven,
         fmt::format("{}, {}", SpanText(status.window),
                     status.holes == 0 ? "no holes" : fmt::format("{} holes", status.holes)),
         stores, RetentionText(cluster.retention, retention, now), state});
    nlohmann::json entry = {
        {"cluster", cluster.name},
        {"holes", status.holes},
        {"window_seconds", std::chrono::duration<double>(status.window).count()},
        {"risks", status.risks},
        {"protected", status.risks.empty() && status.newest_proven != nullptr}};
    entry["retention"] = RetentionJson(cluster.retention, retention);
    if (status.has_rpo) entry["rpo_seconds"] = std::chrono::duration<double>(status.rpo).count();
    if (status.newest_proven != nullptr) {
      entry["newest_proven_revision"] = status.newest_proven->last_revision;
    }
    json.push_back(std::move(entry));
  }
  if (json.empty()) return Fail(kUsage, fmt::format("there is no cluster {}", session.words[0]));
  Print(session, json, [&] { return Table(rows); });
  return code;
}

}  // namespace

Command ListCommand() {
  return {.name = "list",
          .usage = "[cluster]",
          .summary = "List the backups of a cluster",
          .flags = kListFlags,
          .run = RunList};
}
Command DescribeCommand() {
  return {.name = "describe",
          .usage = "[cluster] <point>",
          .summary = "Show all that is known of one object",
          .flags = kTrustFlags,
          .run = RunDescribe};
}
Command WindowsCommand() {
  return {.name = "windows",
          .usage = "[cluster]",
          .summary = "Show which revisions and times can be restored, and the holes",
          .flags = kTrustFlags,
          .run = RunWindows};
}
Command StatusCommand() {
  return {.name = "status",
          .usage = "[cluster]",
          .summary = "Show how well each cluster is protected",
          .flags = kTrustFlags,
          .run = RunStatus};
}

}  // namespace keeper
