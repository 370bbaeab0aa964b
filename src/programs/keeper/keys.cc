// keys generate | list | rewrap: the age identities that open backups, and the key that signs the
// logs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/status.h"
#include "commands.h"
#include "restore/rewrap.h"
#include "service/notes.h"
#include "service/prune.h"
#include "vault/age_keys.h"
#include "vault/signing.h"

namespace keeper {
namespace {

constexpr FlagSpec kGenerateFlags[] = {
    {.name = "identity", .help = "write a new age identity into this file"},
    {.name = "signing", .help = "write a new signing key into this file"},
};

// Never over another file: a key that is gone opens nothing.
absl::Status WriteKey(const std::string& path, std::string_view text) {
  base::Files& files = base::PosixFiles();
  ASSIGN_OR_RETURN(const auto file,
                   files.Open(path, {.write = true, .create = true, .exclusive = true}));
  RETURN_IF_ERROR(file->Append(text));
  RETURN_IF_ERROR(file->Sync());
  return files.SyncDirectory(base::DirName(path));
}

int Generate(const Invocation& invocation) {
  const std::string& identity_path = invocation.flags->String("identity");
  const std::string& signing_path = invocation.flags->String("signing");
  if (identity_path.empty() && signing_path.empty()) {
    return Fail(kUsage, "keys generate: give --identity FILE, --signing FILE or both");
  }
  if (!identity_path.empty()) {
    const vault::Identity identity = vault::Identity::Generate(base::SystemRandom());
    const std::string recipient = identity.recipient().ToString();
    const absl::Status written =
        WriteKey(identity_path,
                 fmt::format("# public key: {}\n{}\n", recipient, identity.ToSecret().view()));
    if (!written.ok()) return Fail(kUsage, base::Message(written));
    Emit(fmt::format("identity   {}\nrecipient  {}\n", identity_path, recipient));
  }
  if (!signing_path.empty()) {
    const vault::SigningKey key = vault::SigningKey::Generate(base::SystemRandom());
    const absl::Status written = WriteKey(signing_path, key.ToSecret().view());
    if (!written.ok()) return Fail(kUsage, base::Message(written));
    Emit(fmt::format("signing    {}\npublic     {}\n", signing_path,
                     key.verifying_key().ToString()));
  }
  return kOk;
}

int List(const Invocation& invocation) {
  Session session;
  const int opened = Open(invocation, &session);
  if (opened != kOk) return opened;
  const auto keys = service::LoadReaderKeys(session.env, session.config);
  if (!keys.ok()) return Fail(kKey, base::Message(keys.status()));
  nlohmann::json out = {{"recipients", session.config.encryption.recipients},
                        {"identities", nlohmann::json::array()},
                        {"trusted_signers", nlohmann::json::array()}};
  std::vector<std::vector<std::string>> rows;
  for (const std::string& recipient : session.config.encryption.recipients) {
    bool opens = false;
    for (const vault::Identity& identity : keys->identities) {
      opens = opens || identity.recipient().ToString() == recipient;
    }
    rows.push_back({"recipient", recipient, opens ? "its identity is here" : ""});
  }
  for (const vault::Identity& identity : keys->identities) {
    out["identities"].push_back(identity.recipient().ToString());
  }
  for (const vault::VerifyingKey& key : keys->trusted) {
    out["trusted_signers"].push_back(key.ToString());
    rows.push_back({"signer", key.ToString(), ""});
  }
  return Print(session, out, [&] { return Table(rows); });
}

constexpr FlagSpec kRewrapFlags[] = {
    {.name = "yes", .type = FlagType::kBool, .help = "do what the plan says"},
};

// The stores that may be deleted from; where one may not, old copies stay in it.
std::vector<ledger::ReadableStore> OpenEmptied(const Session& session, const Known& known) {
  std::vector<ledger::ReadableStore> emptied;
  for (const ledger::ReadableStore& store : known.readable) {
    auto opened = service::OpenForPruning(session.env, session.config, store.name);
    if (opened.ok()) emptied.push_back({store.name, *std::move(opened)});
  }
  return emptied;
}

int PrintPlan(const Session& session, const restore::RewrapPlan& plan) {
  nlohmann::json objects = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows = {{"WHAT", "SIZE", "WRAPPED FOR"}};
  for (const catalog::Object* object : plan.objects) {
    objects.push_back({{"name", object->name},
                       {"stored_bytes", object->stored_bytes},
                       {"recipients", object->recipients}});
    rows.push_back({object->name, SizeText(object->stored_bytes),
                    fmt::format("{}", fmt::join(object->recipients, ","))});
  }
  size_t segments = 0;
  nlohmann::json roll_ups = nlohmann::json::array();
  for (const restore::RewrapPlan::RollUp& roll_up : plan.roll_ups) {
    segments += roll_up.segments.size();
    roll_ups.push_back({{"name", roll_up.container->name},
                        {"stored_bytes", roll_up.container->stored_bytes},
                        {"segments", roll_up.segments.size()}});
    rows.push_back({roll_up.container->name, SizeText(roll_up.container->stored_bytes),
                    fmt::format("{} segments", CountText(roll_up.segments.size()))});
  }
  return Print(session, {{"objects", objects}, {"roll_ups", roll_ups}}, [&] {
    std::string text = Table(rows);
    text += fmt::format("{} objects, {}, would be wrapped for {}. --yes does it\n",
                        CountText(plan.objects.size() + segments), SizeText(plan.bytes),
                        fmt::join(session.config.encryption.recipients, ", "));
    return text;
  });
}

int PrintResult(const Session& session, const restore::RewrapResult& result) {
  nlohmann::json failed = nlohmann::json::array(), left = nlohmann::json::array();
  std::string text;
  int code = kOk;
  for (const restore::BadCopy& bad : result.failed) {
    failed.push_back(
        {{"name", bad.name}, {"store", bad.store}, {"what", std::string(base::Message(bad.why))}});
    text += fmt::format("FAILED     {}{}: {}\n", bad.name,
                        bad.store.empty() ? "" : " in store " + bad.store, base::Message(bad.why));
    const int worse = absl::IsPermissionDenied(bad.why) && bad.store.empty() ? kKey
                      : absl::IsDataLoss(bad.why)                            ? kDamaged
                                                                             : kUnreachable;
    // A key that is missing is what somebody has to see to first.
    if (code != kKey) code = worse;
  }
  for (const restore::BadCopy& bad : result.left) {
    left.push_back({{"name", bad.name}, {"store", bad.store}});
    text +=
        fmt::format("left       {} in store {}: {}\n", bad.name, bad.store, base::Message(bad.why));
  }
  text += fmt::format("rewrapped  {} objects, {}\n", CountText(result.rewrapped),
                      SizeText(result.bytes));
  Print(session,
        {{"rewrapped", result.rewrapped},
         {"bytes", result.bytes},
         {"failed", failed},
         {"left", left}},
        [&] { return text; });
  return code;
}

int Rewrap(const Invocation& invocation) {
  Session session;
  Known known;
  const int opened = OpenKnown(invocation, &session, &known);
  if (opened != kOk) return opened;
  if (session.config.encryption.none()) {
    return Fail(kUsage, "keys rewrap: the configuration says `encryption: none`");
  }
  if (known.keys.identities.empty()) {
    return Fail(kKey, "keys rewrap: opening the old headers needs encryption.identity_file");
  }
  if (!known.catalog.findings.empty() || !known.catalog.unreadable.empty() ||
      known.readable.size() != known.stores.size()) {
    return Fail(kUnsafe, "nothing is re-wrapped while a log or a store is not as it should be");
  }
  const auto writer = service::LoadWriterKeys(session.env, session.config);
  if (!writer.ok()) return Fail(kKey, base::Message(writer.status()));
  const auto writer_id = service::WriterId(session.env, session.config.state_dir);
  if (!writer_id.ok()) return Fail(writer_id.status());
  const restore::RewrapPlan plan =
      restore::PlanRewrap(known.catalog.inventory, writer->seal.recipients);
  Warn(
      "re-wrapping lets new keys open old backups; it does not revoke the old ones: whoever has an "
      "old key and read an old copy can still open it");
  if (!invocation.flags->Bool("yes")) return PrintPlan(session, plan);
  const std::vector<ledger::ReadableStore> emptied = OpenEmptied(session, known);
  Progress progress(session, "rewrap");
  const auto note = [&](const catalog::Timeline& timeline, const std::vector<ledger::Fact>& facts) {
    return service::NoteFacts(session.env, session.config, *session.cluster, known.readable,
                              timeline, facts);
  };
  // Old copies that an earlier run could not delete any more.
  const auto swept =
      service::Prune(session.env, session.config, known.stores, {}, known.catalog.inventory, note);
  if (!swept.ok()) Warn(base::Message(swept.status()));
  const auto result = restore::Rewrap(
      {.files = session.env.files,
       .clock = session.env.clock,
       .random = session.env.random,
       .identities = known.keys.identities,
       .recipients = writer->seal.recipients,
       .stores = known.readable,
       .emptied = emptied,
       .scratch_dir = base::JoinPath(base::JoinPath(session.config.state_dir, "rewrap"),
                                     session.cluster->name),
       .writer = *writer_id,
       .note = note,
       .progress = [&](uint64_t done, uint64_t total) { progress.At(done, total); }},
      known.catalog.inventory, plan);
  if (!result.ok()) return Fail(result.status());
  return PrintResult(session, *result);
}

}  // namespace

Command KeysCommand() {
  return {.name = "keys",
          .usage = "<command>",
          .summary = "Make and list keys, wrap old backups for new ones",
          .commands = {{.name = "generate",
                        .usage = "[--identity FILE] [--signing FILE]",
                        .summary = "Make an age identity, a signing key or both",
                        .flags = kGenerateFlags,
                        .run = Generate},
                       {.name = "list",
                        .usage = "",
                        .summary = "List the keys of the configuration",
                        .run = List},
                       {.name = "rewrap",
                        .usage = "[cluster] [--yes]",
                        .summary = "Wrap old backups for the present recipients",
                        .flags = kRewrapFlags,
                        .run = Rewrap}}};
}

}  // namespace keeper
