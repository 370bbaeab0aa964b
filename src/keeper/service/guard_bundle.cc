#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "base/time_text.h"
#include "capture/sealed_file.h"
#include "service/guard.h"

namespace service {
namespace {

constexpr char kVersion[] = ENGRAM_VERSION;

}  // namespace

absl::StatusOr<BundleResult> Guard::TakeBundle() {
  const std::vector<std::string>& paths = cluster_config_.bundle.paths;
  if (paths.empty()) {
    return absl::FailedPreconditionError("the configuration names no bundle paths");
  }
  BundleResult result;
  bundle::CheckOptions check{.now = env_.clock.Wall(), .endpoints = cluster_config_.endpoints};
  {
    const std::lock_guard lock(mutex_);
    check.value_prefixes = encryptions_;
  }
  const std::shared_ptr<Books> books = this->books();
  catalog::Object& object = result.object;
  object.kind = catalog::Kind::kBundle;
  object.timeline = books->log->place().timeline;
  object.writer = writer_;
  object.keeper_version = kVersion;
  object.first_seen = object.last_seen = {env_.clock.Wall(), env_.clock.Wall()};
  object.name = fmt::format("{}/bundles/{}-{}.tar.zst{}", books->log->place().Folder(),
                            base::CompactUtc(object.first_seen.from), books->log->last_seq(),
                            keys_->seal.recipients.empty() ? "" : ".age");
  const std::string path = books->depot->NewPath(object.name);
  std::string tar;
  ASSIGN_OR_RETURN(
      const vault::Sealed sealed,
      capture::SealFile(env_.files, env_.random, path, keys_->seal, [&](vault::Sink& sink) {
        auto taken = bundle::Take(paths, [&](std::string_view bytes) {
          tar += bytes;
          return sink.Write(bytes);
        });
        if (taken.ok()) result.taken = *std::move(taken);
        return taken.status();
      }));
  capture::SetSealed(sealed, &object);
  ASSIGN_OR_RETURN(result.report, bundle::Check(tar, check));
  object.kubernetes_version = result.report.kubernetes_version;
  for (const bundle::KmsPlugin& plugin : result.report.kms) {
    object.kms.push_back({.provider = plugin.name,
                          .version = plugin.version,
                          .endpoint = plugin.endpoint,
                          .key_id = plugin.key_id});
  }
  RETURN_IF_ERROR(books->depot->Submit(object, path));
  const std::lock_guard lock(mutex_);
  kubernetes_version_ = result.report.kubernetes_version;
  certificate_expiry_days_ = result.report.first_expiry_days;
  return result;
}

void Guard::LogBundle(const absl::StatusOr<BundleResult>& result) const {
  if (!result.ok()) {
    LOG_WARN("the bundle cannot be taken", {"cluster", cluster_config_.name},
             {"error", result.status()});
    return;
  }
  for (const bundle::Trouble& trouble : result->taken.refused) {
    LOG_WARN("not in the bundle", {"cluster", cluster_config_.name}, {"path", trouble.path},
             {"why", trouble.what});
  }
  for (const bundle::Finding& finding : result->report.findings) {
    if (finding.level == bundle::Finding::Level::kOk) continue;
    LOG_WARN("the bundle has a fault", {"cluster", cluster_config_.name},
             {"subject", finding.subject}, {"what", finding.text});
  }
}

}  // namespace service
