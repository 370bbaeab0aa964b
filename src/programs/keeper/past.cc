// history, get, diff, export: looking into the past, from backups alone.
#include "restore/past.h"

#include <fmt/format.h>

#include <map>

#include "base/status.h"
#include "base/time_text.h"
#include "catalog/plan.h"
#include "commands.h"

namespace keeper {
namespace {

constexpr FlagSpec kGetFlags[] = {
    {.name = "at", .type = FlagType::kString, .default_value = "latest", .help = kMomentHelp},
};
constexpr FlagSpec kExportFlags[] = {
    {.name = "at", .type = FlagType::kString, .default_value = "latest", .help = kMomentHelp},
    {.name = "prefix", .help = "only keys that begin so"},
};
constexpr FlagSpec kPrefixFlags[] = {{.name = "prefix", .help = "only keys that begin so"}};

// Opens the moment that a text names. 0, or the exit status after the error was printed.
int OpenMoment(const Session& session, const Known& known, const std::string& at,
               restore::Moment* moment) {
  catalog::RestorePoint point;
  const int found = FindPoint(session, known, "", at, &point);
  if (found != kOk) return found;
  restore::Fetcher fetcher = FetcherOf(session, known);
  auto opened = restore::Moment::Open(session.env.files, session.env.clock, session.env.random,
                                      fetcher, known.catalog.inventory, point,
                                      base::JoinPath(session.config.state_dir, "past"));
  if (!opened.ok()) return Fail(opened.status());
  *moment = *std::move(opened);
  return kOk;
}

int RunGet(const Invocation& invocation) {
  Session session;
  Known known;
  const int opened = OpenKnown(invocation, &session, &known);
  if (opened != kOk) return opened;
  if (session.words.size() != 1) return Fail(kUsage, "get: give one key");
  restore::Moment moment;
  const int there = OpenMoment(session, known, invocation.flags->String("at"), &moment);
  if (there != kOk) return there;
  const auto state = moment.State(session.words[0], session.words[0] + '\0');
  if (!state.ok()) return Fail(state.status());
  if (state->empty()) {
    return Fail(kUsage, fmt::format("{} was not there at revision {}", session.words[0],
                                    moment.revision()));
  }
  const restore::Entry& entry = state->begin()->second;
  return Print(session,
               {{"key", session.words[0]},
                {"value", entry.value},
                {"create_revision", entry.create_revision},
                {"mod_revision", entry.mod_revision},
                {"version", entry.version},
                {"lease", entry.lease},
                {"revision", moment.revision()}},
               [&] { return entry.value + "\n"; });
}

int RunExport(const Invocation& invocation) {
  Session session;
  Known known;
  const int opened = OpenKnown(invocation, &session, &known);
  if (opened != kOk) return opened;
  restore::Moment moment;
  const int there = OpenMoment(session, known, invocation.flags->String("at"), &moment);
  if (there != kOk) return there;
  const auto state = moment.State(invocation.flags->String("prefix"), std::nullopt);
  if (!state.ok()) return Fail(state.status());
  for (const auto& [key, entry] : *state) {
    if (!key.starts_with(invocation.flags->String("prefix"))) break;
    // One JSON object a line; bytes that are no UTF-8 are given in base64.
    Emit(restore::EntryLine(key, entry) + "\n");
  }
  return kOk;
}

int RunDiff(const Invocation& invocation) {
  Session session;
  Known known;
  const int opened = OpenKnown(invocation, &session, &known);
  if (opened != kOk) return opened;
  if (session.words.size() != 2) return Fail(kUsage, "diff: give two moments or revisions");
  const std::string prefix = invocation.flags->String("prefix");
  std::map<std::string, restore::Entry> states[2];
  for (size_t i = 0; i < 2; ++i) {
    restore::Moment moment;
    const int there = OpenMoment(session, known, session.words[i], &moment);
    if (there != kOk) return there;
    auto state = moment.State(prefix, std::nullopt);
    if (!state.ok()) return Fail(state.status());
    states[i] = *std::move(state);
  }
  nlohmann::json json = nlohmann::json::array();
  std::string text;
  const auto note = [&](const char* change, const std::string& key, int64_t revision) {
    if (!key.starts_with(prefix)) return;
    json.push_back({{"change", change}, {"key", key}, {"revision", revision}});
    text += fmt::format("{:<8}  {}\n", change, key);
  };
  for (const auto& [key, entry] : states[0]) {
    const auto after = states[1].find(key);
    if (after == states[1].end()) {
      note("deleted", key, entry.mod_revision);
    } else if (after->second.mod_revision != entry.mod_revision) {
      note("changed", key, after->second.mod_revision);
    }
  }
  for (const auto& [key, entry] : states[1]) {
    if (!states[0].contains(key)) note("created", key, entry.mod_revision);
  }
  return Print(session, json, [&] { return text; });
}

int RunHistory(const Invocation& invocation) {
  Session session;
  Known known;
  const int opened = OpenKnown(invocation, &session, &known);
  if (opened != kOk) return opened;
  if (session.words.size() != 1) return Fail(kUsage, "history: give one key");
  restore::Fetcher fetcher = FetcherOf(session, known);
  const auto history = restore::HistoryOf(session.env.files, session.env.clock, session.env.random,
                                          fetcher, known.catalog.inventory, session.words[0],
                                          base::JoinPath(session.config.state_dir, "past"));
  if (!history.ok()) return Fail(history.status());
  nlohmann::json json = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows = {{"REVISION", "TIME", "CHANGE", "SIZE", "BY LEASE"}};
  for (const restore::Change& change : *history) {
    const std::string what = change.deleted        ? "deleted"
                             : change.version == 1 ? "created"
                                                   : "changed";
    json.push_back({{"revision", change.revision},
                    {"not_before", base::Rfc3339(change.seen.from)},
                    {"not_after", base::Rfc3339(change.seen.to)},
                    {"change", what},
                    {"bytes", change.bytes},
                    {"lease", change.lease}});
    rows.push_back({std::to_string(change.revision), MomentText(change.seen.to), what,
                    change.deleted ? "" : SizeText(change.bytes),
                    change.lease == 0 ? "" : fmt::format("{:x}", change.lease)});
  }
  return Print(session, json, [&] {
    std::string text = Table(rows);
    if (!history->empty() && history->back().deleted) {
      const int64_t before = history->back().revision - 1;
      text += fmt::format("`get --at {} {}` shows what was deleted\n", before, session.words[0]);
    }
    return text;
  });
}

}  // namespace

Command GetCommand() {
  return {.name = "get",
          .usage = "[cluster] <key> [--at T]",
          .summary = "Show a key as it was",
          .flags = kGetFlags,
          .run = RunGet};
}
Command ExportCommand() {
  return {.name = "export",
          .usage = "[cluster] [--at T] [--prefix P]",
          .summary = "Print keys as they were, one JSON object a line",
          .flags = kExportFlags,
          .run = RunExport};
}
Command DiffCommand() {
  return {.name = "diff",
          .usage = "[cluster] <A> <B> [--prefix P]",
          .summary = "Show which keys differ between two moments",
          .flags = kPrefixFlags,
          .run = RunDiff};
}
Command HistoryCommand() {
  return {.name = "history",
          .usage = "[cluster] <key>",
          .summary = "Show every version of a key with its time",
          .run = RunHistory};
}

}  // namespace keeper
