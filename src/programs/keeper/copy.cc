// copy: brings what one store has and another lacks to that other, and heals what is damaged there.
#include <fmt/format.h>

#include "base/sha256.h"
#include "base/status.h"
#include "commands.h"
#include "restore/heal.h"
#include "service/notes.h"

namespace keeper {
namespace {

constexpr FlagSpec kFlags[] = {
    {.name = "check",
     .type = FlagType::kBool,
     .help = "read every copy back, to find damaged ones"},
};

int Run(const Invocation& invocation) {
  Session session;
  Known known;
  const int opened = OpenKnown(invocation, &session, &known);
  if (opened != kOk) return opened;
  const std::string scratch = base::JoinPath(session.config.state_dir, "copy");
  const auto result = restore::Heal(session.env.files, session.env.clock, known.catalog.inventory,
                                    known.readable, invocation.flags->Bool("check"), scratch);
  if (!result.ok()) return Fail(result.status());
  for (const auto& [timeline, facts] : result->facts) {
    const absl::Status noted = service::NoteFacts(session.env, session.config, *session.cluster,
                                                  known.readable, timeline, facts);
    if (!noted.ok()) return Fail(noted);
  }
  nlohmann::json failed = nlohmann::json::array();
  std::string text;
  for (const restore::BadCopy& bad : result->failed) {
    failed.push_back(
        {{"name", bad.name}, {"store", bad.store}, {"what", std::string(base::Message(bad.why))}});
    text +=
        fmt::format("FAILED     {} to store {}: {}\n", bad.name, bad.store, base::Message(bad.why));
  }
  text += fmt::format("copied     {} objects, {}; {} damaged ones healed\n",
                      CountText(result->copied), SizeText(result->bytes), result->healed);
  Print(session,
        {{"copied", result->copied},
         {"healed", result->healed},
         {"bytes", result->bytes},
         {"failed", failed}},
        [&] { return text; });
  return result->failed.empty() ? kOk : kUnreachable;
}

}  // namespace

Command CopyCommand() {
  return {.name = "copy",
          .usage = "[cluster]",
          .summary = "Bring every object to every store, and heal damaged copies",
          .flags = kFlags,
          .run = Run};
}

}  // namespace keeper
