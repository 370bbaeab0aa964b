#include "drill/drill.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/status.h"
#include "bundle/check.h"
#include "bundle/contents.h"
#include "capture/examine.h"
#include "client/client.h"
#include "client/methods.h"
#include "client/watch.h"
#include "drill/child.h"
#include "drill/control_plane.h"
#include "drill/kube.h"
#include "drill/server.h"
#include "proto/rpc.pb.h"
#include "restore/restore.h"

namespace drill {
namespace {

constexpr base::Duration kCallTimeout = std::chrono::seconds(10);
constexpr int64_t kPageKeys = 1'000;
constexpr std::string_view kEncryptionKind = "EncryptionConfiguration";

class Drill {
 public:
  Drill(base::Files& files, base::Clock& clock, base::Random& random, restore::Fetcher& fetcher,
        const catalog::Inventory& inventory, const catalog::RestorePoint& point,
        const Options& options, const std::function<void(const Phase&)>& on_phase)
      : files_(files),
        clock_(clock),
        random_(random),
        fetcher_(fetcher),
        inventory_(inventory),
        point_(point),
        options_(options),
        on_phase_(on_phase) {}

  absl::StatusOr<Report> Run() {
    report_.cluster = options_.cluster;
    report_.timeline = point_.timeline;
    report_.revision = point_.revision;
    report_.began = clock_.Wall();
    report_.rpo = clock_.Wall() - point_.seen.to;
    if (const auto watched = inventory_.watched.find(point_.timeline);
        watched != inventory_.watched.end() && watched->second.first == point_.revision) {
      report_.rpo = std::max(base::Duration(0), clock_.Wall() - watched->second.second);
    }
    RETURN_IF_ERROR(base::RemoveTree(files_, options_.scratch_dir));
    RETURN_IF_ERROR(base::MakeDirectories(files_, options_.scratch_dir, 0700));
    Phases();
    server_.reset();
    RETURN_IF_ERROR(base::RemoveTree(files_, options_.scratch_dir));
    return std::move(report_);
  }

 private:
  // Each phase needs the ones before it.
  void Phases() {
    if (!Do("restore", "restore", [&] { return Restore(); })) return;
    if (!Do("start, healthy, leader", "server", [&] { return Start(); })) return;
    Do("revision", "revision", [&] { return CheckRevision(); });
    Do("counts per prefix", "counts", [&] { return CheckCounts(); });
    if (!options_.known_keys.empty()) {
      Do("known keys", "known keys", [&] { return CheckKnownKeys(); });
    }
    Do("old watch", "revision", [&] { return CheckOldWatch(); });
    const bool decryptable = CheckFiles();
    if (!options_.kube_apiserver.empty() && decryptable) CheckKube();
    Do("write", "write", [&] { return CheckWrite(); });
  }

  bool Do(const std::string& name, const std::string& finding,
          const std::function<absl::StatusOr<std::string>()>& phase) {
    const base::Duration began = clock_.Monotonic();
    const absl::StatusOr<std::string> seen = phase();
    Phase done{.name = name, .took = clock_.Monotonic() - began, .passed = seen.ok()};
    done.text = seen.ok() ? *seen : std::string(base::Message(seen.status()));
    if (!seen.ok()) report_.findings.push_back(finding);
    if (on_phase_) on_phase_(done);
    report_.phases.push_back(std::move(done));
    return seen.ok();
  }

  absl::StatusOr<std::string> Restore() {
    ASSIGN_OR_RETURN(const int peer_port, FreePort());
    plan_ = restore::MakePlan(inventory_, point_, options_.lease_ttl_default, clock_.Wall());
    ASSIGN_OR_RETURN(restored_,
                     restore::Run(files_, clock_, random_, fetcher_, plan_,
                                  {.data_dir = base::JoinPath(options_.scratch_dir, "data"),
                                   .name = "drill",
                                   .peer_urls = fmt::format("http://127.0.0.1:{}", peer_port),
                                   .bump = options_.bump,
                                   .bump_to = options_.bump_to},
                                  {}));
    std::string text = fmt::format("{} objects, all hashes right; rev {}",
                                   1 + plan_.materials.segments.size(), point_.revision);
    if (restored_.built.proof.has_value()) {
      text += fmt::format("; rows and HashKV equal at ({}, {})", restored_.built.proof->revision,
                          restored_.built.proof->compact_revision);
      if (point_.revision > restored_.built.proof->revision) {
        text += fmt::format(", chain to {}", point_.revision);
      }
    }
    return text;
  }

  absl::StatusOr<std::string> Start() {
    ASSIGN_OR_RETURN(const int client_port, FreePort());
    endpoint_ = fmt::format("http://127.0.0.1:{}", client_port);
    ASSIGN_OR_RETURN(server_,
                     RestoredServer::Start(files_, clock_, options_.server, restored_, endpoint_,
                                           base::JoinPath(options_.scratch_dir, "server.log"),
                                           options_.start_timeout));
    return fmt::format("{} {}, loopback, a cluster of its own", base::BaseName(options_.server),
                       server_->version());
  }

  // Nothing that a client saw before may come again under the same number.
  absl::StatusOr<std::string> CheckRevision() {
    etcdserverpb::RangeRequest request;
    request.set_key(std::string(1, '\0'));
    request.set_count_only(true);
    ASSIGN_OR_RETURN(const auto answer,
                     server_->client().Call(client::kRange, request, {.timeout = kCallTimeout}));
    const int64_t now = answer.header().revision();
    const int64_t newest = catalog::NewestRevision(inventory_);
    if (now <= newest) {
      return base::MakeStatus(absl::StatusCode::kDataLoss,
                              "the revision goes backwards: {} after {}: informers would never "
                              "notice",
                              now, newest);
    }
    return fmt::format("{}, above all {} that were seen", now, newest);
  }

  absl::StatusOr<std::string> CheckCounts() {
    std::map<std::string, uint64_t> counts;
    uint64_t keys = 0;
    std::string from(1, '\0');
    while (true) {
      etcdserverpb::RangeRequest request;
      request.set_key(from);
      request.set_range_end(std::string(1, '\0'));
      request.set_limit(kPageKeys);
      ASSIGN_OR_RETURN(const auto page, server_->client().Call(client::kRange, request,
                                                               {.timeout = 6 * kCallTimeout}));
      for (const auto& kv : page.kvs()) {
        ++counts[std::string(capture::TopPrefix(kv.key()))];
        ++keys;
        const std::string_view encryption = capture::EncryptionOf(kv.value());
        if (!encryption.empty()) encryptions_.emplace(encryption);
      }
      if (!page.more() || page.kvs().empty()) break;
      from = page.kvs(page.kvs_size() - 1).key() + '\0';
    }
    // The manifest states the counts of the full; with changes on top only their order can be told.
    const catalog::Object& base = plan_.materials.base;
    if (base.last_revision != point_.revision) {
      return fmt::format("{} keys under {} prefixes ({} and {} in the full below)", keys,
                         counts.size(), base.key_count, base.prefix_counts.size());
    }
    if (counts != base.prefix_counts) {
      return base::MakeStatus(absl::StatusCode::kDataLoss,
                              "{} keys under {} prefixes, and the full has {} under {}", keys,
                              counts.size(), base.key_count, base.prefix_counts.size());
    }
    return fmt::format("{} keys, {} of {} prefixes as in the full", keys, counts.size(),
                       base.prefix_counts.size());
  }

  absl::StatusOr<std::string> CheckKnownKeys() {
    for (const std::string& key : options_.known_keys) {
      etcdserverpb::RangeRequest request;
      request.set_key(key);
      request.set_count_only(true);
      ASSIGN_OR_RETURN(const auto answer,
                       server_->client().Call(client::kRange, request, {.timeout = kCallTimeout}));
      if (answer.count() == 0) {
        return base::MakeStatus(absl::StatusCode::kNotFound, "{} is not there", key);
      }
    }
    return fmt::format("{} of {} there", options_.known_keys.size(), options_.known_keys.size());
  }

  // A client that comes back with a revision from before must be told to begin anew.
  absl::StatusOr<std::string> CheckOldWatch() {
    const auto watcher = client::Watcher::Create(server_->client(), true);
    watcher->Add({.key = std::string(1, '\0'),
                  .range_end = std::string(1, '\0'),
                  .start_revision = point_.revision});
    etcdserverpb::WatchResponse response;
    int watch = 0;
    RETURN_IF_ERROR(watcher->NextWithin(&response, &watch, kCallTimeout));
    if (response.canceled() && response.compact_revision() > 0) {
      return std::string("compacted, as it must be");
    }
    return absl::DataLossError("a watch from before goes on as if nothing had happened");
  }

  absl::StatusOr<std::string> CheckWrite() {
    etcdserverpb::PutRequest put;
    put.set_key("/engram-keeper/drill");
    put.set_value("a drill wrote this");
    ASSIGN_OR_RETURN(const auto answer,
                     server_->client().Call(client::kPut, put, {.timeout = kCallTimeout}));
    return fmt::format("accepted at rev {}", answer.header().revision());
  }

  // What etcd does not hold and the API server needs. Whether it could decrypt what is there.
  bool CheckFiles() {
    if (options_.bundle_tar.has_value()) {
      Do("bundle", "bundle", [&] { return CheckBundle(); });
    } else if (options_.bundle_expected) {
      Do("bundle", "bundle", [&]() -> absl::StatusOr<std::string> {
        return absl::NotFoundError(
            "there is none: certificates, manifests and encryption keys would be lost");
      });
    }
    if (encryptions_.empty()) return true;
    return Do("decryption configuration", "decryption configuration",
              [&] { return CheckDecryption(); });
  }

  // Each fault becomes a finding of its own, by its subject's name.
  absl::StatusOr<std::string> CheckBundle() {
    ASSIGN_OR_RETURN(const bundle::Report report,
                     bundle::Check(*options_.bundle_tar, {.now = clock_.Wall(),
                                                          .endpoints = options_.endpoints,
                                                          .value_prefixes = encryptions_}));
    std::string faults;
    for (const bundle::Finding& finding : report.findings) {
      if (finding.level != bundle::Finding::Level::kFailed) continue;
      faults += fmt::format("{}{}: {}", faults.empty() ? "" : "; ", finding.subject, finding.text);
      report_.findings.push_back(finding.subject);
    }
    if (!faults.empty()) return absl::DataLossError(faults);
    return fmt::format("{} certificates{}", report.certificates,
                       report.first_expiry_days.has_value()
                           ? fmt::format(", the first expires in {} d", *report.first_expiry_days)
                           : std::string());
  }

  absl::StatusOr<std::string> CheckDecryption() {
    std::string names;
    for (const std::string& name : encryptions_) names += (names.empty() ? "" : ", ") + name;
    ASSIGN_OR_RETURN(encryption_config_, EncryptionConfig());
    if (encryption_config_.empty()) {
      return base::MakeStatus(absl::StatusCode::kNotFound,
                              "values are encrypted ({}), and there is no encryption "
                              "configuration: no API server could read them",
                              names);
    }
    ASSIGN_OR_RETURN(const bundle::Report report,
                     bundle::CheckPaths({encryption_config_},
                                        {.now = clock_.Wall(), .value_prefixes = encryptions_}));
    for (const bundle::Finding& finding : report.findings) {
      if (finding.level == bundle::Finding::Level::kFailed)
        return absl::DataLossError(finding.text);
    }
    std::string text = fmt::format("{}: present", names);
    for (const bundle::KmsPlugin& plugin : report.kms) {
      if (plugin.key_id.empty()) continue;
      text += fmt::format("; KMS provider `{}` answers, with key {}", plugin.name, plugin.key_id);
    }
    return text;
  }

  // The file that was given, or the one in the bundle, put into the scratch folder; empty: none.
  absl::StatusOr<std::string> EncryptionConfig() {
    if (!options_.encryption_config_file.empty()) return options_.encryption_config_file;
    if (!options_.bundle_tar.has_value()) return std::string();
    ASSIGN_OR_RETURN(const bundle::Contents contents, bundle::Contents::Read(*options_.bundle_tar));
    for (const bundle::Document& document : contents.documents()) {
      const yaml::Value* kind = document.value.Find("kind");
      if (kind == nullptr || kind->text != kEncryptionKind) continue;
      const std::string path = base::JoinPath(options_.scratch_dir, "encryption.yaml");
      RETURN_IF_ERROR(base::WriteFileAtomically(files_, path,
                                                contents.files().at(document.path).content, 0600));
      return path;
    }
    return std::string();
  }

  void CheckKube() {
    KubeOptions kube{.program = options_.kube_apiserver,
                     .etcd_endpoint = endpoint_,
                     .scratch_dir = options_.scratch_dir,
                     .encryption_config_file = encryption_config_,
                     .start_timeout = options_.start_timeout};
    std::unique_ptr<KubeApiserver> apiserver;
    const bool ready =
        Do("kube-apiserver ready", "kube-apiserver", [&]() -> absl::StatusOr<std::string> {
          ASSIGN_OR_RETURN(apiserver, KubeApiserver::Start(files_, clock_, kube));
          return apiserver->version();
        });
    if (!ready) return;
    Do("objects", "undecodable objects", [&]() -> absl::StatusOr<std::string> {
      ASSIGN_OR_RETURN(const KubeObjects objects, apiserver->ListEverything());
      if (objects.failures.empty()) {
        return fmt::format(
            "{} objects of {} kinds decoded, 0 undecodable · {} Secrets read · {} "
            "CRDs",
            objects.objects, objects.kinds, objects.secrets, objects.crds);
      }
      std::string text;
      for (const std::string& failure : objects.failures) {
        text += (text.empty() ? "" : "; ") + failure;
      }
      return absl::DataLossError(text);
    });
    Do("informers relist", "revision",
       [&] { return apiserver->CheckInformer(catalog::NewestRevision(inventory_)); });
    if (options_.control_plane.Any()) CheckControlPlane(apiserver->api());
  }

  void CheckControlPlane(const KubeApi& api) {
    std::unique_ptr<ControlPlane> plane;
    const bool started =
        Do("control plane starts", "control plane", [&]() -> absl::StatusOr<std::string> {
          ASSIGN_OR_RETURN(plane,
                           ControlPlane::Start(files_, clock_, api, options_.control_plane,
                                               options_.scratch_dir, options_.start_timeout));
          return std::string("started");
        });
    if (!started) return;
    if (!options_.control_plane.kwok.empty()) {
      Do("nodes register again", "nodes", [&] { return plane->CheckNodes(); });
    }
    if (!options_.control_plane.controller_manager.empty()) {
      Do("a Deployment reconciles", "controllers", [&] { return plane->CheckDeployment(); });
    }
  }

  base::Files& files_;
  base::Clock& clock_;
  base::Random& random_;
  restore::Fetcher& fetcher_;
  const catalog::Inventory& inventory_;
  const catalog::RestorePoint& point_;
  const Options& options_;
  const std::function<void(const Phase&)>& on_phase_;
  Report report_;
  restore::Plan plan_;
  restore::Report restored_;
  std::string endpoint_;
  std::unique_ptr<RestoredServer> server_;
  std::set<std::string> encryptions_;  // how values say that they are encrypted
  std::string encryption_config_;      // a path; empty: none
};

}  // namespace

absl::StatusOr<Report> Run(base::Files& files, base::Clock& clock, base::Random& random,
                           restore::Fetcher& fetcher, const catalog::Inventory& inventory,
                           const catalog::RestorePoint& point, const Options& options,
                           const std::function<void(const Phase&)>& on_phase) {
  return Drill(files, clock, random, fetcher, inventory, point, options, on_phase).Run();
}

}  // namespace drill
