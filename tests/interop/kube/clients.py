"""Clients of an API server that go on while what is below it is destroyed: one that writes, one that follows."""

import http.client
import json
import threading
import time

from cluster import Api

NAMESPACE = "interop"
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


def config_map(name, data, labels=None, version=None):
    metadata = {"name": name, "namespace": NAMESPACE}
    if labels:
        metadata["labels"] = labels
    if version:
        metadata["resourceVersion"] = version
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def version_of(item):
    return int(item["metadata"]["resourceVersion"])


def pages(api, path):
    """Every object of a list, page by page."""
    more = ""
    while True:
        page = api.get(f"{path}{'&' if '?' in path else '?'}limit=500{more}")
        yield from page["items"]
        if not page["metadata"].get("continue"):
            return
        more = f"&continue={page['metadata']['continue']}"


class Writer(threading.Thread):
    """Creates objects and updates one, and notes what was acknowledged."""

    def __init__(self, port, number):
        super().__init__(daemon=True)
        self.api = Api(port, seconds=30)
        self.number = number
        self.tried = 0
        self.created = {}  # name: (version, when it was acknowledged)
        self.counter = 0  # the last acknowledged value
        self.counter_tried = 0
        self.ended = threading.Event()

    def run(self):
        while not self.ended.is_set():
            status = 0
            self.tried += 1
            name = f"written-{self.number}-{self.tried:06d}"
            try:
                status, body = self.api.request("POST", MAPS, config_map(name, {"n": str(self.tried)}, {"set": "written"}))
                if status == 201:
                    self.created[name] = (version_of(body), time.time())
                self.counter_tried += 1
                item = config_map(f"counter-{self.number}", {"n": str(self.counter_tried)})
                status, _ = self.api.request("PUT", f"{MAPS}/counter-{self.number}", item)
                if status == 404:
                    status, _ = self.api.request("POST", MAPS, item)
                if status in (200, 201):
                    self.counter = self.counter_tried
            except (OSError, http.client.HTTPException):
                pass  # not acknowledged, so nothing is promised
            if not 200 <= status < 300:
                self.ended.wait(0.05)  # the store is away; no need to spin

    def acknowledged(self):
        return len(self.created)


class Informer(threading.Thread):
    """Follows one kind as Kubernetes' own clients do: lists, watches from there, and lists again only when it is told that what it knows is
    too old. One thread; what it holds may be read by others once it has stopped, its counters at any time."""

    def __init__(self, port, path):
        super().__init__(daemon=True)
        self.api = Api(port, seconds=10)
        self.path = path
        self.objects = {}  # (namespace, name): version
        self.version = None  # nothing: has to list
        self.lists = 0
        self.gone = []  # versions of which it was told that they are too old
        self.failure = None
        self.ended = threading.Event()

    def run(self):
        while not self.ended.is_set():
            try:
                if self.version is None:
                    self.list()
                self.watch()
            except (OSError, http.client.HTTPException):
                self.ended.wait(0.1)  # nobody is there: again, from the same version
            except Exception as error:  # told by stop()
                self.failure = error
                return

    def stop(self):
        self.ended.set()
        self.join(30)
        if self.failure is not None:
            raise self.failure
        return self.objects

    @staticmethod
    def key(item):
        return item["metadata"].get("namespace"), item["metadata"]["name"]

    def list(self):
        status, body = self.api.request("GET", self.path)
        if status != 200:
            raise OSError(f"{status} {body}")
        self.objects = {self.key(item): version_of(item) for item in body["items"]}
        self.version = int(body["metadata"]["resourceVersion"])
        self.lists += 1

    def watch(self):
        for event in self.api.stream(f"{self.path}?watch=true&allowWatchBookmarks=true&timeoutSeconds=5&resourceVersion={self.version}"):
            item = event.get("object", event)  # a refusal is a bare status
            if event.get("type", "ERROR") == "ERROR":
                if item.get("code") != 410:
                    raise OSError(f"watch: {item}")
                self.gone.append(self.version)
                self.version = None
                return
            if event["type"] == "DELETED":
                self.objects.pop(self.key(item), None)
            elif event["type"] in ("ADDED", "MODIFIED"):
                self.objects[self.key(item)] = version_of(item)
            # A version that falls would mean that the store went back in time under its clients.
            if version_of(item) < self.version:
                raise AssertionError(f"{self.path}: version {version_of(item)} after {self.version}")
            self.version = version_of(item)
