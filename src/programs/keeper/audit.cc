// audit: who asked for what.
#include "service/audit.h"

#include <fmt/format.h>

#include "base/status.h"
#include "base/time_text.h"
#include "commands.h"

namespace keeper {
namespace {

int Run(const Invocation& invocation) {
  Session session;
  const int opened = Open(invocation, &session);
  if (opened != kOk) return opened;
  const auto entries = service::ReadAudit(session.env, session.config);
  if (!entries.ok()) return Fail(entries.status());
  nlohmann::json json = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows = {{"WHEN", "WHO", "COMMAND", "OUTCOME"}};
  for (const service::AuditEntry& entry : *entries) {
    json.push_back({{"at", base::Rfc3339(entry.at)},
                    {"who", entry.who},
                    {"command", entry.command},
                    {"outcome", entry.outcome}});
    rows.push_back({MomentText(entry.at), entry.who, entry.command,
                    entry.outcome.empty() ? "asked for" : entry.outcome});
  }
  return Print(session, json, [&] { return Table(rows); });
}

}  // namespace

Command AuditCommand() {
  return {.name = "audit", .usage = "", .summary = "Show who asked for what", .run = Run};
}

}  // namespace keeper
