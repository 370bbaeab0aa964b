// A restore carried out and proven in isolation: a scratch folder, loopback ports, a fresh token.
// Nothing of it is left. Blocking; one thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/random.h"
#include "catalog/inventory.h"
#include "catalog/plan.h"
#include "drill/control_plane.h"
#include "drill/report.h"
#include "restore/fetch.h"

namespace drill {

struct Options {
  std::string cluster;
  std::string scratch_dir;  // made, and removed
  std::string server = "engram";
  std::vector<std::string> known_keys;
  base::Duration lease_ttl_default = std::chrono::minutes(1);
  // As restore::Options: a drill of a restore by hand that would keep the revision, or raise it to
  // one that was chosen.
  bool bump = true;
  int64_t bump_to = 0;
  // How long a server may take to answer.
  base::Duration start_timeout = std::chrono::minutes(2);
  // kube-apiserver to be started on the restored cluster; empty: none.
  std::string kube_apiserver;
  // What to start on top of it.
  ControlPlanePrograms control_plane;
  // The newest bundle, as a tar; nothing: there is none.
  std::optional<std::string> bundle_tar;
  bool bundle_expected = false;        // the configuration names paths: a missing bundle is a fault
  std::vector<std::string> endpoints;  // of the cluster that is backed up, for the bundle's check
  // For the kube-apiserver, instead of the one in the bundle.
  std::string encryption_config_file;
};

// An error says that the drill could not be carried out at all; what went wrong in it is in the
// report. `on_phase` is called after each phase.
absl::StatusOr<Report> Run(base::Files& files, base::Clock& clock, base::Random& random,
                           restore::Fetcher& fetcher, const catalog::Inventory& inventory,
                           const catalog::RestorePoint& point, const Options& options,
                           const std::function<void(const Phase&)>& on_phase);

}  // namespace drill
