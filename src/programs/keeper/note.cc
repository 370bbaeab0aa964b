// keep, annotate, prune: what people decide about backups; each is a fact in the log.
#include <fmt/format.h>

#include "base/status.h"
#include "commands.h"
#include "service/notes.h"
#include "service/prune.h"

namespace keeper {
namespace {

constexpr FlagSpec kKeepFlags[] = {
    {.name = "release", .type = FlagType::kBool, .help = "no longer keep it"},
};
constexpr FlagSpec kAnnotateFlags[] = {
    {.name = "trust",
     .type = FlagType::kBool,
     .help = "it is not suspect: what it lacks was meant to go"},
};
constexpr FlagSpec kPruneFlags[] = {
    {.name = "yes", .type = FlagType::kBool, .help = "do what the plan says"},
    {.name = "clock-is-right",
     .type = FlagType::kBool,
     .help = "go by this machine's clock, although the daemon saw it set ahead"},
};

// Notes facts of an object in this keeper's log of its timeline.
int Note(const Session& session, const Known& known, const catalog::Object& object,
         const std::vector<ledger::Fact>& facts) {
  const absl::Status noted = service::NoteFacts(session.env, session.config, *session.cluster,
                                                known.readable, object.timeline, facts);
  return noted.ok() ? kOk : Fail(noted);
}

int RunOnPoint(
    const Invocation& invocation, size_t words,
    const std::function<std::vector<ledger::Fact>(const catalog::Object&, const Session&)>& facts) {
  Session session;
  const int opened = OpenForCluster(invocation, &session);
  if (opened != kOk) return opened;
  if (session.words.size() != words) {
    return Fail(kUsage, fmt::format("usage: engram-keeper {} {}", invocation.command->name,
                                    invocation.command->usage));
  }
  Known known;
  const int loaded = LoadKnown(session, false, &known);
  if (loaded != kOk) return loaded;
  const catalog::Object* object = FindObject(known.catalog.inventory, session.words[0]);
  if (object == nullptr) {
    return Fail(kUsage, fmt::format("{}: no such point; `list --all` shows all", session.words[0]));
  }
  const int noted = Note(session, known, *object, facts(*object, session));
  if (noted == kOk) Emit(fmt::format("noted      {}\n", object->name));
  return noted;
}

int RunKeep(const Invocation& invocation) {
  const bool keep = !invocation.flags->Bool("release");
  return RunOnPoint(invocation, 1, [keep](const catalog::Object& o, const Session&) {
    return std::vector<ledger::Fact>{ledger::Pinned{.name = o.name, .pinned = keep}};
  });
}

int RunAnnotate(const Invocation& invocation) {
  const bool trust = invocation.flags->Bool("trust");
  return RunOnPoint(invocation, 2, [trust](const catalog::Object& o, const Session& session) {
    std::vector<ledger::Fact> facts = {ledger::Annotated{.name = o.name, .note = session.words[1]}};
    if (trust) facts.push_back(ledger::Suspected{.name = o.name, .why = ""});
    return facts;
  });
}

int RunPrune(const Invocation& invocation) {
  Session session;
  Known known;
  const int opened = OpenKnown(invocation, &session, &known);
  if (opened != kOk) return opened;
  service::ClockState clock = RememberedBy(session, *session.cluster).clock;
  if (invocation.flags->Bool("clock-is-right")) clock.ahead = base::Duration(0);
  const catalog::RetentionPlan plan =
      service::PlanPruning(session.env.clock.Wall(), service::AskClocks(session.env, known.stores),
                           clock, session.cluster->retention, known.stores, known.catalog);
  if (!plan.stopped.empty()) return Fail(kUnsafe, "nothing is pruned: " + plan.stopped);
  nlohmann::json json = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows = {{"WHAT", "SIZE", "WHY"}};
  uint64_t bytes = 0;
  for (const catalog::Deletion& deletion : plan.deletions) {
    json.push_back(
        {{"name", deletion.name}, {"stored_bytes", deletion.stored_bytes}, {"why", deletion.why}});
    rows.push_back({deletion.name, SizeText(deletion.stored_bytes), deletion.why});
    bytes += deletion.stored_bytes;
  }
  const bool yes = invocation.flags->Bool("yes");
  Print(session, json, [&] {
    return Table(rows) + fmt::format("{} objects, {}; {} stay{}\n", plan.deletions.size(),
                                     SizeText(bytes), plan.keeps.size(),
                                     yes ? "" : ". --yes does it");
  });
  if (!yes) return kOk;
  const auto pruned = service::Prune(
      session.env, session.config, known.stores, plan, known.catalog.inventory,
      [&](const catalog::Timeline& timeline, const std::vector<ledger::Fact>& facts) {
        return service::NoteFacts(session.env, session.config, *session.cluster, known.readable,
                                  timeline, facts);
      });
  if (!pruned.ok()) return Fail(pruned.status());
  for (const auto& [store, why] : pruned->refused) {
    Warn(fmt::format("store {} keeps its copies, until a later run may delete them: {}", store,
                     base::Message(why)));
  }
  return pruned->refused.empty() ? kOk : kUnreachable;
}

}  // namespace

Command KeepCommand() {
  return {.name = "keep",
          .usage = "[cluster] <point>",
          .summary = "Never prune a point, and what it needs",
          .flags = kKeepFlags,
          .run = RunKeep};
}
Command AnnotateCommand() {
  return {.name = "annotate",
          .usage = "[cluster] <point> <text>",
          .summary = "Write a note beside a point",
          .flags = kAnnotateFlags,
          .run = RunAnnotate};
}
Command PruneCommand() {
  return {.name = "prune",
          .usage = "[cluster] [--yes]",
          .summary = "Show what retention would delete, and delete it",
          .flags = kPruneFlags,
          .run = RunPrune};
}

}  // namespace keeper
