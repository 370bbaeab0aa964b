"""Starts a server under test and Kubernetes programs on it, and ends them."""

import ctypes
import http.client
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "integration"))
from engram_testing import free_ports  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
FETCH = HERE.parent / "fetch"
SKIPPED = 77
TOKEN = "interop-admin"


def fetch(*parts):
    """The folders of the programs of these parts."""
    done = subprocess.run([FETCH, "--path", *parts], stdout=subprocess.PIPE, text=True)
    if done.returncode == SKIPPED:
        print(done.stdout.strip())
        sys.exit(SKIPPED)
    if done.returncode:
        sys.exit("could not build the Kubernetes programs")
    return [pathlib.Path(line) for line in done.stdout.split()]




def wait_for(what, condition, seconds, interval=0.1):
    """Returns the first true value of condition(), or raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(interval)


def die_with_parent():
    # So that nothing stays behind even when this program is killed.
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    def __init__(self, name, command, folder):
        self.name = name
        self.command = command
        self.log = folder / f"{name}.log"
        self.out = open(self.log, "ab")
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=self.out,
                                        stderr=subprocess.STDOUT, cwd=folder, preexec_fn=die_with_parent)

    @property
    def pid(self):
        return self.process.pid

    def require_running(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with status {self.process.returncode}:\n{self.tail()}")

    def tail(self, lines=15):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.out.close()

    def stop(self, seconds=15):
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.out.close()


class Authority:
    """A certificate authority in a folder; each certificate it issues serves and asks on loopback."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ca = str(self.folder / "ca.crt")
        self.openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=interop-ca", "-days", "365")

    def openssl(self, *words, stdin=""):
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, input=stdin, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def issue(self, name):
        """NAME.crt and NAME.key."""
        self.openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.crt",
                     "-days", "365", "-extfile", "/dev/stdin", stdin="subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        (self.folder / f"{name}.csr").unlink()

    def file(self, name):
        return str(self.folder / name)


class Server:
    """The server under test, on ports and a data folder it keeps over restarts."""

    def __init__(self, binary, arguments, folder, name="interop", tls=None):
        """tls: an Authority that has issued "server" and "client"; then only clients with certificates get in."""
        self.binary = pathlib.Path(binary).resolve()
        self.folder = folder
        self.name = name
        self.data = folder / "data"
        self.port, peer = free_ports(2)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.peer_url = f"http://127.0.0.1:{peer}"
        self.initial_cluster = f"{name}={self.peer_url}"
        self.arguments = list(arguments)
        self.context = None
        if tls:
            self.arguments += ["--cert-file", tls.file("server.crt"), "--key-file", tls.file("server.key"), "--trusted-ca-file", tls.ca,
                               "--client-cert-auth"]
            self.context = ssl.create_default_context(cafile=tls.ca)
            self.context.load_cert_chain(tls.file("client.crt"), tls.file("client.key"))
        self.process = None

    def listening(self):
        return ["--listen-client-urls", self.url, "--advertise-client-urls", self.url, "--listen-peer-urls", self.peer_url]

    @property
    def command(self):
        return [self.binary, "--name", self.name, "--data-dir", self.data, *self.listening(),
                "--initial-advertise-peer-urls", self.peer_url, "--initial-cluster", self.initial_cluster, *self.arguments]

    def launch(self, command=None):
        self.process = Process("server", command or self.command, self.folder)

    def start(self, seconds=60):
        self.launch()
        wait_for("the server's health", self.healthy, seconds)

    def kill(self):
        if self.process is not None:
            self.process.kill()

    def healthy(self):
        self.process.require_running()
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5, context=self.context) as answer:
                return json.load(answer).get("health") == "true"
        except (OSError, ValueError):
            return False

    def status(self):
        """What the server says of itself, or nothing if it has no JSON gateway."""
        request = urllib.request.Request(f"{self.url}/v3/maintenance/status", data=b"{}",
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10, context=self.context) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return {}

    def usage(self):
        """CPU seconds and memory in MiB since its (last) start."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        memory = {}
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if value.strip().endswith("kB"):
                memory[key] = int(value.split()[0]) / 1024
        return {"cpu_s": cpu, "rss_mib": memory.get("VmRSS"), "anon_mib": memory.get("RssAnon"),
                "peak_rss_mib": memory.get("VmHWM")}

    def data_mib(self):
        blocks = 0
        for path in self.data.rglob("*"):
            try:
                if path.is_file():
                    blocks += path.stat().st_blocks
            except OSError:
                pass  # a file the server has just removed
        return blocks * 512 / 2**20


class Api:
    """Plain requests to the API server: quicker than a kubectl for each."""

    def __init__(self, port, seconds=60):
        self.port = port
        self.seconds = seconds
        self.connection = None
        # The API server signs its own certificate at start; only this machine's loopback lies between.
        self.context = ssl.create_default_context()
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE

    def patch(self, path, body):
        return self.request("PATCH", path, body, "application/merge-patch+json")

    def request(self, method, path, body=None, content_type="application/json"):
        """Returns (status, decoded body). Raises OSError or HTTPException when there is no answer."""
        if self.connection is None:
            self.connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=self.seconds, context=self.context)
        try:
            self.connection.request(method, path, None if body is None else json.dumps(body),
                                    {"Authorization": f"Bearer {TOKEN}", "Content-Type": content_type})
            answer = self.connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.connection = None
            raise
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode(errors="replace")

    def stream(self, path):
        """The lines of an answer that does not end soon, decoded, on a connection of their own."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=self.seconds, context=self.context)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
            answer = connection.getresponse()
            while line := answer.readline():
                yield json.loads(line)
        finally:
            connection.close()

    def get(self, path):
        status, body = self.request("GET", path)
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {body}")
        return body


class Cluster:
    """A temporary folder with everything in it; a context manager that leaves nothing running."""

    def __init__(self, server_binary, server_arguments, keep):
        self.keep = keep
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="interop-kube."))
        self.server = Server(server_binary, server_arguments, self.folder)
        self.servers = [self.server]
        self.processes = []
        self.kubectl_binary = None
        [self.api_port] = free_ports(1)
        self.api_server = None
        self.kubeconfig = self.folder / "kubeconfig"

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.stop()
        for server in self.servers:
            if server.process is not None:
                server.process.stop()
        if self.keep:
            print(f"kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start_process(self, name, command):
        process = Process(name, command, self.folder)
        self.processes.append(process)
        return process

    def write_kubeconfig(self, bin_dir):
        self.kubectl_binary = bin_dir / "kubectl"
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{self.api_port}",
                                                   "insecure-skip-tls-verify": True}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}))

    def start_api_server(self, bin_dir, arguments, seconds=120):
        """With keys and a token of its own, made here."""
        for command in (["genrsa", "-out", "sa.key", "2048"], ["rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub"]):
            subprocess.run(["openssl", *command], cwd=self.folder, check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
        (self.folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
        self.write_kubeconfig(bin_dir)
        self.launch_api_server([
            bin_dir / "kube-apiserver", f"--etcd-servers={self.server.url}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-key-file=sa.pub", "--service-account-signing-key-file=sa.key",
            "--service-cluster-ip-range=10.96.0.0/24", "--cert-dir=certs", f"--secure-port={self.api_port}",
            "--bind-address=127.0.0.1", "--token-auth-file=tokens.csv",
            "--disable-admission-plugins=ServiceAccount", *arguments], seconds)

    def launch_api_server(self, command, seconds=120):
        self.api_server = self.start_process("kube-apiserver", command)

        def ready():
            self.api_server.require_running()
            return self.ready()
        wait_for("the API server's /readyz", ready, seconds)

    def ready(self):
        try:
            return Api(self.api_port, seconds=5).request("GET", "/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def kubectl(self, *arguments, stdin=None, check=True):
        """Runs kubectl to its end, returns the finished process."""
        done = subprocess.run(self.kubectl_command(*arguments), input=stdin, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=120)
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: status {done.returncode}: {done.stderr.strip()}")
        return done

    def kubectl_command(self, *arguments):
        return [str(self.kubectl_binary), f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.folder}/cache",
                *arguments]
