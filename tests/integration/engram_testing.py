"""Starting servers and talking to them, for the integration tests. Standard library only; loopback only; ports are free ones."""
import base64
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# Where the programs under test are: build/asan/bin, say. Absolute, because tests change the working directory.
BIN = str(Path(os.environ.get("ENGRAM_BIN_DIR", ROOT / "build/bin")).absolute())
ENGRAM = f"{BIN}/engram"


given_ports = set()


def free_ports(count):
    """Ports nobody listens on now, each given once, below those that the kernel gives to connections: a server may listen on them much later."""
    ports = []
    for port in random.SystemRandom().sample(range(20000, 32000), 200 + count):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port in given_ports:
            continue
        given_ports.add(port)
        ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError("no free ports")


def free_port():
    return free_ports(1)[0]


def wait_for(what, condition, seconds=60):
    """Calls `condition` until it gives something true; fails with `what` after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s for: {what}")


def b64(data):
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


class Server:
    """One server process on a data directory. The same ports and ids after restart()."""

    def __init__(self, data_dir, program=None, args=(), env=None):
        self.program = program or ENGRAM
        self.data_dir = str(data_dir)
        self.client_port = free_port()
        self.peer_port = free_port()
        self.args = list(args)
        self.env = env
        self.log_path = self.data_dir.rstrip("/") + ".log"
        self.process = None

    @property
    def endpoint(self):
        return f"127.0.0.1:{self.client_port}"

    def command(self):
        client, peer = f"http://{self.endpoint}", f"http://127.0.0.1:{self.peer_port}"
        return [self.program, "--name=m1", f"--data-dir={self.data_dir}", f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=m1={peer}", *self.args]

    def start(self, wait=True):
        self.log = open(self.log_path, "ab")
        self.log_start = self.log.tell()
        self.process = subprocess.Popen(self.command(), stdout=self.log, stderr=self.log, env=self.env)
        if wait:
            wait_for("ready to serve client requests", lambda: self.says("ready to serve client requests") or self.died())
            if self.died():
                raise AssertionError(f"the server ended with {self.process.returncode}: {self.output()[-2000:]}")
        return self

    def died(self):
        return self.process.poll() is not None

    def output(self):
        with open(self.log_path, "rb") as f:
            f.seek(self.log_start)
            return f.read().decode(errors="replace")

    def says(self, text):
        return text in self.output()

    def kill(self, sig=signal.SIGKILL):
        if self.process and self.process.poll() is None:
            self.process.send_signal(sig)
            self.process.wait(timeout=120)
        return self.process.returncode

    def stop(self):
        return self.kill(signal.SIGTERM)

    def restart(self, sig=signal.SIGTERM):
        self.kill(sig)
        return self.start()

    def http(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.client_port, timeout=120)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def call(self, path, request=None):
        """A gateway call; (status, decoded body)."""
        status, _, body = self.http("POST", path, json.dumps(request or {}))
        return status, json.loads(body)

    def ok(self, path, request=None):
        status, body = self.call(path, request)
        if status != 200:
            raise AssertionError(f"{path} {request}: {status} {body}")
        return body

    def put(self, key, value, **more):
        return self.ok("/v3/kv/put", {"key": b64(key), "value": b64(value), **more})

    def get(self, key, end="", **more):
        request = {"key": b64(key), **more}
        if end:
            request["range_end"] = b64(end)
        return self.ok("/v3/kv/range", request)

    def everything(self, **more):
        return self.get("\0", "\0", **more)


@contextlib.contextmanager
def scratch():
    path = tempfile.mkdtemp(prefix="engram-test-")
    try:
        yield Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def running(data_dir, **options):
    server = Server(data_dir, **options).start()
    try:
        yield server
    finally:
        server.kill()


def unpack(archive, into):
    """Unpacks a .tar.zst of a data directory (or of one file, which is given then)."""
    into.mkdir(parents=True, exist_ok=True)
    tar = subprocess.run(["zstd", "-dcq", str(archive)], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-xSf", "-", "-C", str(into)], input=tar, check=True)
    return into if (into / "member").exists() else next(into.iterdir())


class Suite:
    """Runs test functions by name; prints a line for each and the totals."""

    def __init__(self):
        self.tests = []

    def test(self, function):
        self.tests.append(function)
        return function

    def main(self):
        wanted = sys.argv[1:]
        passed = failed = 0
        for function in self.tests:
            if wanted and function.__name__ not in wanted:
                continue
            began = time.monotonic()
            try:
                function()
                passed += 1
                print(f"ok     {function.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
            except Exception as error:  # a failed check, or a broken test: both are failures
                failed += 1
                print(f"FAILED {function.__name__}: {type(error).__name__}: {error}"[:600], flush=True)
        print(f"{passed} passed, {failed} failed")
        return 1 if failed or not passed else 0
