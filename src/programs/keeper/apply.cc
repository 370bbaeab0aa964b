// plan, apply: the recovery of a whole cluster. `plan` fixes what all hosts must agree on and
// writes it down for people and for `apply`, which makes one host's member.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/status.h"
#include "base/time_text.h"
#include "bundle/check.h"
#include "capture/cluster.h"
#include "client/methods.h"
#include "commands.h"
#include "proto/rpc.pb.h"
#include "restore/fetch.h"
#include "restore/restore.h"

namespace keeper {
namespace {

constexpr base::Duration kTimeout = std::chrono::seconds(3);

constexpr FlagSpec kPlanFlags[] = {
    {.name = "to", .type = FlagType::kString, .default_value = "latest", .help = kMomentHelp},
    {.name = "members", .help = "the new cluster, name=peer-url,..."},
    {.name = "data-dir",
     .type = FlagType::kString,
     .default_value = "/var/lib/etcd",
     .help = "of each member, on its host"},
    {.name = "out", .help = "write the plan for `apply` into this file"},
};
constexpr FlagSpec kApplyFlags[] = {
    {.name = "plan", .help = "the file that `plan --out` wrote"},
    {.name = "name", .help = "which of its members this host is"},
    {.name = "data-dir", .help = "where to make the member (default: the plan's)"},
    {.name = "unproven", .type = FlagType::kBool, .help = "restore although nothing proves it"},
};

// "m1=https://10.0.0.1:2380,m2=..." as pairs; empty when it is malformed.
std::map<std::string, std::string> ParseMembers(const std::string& text) {
  std::map<std::string, std::string> members;
  size_t at = 0;
  while (at < text.size()) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, comma - at);
    const size_t equals = one.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == one.size()) return {};
    members[one.substr(0, equals)] = one.substr(equals + 1);
    at = comma + 1;
  }
  return members;
}

struct Living {
  std::vector<capture::MemberState> answering;
  size_t endpoints = 0;
  bool has_leader = false;
};

Living AskEndpoints(const Session& session) {
  Living living{.endpoints = session.cluster->endpoints.size()};
  const auto cluster = service::OpenCluster(session.env, *session.cluster);
  if (!cluster.ok()) return living;  // nobody gives a token
  for (capture::MemberState& member : (*cluster)->Survey(kTimeout)) {
    if (!member.status.ok()) continue;
    living.has_leader = living.has_leader || member.leader != 0;
    living.answering.push_back(std::move(member));
  }
  return living;
}

// With a quorum alive nothing must be restored: the dead member is replaced from the living ones.
int PrintReplacement(const Session& session, const Living& living) {
  std::string text = fmt::format(
      "The cluster is alive: {} of {} endpoints answer and there is a leader. Do not restore; "
      "replace "
      "the member that failed:\n",
      living.answering.size(), living.endpoints);
  std::string endpoints;
  for (const capture::MemberState& m : living.answering) {
    endpoints += (endpoints.empty() ? "" : ",") + m.endpoint;
  }
  text += fmt::format(
      "  1. etcdctl --endpoints {0} member list -w table        # find the id of the failed "
      "member\n"
      "  2. etcdctl --endpoints {0} member remove ID\n"
      "  3. etcdctl --endpoints {0} member add NAME --peer-urls PEER-URL --learner\n"
      "  4. on its host: move the old data directory away, then start the server with\n"
      "     --initial-cluster-state existing and the --initial-cluster that step 3 printed\n"
      "  5. etcdctl --endpoints {0} member promote ID           # once it has caught up\n",
      endpoints);
  return Print(
      session,
      {{"alive", true}, {"answering", living.answering.size()}, {"endpoints", living.endpoints}},
      [&] { return text; });
}

// The bundle to put back beside a point: the newest one that can decrypt what the point's full
// holds, for a key that was rotated away since is gone from the newest; else the newest.
struct BundleChoice {
  const catalog::Object* object = nullptr;
  std::vector<std::string> lacks;  // what it cannot decrypt
  std::string unread;              // why that could not be looked into; empty: it was
};

BundleChoice ChooseBundle(const Session& session, const Known& known, const catalog::Object& full) {
  std::vector<const catalog::Object*> bundles;
  for (const catalog::Object& object : known.catalog.inventory.objects) {
    if (object.kind == catalog::Kind::kBundle && object.Available()) bundles.push_back(&object);
  }
  std::stable_sort(bundles.begin(), bundles.end(),
                   [](const auto* a, const auto* b) { return a->last_seen.to > b->last_seen.to; });
  BundleChoice newest;
  restore::Fetcher fetcher = FetcherOf(session, known);
  for (const catalog::Object* bundle : bundles) {
    BundleChoice choice{.object = bundle};
    if (!full.encryptions.empty()) {
      const auto tar = fetcher.FetchBytes(*bundle);
      const auto lacks = tar.ok() ? bundle::Undecryptable(*tar, full.encryptions) : tar.status();
      if (lacks.ok()) {
        choice.lacks = *lacks;
      } else {
        choice.unread = base::Message(lacks.status());
      }
    }
    if (choice.lacks.empty() && choice.unread.empty()) return choice;
    if (newest.object == nullptr) newest = std::move(choice);
  }
  if (newest.object == nullptr) {
    for (const std::string& prefix : full.encryptions) {
      newest.lacks.push_back(
          fmt::format("there is no bundle, and values are encrypted by `{}`", prefix));
    }
  }
  return newest;
}

void WarnOfBundle(const BundleChoice& bundle) {
  for (const std::string& what : bundle.lacks) {
    Warn(fmt::format("what is restored cannot be decrypted with any bundle there is: {}", what));
  }
  if (!bundle.unread.empty()) {
    Warn(fmt::format("whether bundle {} can decrypt what is restored cannot be told: {}",
                     bundle.object->name, bundle.unread));
  }
}

std::string Runbook(const Session& session, const nlohmann::json& plan) {
  const std::string initial = plan["initial_cluster"];
  const std::string file = plan.value("file", "plan.json");
  std::string text = fmt::format(
      "Recovery of {} to revision {} (seen {})\n"
      "token {} · revision bumped to {} and marked compacted · what came after is lost: {} "
      "revisions\n\n",
      session.cluster->name, plan["revision"].get<int64_t>(), plan["seen"].get<std::string>(),
      plan["token"].get<std::string>(), plan["bump_to"].get<int64_t>(),
      plan["revisions_lost"].get<int64_t>());
  text +=
      "1. Stop every API server: on each control plane host move\n"
      "     /etc/kubernetes/manifests/kube-apiserver.yaml out of the folder, and etcd's manifest "
      "with it.\n"
      "2. See that no old member runs any more: `apply` refuses while one answers.\n"
      "3. Keep the ports of the new members closed to clients until all of them are up and "
      "proven.\n"
      "4. Put back what is not in etcd, where it is missing: the members' certificates, the API "
      "server's, its encryption configuration; the manifests only in step 7.\n";
  const std::string bundle = plan["bundle"];
  text += bundle.empty()
              ? "     This keeper has no bundle of them.\n"
              : fmt::format(
                    "     engram-keeper bundle extract {} --point {} --into /root/bundle\n"
                    "     and copy from there with `cp -a`, which keeps owners and modes.\n",
                    session.cluster->name, bundle);
  for (const auto& what : plan["undecryptable"]) {
    text += fmt::format("     WITHOUT MORE NOBODY CAN READ ENCRYPTED VALUES: {}\n",
                        what.get<std::string>());
  }
  text += "5. On each host:\n";
  for (const auto& [name, url] : plan["members"].items()) {
    text += fmt::format(
        "     engram-keeper apply {} --plan {} --name {}\n"
        "     etcd --name {} --data-dir {} --initial-cluster '{}' --initial-cluster-token {} "
        "--initial-advertise-peer-urls {} …\n",
        session.cluster->name, file, name, name, plan["data_dir"].get<std::string>(), initial,
        plan["token"].get<std::string>(), url.get<std::string>());
  }
  text +=
      "6. Check: `etcdctl endpoint health --cluster`, and `etcdctl endpoint hashkv --cluster` is "
      "equal on all members.\n"
      "7. Open the ports and put the manifests back, with the members' addresses in "
      "--etcd-servers where they are new; wait for /readyz of each API server.\n"
      "8. To go back: stop the new members, move the old data directories back (nothing here "
      "touches them).\n"
      "9. The keeper sees the new cluster id and begins a new timeline by itself; new addresses "
      "go into its configuration.\n";
  return text;
}

int RunPlan(const Invocation& invocation) {
  Session session;
  const int opened = OpenForCluster(invocation, &session);
  if (opened != kOk) return opened;
  const Living living = AskEndpoints(session);
  if (living.has_leader) return PrintReplacement(session, living);
  const engramctl::FlagSet& flags = *invocation.flags;
  const std::map<std::string, std::string> members = ParseMembers(flags.String("members"));
  if (members.empty()) {
    return Fail(kUsage,
                "plan: give --members name=peer-url,... for every member of the new cluster");
  }
  Known known;
  const int loaded = LoadKnown(session, false, &known);
  if (loaded != kOk) return loaded;
  catalog::RestorePoint point;
  const int found = FindPoint(session, known, "--to", flags.String("to"), &point);
  if (found != kOk) return found;
  const restore::Plan plan = PlanFor(session, known, point);
  const BundleChoice bundle = ChooseBundle(session, known, *point.base);
  WarnOfBundle(bundle);
  std::string initial;
  for (const auto& [name, url] : members) {
    initial += fmt::format("{}{}={}", initial.empty() ? "" : ",", name, url);
  }
  nlohmann::json json = {
      {"cluster", session.cluster->name},
      {"timeline", point.timeline.Name()},
      {"revision", point.revision},
      {"seen", base::Rfc3339(point.seen.to)},
      {"revisions_lost", point.revisions_after},
      {"members", members},
      {"initial_cluster", initial},
      {"token", fmt::format("engram-{}-{:08x}", base::CompactUtc(session.env.clock.Wall()),
                            session.env.random.Next() & 0xffffffff)},
      {"bump_to", plan.safe_revision},
      {"data_dir", flags.String("data-dir")},
      {"bytes_to_fetch", plan.bytes_to_fetch},
      {"bundle", bundle.object == nullptr ? std::string() : bundle.object->name},
      {"undecryptable", bundle.lacks},
      {"proof_revision", point.proven == nullptr ? 0 : point.proof.to}};
  if (!flags.String("out").empty()) {
    json["file"] = flags.String("out");
    const absl::Status written = base::WriteFileAtomically(session.env.files, flags.String("out"),
                                                           json.dump(2) + "\n", 0600);
    if (!written.ok()) return Fail(kUsage, base::Message(written));
  }
  return Print(session, json, [&] { return Runbook(session, json); });
}

int RunApply(const Invocation& invocation) {
  Session session;
  const int opened = OpenForCluster(invocation, &session);
  if (opened != kOk) return opened;
  const engramctl::FlagSet& flags = *invocation.flags;
  if (flags.String("plan").empty() || flags.String("name").empty()) {
    return Fail(kUsage, "apply: give --plan FILE and --name MEMBER");
  }
  const auto text = base::ReadFile(session.env.files, flags.String("plan"));
  if (!text.ok()) return Fail(kUsage, base::Message(text.status()));
  const nlohmann::json plan_json = nlohmann::json::parse(*text, nullptr, false);
  const auto field = [&](const char* name) -> std::string {
    return plan_json.is_object() && plan_json.contains(name) && plan_json[name].is_string()
               ? plan_json[name].get<std::string>()
               : std::string();
  };
  const auto timeline = catalog::Timeline::Parse(field("timeline"));
  const std::map<std::string, std::string> members = ParseMembers(field("initial_cluster"));
  const bool whole = plan_json.is_object() && plan_json.contains("revision") &&
                     plan_json["revision"].is_number_integer() && plan_json.contains("bump_to") &&
                     plan_json["bump_to"].is_number_integer() && timeline.has_value() &&
                     !members.empty() && !field("token").empty();
  if (!whole || field("cluster") != session.cluster->name) {
    return Fail(kUsage,
                fmt::format("{}: no plan for {}", flags.String("plan"), session.cluster->name));
  }
  const auto member = members.find(flags.String("name"));
  if (member == members.end()) {
    return Fail(kUsage, fmt::format("--name {}: the plan has {}", flags.String("name"),
                                    field("initial_cluster")));
  }
  const Living living = AskEndpoints(session);
  if (!living.answering.empty()) {
    return Fail(kUnsafe, fmt::format("{} still answers: two living halves are worse than one dead "
                                     "cluster. Stop it first",
                                     living.answering.front().endpoint));
  }
  const std::string data_dir =
      flags.String("data-dir").empty() ? field("data_dir") : flags.String("data-dir");
  if (base::Exists(session.env.files, data_dir)) {
    return Fail(kUnsafe, fmt::format("{} exists: move it away; it is not touched", data_dir));
  }
  Known known;
  const int loaded = LoadKnown(session, false, &known);
  if (loaded != kOk) return loaded;
  catalog::RestorePoint point;
  const int found =
      FindPoint(session, known, plan_json["revision"].get<int64_t>(), timeline, &point);
  if (found != kOk) return found;
  const restore::Plan plan = PlanFor(session, known, point);
  restore::Fetcher fetcher = FetcherOf(session, known);
  const auto report =
      restore::Run(session.env.files, session.env.clock, session.env.random, fetcher, plan,
                   {.data_dir = data_dir,
                    .name = member->first,
                    .initial_cluster = field("initial_cluster"),
                    .token = field("token"),
                    .peer_urls = member->second,
                    .bump_to = plan_json["bump_to"].get<int64_t>(),
                    .unproven = flags.Bool("unproven")},
                   {});
  if (!report.ok()) return FailRestore(report.status());
  return Print(session,
               {{"data_dir", data_dir},
                {"name", member->first},
                {"revision", point.revision},
                {"bumped_to", report->bumped_to},
                {"token", report->token}},
               [&] {
                 return fmt::format("ready      {} holds member {} at revision {} (bumped to {})\n",
                                    data_dir, member->first, point.revision, report->bumped_to);
               });
}

}  // namespace

Command PlanCommand() {
  return {.name = "plan",
          .usage = "[cluster] --members name=peer-url,...",
          .summary = "Write the runbook that brings a lost cluster back",
          .flags = kPlanFlags,
          .run = RunPlan};
}
Command ApplyCommand() {
  return {.name = "apply",
          .usage = "[cluster] --plan FILE --name MEMBER",
          .summary = "Make this host's member of the recovered cluster",
          .flags = kApplyFlags,
          .run = RunApply};
}

}  // namespace keeper
