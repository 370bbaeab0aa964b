"""Stores that are down, slow, read-only or lose things for a while."""
import os
import shutil
import socket
import subprocess
import threading

from rig import (ALL, DAMAGED, OK, UNREACHABLE, UNSAFE, Load, check_restored, compare, free_port, program, rig, rng, scenario, spawn, wait_for)


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
