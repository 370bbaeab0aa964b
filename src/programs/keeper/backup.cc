// backup: one full, now.
#include <fmt/format.h>

#include "base/status.h"
#include "base/time_text.h"
#include "commands.h"
#include "service/guard.h"

namespace keeper {
namespace {

constexpr FlagSpec kFlags[] = {
    {.name = "timeout",
     .type = FlagType::kDuration,
     .default_value = "10m",
     .help = "how long the stores may take"},
};

std::string ProofText(const catalog::Proof& proof) {
  switch (proof.method) {
    case catalog::Proof::Method::kRows:
      return fmt::format("{} revisions equal to {}", CountText(proof.rows),
                         proof.against == "archive" ? "the archive's"
                                                    : "those of " + base::BaseName(proof.against));
    case catalog::Proof::Method::kHashOfFile:
      return fmt::format("HashKV {:08x} at ({}, compact {})", proof.hash, proof.to,
                         proof.compact_revision);
    case catalog::Proof::Method::kHashByRpc:
      return fmt::format("HashKV {:08x} as member {} answers", proof.hash, proof.against);
    case catalog::Proof::Method::kRestored:
      return "restored in a drill";
  }
  return {};
}

nlohmann::json ResultJson(const service::BackupResult& result) {
  const catalog::Object& o = result.object;
  nlohmann::json proofs = nlohmann::json::array();
  for (const catalog::Proof& proof : o.proofs) {
    proofs.push_back({{"method", catalog::ProofMethodName(proof.method)},
                      {"to", proof.to},
                      {"text", ProofText(proof)}});
  }
  return {{"name", o.name},
          {"revision", o.last_revision},
          {"compact_revision", o.compact_revision},
          {"endpoint", result.member.endpoint},
          {"bytes", o.plain_bytes},
          {"stored_bytes", o.stored_bytes},
          {"keys", o.key_count},
          {"proven", o.Proven()},
          {"suspect", o.suspect},
          {"proofs", proofs}};
}

std::string ResultText(const service::BackupResult& result) {
  const catalog::Object& o = result.object;
  const double seconds = std::max(1e-3, std::chrono::duration<double>(result.received_in).count());
  std::string out = fmt::format(
      "snapshot   {} from {} ({})  rev {}  {:.1f} s  {}/s{}\n", SizeText(o.plain_bytes),
      result.member.endpoint, result.member.Leads() ? "leader" : "follower", o.last_revision,
      seconds, SizeText(static_cast<uint64_t>(static_cast<double>(o.plain_bytes) / seconds)),
      result.yielded ? ", yielding to writers (`snapshot_bandwidth`)" : "");
  out += fmt::format("check      tree ok · {} keys · {} prefixes\n", CountText(o.key_count),
                     o.prefix_counts.size());
  std::string proofs;
  for (const catalog::Proof& proof : o.proofs) {
    proofs += (proofs.empty() ? "" : "; ") + ProofText(proof);
  }
  out += fmt::format("point      {}  {}: {}\n", o.name,
                     !o.suspect.empty() ? "SUSPECT: " + o.suspect
                     : o.Proven()       ? "proven"
                                        : "not proven yet",
                     proofs);
  return out;
}

int Run(const Invocation& invocation) {
  Session session;
  const int opened = OpenForCluster(invocation, &session);
  if (opened != kOk) return opened;
  // What a backup costs must not be felt by the member beside it.
  if (!service::StepBack()) Warn("the process cannot be made to step back");
  auto guard = service::Guard::Create(session.env, session.config, *session.cluster);
  if (!guard.ok()) return Fail(kKey, base::Message(guard.status()));
  const base::Duration timeout = invocation.flags->Duration("timeout");
  auto asked = (*guard)->OwnOrAskFull(timeout);
  if (!asked.ok()) return Fail(asked.status());
  const bool by_daemon = asked->has_value();
  absl::StatusOr<service::BackupResult> result;
  if (by_daemon) {
    result = **std::move(asked);
  } else {
    const absl::Status attached = (*guard)->Attach();
    if (!attached.ok()) return Fail(attached);
    Progress progress(session, "snapshot");
    result = (*guard)->Backup([&](uint64_t received, uint64_t remaining) {
      progress.At(received, received + remaining);
    });
  }
  if (!result.ok()) return Fail(result.status());
  const absl::Status stored = by_daemon ? WaitListed(session, result->object.name, timeout)
                                        : (*guard)->WaitStored(result->object.name, timeout);
  const int printed = Print(session, ResultJson(*result), [&] { return ResultText(*result); });
  if (!stored.ok()) {
    // The copy waits in the spool; the exit status says that not every store has the point.
    return Fail(kUnreachable, base::Message(stored));
  }
  if (session.output == Output::kTable) {
    std::string stores;
    for (const std::string& name : session.cluster->stores) {
      stores += fmt::format("{}{} {} ok", stores.empty() ? "" : "   ", name,
                            SizeText(result->object.stored_bytes));
    }
    Emit(fmt::format("stored     {}\n", stores));
  }
  return result->object.suspect.empty() ? printed : kUnproven;
}

}  // namespace

Command BackupCommand() {
  return {.name = "backup",
          .usage = "[cluster]",
          .summary = "Take a full backup now",
          .flags = kFlags,
          .run = Run};
}

}  // namespace keeper
