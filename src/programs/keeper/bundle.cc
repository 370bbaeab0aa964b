// bundle take | check | extract: the control plane's files that are not in etcd.
#include <fmt/format.h>

#include "base/status.h"
#include "bundle/extract.h"
#include "capture/examine.h"
#include "client/methods.h"
#include "commands.h"
#include "proto/rpc.pb.h"
#include "restore/fetch.h"
#include "service/guard.h"

namespace keeper {
namespace {

constexpr FlagSpec kExtractFlags[] = {
    {.name = "into", .help = "the folder to put the files into; / puts them back in their places"},
    {.name = "overwrite", .type = FlagType::kBool, .help = "replace files that differ"},
    {.name = "point", .help = "the name of a bundle; the newest one otherwise"},
    kTrustAnySigner,
};

constexpr base::Duration kTimeout = std::chrono::minutes(10);

std::string LevelText(bundle::Finding::Level level) {
  switch (level) {
    case bundle::Finding::Level::kOk:
      return "ok";
    case bundle::Finding::Level::kWarning:
      return "warning";
    case bundle::Finding::Level::kFailed:
      return "FAILED";
  }
  return {};
}

nlohmann::json ReportJson(const bundle::Report& report) {
  nlohmann::json findings = nlohmann::json::array();
  for (const bundle::Finding& f : report.findings) {
    findings.push_back({{"level", LevelText(f.level)}, {"subject", f.subject}, {"text", f.text}});
  }
  nlohmann::json out = {
      {"passed", report.Passed()}, {"certificates", report.certificates}, {"findings", findings}};
  if (report.first_expiry_days.has_value()) out["first_expiry_days"] = *report.first_expiry_days;
  return out;
}

std::string ReportText(const bundle::Report& report) {
  std::vector<std::vector<std::string>> rows;
  for (const bundle::Finding& f : report.findings) {
    rows.push_back({LevelText(f.level), f.subject, f.text});
  }
  return Table(rows);
}

// How Secrets are encrypted at the moment, as far as a page of them shows.
std::set<std::string> EncryptionsOf(const Session& session) {
  std::set<std::string> prefixes;
  const auto cluster = service::OpenCluster(session.env, *session.cluster);
  if (!cluster.ok()) return prefixes;
  etcdserverpb::RangeRequest request;
  request.set_key("/registry/secrets/");
  request.set_range_end("/registry/secrets0");
  request.set_limit(500);
  const auto page =
      (*cluster)->any().Call(client::kRange, request, {.timeout = std::chrono::seconds(5)});
  if (!page.ok()) {
    Warn(fmt::format("the cluster does not say how Secrets are encrypted: {}",
                     client::ErrorText(page.status())));
    return prefixes;
  }
  for (const auto& kv : page->kvs()) {
    const std::string_view encryption = capture::EncryptionOf(kv.value());
    if (!encryption.empty()) prefixes.emplace(encryption);
  }
  return prefixes;
}

int RunTake(const Invocation& invocation) {
  Session session;
  const int opened = OpenForCluster(invocation, &session);
  if (opened != kOk) return opened;
  auto guard = service::Guard::Create(session.env, session.config, *session.cluster);
  if (!guard.ok()) return Fail(kKey, base::Message(guard.status()));
  auto asked = (*guard)->OwnOrAskBundle(kTimeout);
  if (!asked.ok()) return Fail(asked.status());
  const bool by_daemon = asked->has_value();
  absl::StatusOr<service::BundleResult> result;
  if (by_daemon) {
    result = **std::move(asked);
  } else {
    const absl::Status attached = (*guard)->Attach();
    if (!attached.ok()) return Fail(attached);
    result = (*guard)->TakeBundle();
  }
  if (!result.ok()) return Fail(result.status());
  const absl::Status stored = by_daemon ? WaitListed(session, result->object.name, kTimeout)
                                        : (*guard)->WaitStored(result->object.name, kTimeout);
  for (const bundle::Trouble& t : result->taken.refused) {
    Warn(fmt::format("not in the bundle: {}: {}", t.path, t.what));
  }
  for (const bundle::Trouble& t : result->taken.changed) {
    Warn(fmt::format("changed while it was read: {}: {}", t.path, t.what));
  }
  nlohmann::json json = ReportJson(result->report);
  json["name"] = result->object.name;
  json["entries"] = result->taken.entries;
  Print(session, json, [&] {
    return ReportText(result->report) + fmt::format("bundle     {}  {} entries, {}\n",
                                                    result->object.name, result->taken.entries,
                                                    SizeText(result->taken.bytes));
  });
  if (!stored.ok()) return Fail(kUnreachable, base::Message(stored));
  return result->report.Passed() && result->taken.refused.empty() ? kOk : kDamaged;
}

int RunCheck(const Invocation& invocation) {
  Session session;
  const int opened = OpenForCluster(invocation, &session);
  if (opened != kOk) return opened;
  if (session.cluster->bundle.paths.empty()) {
    return Fail(kUsage, "the configuration names no bundle paths");
  }
  const auto report =
      bundle::CheckPaths(session.cluster->bundle.paths, {.now = session.env.clock.Wall(),
                                                         .endpoints = session.cluster->endpoints,
                                                         .value_prefixes = EncryptionsOf(session)});
  if (!report.ok()) return Fail(report.status());
  Print(session, ReportJson(*report), [&] { return ReportText(*report); });
  return report->Passed() ? kOk : kDamaged;
}

int RunExtract(const Invocation& invocation) {
  Session session;
  const int opened = OpenForCluster(invocation, &session);
  if (opened != kOk) return opened;
  const engramctl::FlagSet& flags = *invocation.flags;
  if (flags.String("into").empty()) return Fail(kUsage, "bundle extract: give --into DIR");
  Known known;
  const int loaded = LoadKnown(session, flags.Bool("trust-any-signer"), &known);
  if (loaded != kOk) return loaded;
  const catalog::Object* found = FindBundle(known.catalog.inventory, flags.String("point"));
  if (found == nullptr) return Fail(kHole, "there is no such bundle");
  restore::Fetcher fetcher = FetcherOf(session, known);
  const auto tar = fetcher.FetchBytes(*found);
  if (!tar.ok()) return Fail(tar.status());
  const auto extracted =
      bundle::Extract(*tar, {.into = flags.String("into"), .overwrite = flags.Bool("overwrite")});
  if (!extracted.ok()) {
    return absl::IsAlreadyExists(extracted.status())
               ? Fail(kUnsafe, base::Message(extracted.status()))
               : Fail(extracted.status());
  }
  if (!extracted->owners_kept) Warn("owners are not put back: that takes root");
  return Print(
      session,
      {{"name", found->name}, {"written", extracted->written}, {"unchanged", extracted->unchanged}},
      [&] {
        return fmt::format("bundle     {} (taken {})\nwritten    {} files, {} unchanged\n",
                           found->name, MomentText(found->last_seen.to), extracted->written.size(),
                           extracted->unchanged.size());
      });
}

}  // namespace

Command BundleCommand() {
  return {.name = "bundle",
          .usage = "<command>",
          .summary = "The control plane's files that are not in etcd",
          .commands = {
              {.name = "take", .usage = "[cluster]", .summary = "Take them now", .run = RunTake},
              {.name = "check",
               .usage = "[cluster]",
               .summary = "Look into them as they are now",
               .run = RunCheck},
              {.name = "extract",
               .usage = "[cluster] --into DIR",
               .summary = "Put them back, with owners and modes",
               .flags = kExtractFlags,
               .run = RunExtract}}};
}

}  // namespace keeper
