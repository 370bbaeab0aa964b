#include "drill/control_plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "base/status.h"
#include "base/time_text.h"

namespace drill {
namespace {

using nlohmann::json;

constexpr base::Duration kPoll = std::chrono::milliseconds(300);
constexpr int kReplicas = 3;
constexpr char kName[] = "engram-keeper-drill";
constexpr char kLeases[] = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

// What kwok does with nodes and pods: a node is Ready, a pod that has a node runs.
constexpr char kStages[] = R"(apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-is-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      conditions:
      - type: Ready
        status: "True"
        reason: Drill
        message: played in a drill
        lastHeartbeatTime: {{ Now | Quote }}
        lastTransitionTime: {{ Now | Quote }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-runs}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Pending]}
  next:
    statusTemplate: |
      phase: Running
      startTime: {{ Now | Quote }}
      conditions:
      - {type: Initialized, status: "True", lastTransitionTime: {{ Now | Quote }}}
      - {type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}
      - {type: ContainersReady, status: "True", lastTransitionTime: {{ Now | Quote }}}
)";

json Meta(const std::string& name) { return {{"name", name}}; }

json DrillNode() {
  const json size = {{"cpu", "1"}, {"memory", "1Gi"}, {"pods", "110"}};
  json meta = Meta(kName);
  meta["labels"] = {{"kubernetes.io/hostname", kName}};
  return {{"apiVersion", "v1"},
          {"kind", "Node"},
          {"metadata", meta},
          {"status", {{"allocatable", size}, {"capacity", size}}}};
}

// Its pods fit on the drill's own node only, so that it does not matter how full the others are.
json DrillDeployment(bool on_the_node) {
  const json labels = {{"app", kName}};
  json pod = {{"automountServiceAccountToken", false},
              {"tolerations", {{{"operator", "Exists"}}}},
              {"containers", {{{"name", "nothing"}, {"image", "none"}}}}};
  if (on_the_node) pod["nodeSelector"] = {{"kubernetes.io/hostname", kName}};
  return {{"apiVersion", "apps/v1"},
          {"kind", "Deployment"},
          {"metadata", Meta(kName)},
          {"spec",
           {{"replicas", kReplicas},
            {"selector", {{"matchLabels", labels}}},
            {"template", {{"metadata", {{"labels", labels}}}, {"spec", pod}}}}}};
}

bool IsReady(const json& node) {
  for (const json& condition :
       node.value("status", json::object()).value("conditions", json::array())) {
    if (condition.value("type", "") == "Ready") return condition.value("status", "") == "True";
  }
  return false;
}

}  // namespace

ControlPlane::ControlPlane(base::Files& files, base::Clock& clock, const KubeApi& api,
                           const ControlPlanePrograms& programs, base::Duration timeout)
    : files_(files),
      clock_(clock),
      api_(api),
      programs_(programs),
      timeout_(timeout),
      began_(clock.Wall()) {}

absl::StatusOr<std::unique_ptr<ControlPlane>> ControlPlane::Start(
    base::Files& files, base::Clock& clock, const KubeApi& api,
    const ControlPlanePrograms& programs, const std::string& scratch_dir, base::Duration timeout) {
  std::unique_ptr<ControlPlane> plane(new ControlPlane(files, clock, api, programs, timeout));
  RETURN_IF_ERROR(plane->StartAll(scratch_dir));
  return plane;
}

absl::Status ControlPlane::StartAll(const std::string& scratch_dir) {
  const auto in_scratch = [&](const char* name) { return base::JoinPath(scratch_dir, name); };
  const std::string kubeconfig = in_scratch("kubeconfig");
  RETURN_IF_ERROR(api_.WriteKubeconfig(files_, kubeconfig));
  const auto port = [] {
    const auto free = FreePort();
    return fmt::format("--secure-port={}", free.value_or(0));
  };
  if (!programs_.controller_manager.empty()) {
    // Only the controllers that the checks need: others would look after clouds and volumes.
    RETURN_IF_ERROR(
        StartOne(programs_.controller_manager,
                 {"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1",
                  port(), "--cert-dir=" + in_scratch("manager-certs"),
                  "--controllers=deployment-controller,replicaset-controller"},
                 in_scratch("controller-manager.log")));
  }
  if (!programs_.scheduler.empty()) {
    const json config = {{"apiVersion", "kubescheduler.config.k8s.io/v1"},
                         {"kind", "KubeSchedulerConfiguration"},
                         {"leaderElection", {{"leaderElect", false}}},
                         {"clientConnection", {{"kubeconfig", kubeconfig}}}};
    const std::string path = in_scratch("scheduler.json");
    RETURN_IF_ERROR(base::WriteFileAtomically(files_, path, config.dump(2), 0600));
    RETURN_IF_ERROR(StartOne(programs_.scheduler,
                             {"--config=" + path, "--bind-address=127.0.0.1", port(),
                              "--cert-dir=" + in_scratch("scheduler-certs")},
                             in_scratch("scheduler.log")));
  }
  if (!programs_.kwok.empty()) {
    const std::string path = in_scratch("kwok.yaml");
    RETURN_IF_ERROR(base::WriteFileAtomically(files_, path, kStages, 0600));
    RETURN_IF_ERROR(StartOne(programs_.kwok,
                             {"--config=" + path, "--kubeconfig=" + kubeconfig,
                              "--manage-all-nodes=true", "--node-lease-duration-seconds=40"},
                             in_scratch("kwok.log")));
  }
  return absl::OkStatus();
}

absl::Status ControlPlane::StartOne(const std::string& program, std::vector<std::string> arguments,
                                    const std::string& log_path) {
  ASSIGN_OR_RETURN(auto child, Child::Start(program, arguments, log_path));
  children_.emplace_back(base::BaseName(program), std::move(child));
  return absl::OkStatus();
}

template <typename Ask>
absl::Status ControlPlane::WaitUntil(Ask what_is_missing) {
  const base::Duration until = clock_.Monotonic() + timeout_;
  while (true) {
    ASSIGN_OR_RETURN(const std::string missing, what_is_missing());
    if (missing.empty()) return absl::OkStatus();
    for (const auto& [name, child] : children_) {
      std::string how;
      if (child->Running(&how)) continue;
      return base::MakeStatus(absl::StatusCode::kUnavailable, "{} {}: {}", name, how,
                              child->LastWords(files_));
    }
    if (clock_.Monotonic() > until) return absl::DeadlineExceededError(missing);
    std::this_thread::sleep_for(kPoll);
  }
}

absl::StatusOr<std::string> ControlPlane::CheckNodes() {
  RETURN_IF_ERROR(api_.Create("/api/v1/nodes", DrillNode()));
  // Times as the API writes them compare as text.
  const std::string began = base::Rfc3339(began_);
  size_t nodes = 0;
  RETURN_IF_ERROR(WaitUntil([&]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const std::vector<json> leases, api_.List(kLeases));
    std::set<std::string> renewed;
    for (const json& lease : leases) {
      if (lease.value("spec", json::object()).value("renewTime", "") <= began) continue;
      renewed.insert(lease["metadata"].value("name", ""));
    }
    ASSIGN_OR_RETURN(const std::vector<json> all, api_.List("/api/v1/nodes"));
    nodes = all.size();
    size_t missing = 0;
    for (const json& node : all) {
      missing += !IsReady(node) || !renewed.contains(node["metadata"].value("name", "")) ? 1 : 0;
    }
    return missing == 0 ? std::string()
                        : fmt::format("{} of {} nodes did not come back", missing, nodes);
  }));
  return fmt::format("{} nodes are Ready and renew their leases", nodes);
}

absl::StatusOr<std::string> ControlPlane::CheckDeployment() {
  const std::string deployments = fmt::format("/apis/apps/v1/namespaces/{}/deployments", kName);
  const bool runs = !programs_.scheduler.empty() && !programs_.kwok.empty();
  RETURN_IF_ERROR(
      api_.Create("/api/v1/namespaces",
                  {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", Meta(kName)}}));
  RETURN_IF_ERROR(api_.Create(deployments, DrillDeployment(runs)));
  const std::string wanted = runs ? "readyReplicas" : "replicas";
  RETURN_IF_ERROR(WaitUntil([&]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const json deployment, api_.Get(deployments + "/" + kName));
    const int has = deployment.value("status", json::object()).value(wanted, 0);
    return has == kReplicas
               ? std::string()
               : fmt::format("{} of {} pods {}", has, kReplicas, runs ? "run" : "were made");
  }));
  return fmt::format("a new one has its {} pods{}", kReplicas, runs ? ", and they run" : "");
}

}  // namespace drill
