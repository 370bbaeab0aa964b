"""Stores that are down, slow, read-only, full, list late or lose things for a while."""
import errno
import http.client
import http.server
import os
import re
import shutil
import socket
import subprocess
import threading
import urllib.parse

from rig import (ALL, DAMAGED, OK, UNREACHABLE, UNSAFE, Load, Skipped, check_restored, compare, free_port, last_change, program, rig, rng,
                 scenario, spawn, wait_for)


class Versitygw:
    """A real S3 server on a folder."""

    def __init__(self, folder):
        self.binary = program("versitygw", "versitygw")
        self.folder = folder
        (folder / "data/cp-backups").mkdir(parents=True)
        (folder / "meta").mkdir()
        self.credentials = folder / "credentials"
        self.credentials.write_text("aws_access_key_id = tester\naws_secret_access_key = not-a-secret\n")
        self.credentials.chmod(0o600)
        self.port = free_port()
        self.process = None

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = spawn([self.binary, "--port", f"127.0.0.1:{self.port}", "--access", "tester", "--secret", "not-a-secret", "--quiet",
                                  "posix", "--sidecar", str(self.folder / "meta"), str(self.folder / "data")], stdout=log, stderr=log)
        def there():
            assert self.process.poll() is None, (self.folder / "log").read_text()[-500:]
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return True
            except OSError:
                return False
        wait_for("versitygw", there)
        return self

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def store(self, endpoint=None, **more):
        return {"name": "s3", "type": "s3", "endpoint": endpoint or f"http://127.0.0.1:{self.port}", "bucket": "cp-backups", "prefix": "prod/own",
                "region": "us-east-1", "credentials_file": str(self.credentials), **more}


class Proxy:
    """TCP that can be slowed down or stopped. `limit`: bytes a connection may still bring from the server; None: all."""

    def __init__(self, port, limit=None, rate=None):
        self.target, self.limit, self.rate = port, limit, rate
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.stalled = threading.Event()
        self.over = threading.Event()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            threading.Thread(target=self.pump, args=(near, far, None), daemon=True).start()
            threading.Thread(target=self.pump, args=(far, near, self.limit), daemon=True).start()

    def pump(self, source, sink, limit):
        brought = 0
        try:
            while True:
                data = source.recv(4096 if self.rate else 65536)
                if not data:
                    break
                brought += len(data)
                if limit is not None and brought > limit:
                    self.stalled.set()
                    self.over.wait()
                    return
                sink.sendall(data)
                if self.rate:
                    self.over.wait(len(data) / self.rate)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def close(self):
        self.over.set()
        self.listener.close()


def block(folder):
    """Makes a store's folder useless also for root, which no mode stops: it is moved away."""
    folder.rename(str(folder) + ".away")


def unblock(folder):
    os.rename(str(folder) + ".away", folder)


@scenario()
def r66_a_store_that_misses_a_point_is_told(kind):
    with rig(kind, stores=2, segment=0) as r:
        r.client.put("/a", "1")
        r.keeper.ok("backup")
        block(r.keeper.store(1))
        r.client.put("/b", "2")
        missed = r.keeper.fails(UNREACHABLE, "backup", "--timeout", "1s")
        assert "store1" in missed.err, missed
        status = r.keeper.json("status")[0]
        assert not status["protected"] and status["risks"], status
        newest = r.client.state()
        folder, report = r.keeper.restore("latest", "from-one")
        compare(newest[1], r.on(folder).client().state()[1], "from the store that has it")
        unblock(r.keeper.store(1))
        r.client.put("/c", "3")
        r.keeper.ok("backup")
        # What waited in the spool has been brought by now, or is by the next one.
        def everywhere():
            r.keeper.ok("backup")
            return all(set(o["stores"]) == {"store0", "store1"} for o in r.keeper.json("list"))
        wait_for("both stores to have every full", everywhere, seconds=30)
        r.keeper.ok("verify", "--all")
        folder, report = r.keeper.restore(newest[0], "from-other", "--from", "store1", "--no-bump")
        compare(newest[1], r.on(folder).client().state()[1], "from the store that was down")


@scenario()
def a_store_that_is_down_gets_its_copies_later(kind):
    """A folder and a real S3 server; the server stops, the archive goes on; the server comes back."""
    s3 = None
    try:
        with rig(kind) as r:
            s3 = Versitygw(r.folder / "s3").start()
            r.keeper.configure(stores=[*r.keeper.stores, s3.store()])
            r.keeper.start()
            r.keeper.archived(r.client.put("/up", "1"))
            s3.stop()
            load = Load(r.member, "load").until(150).finish()
            last = r.client.put("/down", "1")
            load.records[last] = r.client.state()[1]
            wait_for("the archive to go on", lambda: r.keeper.metric("archived_revision") >= last)
            wait_for("the store to be called down", lambda: r.keeper.metric("store_up/s3") == 0)
            assert r.keeper.metric("store_up/store0") == 1 and r.keeper.metric("store_behind_objects/s3") > 0
            s3.start()
            wait_for("the copies to catch up", lambda: r.keeper.metric("store_behind_objects/s3") == 0 and r.keeper.metric("spool_bytes") == 0)
            assert r.keeper.metric("store_up/s3") == 1
            r.keeper.stop()
            r.keeper.ok("verify", "--all", "--deep")
            shutil.rmtree(r.keeper.store(0))
            r.keeper.store(0).mkdir()
            folder, _ = r.keeper.restore(last, "from-s3", "--from", "s3", "--no-bump")
            check_restored(r, load, last, folder)
    finally:
        if s3 is not None:
            s3.stop()


@scenario(kinds=("engram",))
def a_slow_store_does_not_hold_the_others_up(kind):
    s3 = proxy = None
    try:
        with rig(kind) as r:
            s3 = Versitygw(r.folder / "s3").start()
            proxy = Proxy(s3.port, rate=2_000)
            r.keeper.configure(stores=[*r.keeper.stores, s3.store(f"http://127.0.0.1:{proxy.port}")])
            r.keeper.start()
            load = Load(r.member, "load").until(300).finish()
            last = r.client.put("/last", "1")
            load.records[last] = r.client.state()[1]
            wait_for("the folder to have everything", lambda: r.keeper.metric("archived_revision") >= last
                     and r.keeper.metric("store_behind_objects/store0") == 0)
            behind = r.keeper.metric("store_behind_objects/s3")
            assert behind > 0, "the slow store was not slow: nothing was tried here"
            folder, _ = r.keeper.restore(last, "now", "--from", "store0", "--no-bump")
            check_restored(r, load, last, folder)
            proxy.rate = None
            r.keeper.archived(last)
            return f"{behind:.0f} objects behind when the other store had everything"
    finally:
        for one in (proxy and proxy.close, s3 and s3.stop):
            if one:
                one()


def damage(r, how, path, others):
    data = path.read_bytes()
    path.chmod(0o600)
    if how == "flipped":
        at = rng("flip " + path.name).randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
    elif how == "flipped in its header":
        at = data.index(b"-> X25519 ") + 60
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
    elif how == "truncated":
        path.write_bytes(data[:len(data) // 2])
    elif how == "emptied":
        path.write_bytes(b"")
    elif how == "missing":
        path.unlink()
    elif how == "swapped":
        path.write_bytes(others.read_bytes())
    return data


@scenario()
def r67_damaged_objects_are_named_and_the_other_copy_serves(kind):
    """Each of six kinds of damage, on a full and on a segment, in the first of two stores."""
    with rig(kind, stores=2) as r:
        load = Load(r.member, "load", compactions=False)
        r.keeper.start()
        for part in range(1, 5):
            load.until(part * 80)
            r.keeper.archived(load.newest())
        load.finish()
        last = r.client.put("/last", "1")
        load.records[last] = r.client.state()[1]
        r.keeper.archived(last)
        r.keeper.stop()
        r.keeper.ok("verify", "--all")
        segments = r.keeper.objects(kind="archive")
        assert len(segments) >= 3, segments
        full, segment = r.keeper.objects(kind="fulls")[0], segments[len(segments) // 2]
        tried = 0
        for how in ("flipped", "flipped in its header", "truncated", "emptied", "missing", "swapped"):
            for path, other in ((full, segment), (segment, segments[0])):
                data = damage(r, how, path, other)
                name = str(path.relative_to(r.keeper.store(0)))
                found = r.keeper.run("verify", "--all", "-o", "json")
                assert found.code == DAMAGED, f"{how} {name}: {found}"
                assert [(b["name"], b["store"]) for b in found.json["bad"]] == [(name, "store0")], f"{how} {name}: {found}"
                if how in ("emptied", "missing", "truncated"):
                    assert r.keeper.run("verify").code == DAMAGED, "what is missing or short is seen without reading it"
                if how.startswith("flipped") or how in ("emptied", "swapped") or ALL:
                    folder, report = r.keeper.restore(last, f"damaged-{tried}", "--no-bump")
                    check_restored(r, load, last, folder)
                    alone = r.keeper.fails(DAMAGED, "restore", "--to", str(last), "--from", "store0", "--data-dir", str(r.folder / "alone"))
                    assert not (r.folder / "alone").exists() and name.rsplit("/", 1)[1] in alone.err, alone
                path.write_bytes(data)
                tried += 1
        r.keeper.ok("verify", "--all", "--deep")
        return f"{tried} damages found and named"


@scenario(kinds=("engram",))
def r66_a_wrong_bucket_is_told(kind):
    """Also one that becomes wrong: what the other store has stays a backup, and the exit status says that one point is missing."""
    s3 = None
    try:
        with rig(kind, segment=0) as r:
            s3 = Versitygw(r.folder / "s3").start()
            r.keeper.configure(stores=[*r.keeper.stores, s3.store()])
            r.client.put("/a", "1")
            r.keeper.ok("backup")
            r.keeper.ok("check")
            for wrong in ({"bucket": "no-such-bucket"}, {"credentials_file": str(r.folder / "wrong")}):
                (r.folder / "wrong").write_text("aws_access_key_id = tester\naws_secret_access_key = another\n")
                (r.folder / "wrong").chmod(0o600)
                r.keeper.configure(stores=[r.keeper.stores[0], s3.store(**wrong)])
                missed = r.keeper.fails(UNREACHABLE, "backup", "--timeout", "2s")
                assert "s3" in missed.err and "another" not in missed.err, missed
                checked = r.keeper.run("check")
                assert checked.code == UNREACHABLE and "FAILED" in checked.out, checked
                r.keeper.restore("latest", f"still-{len(str(wrong))}")
            r.keeper.configure(stores=[r.keeper.stores[0], s3.store()])
            r.keeper.ok("backup")
            r.keeper.ok("copy")
            r.keeper.ok("verify", "--all")
    finally:
        if s3 is not None:
            s3.stop()


@scenario(kinds=("engram",))
def prune_deletes_with_its_own_credentials(kind):
    s3 = None
    try:
        with rig(kind, segment=0, cluster_more="retention: {window: none, hourly: 1, daily: 1, weekly: 0, monthly: 0, keep_proven: 1}") as r:
            s3 = Versitygw(r.folder / "s3").start()
            wrong = r.folder / "wrong"
            wrong.write_text("aws_access_key_id = tester\naws_secret_access_key = another\n")
            wrong.chmod(0o600)
            r.keeper.configure(stores=[s3.store(prune_credentials_file=str(wrong))])
            for i in range(4):
                r.client.put("/a", str(i))
                r.keeper.ok("backup")
            would = r.keeper.json("prune")
            assert len(would) >= 2, would
            refused = r.keeper.run("prune", "--yes")
            assert refused.code != OK and "another" not in refused.err, "prune did not use the credentials that are meant for it"
            r.keeper.configure(stores=[s3.store(prune_credentials_file=str(s3.credentials))])
            r.keeper.ok("prune", "--yes")
            assert r.keeper.json("prune") == []
            left = {o["name"] for o in r.keeper.json("list")}
            assert left and not left & {w["name"] for w in would}, (left, would)
            folder, _ = r.keeper.restore("latest", "after")
            compare(r.client.state()[1], r.on(folder).client().state()[1], "after pruning")
    finally:
        if s3 is not None:
            s3.stop()


@scenario(kinds=("engram",))
def prune_waits_for_a_store_that_is_away(kind):
    with rig(kind, segment=0, stores=2, cluster_more="retention: {window: none, hourly: 1, daily: 1, weekly: 0, monthly: 0, keep_proven: 1}") as r:
        for i in range(4):
            r.client.put("/a", str(i))
            r.keeper.ok("backup")
        would = r.keeper.json("prune")
        block(r.keeper.store(1))
        before = r.keeper.objects()
        r.keeper.fails(UNSAFE, "prune", "--yes")
        assert r.keeper.objects() == before
        unblock(r.keeper.store(1))
        r.keeper.ok("prune", "--yes")
        for number in range(2):
            names = {str(p.relative_to(r.keeper.store(number))) for p in r.keeper.objects(number)}
            assert not names & {w["name"] for w in would}, names
        r.keeper.ok("verify", "--all")


RETENTION = "retention: {window: none, hourly: 1, daily: 1, weekly: 0, monthly: 0, keep_proven: 1, every: 1m}"


@scenario(quick=("engram", "etcd"))
def retention_runs_by_the_daemons_own_schedule(kind):
    with rig(kind, segment=0, stores=2, cluster_more=RETENTION) as r:
        for i in range(4):
            r.client.put("/a", str(i))
            r.keeper.ok("backup")
        before = r.keeper.json("status")[0]["retention"]
        assert before["every_seconds"] == 60 and "last" not in before, before
        would = {w["name"] for w in r.keeper.json("prune")}
        assert len(would) >= 2, would
        r.keeper.start()
        wait_for("retention to run", lambda: r.keeper.metric("retention_last_timestamp_seconds"))
        metrics = r.keeper.metrics()
        assert metrics["engram_keeper_pruned_objects_total"] >= len(would) and metrics["engram_keeper_retention_ok"] == 1, metrics
        for number in range(2):
            names = {str(p.relative_to(r.keeper.store(number))) for p in r.keeper.objects(number)}
            assert not names & would, names & would
        after = r.keeper.json("status")[0]["retention"]
        assert after["last"] < after["next"] and after["deleted_objects"] >= len(would) and not after["stopped"], after
        assert "ago, next in" in r.keeper.ok("status").out
        told = [e for e in r.keeper.json("audit") if e["command"] == "(retention of prod)"]
        assert [bool(e["outcome"]) for e in told] == [False, True] and "deleted" in told[1]["outcome"], told
        r.keeper.stop()
        r.keeper.ok("verify", "--all")
        folder, _ = r.keeper.restore("latest", "after")
        compare(r.client.state()[1], r.on(folder).client().state()[1], "after retention")
        # Without a word about retention nothing is deleted by itself.
        r.keeper.configure(cluster_more="")
        assert r.keeper.json("status")[0]["retention"]["every_seconds"] == 0
        return f"{len(would)} of {len(would) + len(r.keeper.objects(kind='fulls'))} fulls went"


@scenario(kinds=("engram",), long=True)
def retention_of_a_store_without_the_right_to_delete_is_told_once(kind):
    """The other store is pruned, fulls go on, and the copies go once there is a right."""
    s3 = None
    try:
        with rig(kind, segment=0, cluster_more=RETENTION) as r:
            s3 = Versitygw(r.folder / "s3").start()
            wrong = r.folder / "wrong"
            wrong.write_text("aws_access_key_id = tester\naws_secret_access_key = another\n")
            wrong.chmod(0o600)
            disk = r.keeper.stores[0]
            r.keeper.configure(stores=[disk, s3.store(prune_credentials_file=str(wrong))])
            for i in range(4):
                r.client.put("/a", str(i))
                r.keeper.ok("backup")
            would = {w["name"] for w in r.keeper.json("prune")}
            r.keeper.start()
            wait_for("retention to run", lambda: r.keeper.metric("retention_last_timestamp_seconds"))
            first = r.keeper.metric("retention_last_timestamp_seconds")
            wait_for("a second run", lambda: r.keeper.metric("retention_last_timestamp_seconds") > first, seconds=90)
            assert r.keeper.metric("retention_ok") == 0
            assert r.keeper.log().count("retention cannot delete all that may go") == 1, r.keeper.log()
            assert "another" not in r.keeper.log(), "a secret is in the log"
            stopped = r.keeper.json("status")[0]["retention"]["stopped"]
            assert "store s3" in stopped, stopped
            assert not {str(p.relative_to(r.keeper.store())) for p in r.keeper.objects()} & would
            r.client.put("/b", "1")
            assert r.keeper.json("backup")["proven"] is not None
            r.keeper.stop()
            r.keeper.ok("verify", "--all")
            # The right is there now: what had to stay goes.
            r.keeper.configure(stores=[disk, s3.store(prune_credentials_file=str(s3.credentials))])
            r.keeper.ok("prune", "--yes")
            left = [str(p.relative_to(s3.folder / "data/cp-backups/prod/own")) for p in (s3.folder / "data").rglob("*.age")]
            assert left and not set(left) & would, (left, would)
            r.keeper.ok("verify", "--all")
    finally:
        if s3 is not None:
            s3.stop()


class SmallDisk:
    """A file system of its own, of a few MiB. Skipped where none may be mounted."""

    def __init__(self, folder, mib):
        self.folder = folder
        folder.mkdir()
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=700", "tmpfs", str(folder)], capture_output=True, text=True)
        if made.returncode:
            raise Skipped(f"no tmpfs may be mounted: {made.stderr.strip()}")

    def fill(self):
        ballast = self.folder / "ballast"
        with open(ballast, "wb", buffering=0) as f:
            try:
                while f.write(b"x" * 4096):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
        return ballast

    def grow(self, mib):
        subprocess.run(["mount", "-o", f"remount,size={mib}m", str(self.folder)], check=True)

    def close(self):
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


def incompressible(r, megabytes):
    random = rng("bytes")
    for i in range(megabytes * 4):
        r.client.put(f"/big/{i}", random.randbytes(128 << 10).hex())


@scenario(quick=("engram",))
def a_state_directory_on_a_full_disk(kind):
    """A full that does not fit ends in one line and leaves nothing; the archive goes on where it stood once there is room."""
    with rig(kind) as r:
        disk = SmallDisk(r.folder / "disk", 3)
        try:
            r.keeper.configure(state_dir=disk.folder / "state")
            r.client.put("/a", "1")
            r.keeper.start()
            r.keeper.archived(r.client.put("/b", "2"))
            r.keeper.stop()
            fulls = r.keeper.objects(kind="fulls")
            incompressible(r, 2)
            refused = r.keeper.fails(UNREACHABLE, "backup")
            assert "no space left" in refused.err and len(refused.err.strip().splitlines()) == 1, refused
            assert r.keeper.objects(kind="fulls") == fulls
            left = [p for p in disk.folder.rglob("*") if p.is_file() and p.stat().st_size > 1 << 20]
            assert not left, left
            # Full to the last byte, under the archive as well.
            ballast = disk.fill()
            r.keeper.start(wait=False)
            last = r.client.put("/c", "3")
            wait_for("the daemon to say so", lambda: "no space left" in r.keeper.log() and r.keeper.metric("guarded") == 0)
            ballast.unlink()
            disk.grow(64)
            r.keeper.archived(last)
            wait_for("the cluster to be guarded", r.keeper.guards)
            r.keeper.ok("backup")
            r.keeper.stop()
            living = r.keeper.living()
            assert not living["holes"] and len(living["windows"]) == 1, living
            r.keeper.ok("verify", "--all", "--deep")
            folder, _ = r.keeper.restore("latest", "after")
            compare(r.client.state()[1], r.on(folder).client().state()[1], "after a full disk")
        finally:
            r.keeper.kill()
            disk.close()


@scenario(quick=("engram",))
def a_store_that_is_full_gets_its_copies_once_there_is_room(kind):
    with rig(kind, segment=0, stores=2) as r:
        disk = SmallDisk(r.folder / "disk", 1)
        try:
            r.keeper.configure(stores=[r.keeper.stores[0], {"name": "small", "type": "file", "path": str(disk.folder)}])
            incompressible(r, 2)
            refused = r.keeper.run("backup", "--timeout", "3s")
            assert refused.code == UNREACHABLE and "small" in refused.err and "no space left" in refused.err, refused
            full = r.keeper.json("list")[0]
            assert full["stores"] == ["store0"], full
            assert not [p for p in disk.folder.rglob("*.age") if ".incoming" not in p.parts], "half an object stands under its name"
            r.keeper.start()
            wait_for("the store to be called down", lambda: r.keeper.metric("store_up/small") == 0)
            assert r.keeper.metric("store_behind_objects/small") >= 1 and r.keeper.metric("store_up/store0") == 1
            disk.grow(64)
            wait_for("the copies", lambda: r.keeper.metric("store_behind_objects/small") == 0 and r.keeper.metric("spool_bytes") == 0, seconds=60)
            r.keeper.stop()
            assert all(sorted(o["stores"]) == ["small", "store0"] for o in r.keeper.json("list")), r.keeper.json("list")
            r.keeper.ok("verify", "--all", "--deep")
            folder, _ = r.keeper.restore("latest", "after", "--from", "small")
            compare(r.client.state()[1], r.on(folder).client().state()[1], "from the store that was full")
        finally:
            r.keeper.kill()
            disk.close()


class LateListings:
    """HTTP before an S3 server that shows in its listings only what was there when `freeze` was called, and everything once it was not."""

    def __init__(self, port):
        self.fresh, self.frozen, self.hidden = set(), False, 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                server = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in ("connection", "expect"):
                        server.putheader(name, value)
                server.endheaders(body)
                answer = server.getresponse()
                content = answer.read()
                key, query = self.path.partition("?")[::2]
                if self.command in ("PUT", "POST") and answer.status == 200 and outer.frozen:
                    outer.fresh.add(urllib.parse.unquote(key).split("/", 2)[-1])
                if self.command == "GET" and "list-type=2" in query and outer.frozen:
                    content = re.sub(rb"<Contents>.*?</Contents>", outer.shown, content, flags=re.S)
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                self.wfile.write(content)
                server.close()

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def shown(self, entry):
        key = re.search(rb"<Key>(.*?)</Key>", entry.group(0), re.S).group(1).decode()
        if key not in self.fresh:
            return entry.group(0)
        self.hidden += 1
        return b""

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@scenario(kinds=("engram",))
def a_store_that_lists_late_loses_nothing(kind):
    """Nothing that was put shows in a listing: what is known from the other store is restored, also out of this one, and nothing is stored twice."""
    s3 = late = None
    try:
        with rig(kind) as r:
            s3 = Versitygw(r.folder / "s3").start()
            late = LateListings(s3.port)
            r.keeper.configure(stores=[r.keeper.stores[0], s3.store(f"http://127.0.0.1:{late.port}")])
            r.keeper.ok("backup")
            late.frozen = True
            r.keeper.start()
            load = Load(r.member, "load", compactions=False).until(120).finish()
            last = last_change(r, load)
            r.keeper.kill()
            r.keeper.start()  # it finds out from a listing how far the log was shipped, and that listing is old
            again = r.client.put("/again", "y")
            load.records[again] = r.client.state()[1]
            r.keeper.archived(again)
            r.keeper.stop()
            r.keeper.run("list")
            assert late.hidden > 0, "the listings were not late"
            # Damage is not what this is called: the objects that the logs state are asked for by their names.
            assert r.keeper.run("verify", "--all", "--deep", "-o", "json").json["bad"] == []
            for revision in (last, again):
                folder, _ = r.keeper.restore(revision, f"meanwhile-{revision}", "--no-bump")
                check_restored(r, load, revision, folder)
            late.frozen = False
            verified = r.keeper.json("verify", "--all", "--deep")
            assert verified["ok"] and not verified["strangers"], verified
            folder, _ = r.keeper.restore(again, "from-s3", "--from", "s3", "--no-bump")
            check_restored(r, load, again, folder)
            return f"{late.hidden} entries were hidden"
    finally:
        if late is not None:
            late.close()
        if s3 is not None:
            s3.stop()
