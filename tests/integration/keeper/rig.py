"""What the keeper's scenarios share: clusters, a client, a load, a keeper with its configuration, restores and comparisons."""
import base64
import contextlib
import ctypes
import http.client
import json
import os
import random
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from engram_testing import BIN, ENGRAM, ROOT, Server, b64, free_port, scratch, wait_for  # noqa: E402

WRITER = str(ROOT / "build/release/bin/engram_writer")
KMS_PLUGIN = str(ROOT / "build/release/bin/engram_kms_plugin")
SHIFTED_CLOCK = str(ROOT / "build/release/bin/libengram_shifted_clock.so")
KEEPER = f"{BIN}/engram-keeper"
SEED = int(os.environ.get("ENGRAM_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
ALL = os.environ.get("KEEPER_TEST_ALL") == "1"
SEGMENT_SECONDS = 0.2

# Exit statuses, as docs/keeper/commands.md has them.
OK, USAGE, UNREACHABLE, DAMAGED, HOLE, KEY, UNSAFE, UNPROVEN = range(8)


class Skipped(Exception):
    """What a scenario needs is not on this machine."""


def rng(name):
    """A generator of its own for each use: one more draw here does not change what another place draws."""
    return random.Random(f"{SEED} {name}")


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: nothing outlives a test that was killed


def spawn(command, **options):
    return subprocess.Popen(command, preexec_fn=die_with_parent, **options)


def program(part, name):
    """A program of the reference set; Skipped where it is not there and cannot be built."""
    found = subprocess.run([str(ROOT / "tests/interop/fetch"), "--path", part], capture_output=True, text=True)
    path = f"{found.stdout.strip()}/{name}"
    if found.returncode or not os.path.exists(path):
        raise Skipped(f"no {name}")
    return path


def tool(name):
    path = shutil.which(name)
    if not path:
        raise Skipped(f"no {name}")
    return path


# --- clusters and their clients ---

class Tls:
    """A CA, a certificate for servers on loopback and one for a client."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder = folder
        self.ca = str(folder / "ca.pem")
        run = lambda *a: subprocess.run(["openssl", *a], check=True, capture_output=True, cwd=folder)
        run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test CA")
        (folder / "san").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        for name in ("server", "client"):
            run("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            run("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.pem",
                "-days", "2", "-extfile", "san")
        self.context = ssl.create_default_context(cafile=self.ca)
        self.context.load_cert_chain(self.file("client.pem"), self.file("client.key"))

    def file(self, name):
        return str(self.folder / name)


class Member(Server):
    """A cluster of one member, of either kind."""

    def __init__(self, kind, data_dir, tls=None, args=(), token=None):
        self.tls = tls
        self.kind = kind
        more = ["--snapshot-count=500", *args]
        if token:
            more.append(f"--initial-cluster-token={token}")
        self.settled = False  # whether others know its ports
        super().__init__(data_dir, program=ENGRAM if kind == "engram" else program("etcd", "etcd"), args=more)

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://{self.endpoint}"

    def command(self):
        command = super().command()
        if self.tls:
            for i, word in enumerate(command):
                if word.startswith(("--listen-client-urls=", "--advertise-client-urls=")):
                    command[i] = word.replace("http:", "https:")
            command += [f"--cert-file={self.tls.file('server.pem')}", f"--key-file={self.tls.file('server.key')}",
                        f"--trusted-ca-file={self.tls.ca}", "--client-cert-auth"]
        return command

    def start(self, wait=True):
        """Between finding a port and listening on it somebody may take it: a first start is tried again with others."""
        for _ in range(3):
            try:
                started = self.start_once()
                self.settled = True
                return started
            except AssertionError as error:
                if self.settled or "address already in use" not in str(error).lower():
                    raise
                self.client_port, self.peer_port = free_port(), free_port()
        return self.start_once()

    def start_once(self):
        self.log = open(self.log_path, "ab")
        self.log_start = self.log.tell()
        self.process = spawn(self.command(), stdout=self.log, stderr=self.log, env=self.env)
        self.log.close()
        wait_for("ready to serve client requests", lambda: self.says("ready to serve client requests") or self.died())
        if self.died():
            raise AssertionError(f"the server ended with {self.process.returncode}: {self.output()[-2000:]}")
        wait_for("an answer", self.answers)
        return self

    def answers(self):
        try:
            return self.client().call("/v3/kv/range", {"key": b64("x")})
        except (OSError, http.client.HTTPException, CallFailed):
            return None

    def client(self):
        return Client(self.endpoint, self.tls)

    def wipe(self):
        self.kill()
        shutil.rmtree(self.data_dir)


class CallFailed(Exception):
    def __init__(self, path, request, status, body):
        super().__init__(f"{path} {json.dumps(request)[:200]}: {status} {body}")
        self.status, self.body = status, body


class Client:
    """One connection to a gateway. One thread."""

    def __init__(self, endpoint, tls=None):
        host, port = endpoint.split(":")
        self.connection = (http.client.HTTPSConnection(host, int(port), timeout=60, context=tls.context) if tls
                           else http.client.HTTPConnection(host, int(port), timeout=60))

    def call(self, path, request=None):
        self.connection.request("POST", path, json.dumps(request or {}))
        response = self.connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise CallFailed(path, request, response.status, text.decode(errors="replace")[:300])
        return json.loads(text)

    def put(self, key, value, lease=0):
        return revision_of(self.call("/v3/kv/put", {"key": b64(key), "value": b64(value), "lease": str(lease)}))

    def delete(self, key, end=""):
        return revision_of(self.call("/v3/kv/deleterange", {"key": b64(key), "range_end": b64(end)}))

    def grant(self, ttl, lease=0):
        return int(self.call("/v3/lease/grant", {"TTL": str(ttl), "ID": str(lease)})["ID"])

    def compact(self, revision):
        return self.call("/v3/kv/compaction", {"revision": str(revision), "physical": True})

    def revision(self):
        return revision_of(self.call("/v3/kv/range", {"key": b64("x"), "count_only": True}))

    def state(self, revision=0):
        """(revision, {key: (value, create revision, mod revision, version, lease)}) of every key."""
        answer = self.call("/v3/kv/range", {"key": b64("\0"), "range_end": b64("\0"), "revision": str(revision)})
        return revision or revision_of(answer), {
            base64.b64decode(kv["key"]).decode(): (kv.get("value", ""), int(kv["create_revision"]), int(kv["mod_revision"]), int(kv["version"]),
                                                   int(kv.get("lease", 0))) for kv in answer.get("kvs", [])}

    def hash_kv(self, revision=0):
        """(revision, compact revision, hash)"""
        answer = self.call("/v3/maintenance/hashkv", {"revision": str(revision)})
        return revision or revision_of(answer), max(0, int(answer.get("compact_revision", 0))), int(answer["hash"])

    def watch(self, key, start_revision, until, seconds=20):
        """Reads messages of a watch of its own until `until` likes one, which is returned."""
        self.connection.timeout = seconds
        self.connection.request("POST", "/v3/watch", json.dumps({"create_request": {"key": b64(key), "range_end": b64("\0"),
                                                                                  "start_revision": str(start_revision)}}))
        response = self.connection.getresponse()
        while True:
            line = response.readline()
            if not line:
                raise AssertionError("the watch ended")
            message = json.loads(line).get("result", {})
            if until(message):
                self.connection.close()
                return message


def revision_of(answer):
    return int(answer["header"]["revision"])


class Load:
    """Threads that change keys in every way, and one that writes down what the cluster holds at many revisions. `acked` has (revision, sent,
    answered) of every change, by the wall clock."""

    apart = 40  # revisions between two states that are written down, at most

    def __init__(self, member, name, threads=2, compactions=True, records=40):
        self.member, self.name, self.records_wanted, self.compactions = member, name, records, compactions
        self.acked, self.records, self.hashes = [], {}, {}
        self.failures = []
        self.leases = []
        self.lock = threading.Lock()
        self.stopping = False
        self.done = 0
        self.threads = [threading.Thread(target=self.guarded, args=(self.change, i), daemon=True) for i in range(threads)]
        self.threads.append(threading.Thread(target=self.guarded, args=(self.record, threads), daemon=True))
        for thread in self.threads:
            thread.start()

    def guarded(self, work, number):
        client = self.member.client()
        try:
            work(client, rng(f"{self.name} {number}"))
        except (OSError, http.client.HTTPException, ValueError):
            pass  # the server was killed
        except Exception as error:  # handed to finish()
            self.failures.append(error)
        finally:
            client.connection.close()

    def change(self, client, r):
        mine = []
        key = lambda: f"/registry/{r.choice(['pods', 'nodes', 'leases', 'secrets'])}/{r.randrange(60):02}"
        value = lambda: f"{r.randrange(10**9):09}" + "v" * r.choice([0, 20, 300, 300, 4000])
        put = lambda: {"request_put": {"key": b64(key()), "value": b64(value())}}
        while not self.stopping:
            kind, sent = r.random(), time.time()
            try:
                if kind < 0.55:
                    lease = r.choice(mine) if mine and r.random() < 0.2 else 0
                    revision = client.put(key(), value(), lease)
                elif kind < 0.65:
                    begin = key()
                    revision = client.delete(begin, r.choice(["", begin[:-1] + "9"]))
                elif kind < 0.9:
                    operations = {json.dumps(o["request_put"]["key"]): o for o in (put() for _ in range(r.randrange(2, 6)))}
                    nested = {"request_txn": {"success": [{"request_delete_range": {"key": b64("/other/" + str(r.randrange(9)))}},
                                                          {"request_put": {"key": b64("/nested/" + str(r.randrange(9))), "value": b64(value())}}]}}
                    revision = revision_of(client.call("/v3/kv/txn", {"success": [*operations.values(), nested]}))
                elif kind < 0.95:
                    mine.append(client.grant(r.randrange(300, 9000)))
                    revision = client.put(f"/leased/{r.randrange(30)}", value(), mine[-1])
                elif kind < 0.98 and len(mine) > 3:
                    revision = revision_of(client.call("/v3/lease/revoke", {"ID": str(mine.pop(r.randrange(len(mine))))}))
                elif self.compactions and self.done > 100 and r.random() < 0.3:
                    revision = revision_of(client.compact(max(1, self.newest() - r.randrange(30, 300))))
                else:
                    continue
            except CallFailed as error:
                if "compacted" in str(error.body):
                    continue
                raise
            with self.lock:
                self.acked.append((revision, sent, time.time()))
                self.done += 1

    def record(self, client, r):
        last = 0
        while not self.stopping:
            if self.newest() < last + r.randrange(1, self.apart):
                time.sleep(0.002)
                continue
            try:
                last, state = client.state(self.newest())
                if len(self.records) >= self.records_wanted:
                    self.records.pop(r.choice(list(self.records)), None)
                self.records[last] = state
                if r.random() < 0.5:
                    triple = client.hash_kv(last)
                    self.hashes[triple[:2]] = triple[2]
            except CallFailed as error:
                if "compacted" not in str(error.body) and "future" not in str(error.body):
                    raise

    @property
    def seconds(self):
        return max(a[2] for a in self.acked) - min(a[1] for a in self.acked)

    def newest(self):
        with self.lock:
            return max((a[0] for a in self.acked[-8:]), default=1)

    def until(self, changes):
        wait_for(f"{changes} changes", lambda: self.done >= changes or self.failures, seconds=120)
        if self.failures:
            raise self.failures[0]
        return self

    def finish(self):
        self.stopping = True
        for thread in self.threads:
            thread.join()
        if self.failures:
            raise self.failures[0]
        return self


class FastLoad(Load):
    """The same at a rate that Python does not reach: the changes come from a program of its own."""

    apart = 600

    def __init__(self, member, name, rate, records):
        super().__init__(member, name, threads=0, records=records)
        command = [WRITER, "--endpoint", member.url, "--rate", str(rate), "--seed", str(rng(name).randrange(1 << 32))]
        if member.tls:
            command += ["--ca", member.tls.ca, "--cert", member.tls.file("client.pem"), "--key", member.tls.file("client.key")]
        self.writer = spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.threads.append(threading.Thread(target=self.read, daemon=True))
        self.threads[-1].start()

    def read(self):
        for line in self.writer.stdout:
            revision, sent, answered = line.split()
            with self.lock:
                self.acked.append((int(revision), float(sent), float(answered)))
                self.done += 1

    def finish(self):
        self.writer.stdin.close()
        self.writer.wait(timeout=60)
        return super().finish()


# --- the keeper ---

class Run:
    """A command that has ended."""

    def __init__(self, command, code, out, err, seconds):
        self.command, self.code, self.out, self.err, self.seconds = command, code, out, err, seconds

    @property
    def json(self):
        return json.loads(self.out)

    def __str__(self):
        return f"{' '.join(self.command)}: exit status {self.code}\n{self.out[-1500:]}{self.err[-1500:]}"


class Keeper:
    """A configuration with its keys and stores, and the commands on it."""

    def __init__(self, folder, endpoints, tls=None, stores=1, segment=SEGMENT_SECONDS, full="1h", encryption=True, more="", cluster_more="",
                 policy_more=""):
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.endpoints = endpoints if isinstance(endpoints, list) else [endpoints]
        self.tls, self.segment, self.full, self.encryption = tls, segment, full, encryption
        self.more, self.cluster_more, self.policy_more = more, cluster_more, policy_more
        self.state_dir = self.folder / "state"
        self.port = free_port()
        self.daemon = None
        self.env = None  # of its processes; None: this one's
        self.stores = []
        for i in range(stores):
            path = self.folder / f"store{i}"
            path.mkdir()
            self.stores.append({"name": f"store{i}", "type": "file", "path": str(path)})
        self.identity, self.recovery, self.sign = (self.folder / n for n in ("identity", "recovery", "sign"))
        made = self.plain("keys", "generate", "--identity", str(self.identity), "--signing", str(self.sign))
        assert made.code == OK, made
        assert self.plain("keys", "generate", "--identity", str(self.recovery)).code == OK
        self.recipients = [line.split(": ")[1].split("\n")[0] for line in (self.identity.read_text(), self.recovery.read_text())]
        self.signer = made.out.split("public  ")[1].strip()
        self.config = self.folder / "keeper.yaml"
        self.configure()

    def store(self, number=0):
        return Path(self.stores[number]["path"])

    def configure(self, **changes):
        for name, value in changes.items():
            assert hasattr(self, name)
            setattr(self, name, value)
        lines = [f"state_dir: {self.state_dir}", f"listen: 127.0.0.1:{self.port}", "stores:"]
        lines += [f"  - {json.dumps(store)}" for store in self.stores]
        if self.encryption:
            lines += ["encryption:", f"  recipients: {json.dumps(self.recipients)}"]
            if self.identity:
                lines.append(f"  identity_file: {self.identity}")
        else:
            lines.append("encryption: none")
        lines += [f"signing_key_file: {self.sign}", *self.more.splitlines(), "clusters:", "  - name: prod",
                  f"    endpoints: {json.dumps(self.endpoints)}",
                  f"    policy: {{like: {'critical' if self.segment else 'dev'}, full_every: {self.full}, "
                  f"segment_every: {f'{int(self.segment * 1000)}ms' if self.segment else 'none'}{self.policy_more}}}"]
        if self.tls:
            lines.append(f"    tls: {{ca_file: {self.tls.ca}, cert_file: {self.tls.file('client.pem')}, key_file: {self.tls.file('client.key')}}}")
        lines += ["    " + line for line in self.cluster_more.splitlines()]
        self.config.write_text("\n".join(lines) + "\n")

    def plain(self, *arguments, seconds=120):
        command = [KEEPER, *arguments]
        began = time.monotonic()
        process = spawn(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{' '.join(command)}: still running after {seconds} s")
        return Run(command, process.returncode, out, err, time.monotonic() - began)

    def run(self, *arguments, **options):
        return self.plain("--config", str(self.config), *arguments, **options)

    def ok(self, *arguments, **options):
        run = self.run(*arguments, **options)
        assert run.code == OK, run
        return run

    def fails(self, code, *arguments, **options):
        run = self.run(*arguments, **options)
        assert run.code == code, f"wanted exit status {code}; {run}"
        assert run.err.strip(), run
        return run

    def begin(self, *arguments):
        return spawn([KEEPER, "--config", str(self.config), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.env)

    def json(self, *arguments, **options):
        return self.ok(*arguments, "-o", "json", **options).json

    # the daemon

    @property
    def log_path(self):
        return self.folder / "daemon.log"

    def start(self, wait=True):
        for attempt in range(3):
            with open(self.log_path, "ab") as log:
                self.log_start = log.tell()
                self.daemon = spawn([KEEPER, "--config", str(self.config), "run"], stdout=log, stderr=log, env=self.env)
            try:
                if wait:
                    wait_for("the keeper to guard", self.guards)
                return self
            except AssertionError as error:
                # Somebody took the port between finding it and listening on it.
                if attempt == 2 or "address already in use" not in str(error).lower():
                    raise
                self.configure(port=free_port())
        raise AssertionError("not reached")

    def log(self):
        with open(self.log_path, "rb") as f:
            f.seek(self.log_start)
            return f.read().decode(errors="replace")

    def guards(self):
        if self.daemon.poll() is not None:
            raise AssertionError(f"the keeper ended with {self.daemon.returncode}: {self.log()[-1500:]}")
        metrics = self.metrics()
        return metrics and metrics.get("engram_keeper_last_full_revision", 0) > 0 and metrics.get("engram_keeper_guarded") == 1

    def metrics(self):
        """{name or name/store: value}; None while nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        except OSError:
            return None
        finally:
            connection.close()
        values = {}
        for line in text.splitlines():
            if not line.startswith("engram_keeper_"):
                continue
            name, value = line.rsplit(" ", 1)
            store = name.split('store="')[1].split('"')[0] if 'store="' in name else ""
            values[name.split("{")[0] + (f"/{store}" if store else "")] = float(value)
        return values

    def metric(self, name):
        return (self.metrics() or {}).get("engram_keeper_" + name)

    def archived(self, revision):
        """Waits until everything up to `revision` is archived and in every store."""
        def there():
            metrics = self.metrics() or {}
            return metrics.get("engram_keeper_archived_revision", 0) >= revision and metrics.get("engram_keeper_spool_bytes") == 0
        wait_for(f"revision {revision} to be archived", there)

    def kill(self, sig=signal.SIGKILL):
        if self.daemon is None:
            return None
        if self.daemon.poll() is None:
            self.daemon.send_signal(sig)
        return self.daemon.wait(timeout=60)

    def stop(self):
        code = self.kill(signal.SIGTERM)
        assert code == OK, f"the keeper ended with {code}: {self.log()[-800:]}"

    # what lies in the stores

    def objects(self, number=0, kind=""):
        """Paths in a store, oldest name first. kind: fulls, archive, log."""
        return sorted(p for p in self.store(number).rglob("*") if p.is_file() and ".incoming" not in p.parts and (not kind or kind in p.parts))

    def windows(self):
        return self.json("windows")

    def living(self):
        return next(t for t in self.windows() if t["living"])

    def restore(self, to, name, *flags, **options):
        """Restores into a new folder; (folder, the report)."""
        target = self.folder / name
        return target, self.json("restore", "--to", str(to), "--data-dir", str(target), *flags, **options)


class Rig:
    """A cluster, and a keeper on it."""

    def __init__(self, folder, kind, tls=False, token=None, args=(), **options):
        self.folder, self.kind = folder, kind
        self.tls = Tls(folder / "tls") if tls else None
        self.members = []
        self.member = Member(kind, folder / "m", tls=self.tls, args=args, token=token)
        self.members.append(self.member)
        self.member.start()
        self.client = self.member.client()
        self.keeper = Keeper(folder / "keeper", self.member.url, tls=self.tls, **options)
        self.keepers = [self.keeper]

    def another_keeper(self, name, **options):
        keeper = Keeper(self.folder / name, self.member.url, tls=self.tls, **options)
        self.keepers.append(keeper)
        return keeper

    def on(self, data_dir, port=None, **options):
        """Starts a server on a restored directory."""
        member = Member(self.kind, data_dir, tls=self.tls, **options)
        member.name = "default"
        if port:
            member.client_port, member.settled = port, True
        self.members.append(member)
        return member.start()

    def replace(self, data_dir):
        """The cluster goes, and a server on `data_dir` takes its endpoint."""
        self.member.kill()
        port = self.member.client_port
        self.member = self.on(data_dir, port=port)
        self.client = self.member.client()
        return self.member

    def close(self):
        for keeper in self.keepers:
            if keeper.daemon is not None and keeper.daemon.poll() is None:
                keeper.daemon.send_signal(signal.SIGCONT)
                keeper.kill()
        for member in self.members:
            if member.process is not None:
                member.kill()


@contextlib.contextmanager
def rig(kind, **options):
    with scratch() as folder:
        made = None
        try:
            made = Rig.__new__(Rig)
            made.members, made.keepers = [], []
            made.__init__(folder, kind, **options)
            yield made
        finally:
            made.close()


# --- comparing ---

def compare(wanted, got, what):
    """Key by key, with the first difference in words."""
    for key in sorted(wanted.keys() | got.keys()):
        if wanted.get(key) != got.get(key):
            raise AssertionError(f"{what}: {key}: the live cluster had {str(wanted.get(key))[:150]}, restored is {str(got.get(key))[:150]}")


def last_change(r, load):
    """Its revision. It is archived, and noted in the load with the state that the cluster then has."""
    last = r.client.put("/last", "x")
    load.records[last] = r.client.state()[1]
    r.keeper.archived(last)
    return last


def check_restored(r, load, revision, data_dir):
    """A server on a directory that was restored without a bump holds what the live cluster answered. (keys compared, whether HashKV was)"""
    member = r.on(data_dir)
    try:
        client = member.client()
        now, state = client.state()
        assert now == revision, f"restored to {revision}, the server is at {now}"
        compare(load.records[revision], state, f"revision {revision}")
        hashed = 0
        now = client.hash_kv(revision)[1]
        for (at, compacted), known in sorted(load.hashes.items()):
            if at != revision or compacted < now:
                continue
            # Only at equal (revision, compact revision) are two hashes comparable: the restored cluster is compacted as the live one was.
            if compacted > now:
                client.compact(compacted)
            triple = client.hash_kv(revision)
            assert triple[1] == compacted and triple[2] == known, f"HashKV at {(at, compacted)}: the live cluster answered {known}, restored {triple}"
            hashed += 1
        return len(state), hashed
    finally:
        member.kill()


def scenario(kinds=("engram", "etcd"), quick=("engram",), long=False):
    """Marks a scenario. `kinds`: of clusters it runs against; (None,): it chooses itself. `quick`: those of them that run without --all, too.
    `long`: none does."""
    def mark(function):
        function.scenario = {"kinds": kinds, "quick": () if long else tuple(kind for kind in kinds if kind in quick or kind is None)}
        return function
    return mark
