// keys generate | list: the age identities that open backups, and the key that signs the logs.
#include <fmt/format.h>

#include "base/status.h"
#include "commands.h"
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

}  // namespace

Command KeysCommand() {
  return {.name = "keys",
          .usage = "<command>",
          .summary = "Make and list keys",
          .commands = {{.name = "generate",
                        .usage = "[--identity FILE] [--signing FILE]",
                        .summary = "Make an age identity, a signing key or both",
                        .flags = kGenerateFlags,
                        .run = Generate},
                       {.name = "list",
                        .usage = "",
                        .summary = "List the keys of the configuration",
                        .run = List}}};
}

}  // namespace keeper
