// What stands above a kube-apiserver, started on a restored cluster to see it work again: the
// controller manager, the scheduler, and kwok, which plays the nodes. Loopback only; nothing but
// the drill's own objects is created. Blocking; one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "drill/child.h"
#include "drill/kube_api.h"

namespace drill {

// Programs, by name or path; empty: not started.
struct ControlPlanePrograms {
  std::string controller_manager;
  std::string scheduler;
  std::string kwok;
  bool Any() const { return !(controller_manager + scheduler + kwok).empty(); }
};

class ControlPlane {
 public:
  // `api` outlives it. NotFound when a program cannot be started.
  static absl::StatusOr<std::unique_ptr<ControlPlane>> Start(base::Files& files, base::Clock& clock,
                                                             const KubeApi& api,
                                                             const ControlPlanePrograms& programs,
                                                             const std::string& scratch_dir,
                                                             base::Duration timeout);

  // Both wait until it is so, DeadlineExceeded, with what is missing, after `timeout`; Unavailable
  // with the last words of a program that ended. What was seen, for people.
  //
  // With kwok: every node renews its lease and is Ready, one of the drill's own among them.
  absl::StatusOr<std::string> CheckNodes();
  // With the controller manager: a new Deployment gets its pods; with the scheduler and kwok, too,
  // they run.
  absl::StatusOr<std::string> CheckDeployment();

 private:
  ControlPlane(base::Files& files, base::Clock& clock, const KubeApi& api,
               const ControlPlanePrograms& programs, base::Duration timeout);
  absl::Status StartAll(const std::string& scratch_dir);
  absl::Status StartOne(const std::string& program, std::vector<std::string> arguments,
                        const std::string& log_path);
  // Asks `what_is_missing` until it says "" (then OK), an error, or the time is over.
  template <typename Ask>
  absl::Status WaitUntil(Ask what_is_missing);

  base::Files& files_;
  base::Clock& clock_;
  const KubeApi& api_;
  const ControlPlanePrograms programs_;
  const base::Duration timeout_;
  base::Duration began_{0};  // wall clock
  std::vector<std::pair<std::string, std::unique_ptr<Child>>> children_;
};

}  // namespace drill
