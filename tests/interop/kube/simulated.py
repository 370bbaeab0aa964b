"""A control plane with everything but machines: kwok plays nodes and pods."""

import http.client
import json
import threading
import time

from clients import pages
from cluster import Api, free_ports, wait_for

NAMESPACE = "default"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
POD_LIMIT = 110  # of a node


def add_size_flags(parser):
    parser.add_argument("--nodes", type=int, default=240)
    parser.add_argument("--deployments", type=int, default=20)
    parser.add_argument("--replicas", type=int, default=400, help="pods of each deployment")
    parser.add_argument("--timeout", type=int, metavar="SECONDS", default=900, help="limit for everything to run")


def check_size(parser, options):
    if options.deployments * options.replicas > options.nodes * POD_LIMIT:
        parser.error(f"a node holds {POD_LIMIT} pods: too few nodes")


def node(number):
    size = {"cpu": "64", "memory": "256Gi", "pods": str(POD_LIMIT)}
    return {"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": f"node-{number:04d}", "labels": {"kubernetes.io/hostname": f"node-{number:04d}"}},
            "status": {"allocatable": size, "capacity": size}}


def deployment(number, replicas):
    labels = {"app": f"app-{number:03d}"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"app-{number:03d}"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                # Without a controller's token there is nothing to mount, and
                # no simulated node could.
                "spec": {"automountServiceAccountToken": False,
                         "containers": [{"name": "main", "image": "none", "resources": {
                             "requests": {"cpu": "10m", "memory": "16Mi"}}}]}}}}


def create_all(port, path, bodies, workers=4):
    """Creates many objects over a few connections."""
    bodies, lock, errors = list(reversed(bodies)), threading.Lock(), []

    def work():
        api = Api(port)
        while not errors:
            with lock:
                if not bodies:
                    return
                body = bodies.pop()
            try:
                status, answer = api.request("POST", path, body)
                if status != 201:
                    errors.append(f"{body['metadata']['name']}: {status} {answer}")
            except (OSError, http.client.HTTPException) as error:
                errors.append(f"{body['metadata']['name']}: {error}")
    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise RuntimeError(errors[0])


def start_control_plane(cluster, kube, control, kwok, kwok_arguments=()):
    cluster.start_api_server(kube, ["--authorization-mode=AlwaysAllow", "--max-requests-inflight=2000",
                                    "--max-mutating-requests-inflight=1000"])
    folder = cluster.folder
    manager_port, scheduler_port = free_ports(2)
    cluster.start_process("kube-controller-manager", [
        control / "kube-controller-manager", f"--kubeconfig={cluster.kubeconfig}",
        "--service-account-private-key-file=sa.key", "--kube-api-qps=500", "--kube-api-burst=1000",
        "--leader-elect=false", f"--secure-port={manager_port}", "--bind-address=127.0.0.1", "--cert-dir=manager-certs",
        # On a busy machine heartbeats come late; nodes that are taken for lost
        # would turn the measurement into one of evictions.
        "--node-monitor-grace-period=10m"])
    (folder / "scheduler.json").write_text(json.dumps({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig), "qps": 1000, "burst": 2000}}))
    cluster.start_process("kube-scheduler", [
        control / "kube-scheduler", "--config=scheduler.json", f"--secure-port={scheduler_port}",
        "--bind-address=127.0.0.1", "--cert-dir=scheduler-certs"])
    stages = kwok.parent / "stage"
    files = [stages / "node" / "fast" / "node-initialize.yaml",
             stages / "node" / "heartbeat-with-lease" / "node-heartbeat-with-lease.yaml",
             *sorted((stages / "pod" / "fast").glob("pod-*.yaml"))]
    (folder / "stages.yaml").write_text("\n---\n".join(file.read_text() for file in files))
    cluster.start_process("kwok", [kwok / "kwok", "--config=stages.yaml", f"--kubeconfig={cluster.kubeconfig}",
                                   "--manage-all-nodes=true", *kwok_arguments])
    api = Api(cluster.api_port)
    wait_for("the default service account",
             lambda: api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default")[0] == 200, 60)


def ready_nodes(api):
    return sum(any(c["type"] == "Ready" and c["status"] == "True" for c in item.get("status", {}).get("conditions", []))
               for item in pages(api, "/api/v1/nodes"))


def ready_replicas(api):
    return sum(item.get("status", {}).get("readyReplicas", 0) for item in pages(api, DEPLOYMENTS))


def running_pods(api):
    return sum(item["status"].get("phase") == "Running" for item in pages(api, PODS))


def populate(cluster, options):
    """Creates nodes and deployments and waits until everything runs: seconds until the nodes were Ready, and until the pods were Running."""
    api = Api(cluster.api_port)
    wanted = options.deployments * options.replicas
    begun = time.monotonic()

    def all_run(what, count, target):
        def reached():
            for process in [cluster.server.process, *cluster.processes]:
                process.require_running()
            return count(api) >= target
        left = options.timeout - (time.monotonic() - begun)
        wait_for(what, reached, max(left, 1), 1.0)
        return time.monotonic() - begun

    create_all(cluster.api_port, "/api/v1/nodes", [node(n) for n in range(options.nodes)])
    print(f"created {options.nodes} nodes after {time.monotonic() - begun:.1f} s", flush=True)
    create_all(cluster.api_port, DEPLOYMENTS, [deployment(n, options.replicas) for n in range(options.deployments)])
    print(f"created {options.deployments} deployments after {time.monotonic() - begun:.1f} s", flush=True)
    nodes_s = all_run(f"{options.nodes} nodes Ready", ready_nodes, options.nodes)
    print(f"{options.nodes} nodes Ready after {nodes_s:.1f} s", flush=True)
    all_run(f"{wanted} replicas ready", ready_replicas, wanted)
    pods_s = all_run(f"{wanted} pods Running", running_pods, wanted)
    print(f"{wanted} pods Running after {pods_s:.1f} s", flush=True)
    return nodes_s, pods_s
