// verify: are the logs whole, and do the stores hold what they state?
#include "restore/verify.h"

#include <fmt/format.h>

#include "base/status.h"
#include "commands.h"

namespace keeper {
namespace {

constexpr FlagSpec kFlags[] = {
    {.name = "percent",
     .type = FlagType::kInt,
     .default_value = "0",
     .help = "how many of 100 objects are read back"},
    {.name = "all", .type = FlagType::kBool, .help = "read back every object"},
    {.name = "deep", .type = FlagType::kBool, .help = "decrypt and unpack what is read back"},
    kTrustAnySigner,
};

int Run(const Invocation& invocation) {
  Session session;
  const int opened = OpenForCluster(invocation, &session);
  if (opened != kOk) return opened;
  const engramctl::FlagSet& flags = *invocation.flags;
  restore::VerifyOptions options{
      .percent = flags.Bool("all") ? 100 : static_cast<int>(flags.Int("percent")),
      .deep = flags.Bool("deep"),
      .reload = nullptr};
  if (options.percent < 0 || options.percent > 100) {
    return Fail(kUsage, "--percent: take 0 to 100");
  }
  Known known;
  const int loaded = LoadKnown(session, flags.Bool("trust-any-signer"), &known);
  if (loaded != kOk) return loaded;
  options.reload = [&] { return LoadAgain(session, known); };
  restore::VerifyResult result;
  {
    Progress progress(session, "verify");
    result = restore::Verify(session.env.clock, session.env.random, known.catalog, known.readable,
                             known.keys.identities, options,
                             [&](uint64_t done, uint64_t total) { progress.At(done, total); });
  }
  nlohmann::json bad = nlohmann::json::array();
  std::string text;
  bool key_missing = false;
  for (const restore::BadCopy& copy : result.bad) {
    bad.push_back({{"name", copy.name},
                   {"store", copy.store},
                   {"what", std::string(base::Message(copy.why))}});
    text += fmt::format("DAMAGED    {} in store {}: {}\n", copy.name, copy.store,
                        base::Message(copy.why));
    key_missing = key_missing || absl::IsPermissionDenied(copy.why);
  }
  for (const std::string& finding : known.catalog.findings) {
    text += fmt::format("LOG        {}\n", finding);
  }
  for (const std::string& stranger : result.strangers) {
    text += fmt::format("stranger   {}: no log speaks of it\n", stranger);
  }
  const bool damaged = !result.bad.empty() || !known.catalog.findings.empty();
  text += fmt::format("{}  {} logs, {} copies, {} read back ({}{})\n",
                      damaged ? "DAMAGED   " : "ok        ", known.catalog.logs.size(),
                      CountText(result.objects), CountText(result.read_back),
                      SizeText(result.bytes_read), options.deep ? ", opened" : "");
  Print(session,
        {{"ok", !damaged},
         {"logs", known.catalog.logs.size()},
         {"copies", result.objects},
         {"read_back", result.read_back},
         {"bytes_read", result.bytes_read},
         {"bad", bad},
         {"log_findings", known.catalog.findings},
         {"strangers", result.strangers}},
        [&] { return text; });
  if (key_missing) return kKey;
  return damaged ? kDamaged : kOk;
}

}  // namespace

Command VerifyCommand() {
  return {.name = "verify",
          .usage = "[cluster]",
          .summary = "Check the logs, and that the stores hold what they state",
          .flags = kFlags,
          .run = Run};
}

}  // namespace keeper
